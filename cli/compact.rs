//! `gpuwhy compact`: writes a trace again, smaller.
//!
//! Encoding is library code (`profiler_core::trace::compact`); here are files and the table of sizes.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::slice;

use anyhow::{Result, anyhow};
use gpuwhy_export::{Destination, Output, Shape, TraceFile};
use profiler_core::trace::compact::{self, CompactError, Form, Sizes};

use crate::{inputs, interrupt, message, progress};

/// Exit code when there is no copy.
pub const FAILED: u8 = 2;

/// What to compact.
#[derive(Debug)]
pub struct Props {
    /// The trace.
    pub trace: PathBuf,
    /// The copy.
    pub output: Option<PathBuf>,
    /// Whether a file that exists is replaced.
    pub force: bool,
    /// Whether the sizes are printed.
    pub sizes: bool,
}

/// Writes the copy, prints the sizes, or both.
///
/// # Errors
///
/// When the trace cannot be read or is damaged, when the copy exists or cannot be written, or when a signal
/// ends the work.
pub fn run(props: &Props) -> Result<u8> {
    let to = |output| Destination::new(output, Shape::Stream, props.force, slice::from_ref(&props.trace));
    let to = props.output.as_deref().map(to).transpose()?;
    let trace = inputs::open(&props.trace, None)?;
    if let Some(to) = to {
        write(&trace, to)?;
    }
    if props.sizes {
        let live = measure(&trace, Form::Live)?;
        let compacted = measure(&trace, Form::Compact)?;
        io::stdout().write_all(table(&live, &compacted)?.as_bytes())?;
    }
    Ok(0)
}

fn measure(trace: &TraceFile, form: Form) -> Result<Sizes> {
    let sizes = progress::shown(|progress| Ok::<_, anyhow::Error>(compact::sizes(trace.bytes(progress)?, form)))?;
    sizes.map_err(|error| anyhow!("{}: {error}", trace.path().display()))
}

fn write(trace: &TraceFile, to: Destination) -> Result<()> {
    if to.is_named() {
        interrupt::watch()?;
    }
    let name = to.path().display().to_string();
    let output = Output::create(to)?;
    let written = progress::shown(|progress| Ok::<_, anyhow::Error>(compact::compact(trace.bytes(progress)?, output)))?;
    let (written, output) = written.map_err(|error| match error {
        // The trace is not what is wrong.
        CompactError::Write(_) => anyhow!("{name}: {error}"),
        _ => anyhow!("{}: {error}", trace.path().display()),
    })?;
    output.finish()?;
    message::note(&format!(
        "{name}: {} records in {} bytes, {:.2} for each; {} bytes before",
        written.records,
        written.bytes,
        written.bytes as f64 / written.records.max(1) as f64,
        trace.path().metadata().map_or(0, |before| before.len()),
    ));
    Ok(())
}

fn table(live: &Sizes, compacted: &Sizes) -> Result<String> {
    let mut text = String::new();
    writeln!(text, "{:<18} {:>10} {:>14} {:>14}", "bytes a record", "records", "as written", "compacted")?;
    let mut row = |name: &str, records: u64, bytes: [u64; 2]| {
        let each = bytes.map(|bytes| bytes as f64 / records.max(1) as f64);
        writeln!(text, "{name:<18} {records:>10} {:>14.2} {:>14.2}", each[0], each[1])
    };
    let records = live.kinds.iter().map(|kind| kind.records).sum();
    for (kind, after) in live.kinds.iter().zip(&compacted.kinds) {
        row(kind.name, kind.records, [kind.bytes, after.bytes])?;
    }
    row("everything else", records, [live.rest, compacted.rest])?;
    let total = |sizes: &Sizes| sizes.rest + sizes.kinds.iter().map(|kind| kind.bytes).sum::<u64>();
    row("all", records, [total(live), total(compacted)])?;
    Ok(text)
}
