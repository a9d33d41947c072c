//! `gpuwhy merge`: the ranks of a job, side by side and on one timeline.
//!
//! Comparing and writing are library code; this module sets the order of files, streams and exit codes.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;

use anyhow::{Result, bail};
use gpuwhy_export::tables::{Label, labels};
use gpuwhy_export::{Destination, TargetFormat, TraceFile, ranks};

use crate::args::merge::MergeArgs;
use crate::{inputs, interrupt, message, page, progress, terminal};

/// Exit code when a trace is incomplete.
const INCOMPLETE: u8 = 1;
/// Exit code when a trace could not be read or the file could not be written.
pub const FAILED: u8 = 2;

/// Maximum number of traces kept open; the default limit of a process is 1,024 files.
const OPEN: usize = 256;

/// Prints the comparison; returns the exit code. Fails when the traces are not from one job, a trace cannot
/// be read, or the output may not or cannot be written.
pub fn run(args: &MergeArgs) -> Result<u8> {
    let paths = inputs::expanded(&args.traces)?;
    let shape = TargetFormat::Perfetto.shape();
    let to = args.output.as_ref().map(|output| Destination::new(output, shape, args.page.force, &paths)).transpose()?;
    let to_stdout = to.as_ref().is_some_and(Destination::is_stdout);
    if to_stdout && (args.json || io::stdout().is_terminal()) {
        bail!("the timeline cannot go to standard output, which is a terminal or takes the JSON; name a file with -o");
    }
    let mut traces: Vec<(TraceFile, Label)> = opened(&paths)?;
    traces.sort_by(|(_, a), (_, b)| a.cmp(b));
    let (compared, notes) = progress::shown(|progress| ranks::compare(&traces, progress))?;
    for note in &notes {
        message::say(note);
    }
    let text = match args.json {
        true => terminal::json(&compared)?,
        false => compared.text_within(terminal::style()),
    };
    let target = args.page.target(&args.traces)?;
    if let Some(target) = &target {
        let files: Vec<&TraceFile> = traces.iter().map(|(trace, _)| trace).collect();
        page::ranks(&compared, &files, args.page.title.as_deref(), (target, &paths))?;
    }
    match to_stdout {
        _ if target.is_some() => {}
        true => io::stderr().write_all(text.as_bytes())?,
        false => io::stdout().write_all(text.as_bytes())?,
    }
    if let Some(to) = to {
        let name = to.path().display().to_string();
        if to.is_named() {
            interrupt::watch()?;
        }
        match progress::shown(|progress| ranks::merge(&traces, &compared, to, progress)) {
            // The reader of the stream closed it and needs no more.
            Err(error) if error.is_broken_pipe() => {}
            outcome => message::note(&format!("{name}: {} records of {} ranks", outcome?.written, traces.len())),
        }
    }
    Ok(if notes.is_empty() { 0 } else { INCOMPLETE })
}

/// Opens the traces, which must be ranks of one job, with their labels.
fn opened(paths: &[PathBuf]) -> Result<Vec<(TraceFile, Label)>> {
    let mut files: Vec<TraceFile> = Vec::with_capacity(paths.len());
    for path in paths {
        let mut file = inputs::open(path, None)?;
        if paths.len() > OPEN {
            file.close();
        }
        files.push(file);
    }
    if files.len() > 1 && files.iter().all(|trace| trace.session().rank().is_none()) {
        bail!(
            "these {} traces are of independent runs: none has a rank. `gpuwhy report TRACE` shows one, and `gpuwhy diff A B` \
             compares two. For the ranks of a job, set RANK and WORLD_SIZE for each process when you record.",
            files.len()
        );
    }
    if let Some(trace) = files.iter().find(|trace| trace.session().rank().is_none()) {
        bail!(
            "{}: the trace has no rank: neither RANK nor a variable of Open MPI, PMI or Slurm was set. Set RANK and \
             WORLD_SIZE for each process when you record.",
            trace.path().display()
        );
    }
    let labels = labels(&files, Some("job"));
    if let Some((trace, _)) = files.iter().zip(&labels).find(|(_, label)| label.run != "job") {
        bail!("{}: another trace has its rank; name one trace per rank", trace.path().display());
    }
    Ok(files.into_iter().zip(labels).collect())
}
