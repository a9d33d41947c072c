//! Which process a trace is about, and where it stands in its job.

use crate::cost::{Calibration, PriceSource, Prices};
use crate::dictionary::Dictionary;
use crate::record::Timestamp;

/// The process that was traced. Written once, at the start of the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Process id.
    pub process_id: u32,
    /// Parent process id.
    pub parent_process_id: u32,
    /// The command line, argument by argument.
    pub command: Vec<String>,
    /// Host name.
    pub host: String,
    /// When tracing began, on the clock of the trace.
    pub start: Timestamp,
    /// The newest CUDA version that the driver supports, as `1000 * major + 10 * minor`; 0 when unknown.
    pub driver_cuda_version: u32,
    /// Kernel-mode driver version, for example `580.159.04`; empty when unknown.
    pub driver_version: String,
    /// What the tracing library answers for its version; 0 when unknown.
    pub cupti_version: u32,
    /// File of the tracing library.
    pub cupti_path: String,
    /// Version of gpuwhy that wrote the trace.
    pub gpuwhy_version: String,
    /// `RANK`, `LOCAL_RANK`, `WORLD_SIZE` and their like, as found in the environment: name and value.
    pub rank_variables: Vec<(String, String)>,
    /// What was switched on, what could not be, and why; shown in the report.
    pub notes: Vec<String>,
    /// What tracing adds on this machine, for each model of GPU with which that was measured.
    pub calibrations: Vec<Calibration>,
}

/// Rank and size by launcher: torchrun (and Ray Train), Open MPI, PMIx, PMI (MPICH, Intel MPI), Slurm and an indexed
/// job of Kubernetes, in the order of preference. The last two set their own also around the others.
const RANKS: &[(&str, &str)] = &[
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", ""),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("JOB_COMPLETION_INDEX", ""),
];
/// What names a run, alike on all of its ranks, in the order of preference: what the user chose, then launchers.
const RUNS: &[&str] = &["GPUWHY_RUN", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PMIX_NAMESPACE", "RAY_JOB_ID"];
/// Where nothing names the run: the place at which its ranks meet, part by part.
const MEETING: [&str; 2] = ["MASTER_ADDR", "MASTER_PORT"];
/// How often a launcher has started the run anew.
const ATTEMPTS: &[&str] = &["TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"];
/// What torchrun says where nobody named the run.
const UNNAMED: &str = "none";
/// Options of an interpreter whose value is the next word.
const WITH_VALUE: [&str; 2] = ["-W", "-X"];

impl ProcessInfo {
    /// What tracing added to the calls of this process and to the gaps of its devices, and where that is from. Unknown
    /// for files of other profilers, and while no device is described.
    pub fn prices(&self, dictionary: &Dictionary) -> (Prices, PriceSource) {
        if self.gpuwhy_version.is_empty() {
            return (Prices::default(), PriceSource::Unknown);
        }
        Prices::of(&self.calibrations, dictionary)
    }

    /// The rank of the process in its job, if its launcher said so.
    pub fn rank(&self) -> Option<u32> {
        self.launched().map(|(rank, _)| rank)
    }

    /// The processes of its job, if the launcher that named the rank said so.
    pub fn world_size(&self) -> Option<u32> {
        self.launched()?.1
    }

    /// Where the process stands in its job, such as `rank 3 of 8`, if its launcher said so.
    pub fn place(&self) -> Option<String> {
        let (rank, size) = self.launched()?;
        Some(size.map_or_else(|| format!("rank {rank}"), |size| format!("rank {rank} of {size}")))
    }

    /// The name of its run, alike on all ranks, if something said so: `GPUWHY_RUN`, the launcher's number of the job
    /// (`7.0`: with the step of Slurm), or the place at which the ranks meet.
    pub fn run(&self) -> Option<String> {
        let named = |name: &&str| self.variable(name).filter(|value| *value != UNNAMED);
        if let Some((name, run)) = RUNS.iter().find_map(|name| Some((name, named(name)?))) {
            let step = self.variable("SLURM_STEP_ID").filter(|_| *name == "SLURM_JOB_ID");
            return Some(step.map_or_else(|| run.to_owned(), |step| format!("{run}.{step}")));
        }
        let parts: Option<Vec<_>> = MEETING.iter().map(|name| self.variable(name)).collect();
        parts.map(|parts| parts.join(":"))
    }

    /// How often the launcher has started the run anew, if it said so.
    pub fn attempt(&self) -> Option<u64> {
        ATTEMPTS.iter().find_map(|name| self.variable(name)?.parse().ok())
    }

    /// The program without its folder and arguments, which may hold secrets: the script or module that an interpreter
    /// of Python runs, else the command. Empty when the command line was not kept.
    pub fn program(&self) -> &str {
        fn base(word: &str) -> &str {
            word.rsplit('/').next().unwrap_or(word)
        }
        let mut words = self.command.iter();
        let Some(command) = words.next() else { return "" };
        let name = base(command);
        if !name.starts_with("python") {
            return name;
        }
        while let Some(word) = words.next() {
            match word.as_str() {
                "-m" => return words.next().map_or(name, String::as_str),
                "-c" | "-" => return name,
                option if WITH_VALUE.contains(&option) => {
                    words.next();
                }
                option if option.starts_with('-') => {}
                _ => return base(word),
            }
        }
        name
    }

    /// A variable of a launcher that is not empty.
    fn variable(&self, name: &str) -> Option<&str> {
        let (_, value) = self.rank_variables.iter().find(|(known, _)| known == name)?;
        Some(value.trim()).filter(|value| !value.is_empty())
    }

    fn launched(&self) -> Option<(u32, Option<u32>)> {
        let value = |name: &str| -> Option<u32> { self.variable(name)?.parse().ok() };
        RANKS.iter().find_map(|&(rank, size)| Some((value(rank)?, value(size))))
    }
}

/// How a trace ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum End {
    /// No end was written: the process was killed, crashed or left by `_exit`.
    #[default]
    Abrupt,
    /// The exit handler ran and everything was delivered.
    Clean,
    /// The exit handler ran, but its bounded wait ended first.
    TimedOut,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_launcher_says_the_rank() {
        let with = |pairs: &[(&str, &str)]| {
            let rank_variables = pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
            ProcessInfo { rank_variables, ..ProcessInfo::default() }.place()
        };
        assert_eq!(with(&[("SLURM_PROCID", "0"), ("WORLD_SIZE", "8"), ("RANK", "3")]).unwrap(), "rank 3 of 8");
        assert_eq!(with(&[("SLURM_PROCID", "5")]).unwrap(), "rank 5");
        assert_eq!(with(&[("RANK", "x"), ("PMI_RANK", "2")]).unwrap(), "rank 2");
        assert_eq!(with(&[("LOCAL_RANK", "1")]), None);
        assert_eq!(
            with(&[("JOB_COMPLETION_INDEX", "4"), ("RANK", "33"), ("WORLD_SIZE", "64")]).unwrap(),
            "rank 33 of 64"
        );
    }

    #[test]
    fn a_run_is_named_alike_on_all_ranks() {
        let with = |pairs: &[(&str, &str)]| {
            let rank_variables = pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
            let process = ProcessInfo { rank_variables, ..ProcessInfo::default() };
            (process.run().unwrap_or_default(), process.attempt())
        };
        let torch = [("TORCHELASTIC_RUN_ID", "none"), ("MASTER_ADDR", "node1"), ("MASTER_PORT", "29500")];
        assert_eq!(with(&torch), ("node1:29500".to_owned(), None));
        let slurm = [("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "0"), ("SLURM_RESTART_COUNT", "2"), torch[0]];
        assert_eq!(with(&slurm), ("7.0".to_owned(), Some(2)));
        let chosen = [slurm[0], ("GPUWHY_RUN", "gpt"), ("TORCHELASTIC_RESTART_COUNT", "1"), slurm[2]];
        assert_eq!(with(&chosen), ("gpt".to_owned(), Some(1)));
        assert_eq!(with(&[("MASTER_ADDR", "node1"), ("SLURM_JOB_ID", " ")]), (String::new(), None));
    }

    #[test]
    fn a_program_is_told_without_folder_and_arguments() {
        for (command, program) in [
            ("/opt/app/simulate --token=x", "simulate"),
            ("/usr/bin/python3.11 -u -W ignore /home/u/train.py --key x", "train.py"),
            ("python -m torch.distributed.run x", "torch.distributed.run"),
            ("python -c secret", "python"),
            ("python", "python"),
            ("", ""),
        ] {
            let command = command.split_whitespace().map(str::to_owned).collect();
            assert_eq!(ProcessInfo { command, ..ProcessInfo::default() }.program(), program);
        }
    }
}
