//! The traced process and its place in a distributed job.

use crate::cost::{Calibration, PriceSource, Prices};
use crate::dictionary::Dictionary;
use crate::record::Timestamp;

/// The traced process. Written once, at the start of the trace.
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
    /// Start of tracing, on the clock of the trace.
    pub start: Timestamp,
    /// Newest CUDA version supported by the driver, as `1000 * major + 10 * minor`; 0 if unknown.
    pub driver_cuda_version: u32,
    /// Version of the kernel-mode driver, for example `580.159.04`; empty if unknown.
    pub driver_version: String,
    /// Version number of the tracing library; 0 if unknown.
    pub cupti_version: u32,
    /// File of the tracing library.
    pub cupti_path: String,
    /// Version of gpuwhy that wrote the trace.
    pub gpuwhy_version: String,
    /// `RANK`, `LOCAL_RANK`, `WORLD_SIZE` and similar environment variables, and those of CUDA that explain waits: name
    /// and value.
    pub rank_variables: Vec<(String, String)>,
    /// Enabled features, unavailable features and the reasons; shown in the report.
    pub notes: Vec<String>,
    /// Overhead of tracing on this machine, for each model of GPU with a calibration.
    pub calibrations: Vec<Calibration>,
}

/// Environment variables of rank and size by launcher: torchrun (and Ray Train), Open MPI, PMIx, PMI (MPICH,
/// Intel MPI), Slurm and an indexed Kubernetes job, in order of preference. The last two also set theirs when
/// another launcher is used inside them.
const RANKS: &[(&str, &str)] = &[
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", ""),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("JOB_COMPLETION_INDEX", ""),
];
/// Environment variables that identify a run, equal on all of its ranks, in order of preference: the user's
/// choice, then launchers.
const RUNS: &[&str] = &["GPUWHY_RUN", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PMIX_NAMESPACE", "RAY_JOB_ID"];
/// Used if no variable identifies the run: the rendezvous address of its ranks, part by part.
const MEETING: [&str; 2] = ["MASTER_ADDR", "MASTER_PORT"];
/// Number of times a launcher has restarted the run.
const ATTEMPTS: &[&str] = &["TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"];
/// torchrun's value if the run has no name.
const UNNAMED: &str = "none";
/// Interpreter options whose value is the next argument.
const WITH_VALUE: [&str; 2] = ["-W", "-X"];

/// Start of the note in a trace of a session that could not measure; the rest is the reason.
pub const NOT_MEASURED: &str = "nothing was measured: ";

impl ProcessInfo {
    /// Why nothing was measured; `None` if it was.
    #[must_use]
    pub fn not_measured(&self) -> Option<&str> {
        self.notes.iter().find_map(|note| note.strip_prefix(NOT_MEASURED))
    }

    /// Overheads of tracing for the calls of this process and the gaps of its devices, and their source.
    /// Unknown for files of other profilers, and while no device is described.
    pub fn prices(&self, dictionary: &Dictionary) -> (Prices, PriceSource) {
        if self.gpuwhy_version.is_empty() {
            return (Prices::default(), PriceSource::Unknown);
        }
        Prices::of(&self.calibrations, dictionary)
    }

    /// Rank of the process in its job, if the launcher set it.
    pub fn rank(&self) -> Option<u32> {
        self.launched().map(|(rank, _)| rank)
    }

    /// Number of processes in the job, if the launcher that set the rank also set it.
    pub fn world_size(&self) -> Option<u32> {
        self.launched()?.1
    }

    /// Description of the rank, such as `rank 3 of 8`, if the launcher set it.
    pub fn place(&self) -> Option<String> {
        let (rank, size) = self.launched()?;
        Some(size.map_or_else(|| format!("rank {rank}"), |size| format!("rank {rank} of {size}")))
    }

    /// Name of the run, equal on all ranks: `GPUWHY_RUN`, the launcher's job number (with Slurm including the
    /// step, as in `7.0`), or the rendezvous address of the ranks. `None` if none of them is set.
    pub fn run(&self) -> Option<String> {
        let meeting = || Some(MEETING.iter().map(|name| self.variable(name)).collect::<Option<Vec<_>>>()?.join(":"));
        self.named_run().or_else(meeting)
    }

    /// Name of the run, unless only the rendezvous address of its ranks is known, which later runs have too.
    pub fn named_run(&self) -> Option<String> {
        let named = |name: &&str| self.variable(name).filter(|value| *value != UNNAMED);
        let (name, run) = RUNS.iter().find_map(|name| Some((name, named(name)?)))?;
        let step = self.variable("SLURM_STEP_ID").filter(|_| *name == "SLURM_JOB_ID");
        Some(step.map_or_else(|| run.to_owned(), |step| format!("{run}.{step}")))
    }

    /// Number of times the launcher has restarted the run, if known.
    pub fn attempt(&self) -> Option<u64> {
        ATTEMPTS.iter().find_map(|name| self.variable(name)?.parse().ok())
    }

    /// The program without its folder and arguments, which may contain secrets: the script or module run by a
    /// Python interpreter, else the command. Empty if the command line was not stored.
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

    /// Value of a recorded variable, unless it is empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
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
    fn a_program_is_reported_without_folder_and_arguments() {
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
