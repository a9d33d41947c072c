//! Reports as one HTML page: an answer that needs no script, and the data behind it for a timeline colored by cause.
//!
//! The page is one file that asks no network for anything: its own policy forbids it. It is written from front to back
//! in bounded memory. A trace is read twice: the first time for the report, which comes first in the page and decides
//! what of the timeline is worth its bytes, the second time for the data.
//!
//! Reading order: [`write_report`], `html` (the static answer), `block` (how data lie in the page), `ui` (TypeScript,
//! built into `assets`).

mod block;
mod error;
mod html;

use std::io::Write;

use gpuwhy_import::{Progress, TraceFile};
use profiler_core::report::json::Document;
use serde::Serialize;

use self::block::Blocks;
pub use self::error::PageError;

/// Version of the data within a page; the script beside it reads this one.
pub const PAGE_VERSION: u32 = 1;

/// What a page holds and how large it may be.
#[derive(Clone, Debug)]
pub struct Options {
    /// The title of the page; that of the command otherwise.
    pub title: Option<String>,
    /// The capture that it is about, of a run that was measured in pieces; `None` is the newest.
    pub capture: Option<u32>,
}

/// What was written.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What the trace lacks, a sentence each.
    pub damage: Vec<String>,
    /// What of the trace is not in the page, a sentence each.
    pub left_out: Vec<String>,
}

/// What the script reads first.
#[derive(Serialize)]
struct Manifest {
    page_version: u32,
    report: Document,
}

/// Writes the page of one run to `out`.
///
/// # Errors
///
/// When the trace cannot be read or the page not be written, and when `progress` ends the work.
pub fn write_report(
    trace: &TraceFile,
    options: &Options,
    mut out: impl Write + Send,
    progress: &mut Progress<'_>,
) -> Result<Outcome, PageError> {
    let report = trace.report(options.capture, progress)?;
    let title = options.title.clone().unwrap_or_else(|| format!("gpuwhy: {}", report.process.command.join(" ")));
    let left_out = Vec::new();
    html::begin(&mut out, &title, &html::report(&report, &left_out))?;
    let mut blocks = Blocks::new(&mut out);
    let manifest = Manifest { page_version: PAGE_VERSION, report: Document::new(&report) };
    blocks.named("doc", &serde_json::to_vec(&manifest).map_err(std::io::Error::from)?)?;
    html::end(&mut out)?;
    Ok(Outcome { damage: report.completeness.damage, left_out })
}
