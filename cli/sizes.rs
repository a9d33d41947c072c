//! `gpuwhy export --sizes`: size of each kind of record in a trace.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use gpuwhy_import::TraceFile;
use gpuwhy_trace::format::compact::{self, Form, Sizes};

use crate::{inputs, message, progress};

/// Prints the sizes of each trace, as the program wrote it and recompressed; returns true if none lacks anything. Fails
/// when a trace cannot be read, or stdout cannot be written.
pub fn print(traces: &[PathBuf], pid: Option<u32>) -> Result<bool> {
    let mut are_whole = true;
    for trace in traces {
        let trace = inputs::open(trace, pid)?;
        let (live, compacted) = (measure(&trace, Form::Live)?, measure(&trace, Form::Compact)?);
        for missing in &live.missing {
            message::say(&format!("{}: {missing}", trace.path().display()));
        }
        are_whole &= live.missing.is_empty();
        io::stdout().write_all(table(&live, &compacted)?.as_bytes())?;
    }
    Ok(are_whole)
}

fn measure(trace: &TraceFile, form: Form) -> Result<Sizes> {
    let sizes = progress::shown(|progress| Ok::<_, anyhow::Error>(compact::sizes(trace.bytes(progress)?, form)))?;
    sizes.map_err(|error| anyhow!("{}: {error}", trace.path().display()))
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
