//! `gpuwhy lake`: the tables of many runs as Parquet files.
//!
//! The library `gpuwhy-export` writes the files; this module handles file names, messages and exit codes.

use anyhow::{Result, bail};
use gpuwhy_export::lake::{self, AddOptions, CompactOptions, Lake};
use gpuwhy_export::tables::labels;
use gpuwhy_export::{OpenError, TraceFile};

use crate::args::lake::{AddArgs, LakeArgs, Verb};
use crate::{inputs, interrupt, message, progress};

/// Exit code when a trace is incomplete.
const INCOMPLETE: u8 = 1;
/// Exit code when a file could not be read or written.
pub const FAILED: u8 = 2;

/// Runs the subcommand and returns the exit code. Fails if a trace or a file cannot be read or written, or if
/// the lake already has the run and rank.
pub fn run(args: &LakeArgs) -> Result<u8> {
    match &args.verb {
        Verb::Add(args) => add(args),
        Verb::Compact(args) => {
            let lake = Lake::open(&args.lake)?;
            if lake.is_remote() {
                bail!(
                    "{}: gpuwhy writes to no object store; compact a folder, and copy that there",
                    args.lake.display()
                );
            }
            interrupt::watch()?;
            let options = CompactOptions { bytes: args.megabytes << 20 };
            let done = progress::shown(|progress| lake::compact(&lake, options, progress))?;
            if done.before == 0 {
                message::note(&format!(
                    "{}: nothing to join: files of different runs stay apart, and no run has two small files of a table",
                    lake.root().display()
                ));
                return Ok(0);
            }
            message::note(&format!(
                "{}: {} files of {} bytes became {} files of {} bytes",
                lake.root().display(),
                done.before,
                done.bytes_before,
                done.after,
                done.bytes_after
            ));
            Ok(0)
        }
    }
}

fn add(args: &AddArgs) -> Result<u8> {
    let AddArgs { traces, to, tier, run, with_command } = args;
    let options = AddOptions { tier: (*tier).into(), with_command: *with_command };
    let lake = Lake::new(to);
    if lake.is_remote() {
        bail!("{}: gpuwhy writes to no object store; add to a folder, and copy that there", to.display());
    }
    if to.exists() && !to.is_dir() {
        bail!("{}: not a folder; a lake must be a folder", to.display());
    }
    let files: Vec<TraceFile> =
        inputs::expanded(traces)?.iter().map(|path| inputs::open(path, None)).collect::<Result<_, OpenError>>()?;
    let mut labels = labels(&files, run.as_deref());
    if run.is_none() {
        lake::name_programs(&files, &mut labels, &lake)?;
    }
    let labeled: Vec<_> = files.into_iter().zip(labels).collect();
    interrupt::watch()?;
    let added = progress::shown(|progress| lake::add(&labeled, &lake, options, progress))?;
    for note in &added.notes {
        message::say(note);
    }
    let count = labeled.len();
    let ranks = format!("{count} rank{}", if count == 1 { "" } else { "s" });
    let steps = match added.steps_left_out {
        0 => format!("all {} steps of {ranks}", added.steps),
        left_out => format!("{} steps of {ranks}, {left_out} left out (completeness: steps_left_out)", added.steps),
    };
    message::note(&format!("{}: {} rows in {} files; {steps}", to.display(), added.rows, added.files.len()));
    Ok(if added.notes.is_empty() { 0 } else { INCOMPLETE })
}
