//! `gpuprof stats`: the tables of `nsys stats`.
//!
//! Counting and printing are library code (`gpuprof-export`); here are the order of reports, streams and exit codes.

use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;

use anyhow::Result;
use gpuprof_export::TraceFile;
use gpuprof_export::stats::{self, Statistic, StatsOptions};

use crate::{complain, progress};

/// What is printed when nothing is asked for: nsys's own choice, as far as a trace of gpuprof has it.
pub const DEFAULT: &str = "cuda_api_sum,cuda_gpu_kern_sum,cuda_gpu_mem_time_sum,cuda_gpu_mem_size_sum";
/// Exit code when something is missing.
const INCOMPLETE: u8 = 1;
/// Exit code when the trace could not be read.
pub const FAILED: u8 = 2;

/// What to print about which trace.
#[derive(Debug)]
pub struct Props {
    /// The trace.
    pub trace: PathBuf,
    /// The reports, in their order.
    pub reports: Vec<Statistic>,
    /// How to count and print.
    pub options: StatsOptions,
}

/// Prints the reports and answers with the exit code.
///
/// # Errors
///
/// When the trace cannot be read or stdout cannot be written.
pub fn run(props: &Props) -> Result<u8> {
    let trace = TraceFile::open(&props.trace)?;
    let mut output = BufWriter::new(io::stdout().lock());
    let mut said: Vec<String> = Vec::new();
    for &report in &props.reports {
        let notes = progress::shown(|progress| stats::write(&trace, report, &props.options, &mut output, progress));
        match notes {
            Ok(notes) => {
                // Every report meets the same damage; it is told once.
                for note in notes {
                    if !said.contains(&note) {
                        complain(&note);
                        said.push(note);
                    }
                }
            }
            Err(error) if error.is_broken_pipe() => return Ok(0),
            Err(error) => return Err(error.into()),
        }
    }
    output.flush()?;
    Ok(if said.is_empty() { 0 } else { INCOMPLETE })
}
