//! Options of `gpuwhy kernels`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum, value_parser};
use gpuwhy_inject::config::{self, WantedMetrics};
use gpuwhy_report::kernels::sets;

use super::values::value_of;

pub(super) const KERNELS_HELP: &str = "\
With a COMMAND, gpuwhy runs it and measures the kernels most worth optimizing with the GPU's hardware counters while it
runs: those that take the most time and are farthest from what the GPU can do. Every launch of a kernel measures a part of the
metrics; nothing is run twice, and no memory is saved. A launch that is measured waits some 20 ms, so the steps with such
launches are slow and are left out of the report. Kernels that communicate with other GPUs (NCCL, NVSHMEM), cooperative
ones, those that run for a second or longer, and nodes of CUDA graphs are never measured.

--metrics and --section measure other metrics, with the names of ncu. Metrics of several passes take as many launches,
which must do the same work. A kernel is not replayed, so metrics with sass in their name are refused.

The traces are deleted when the command ends, unless --output keeps them.

At which source line a kernel waits is shown by Nsight Compute:
  ncu --set full --import-source yes -k regex:NAME -c 1 -o lines COMMAND

With a TRACE, gpuwhy shows the kernels that were measured in that run, or what its records show without counters.

EXIT CODES:
  with a COMMAND those of the command, except
  1    the command made no trace: it did not use CUDA
  2    an option is not understood
  125  gpuwhy failed before the command started
  126  the command was found but could not be executed
  127  the command was not found
  with a TRACE
  0    every trace was read
  1    every trace was read, but at least one is damaged or lacks a chosen metric; stderr says which
  2    at least one trace could not be read

EXAMPLES:
  gpuwhy kernels -- python train.py
  gpuwhy kernels --kernel 'flash|softmax' -- python train.py
  gpuwhy kernels --metrics dram__bytes_read.sum -- python train.py
  gpuwhy kernels --section SpeedOfLight -- python train.py
  gpuwhy kernels --query-metrics '^dram__bytes'
  gpuwhy kernels --output traces -- python train.py
  gpuwhy kernels traces/4711.gpuwhy
  gpuwhy kernels --csv --page raw traces/4711.gpuwhy
  gpuwhy kernels --svg roofline.svg traces/4711.gpuwhy";

#[derive(Args, Debug)]
pub struct KernelsArgs {
    /// Traces of gpuwhy, or folders
    #[arg(value_name = "TRACE", conflicts_with = "command", required_unless_present_any = ["command", "query_metrics"])]
    pub files: Vec<PathBuf>,
    /// Measure this many kernels
    #[arg(long, value_name = "N", default_value = "5", requires = "command", value_parser = value_parser!(u8).range(1..=64))]
    pub top: u8,
    /// Measure only kernels whose name matches
    #[arg(long, value_name = "REGEX", requires = "command", value_parser = pattern)]
    pub kernel: Option<String>,
    /// Measure or show these metrics: names, or regex:REGEX
    #[arg(long, value_name = "NAME,...", value_parser = value_of(config::KERNEL_METRICS))]
    pub metrics: Option<String>,
    /// Measure or show a section: of ncu, such as SpeedOfLight, or core
    #[arg(long, value_name = "NAME", value_parser = section)]
    pub section: Vec<String>,
    /// List the metrics of the GPU whose names match, or those chosen
    #[arg(long, value_name = "REGEX", conflicts_with_all = ["command", "files"], value_parser = expression)]
    pub query_metrics: Option<Option<String>>,
    /// The chip for --query-metrics in place of that of the GPU
    #[arg(long, value_name = "NAME", requires = "query_metrics", conflicts_with_all = ["command", "files"])]
    pub chip: Option<String>,
    /// Keep the traces in this folder, a file per CUDA process
    #[arg(short, long, value_name = "FOLDER", requires = "command")]
    pub output: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print a table as `ncu --csv` does
    #[arg(long)]
    pub csv: bool,
    /// Choose the table of --csv
    #[arg(long, value_name = "PAGE", default_value = "details", requires = "csv")]
    pub page: CsvTable,
    /// Write the roofline of the first trace to this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// The table of `--csv`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum CsvTable {
    /// A row for each metric of each kernel
    Details,
    /// A row for each kernel, a column for each metric
    Raw,
}

/// Validates the name of a section.
fn section(text: &str) -> Result<String, String> {
    match config::expected(config::KERNEL_METRICS, &format!("section:{text}")) {
        None => Ok(text.to_owned()),
        Some(_) => {
            let names = sets::sections().iter().map(|section| section.name);
            let (own, of_ncu): (Vec<_>, Vec<_>) = names.partition(|name| sets::MEASURED.contains(name));
            Err(format!("expected a section of ncu: {}; or of gpuwhy: {}", of_ncu.join(", "), own.join(", ")))
        }
    }
}

/// Validates a regular expression for metrics.
fn expression(text: &str) -> Result<String, String> {
    match WantedMetrics::matching(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("expected a regular expression such as ^dram__bytes".to_owned()),
    }
}

/// Validates a regular expression in the same way as libprof.so.
fn pattern(text: &str) -> Result<String, String> {
    match config::expected(config::KERNELS, &format!("1:{text}")) {
        None => Ok(text.to_owned()),
        Some(_) => Err("expected a regular expression such as gemm|softmax".to_owned()),
    }
}
