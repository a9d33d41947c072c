//! Reports as one HTML page: a result that needs no script, and the data for a timeline colored by cause.
//!
//! The page is one file without network requests: its own policy forbids them. It is written from front to
//! back in bounded memory. A trace is read twice: first for the report, which comes first in the page and
//! determines the events of the timeline that are worth their bytes, then for the data.
//!
//! Comparisons of two runs and of ranks ([`write_diff`], [`write_ranks`]) are static pages.
//!
//! Reading order: [`write_report`], `prescan` and `plan` (the first pass and its result), `recorder` (the
//! second), `device`, `lane` and `sums` (parts of a timeline row), `block` (storage of data in the page),
//! `manifest` (the first data that the script reads), `html` (the static report). `ui` is TypeScript, built
//! into `assets`.

mod block;
mod counter_lanes;
mod curves;
mod device;
mod error;
mod escape;
mod graph_nodes;
mod html;
mod lane;
mod lost;
mod manifest;
mod names;
mod options;
mod plan;
mod prescan;
mod range_lanes;
mod rank_map;
mod recorder;
mod redact;
mod simulated;
mod sources;
mod sums;

use std::io::{self, Write};
use std::mem;

use gpuwhy_compare::diff::Diff;
use gpuwhy_compare::ranks::RanksReport;
use gpuwhy_import::{Progress, TraceFile};
use gpuwhy_report::run::Report;

use self::block::Blocks;
pub use self::error::PageError;
use self::manifest::{Manifest, PageSource, Timeline};
pub use self::options::{Detail, MAX_BYTES, Options, PAGE_VERSION, PageResult};
use self::plan::Plan;
use self::prescan::Prescan;
use self::rank_map::RankTime;
use self::recorder::{Recorded, Recorder};
use self::sources::Sources;

/// Writes the page of one run to `out`.
///
/// # Errors
/// If the trace cannot be read or the page cannot be written, and if `progress` stops the work.
pub fn write_report(
    trace: &TraceFile,
    options: &Options,
    mut out: impl Write + Send,
    progress: &mut Progress<'_>,
) -> Result<PageResult, PageError> {
    let mut prescan = Prescan::new(options.redact);
    let mut report = trace.observe(options.capture, &mut prescan, progress)?;
    // Gains are those of the recorded command, which a page with placeholders does not have.
    let shown = mem::replace(&mut report.process, trace.session().clone());
    report.apply_measured(&options.measured);
    report.process = shown;
    let plan = Plan::new(&report, &prescan, options);
    let title = options.title.clone().unwrap_or_else(|| format!("gpuwhy: {}", report.process.command.join(" ")));
    // With placeholders, the report does not name the actual files.
    let sources = if options.sources && !options.redact { Sources::of(&report) } else { Sources::default() };
    let mut left_out = plan.left_out.clone();
    left_out.extend(sources.notes.iter().cloned());
    html::begin(&mut out, &title, &html::report(&report, &left_out, &sources.excerpts))?;

    let mut recorder = Recorder::new(&plan, Blocks::new(&mut out));
    trace.observe(plan.shown, &mut recorder, progress)?;
    let Recorded { mut blocks, names, lanes, steps, simulated, lost, uncorrected_ns, counters, curves } =
        recorder.finish()?;
    let steps_simulated = plan.simulated.write(&simulated, plan.origin, &mut blocks)?;

    left_out.extend(over_budget(&lanes, plan.kept.most_bytes));
    left_out.extend(lost.sentences());
    let events = lanes.iter().map(|lane| lane.embedded).sum();
    let mut timeline = Timeline::new(&plan, lanes, steps, (lost, uncorrected_ns));
    timeline.after_start_ns = plan.origin.saturating_sub(report.process.start.nanos());
    timeline.simulated = steps_simulated;
    timeline.counters = counters;
    timeline.curves = curves;
    let file = trace.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let file = if options.redact { "TRACE".to_owned() } else { file };
    let mut manifest = Manifest::new(&report, PageSource { title, file }, left_out.clone(), Some(timeline));
    manifest.sources = sources.excerpts;
    blocks.named("names", serde_json::to_vec(&names).map_err(io::Error::from)?)?;
    blocks.named("doc", serde_json::to_vec(&manifest).map_err(io::Error::from)?)?;
    html::end(&mut out)?;
    let has_end = report.missing_end().is_none();
    Ok(PageResult { damage: report.completeness.damage, has_end, left_out, events, records: plan.records })
}

/// Writes the page of a comparison to `out`: `diff` of the runs `a` and `b`, each with its name. It has no
/// script.
///
/// # Errors
/// If the page cannot be written.
pub fn write_diff(
    diff: &Diff,
    (a, name_a): (&Report, &str),
    (b, name_b): (&Report, &str),
    title: Option<&str>,
    mut out: impl Write,
) -> Result<(), PageError> {
    let body = html::diff(diff, (a, b), (name_a, name_b));
    let title = title.map_or_else(|| format!("gpuwhy: {name_a} and {name_b}"), str::to_owned);
    Ok(html::whole(&mut out, &title, &body)?)
}

/// Writes the page of the ranks of a job: `compared`, and the trace of each in the same order. It has no
/// script.
///
/// # Errors
/// If a trace cannot be read or the page cannot be written, and if `progress` stops the work.
pub fn write_ranks(
    compared: &RanksReport,
    traces: &[&TraceFile],
    title: Option<&str>,
    mut out: impl Write,
    progress: &mut Progress<'_>,
) -> Result<(), PageError> {
    let mut maps = Vec::new();
    for (trace, shift) in traces.iter().zip(compared.shifts()) {
        let mut map = RankTime::default();
        trace.observe(None, &mut map, progress)?;
        maps.push(map.shifted(shift));
    }
    let title = title.unwrap_or("gpuwhy: ranks");
    Ok(html::whole(&mut out, title, &html::ranks(compared, &maps))?)
}

/// Sentence about selected events that had no room.
fn over_budget(lanes: &[lane::Lane], most_bytes: u64) -> Option<String> {
    let lost: u64 = lanes.iter().map(|lane| lane.refused).sum();
    (lost > 0).then(|| {
        format!(
            "{lost} events had no room in the page; sums have them. For more of them, write a larger one: --max-size {}.",
            plan::twice(most_bytes)
        )
    })
}
