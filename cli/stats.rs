//! `gpuwhy stats` and `gpuwhy analyze`: the tables of `nsys stats` and the rules of `nsys analyze`.
//!
//! Counting and printing are library code (`gpuwhy-export`); here are the order of reports, streams and exit codes.

use std::io::{self, BufWriter};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use gpuwhy_export::nsys::{Report, Reports};
use gpuwhy_export::stats::{Document, RangeFilter, StatsOptions, Subject, TimeFilter};
use gpuwhy_export::tables::labels;
use gpuwhy_export::{OpenError, TraceFile};

use crate::{inputs, message, progress};

/// What is printed when nothing is asked for: nsys's own choice, as far as a trace of gpuwhy has it.
pub const DEFAULT: &str = "cuda_api_sum,cuda_gpu_kern_sum,cuda_gpu_mem_time_sum,cuda_gpu_mem_size_sum";
/// Exit code when something is missing.
const INCOMPLETE: u8 = 1;
/// Exit code when the trace could not be read.
pub const FAILED: u8 = 2;

/// What to print about which traces: the reports of `nsys stats`, or the rules of `nsys analyze`.
#[derive(Debug)]
pub struct Props {
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
    /// The reports, in their order.
    pub reports: Vec<Report>,
}

/// Prints the reports and answers with the exit code. What is missing is told on stderr, each thing once.
///
/// # Errors
///
/// When a trace cannot be read or has no such range, or stdout cannot be written.
pub fn run(props: &Props) -> Result<u8> {
    let paths = inputs::expanded(&props.traces)?;
    let files: Vec<TraceFile> =
        paths.iter().map(|path| inputs::open(path, props.pid)).collect::<Result<_, OpenError>>()?;
    let mut subjects = Vec::new();
    for (trace, label) in files.iter().zip(labels(&files, None)) {
        let filter = match &props.range {
            Some(range) => progress::shown(|progress| range.stretch(trace, progress))?
                .with_context(|| format!("{}: it has no such range", trace.path().display()))?,
            None => props.filter,
        };
        subjects.push(Subject { trace, label, filter });
    }
    let loaded = progress::shown(|progress| Reports::load(subjects, &props.reports, progress))?;
    let names = props.reports.iter().map(Report::to_string);
    let mut output = Document::new(BufWriter::new(io::stdout().lock()), props.options.format, names);
    let mut said: Vec<String> = Vec::new();
    let mut say = |notes: &[String]| {
        for note in notes {
            if !said.contains(note) {
                message::say(note);
                said.push(note.clone());
            }
        }
    };
    say(&loaded.notes);
    for report in &props.reports {
        output.next_table()?;
        match loaded.write(report, &props.options, &mut output) {
            Ok(notes) => say(&notes),
            Err(error) if error.is_broken_pipe() => return Ok(0),
            Err(error) => return Err(error.into()),
        }
    }
    output.finish()?;
    Ok(if said.is_empty() { 0 } else { INCOMPLETE })
}
