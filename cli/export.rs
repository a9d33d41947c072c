//! `gpuwhy export`: converts traces to the formats of other tools, or rewrites them in our own.
//!
//! Converting is library code (`gpuwhy-export`); this module handles file names, the progress bar and the
//! exit codes.

use std::fs::DirBuilder;
use std::io::{self, IsTerminal as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use gpuwhy_export::tables::labels;
use gpuwhy_export::{Destination, ExportError, ExportOutcome, Options, TargetFormat, TraceFile};
use gpuwhy_import::stem;

use crate::args::export::ExportArgs;
use crate::{inputs, interrupt, message, progress, sizes};

/// Exit code when a trace was written but is incomplete.
const INCOMPLETE: u8 = 1;
/// Exit code when a trace could not be read or written.
pub const FAILED: u8 = 2;

/// Writes every trace and returns the worst exit code. Traces that cannot be read or written are reported on
/// stderr, and the others are written. Fails when an output may not be written, such as a file that exists,
/// or when a signal interrupts the work.
pub fn run(args: &ExportArgs) -> Result<u8> {
    let traces = inputs::expanded(&args.traces)?;
    let Some(format) = args.to.map(TargetFormat::from) else {
        return Ok(if sizes::print(&traces, args.pid)? { 0 } else { INCOMPLETE });
    };
    let destinations = destinations(args, format, &traces)?;
    let is_named = destinations.iter().any(Destination::is_named);
    let (mut files, mut places, mut worst) = (Vec::new(), Vec::new(), 0);
    for (place, trace) in destinations.into_iter().enumerate().zip(&traces) {
        match opened(args, trace) {
            Ok((trace, notes)) => {
                worst = worst.max(print_notes(&trace, &notes));
                files.push(trace);
                places.push(place);
            }
            Err(error) => {
                message::say(&error.to_string());
                worst = FAILED;
            }
        }
    }
    let labels = labels(&files, args.run.as_deref());
    // Until here there is no file to remove. Output to a stream stays interruptible as usual.
    if is_named {
        interrupt::watch()?;
    }
    for ((trace, label), (number, to)) in files.iter().zip(labels).zip(places) {
        let options = Options {
            fallback_rank: u32::try_from(number).unwrap_or(u32::MAX),
            fallback_world_size: u32::try_from(traces.len()).unwrap_or(u32::MAX),
            label,
            step_range: args.step_range.clone(),
        };
        let name = to.path().display().to_string();
        match progress::shown(|progress| gpuwhy_export::export(trace, format, to, &options, progress)) {
            Ok(outcome) => {
                worst = worst.max(print_notes(trace, &outcome.notes));
                message::note(&format!("{name}: {}", described(format, &outcome)));
            }
            Err(error) if error.is_interrupted() || interrupt::exit_code().is_some() => return Err(error.into()),
            // The reader of the stream closed it and needs no more.
            Err(error) if error.is_broken_pipe() => return Ok(worst),
            Err(error) => {
                message::say(&error.to_string());
                worst = FAILED;
            }
        }
    }
    Ok(worst)
}

/// Opens the trace, or the selected part, with notes on missing data.
fn opened(args: &ExportArgs, path: &Path) -> Result<(TraceFile, Vec<String>)> {
    let whole = inputs::open(path, args.pid)?;
    let filter = match (args.filter_time, &args.filter_nvtx) {
        (Some(filter), _) => filter,
        (None, Some(range)) => progress::shown(|progress| range.interval(&whole, progress))?
            .with_context(|| format!("{}: it has no such range", path.display()))?,
        (None, None) => return Ok((whole, Vec::new())),
    };
    Ok(progress::shown(|progress| gpuwhy_export::slice(&whole, filter, progress))?)
}

/// Prints the notes on missing data and returns the matching exit code.
fn print_notes(trace: &TraceFile, notes: &[String]) -> u8 {
    for note in notes {
        message::say(&format!("{}: {note}", trace.path().display()));
    }
    if notes.is_empty() { 0 } else { INCOMPLETE }
}

fn described(format: TargetFormat, outcome: &ExportOutcome) -> String {
    let mut text = format!("{} records", outcome.written);
    let left_out: Vec<_> = outcome.left_out().map(|(kind, count)| format!("{count} {kind}")).collect();
    if !left_out.is_empty() {
        text.push_str(&format!("; this format has no place for {}", left_out.join(", ")));
    }
    let is_read_again = matches!(format, TargetFormat::Chrome | TargetFormat::Sqlite);
    if is_read_again && left_out.iter().any(|kind| kind.ends_with("host samples")) {
        text.push_str(
            ". Without host samples, a report of this file divides idle time otherwise than one of the trace",
        );
    }
    text
}

fn destinations(args: &ExportArgs, format: TargetFormat, traces: &[PathBuf]) -> Result<Vec<Destination>> {
    let shape = format.shape();
    let places = places(args, format, traces)?;
    let destinations = places.iter().map(|place| Destination::new(place, shape, args.force, traces));
    let destinations: Vec<Destination> = destinations.collect::<Result<_, ExportError>>()?;
    if matches!(format, TargetFormat::Perfetto | TargetFormat::Gpuwhy)
        && io::stdout().is_terminal()
        && destinations.iter().any(Destination::is_stdout)
    {
        bail!("standard output is a terminal, and this format is binary; name a file with -o");
    }
    Ok(destinations)
}

/// Output paths.
fn places(args: &ExportArgs, format: TargetFormat, traces: &[PathBuf]) -> Result<Vec<PathBuf>> {
    if format == TargetFormat::Parquet {
        let folder = args.output.clone().unwrap_or_else(|| "gpuwhy-parquet".into());
        return Ok(vec![folder; traces.len()]);
    }
    let folder = match (&args.output, traces) {
        (Some(output), [_]) if !is_folder(output) => return Ok(vec![output.clone()]),
        (Some(output), _) => {
            make_folder(output, traces.len())?;
            output.as_path()
        }
        (None, _) => Path::new(""),
    };
    let mut places: Vec<PathBuf> = Vec::new();
    for trace in traces {
        let place = folder.join(format!("{}.{}", stem(trace), format.extension()));
        if places.contains(&place) {
            bail!("{}: two of the traces would be written here; export them one by one", place.display());
        }
        places.push(place);
    }
    Ok(places)
}

/// True if the path names a folder, even one that does not exist.
fn is_folder(path: &Path) -> bool {
    path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/")
}

/// Creates the folder for the outputs of `count` traces if it is missing.
fn make_folder(path: &Path, count: usize) -> Result<()> {
    let named = path.display();
    if path.is_dir() {
        return Ok(());
    }
    if !is_folder(path) && (path == Path::new("-") || path.extension().is_some() || path.exists()) {
        bail!("{named}: this is one file, and {count} traces are to be written; name a folder, such as {named}/");
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("{named}: the parent folder does not exist; create it first")
        }
        made => made.with_context(|| format!("{named}: cannot make this folder")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn several_traces_go_into_a_folder_and_never_into_a_folder_with_the_name_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["two.json", "a/b/log", "file"] {
            fs::write(path("file"), "").unwrap();
            let error = make_folder(&path(name), 2).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
            assert!(!path(name).is_dir());
        }
        assert!(make_folder(Path::new("-"), 2).is_err());
        for name in ["log", "two.json/", "log"] {
            make_folder(&path(name), 2).unwrap();
            assert!(path(name).is_dir());
        }
    }
}
