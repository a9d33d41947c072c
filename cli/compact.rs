//! `gpuprof compact`: writes a trace again, smaller.
//!
//! Encoding is library code (`profiler_core::trace::compact`); here are files, which are never overwritten, and the
//! table of sizes.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};
use profiler_core::trace::compact::{self, Form, Sizes};

use crate::complain;

/// Exit code when there is no copy.
pub const FAILED: u8 = 2;
/// Read and written at once: blocks are some ten kilobytes.
const BUFFER_BYTES: usize = 1 << 20;

/// What to compact.
#[derive(Debug)]
pub struct Props {
    /// The trace.
    pub trace: PathBuf,
    /// The copy.
    pub output: Option<PathBuf>,
    /// Whether the sizes are printed.
    pub sizes: bool,
}

/// Writes the copy, prints the sizes, or both.
///
/// # Errors
///
/// When the trace cannot be read or is damaged, or when the copy exists or cannot be written.
pub fn run(props: &Props) -> Result<u8> {
    if let Some(output) = &props.output {
        write(&props.trace, output)?;
    }
    if props.sizes {
        let live = measure(&props.trace, Form::Live)?;
        let compacted = measure(&props.trace, Form::Compact)?;
        io::stdout().write_all(table(&live, &compacted)?.as_bytes())?;
    }
    Ok(0)
}

fn open(trace: &Path) -> Result<BufReader<File>> {
    let file = File::open(trace).with_context(|| trace.display().to_string())?;
    Ok(BufReader::with_capacity(BUFFER_BYTES, file))
}

fn measure(trace: &Path, form: Form) -> Result<Sizes> {
    compact::sizes(open(trace)?, form).map_err(|error| anyhow!("{}: {error}", trace.display()))
}

fn write(trace: &Path, output: &Path) -> Result<()> {
    let source = open(trace)?;
    let before = source.get_ref().metadata().map_or(0, |metadata| metadata.len());
    let sink = File::create_new(output).with_context(|| format!("{}: cannot be made", output.display()))?;
    let written = compact::compact(source, BufWriter::with_capacity(BUFFER_BYTES, sink));
    match written {
        Ok((written, _)) => {
            complain(&format!(
                "{}: {} records in {} bytes, {:.2} for each; {before} bytes before",
                output.display(),
                written.records,
                written.bytes,
                written.bytes as f64 / written.records.max(1) as f64,
            ));
            Ok(())
        }
        Err(error) => {
            // Half a copy would look like a trace that ended abruptly.
            fs::remove_file(output).with_context(|| format!("{}: cannot be removed", output.display()))?;
            Err(anyhow!("{}: {error}", trace.display()))
        }
    }
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
