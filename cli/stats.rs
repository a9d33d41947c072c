//! `gpuwhy stats`: the tables of `nsys stats`.
//!
//! Counting and printing are library code (`gpuwhy-export`); here are the order of reports, streams and exit codes.

use std::fmt::Display;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use gpuwhy_export::stats::{self, Document, RangeFilter, Statistic, StatsOptions, Subject, TimeFilter};
use gpuwhy_export::tables::labels;
use gpuwhy_export::{ExportError, OpenError, Progress, TraceFile};

use crate::{inputs, message, progress};

/// What is printed when nothing is asked for: nsys's own choice, as far as a trace of gpuwhy has it.
pub const DEFAULT: &str = "cuda_api_sum,cuda_gpu_kern_sum,cuda_gpu_mem_time_sum,cuda_gpu_mem_size_sum";
/// Exit code when something is missing.
const INCOMPLETE: u8 = 1;
/// Exit code when the trace could not be read.
pub const FAILED: u8 = 2;

/// What to print about which traces.
#[derive(Debug)]
pub struct Props {
    /// The traces, and how to print.
    pub tables: Tables,
    /// The reports, in their order.
    pub reports: Vec<Statistic>,
}

/// Prints the reports and answers with the exit code.
///
/// # Errors
///
/// When a trace cannot be read or stdout cannot be written.
pub fn run(props: &Props) -> Result<u8> {
    props.tables.print(&props.reports, |subjects, &report, options, output, progress| {
        stats::write(subjects, report, options, output, progress)
    })
}

/// What all tables about traces have in common.
#[derive(Debug)]
pub struct Tables {
    /// The traces, and folders of traces.
    pub traces: Vec<PathBuf>,
    /// The process, of files that hold several.
    pub pid: Option<u32>,
    /// The stretch to which they are limited.
    pub filter: TimeFilter,
    /// The range of the program to which they are limited instead.
    pub range: Option<RangeFilter>,
    /// How to print.
    pub options: StatsOptions,
}

impl Tables {
    /// Prints one after the other. What is missing is told on stderr, each thing once, since every table meets the same
    /// damage.
    ///
    /// # Errors
    ///
    /// When a trace cannot be read or has no such range, or stdout cannot be written.
    pub fn print<T: Display>(
        &self,
        tables: &[T],
        write: impl Fn(
            &[Subject<'_>],
            &T,
            &StatsOptions,
            &mut dyn Write,
            &mut Progress<'_>,
        ) -> Result<Vec<String>, ExportError>,
    ) -> Result<u8> {
        let paths = inputs::expanded(&self.traces)?;
        let files: Vec<TraceFile> =
            paths.iter().map(|path| inputs::open(path, self.pid)).collect::<Result<_, OpenError>>()?;
        let mut subjects = Vec::new();
        for (trace, label) in files.iter().zip(labels(&files, None)) {
            let filter = match &self.range {
                Some(range) => progress::shown(|progress| range.stretch(trace, progress))?
                    .with_context(|| format!("{}: it has no such range", trace.path().display()))?,
                None => self.filter,
            };
            subjects.push(Subject { trace, label, filter });
        }
        let names = tables.iter().map(T::to_string);
        let mut output = Document::new(BufWriter::new(io::stdout().lock()), self.options.format, names);
        let mut said: Vec<String> = Vec::new();
        for table in tables {
            output.next_table()?;
            match progress::shown(|progress| write(&subjects, table, &self.options, &mut output, progress)) {
                Ok(notes) => {
                    for note in notes {
                        if !said.contains(&note) {
                            message::say(&note);
                            said.push(note);
                        }
                    }
                }
                Err(error) if error.is_broken_pipe() => return Ok(0),
                Err(error) => return Err(error.into()),
            }
        }
        output.finish()?;
        Ok(if said.is_empty() { 0 } else { INCOMPLETE })
    }
}
