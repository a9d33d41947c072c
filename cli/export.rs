//! `gpuprof export`: writes traces in the formats of other tools.
//!
//! Converting is library code (`gpuprof-export`); here are the names of files, the progress bar and the exit codes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Error, Result, bail};
use gpuprof_export::stats::{RangeFilter, TimeFilter};
use gpuprof_export::tables::labels;
use gpuprof_export::{Format, Options, Outcome, TraceFile, stem};

use crate::{complain, progress, traces};

/// Exit code when a trace was written but lacks something.
const INCOMPLETE: u8 = 1;
/// Exit code when a trace could not be read or written.
pub const FAILED: u8 = 2;

/// The part of a trace that is written.
#[derive(Debug)]
pub enum Stretch {
    /// Of time.
    Time(TimeFilter),
    /// A range of the program.
    Range(RangeFilter),
}

impl Stretch {
    /// That part of `trace`, and what it lacks: sentences for the user.
    fn of(&self, trace: &TraceFile) -> Result<(TraceFile, Vec<String>)> {
        let filter = match self {
            Self::Time(filter) => *filter,
            Self::Range(range) => progress::shown(|progress| range.stretch(trace, progress))?
                .with_context(|| format!("{}: it has no such range", trace.path().display()))?,
        };
        Ok(progress::shown(|progress| gpuprof_export::cut(trace, filter, progress))?)
    }
}

/// Which traces to write and how.
#[derive(Debug)]
pub struct Props {
    /// The traces, and folders of traces.
    pub traces: Vec<PathBuf>,
    /// What they become.
    pub format: Format,
    /// A file, or a folder for several; named after the traces when `None`.
    pub output: Option<PathBuf>,
    /// The name of the ranges that are steps.
    pub step_range: Option<String>,
    /// The part of each trace.
    pub stretch: Option<Stretch>,
    /// The process, of files that hold several.
    pub pid: Option<u32>,
    /// The run that all traces belong to.
    pub run: Option<String>,
}

/// Writes every trace and answers with the exit code: that of the worst.
///
/// # Errors
///
/// When the outputs would overwrite each other or their folder cannot be made. Traces that cannot be read or written
/// are told on stderr, and the others are written.
pub fn run(props: &Props) -> Result<u8> {
    let traces = traces::expanded(&props.traces)?;
    let outputs = outputs(props, &traces)?;
    let mut opened: Vec<(usize, TraceFile)> = Vec::new();
    let mut worst = 0;
    for (number, trace) in traces.iter().enumerate() {
        let trace = traces::open(trace, props.pid).map_err(Error::from).and_then(|whole| match &props.stretch {
            Some(stretch) => stretch.of(&whole),
            None => Ok((whole, Vec::new())),
        });
        match trace {
            Ok((trace, notes)) => {
                for note in &notes {
                    complain(&format!("{}: {note}", trace.path().display()));
                    worst = worst.max(INCOMPLETE);
                }
                opened.push((number, trace));
            }
            Err(error) => {
                complain(&error.to_string());
                worst = FAILED;
            }
        }
    }
    let (numbers, files): (Vec<usize>, Vec<TraceFile>) = opened.into_iter().unzip();
    let labels = labels(&files, props.run.as_deref());
    for ((number, trace), label) in numbers.into_iter().zip(&files).zip(labels) {
        let options = Options {
            fallback_rank: u32::try_from(number).unwrap_or(u32::MAX),
            fallback_world: u32::try_from(traces.len()).unwrap_or(u32::MAX),
            label,
            step_range: props.step_range.clone(),
        };
        let output = &outputs[number];
        match progress::shown(|progress| gpuprof_export::export(trace, props.format, output, &options, progress)) {
            Ok(outcome) => {
                for note in &outcome.notes {
                    complain(&format!("{}: {note}", trace.path().display()));
                    worst = worst.max(INCOMPLETE);
                }
                complain(&format!("{}: {}", output.display(), described(&outcome)));
            }
            Err(error) => {
                complain(&error.to_string());
                worst = FAILED;
            }
        }
    }
    Ok(worst)
}

fn described(outcome: &Outcome) -> String {
    match outcome.without_place {
        0 => format!("{} records", outcome.written),
        none => format!("{} records; {none} of kinds that this format has no place for", outcome.written),
    }
}

/// Where each trace goes.
fn outputs(props: &Props, traces: &[PathBuf]) -> Result<Vec<PathBuf>> {
    if props.format == Format::Parquet {
        let folder = props.output.clone().unwrap_or_else(|| "gpuprof-parquet".into());
        return Ok(vec![folder; traces.len()]);
    }
    let folder = match (&props.output, traces) {
        (Some(output), [_]) if !output.is_dir() => return Ok(vec![output.clone()]),
        (Some(output), _) => {
            fs::create_dir_all(output).with_context(|| format!("{}: cannot make this folder", output.display()))?;
            output.as_path()
        }
        (None, _) => Path::new(""),
    };
    let mut outputs: Vec<PathBuf> = Vec::new();
    for trace in traces {
        let output = folder.join(format!("{}.{}", stem(trace), props.format.extension()));
        if outputs.contains(&output) {
            bail!("{}: two of the traces would be written here; export them one by one", output.display());
        }
        outputs.push(output);
    }
    Ok(outputs)
}
