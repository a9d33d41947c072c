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
mod options;
mod plan;
mod prescan;
mod range_lanes;
mod recorder;
mod replay;
mod sums;

use std::io::{self, Write};

use gpuwhy_import::{Progress, TraceFile};

use self::block::Blocks;
pub use self::error::PageError;
use self::manifest::{Manifest, Source, Timeline};
pub use self::options::{Detail, MAX_BYTES, Options, Outcome, PAGE_VERSION};
use self::plan::Plan;
use self::prescan::Prescan;
use self::recorder::{Recorded, Recorder};

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
    let Recorded { mut blocks, names, lanes, steps, replayed, unplaced, uncorrected_ns } = recorder.finish()?;
    let replay = plan.replay.write(&replayed, plan.origin, &mut blocks)?;

    let mut left_out = plan.left_out.clone();
    left_out.extend(over_budget(&lanes));
    let events = lanes.iter().map(|lane| lane.embedded).sum();
    let mut timeline = Timeline::new(&plan, &report, lanes, steps, (unplaced, uncorrected_ns));
    timeline.replay = replay;
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
