//! `gpuprof stats`: the tables of `nsys stats`.
//!
//! Counting and printing are library code (`gpuprof-export`); here are the order of reports, streams and exit codes.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use gpuprof_export::stats::{self, RangeFilter, Statistic, StatsOptions};
use gpuprof_export::{ExportError, Progress, TraceFile};

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
    /// The trace, and how to print.
    pub tables: Tables,
    /// The reports, in their order.
    pub reports: Vec<Statistic>,
}

/// Prints the reports and answers with the exit code.
///
/// # Errors
///
/// When the trace cannot be read or stdout cannot be written.
pub fn run(props: &Props) -> Result<u8> {
    props.tables.print(&props.reports, |trace, &report, options, output, progress| {
        stats::write(trace, report, options, output, progress)
    })
}

/// What all tables about one trace have in common.
#[derive(Debug)]
pub struct Tables {
    /// The trace.
    pub trace: PathBuf,
    /// The range of the program to which they are limited.
    pub range: Option<RangeFilter>,
    /// How to count and print.
    pub options: StatsOptions,
}

impl Tables {
    /// Prints one after the other. What is missing is told on stderr, each thing once, since every table meets the same
    /// damage.
    ///
    /// # Errors
    ///
    /// When the trace cannot be read or has no such range, or stdout cannot be written.
    pub fn print<T>(
        &self,
        tables: &[T],
        write: impl Fn(&TraceFile, &T, &StatsOptions, &mut dyn Write, &mut Progress<'_>) -> Result<Vec<String>, ExportError>,
    ) -> Result<u8> {
        let trace = TraceFile::open(&self.trace)?;
        let mut options = self.options;
        if let Some(range) = &self.range {
            let stretch = progress::shown(|progress| range.stretch(&trace, progress))?;
            options.filter = stretch.with_context(|| format!("{}: it has no such range", trace.path().display()))?;
        }
        let mut output = BufWriter::new(io::stdout().lock());
        let mut said: Vec<String> = Vec::new();
        for table in tables {
            match progress::shown(|progress| write(&trace, table, &options, &mut output, progress)) {
                Ok(notes) => {
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
}
