//! `gpuprof merge`: the ranks of a job beside each other, and on one timeline.
//!
//! Comparing and writing are library code; here are the order of files, streams and exit codes.

use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::{Result, bail};
use gpuprof_export::tables::{Label, labels};
use gpuprof_export::{ExportError, TraceFile, ranks};
use profiler_core::ranks::json::RanksDocument;

use crate::{complain, progress, traces};

/// Exit code when a trace lacks something.
const INCOMPLETE: u8 = 1;
/// Exit code when a trace could not be read or the file not be written.
pub const FAILED: u8 = 2;

/// What to compare.
#[derive(Debug)]
pub struct Props {
    /// Traces and folders of traces.
    pub traces: Vec<PathBuf>,
    /// The file for all of them.
    pub output: Option<PathBuf>,
    /// JSON instead of text.
    pub json: bool,
}

/// Prints the comparison; gives the exit code.
///
/// # Errors
///
/// When the traces are not of one job, a trace cannot be read, or the output cannot be written.
pub fn run(props: &Props) -> Result<u8> {
    let mut traces: Vec<(TraceFile, Label)> = opened(&props.traces)?;
    traces.sort_by(|(_, a), (_, b)| a.cmp(b));
    let (compared, notes) = progress::shown(|progress| ranks::compare(&traces, progress))?;
    for note in &notes {
        complain(note);
    }
    let text = match props.json {
        true => serde_json::to_string(&RanksDocument::new(&compared))? + "\n",
        false => compared.text(),
    };
    io::stdout().write_all(text.as_bytes())?;
    if let Some(output) = &props.output {
        let outcome = progress::shown(|progress| ranks::merge(&traces, &compared, output, progress))?;
        complain(&format!("{}: {} records of {} ranks", output.display(), outcome.written, traces.len()));
    }
    Ok(if notes.is_empty() { 0 } else { INCOMPLETE })
}

/// The traces with their labels, which are ranks of one job.
fn opened(paths: &[PathBuf]) -> Result<Vec<(TraceFile, Label)>> {
    let files: Vec<TraceFile> =
        traces::expanded(paths)?.iter().map(|path| traces::open(path, None)).collect::<Result<_, ExportError>>()?;
    if let Some(trace) = files.iter().find(|trace| trace.session().rank().is_none()) {
        bail!(
            "{}: this trace knows no rank: RANK, or what Open MPI, PMI or Slurm set, was not in its environment",
            trace.path().display()
        );
    }
    let labels = labels(&files, Some("job"));
    if let Some((trace, _)) = files.iter().zip(&labels).find(|(_, label)| label.run != "job") {
        bail!("{}: another trace has its rank; name one trace for each rank", trace.path().display());
    }
    Ok(files.into_iter().zip(labels).collect())
}
