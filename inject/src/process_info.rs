//! Description of the process in the trace.

use std::{env, fs, process};

use cupti_sys::Cupti;
use gpuwhy_trace::process_info::ProcessInfo;
use gpuwhy_trace::record::Timestamp;

use crate::config::RUN;
use crate::{calibration, command_line};

/// Variables in which launchers pass a process its rank in the job.
const RANK_VARIABLES: &[&str] = &[
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "TORCHELASTIC_RUN_ID",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_NTASKS",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_LOCAL_RANK",
    "PMIX_RANK",
    "PMIX_NAMESPACE",
    "RAY_JOB_ID",
    "JOB_COMPLETION_INDEX",
    "POD_NAME",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RESTART_COUNT",
    "SLURM_RESTART_COUNT",
];

/// Variables of CUDA that explain waits.
const CUDA_VARIABLES: &[&str] = &["CUDA_DEVICE_MAX_CONNECTIONS"];

/// Describes this process; without `cupti`, of one that cannot be measured.
pub fn describe(cupti: Option<&Cupti>, start: Timestamp, run: Option<&str>, notes: Vec<String>) -> ProcessInfo {
    let driver_version = cupti_sys::kernel_driver_version().unwrap_or_default();
    let cupti_version = cupti.and_then(|cupti| cupti.version().ok()).unwrap_or(0);
    let calibrations = calibration::of_this_machine(&driver_version, cupti_version);
    ProcessInfo {
        process_id: process::id(),
        parent_process_id: std::os::unix::process::parent_id(),
        command: command_line::words().to_vec(),
        host: host_name(),
        start,
        driver_cuda_version: cupti_sys::driver_cuda_version().unwrap_or(0),
        driver_version,
        cupti_version,
        cupti_path: cupti.map(|cupti| cupti.path().display().to_string()).unwrap_or_default(),
        gpuwhy_version: env!("CARGO_PKG_VERSION").to_owned(),
        rank_variables: RANK_VARIABLES
            .iter()
            .chain(CUDA_VARIABLES)
            .filter_map(|&name| Some((name.to_owned(), env::var(name).ok()?)))
            .chain(run.map(|run| (RUN.to_owned(), run.to_owned())))
            .collect(),
        notes,
        calibrations,
    }
}

/// Name of the host, or `localhost` if the kernel does not provide it.
pub fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "localhost".to_owned(), |name| name.trim().to_owned())
}
