//! Reports as one HTML page: an answer that needs no script, and the data behind it for a timeline colored by cause.
//!
//! The page is one file that asks no network for anything: its own policy forbids it. It is written from front to back
//! in bounded memory. A trace is read twice: the first time for the report, which comes first in the page and decides
//! what of the timeline is worth its bytes, the second time for the data.
//!
//! Reading order: [`write_report`], `prescan` and `plan` (the first pass and what follows from it), `recorder` (the
//! second), `device`, `lane` and `sums` (what a row of the timeline is made of), `block` (how data lie in the page),
//! `manifest` (what the script reads first), `html` (the static answer). `ui` is TypeScript, built into `assets`.

mod block;
mod device;
mod error;
mod html;
mod lane;
mod manifest;
mod names;
mod plan;
mod prescan;
mod range_lanes;
mod recorder;
mod sums;

use std::io::{self, Write};

use gpuwhy_import::{Progress, TraceFile};
use serde::Serialize;

use self::block::Blocks;
pub use self::error::PageError;
use self::manifest::{Manifest, Timeline};
use self::plan::Plan;
use self::prescan::Prescan;
use self::recorder::{Recorded, Recorder};

/// Version of the data within a page; the script beside it reads this one.
pub const PAGE_VERSION: u32 = 1;
/// How many bytes single events may take by default: those of about 8 million records.
pub const MAX_BYTES: u64 = 64_000_000;

/// What a page holds and how large it may be.
#[derive(Clone, Debug)]
pub struct Options {
    /// The title of the page; that of the command otherwise.
    pub title: Option<String>,
    /// The capture that it is about, of a run that was measured in pieces; `None` is the newest.
    pub capture: Option<u32>,
    /// Bytes that single events may take. Sums, names and the report come on top.
    pub max_bytes: u64,
    /// Which events the page holds.
    pub detail: Detail,
}

impl Default for Options {
    fn default() -> Self {
        Self { title: None, capture: None, max_bytes: MAX_BYTES, detail: Detail::Auto }
    }
}

/// Which events a page holds. It always has the sums of the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// All if they fit, else those of windows.
    #[default]
    Auto,
    /// All, in order of time, until the page is full.
    All,
    /// Those of windows that steps and gaps choose.
    Windows,
    /// None.
    None,
}

/// What was written.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What the trace lacks, a sentence each.
    pub damage: Vec<String>,
    /// What of the trace is not in the page, a sentence each.
    pub left_out: Vec<String>,
    /// Events in the page.
    pub events: u64,
}

/// What a page was made from, for people.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Source {
    title: String,
    file: String,
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
    let mut prescan = Prescan::default();
    let report = trace.observe(options.capture, &mut prescan, progress)?;
    let plan = Plan::new(&report, &prescan, options);
    let title = options.title.clone().unwrap_or_else(|| format!("gpuwhy: {}", report.process.command.join(" ")));
    html::begin(&mut out, &title, &html::report(&report, &plan.left_out))?;

    let mut recorder = Recorder::new(&plan, Blocks::new(&mut out));
    trace.observe(plan.shown, &mut recorder, progress)?;
    let Recorded { mut blocks, names, lanes, steps, unplaced, uncorrected_ns } = recorder.finish()?;

    let mut left_out = plan.left_out.clone();
    left_out.extend(over_budget(&lanes));
    let events = lanes.iter().map(|lane| lane.embedded).sum();
    let timeline = Timeline::new(&plan, &report, lanes, steps, (unplaced, uncorrected_ns));
    let file = trace.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let manifest = Manifest::new(&report, Source { title, file }, left_out.clone(), Some(timeline));
    blocks.named("names", &serde_json::to_vec(&names).map_err(io::Error::from)?)?;
    blocks.named("doc", &serde_json::to_vec(&manifest).map_err(io::Error::from)?)?;
    html::end(&mut out)?;
    Ok(Outcome { damage: report.completeness.damage, left_out, events })
}

/// What had no room although it was chosen.
fn over_budget(lanes: &[lane::Lane]) -> Option<String> {
    let lost: u64 = lanes.iter().map(|lane| lane.refused).sum();
    (lost > 0).then(|| {
        format!(
            "{lost} events had no room in the page; sums have them. For all of them, write a larger one: --max-size."
        )
    })
}
