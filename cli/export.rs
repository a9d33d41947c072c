//! `gpuprof export`: writes traces in the formats of other tools.
//!
//! Converting is library code (`gpuprof-export`); here are the names of files, the progress bar and the exit codes.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use gpuprof_export::{ExportError, Format, Options, Outcome, TraceFile};

use crate::{complain, progress};

/// Exit code when a trace was written but lacks something.
const INCOMPLETE: u8 = 1;
/// Exit code when a trace could not be read or written.
pub const FAILED: u8 = 2;

/// Which traces to write and how.
#[derive(Debug)]
pub struct Props {
    /// The traces.
    pub traces: Vec<PathBuf>,
    /// What they become.
    pub format: Format,
    /// A file, or a folder for several; named after the traces when `None`.
    pub output: Option<PathBuf>,
    /// The name of the ranges that are steps.
    pub step_range: Option<String>,
}

/// Writes every trace and answers with the exit code: that of the worst.
///
/// # Errors
///
/// When the outputs would overwrite each other or their folder cannot be made. Traces that cannot be read or written
/// are told on stderr, and the others are written.
pub fn run(props: &Props) -> Result<u8> {
    let outputs = outputs(props)?;
    let mut worst = 0;
    for (number, (trace, output)) in props.traces.iter().zip(&outputs).enumerate() {
        let options = Options {
            fallback_rank: u32::try_from(number).unwrap_or(u32::MAX),
            fallback_world: u32::try_from(props.traces.len()).unwrap_or(u32::MAX),
            step_range: props.step_range.clone(),
        };
        match export(trace, props.format, output, &options) {
            Ok(outcome) => {
                for note in &outcome.notes {
                    complain(&format!("{}: {note}", trace.display()));
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

fn export(trace: &Path, format: Format, output: &Path, options: &Options) -> Result<Outcome, ExportError> {
    let trace = TraceFile::open(trace)?;
    progress::shown(|progress| gpuprof_export::export(&trace, format, output, options, progress))
}

fn described(outcome: &Outcome) -> String {
    match outcome.without_place {
        0 => format!("{} records", outcome.written),
        none => format!("{} records; {none} of kinds that this format has no place for", outcome.written),
    }
}

/// Where each trace goes.
fn outputs(props: &Props) -> Result<Vec<PathBuf>> {
    let folder = match (&props.output, props.traces.as_slice()) {
        (Some(output), [_]) if !output.is_dir() => return Ok(vec![output.clone()]),
        (Some(output), _) => {
            fs::create_dir_all(output).with_context(|| format!("{}: cannot make this folder", output.display()))?;
            output.as_path()
        }
        (None, _) => Path::new(""),
    };
    let mut outputs: Vec<PathBuf> = Vec::new();
    for trace in &props.traces {
        let mut name = stem(trace).to_owned();
        name.push(".");
        name.push(props.format.extension());
        let output = folder.join(name);
        if outputs.contains(&output) {
            bail!("{}: two of the traces would be written here; export them one by one", output.display());
        }
        outputs.push(output);
    }
    Ok(outputs)
}

/// The name of a trace without its ending.
fn stem(trace: &Path) -> &OsStr {
    let name = match trace.extension() {
        Some(packed) if packed == "gz" => trace.file_stem().map(Path::new).unwrap_or(trace),
        _ => trace,
    };
    name.file_stem().unwrap_or(OsStr::new("trace"))
}
