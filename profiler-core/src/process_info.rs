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

/// Rank and size by launcher: torchrun, Open MPI, PMI (MPICH, Intel MPI) and Slurm, in the order of preference. Slurm
/// comes last, because it sets its own also around the others.
const RANKS: &[(&str, &str)] = &[
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
];

impl ProcessInfo {
    /// What tracing added to the calls of this process and to the gaps of its devices, and where that is from. Unknown
    /// for files of other profilers, and while no device is described.
    #[must_use]
    pub fn prices(&self, dictionary: &Dictionary) -> (Prices, PriceSource) {
        if self.gpuwhy_version.is_empty() {
            return (Prices::default(), PriceSource::Unknown);
        }
        Prices::of(&self.calibrations, dictionary)
    }

    /// The rank of the process in its job, if its launcher said so.
    #[must_use]
    pub fn rank(&self) -> Option<u32> {
        self.launched().map(|(rank, _)| rank)
    }

    /// The processes of its job, if the launcher that named the rank said so.
    #[must_use]
    pub fn world_size(&self) -> Option<u32> {
        self.launched()?.1
    }

    /// Where the process stands in its job, such as `rank 3 of 8`, if its launcher said so.
    #[must_use]
    pub fn place(&self) -> Option<String> {
        let (rank, size) = self.launched()?;
        Some(size.map_or_else(|| format!("rank {rank}"), |size| format!("rank {rank} of {size}")))
    }

    fn launched(&self) -> Option<(u32, Option<u32>)> {
        let value = |name: &str| -> Option<u32> {
            let (_, value) = self.rank_variables.iter().find(|(known, _)| known == name)?;
            value.trim().parse().ok()
        };
        RANKS.iter().find_map(|&(rank, size)| Some((value(rank)?, value(size))))
    }
}

/// How a trace ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    }
}
