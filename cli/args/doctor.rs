//! Options of `gpuwhy doctor` and of its child process that tests a libcupti.

use std::path::PathBuf;

use clap::Args;

pub(super) const DOCTOR_HELP: &str = "\
Each line says ok, warn (works with a limitation) or FAIL (does not work), and what to do.

EXIT CODES:
  0  programs can be profiled
  1  at least one line says FAIL, or --calibrate could not measure

EXAMPLES:
  gpuwhy doctor
  gpuwhy doctor --cupti-path /opt/cuda/extras/CUPTI/lib64/libcupti.so
  gpuwhy doctor --calibrate
  gpuwhy doctor --json | jq '.checks[] | select(.status != \"ok\")'";

#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Check this libcupti instead of searching for one
    #[arg(long = "cupti-path", value_name = "PATH")]
    pub cupti: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// Measure the overhead of tracing on this machine, and keep it for reports
    ///
    /// Uses the GPU for a few seconds: a small program of gpuwhy runs alternately with and without tracing. The
    /// result is kept for this GPU, driver, CUPTI and processor in gpuwhy/calibration.json in XDG_CACHE_HOME or
    /// ~/.cache. Traces recorded afterward contain it, and their reports show the step time without gpuwhy.
    #[arg(long)]
    pub calibrate: bool,
}

#[derive(Args, Debug)]
pub struct ProbeArgs {
    /// The libcupti to load
    pub libcupti: PathBuf,
}
