//! State of a run that is still going, for a display, as fields of one JSON object of bounded length.
//!
//! Totals are counted from the start of the run, so that a client can subtract two replies and the program
//! keeps no state per client. The object is written by hand because this code runs inside the profiled
//! program. `docs/guide/control.md` defines every field.

use std::cmp::Reverse;
use std::collections::HashMap;

use gpuwhy_trace::json_text::Object;
use profiler_core::leaf::{Cause, Leaf};
use profiler_core::steps::{Step, StepSource};

use super::text::{self, busy_share};
use super::{DeviceReport, Report, loss_sentence};
use crate::text_format::shortened;
use crate::words::losses;

/// Intervals of at least a second that a report keeps for each device: a minute.
pub const WINDOWS_KEPT: usize = 60;
/// Maximum number of devices listed with intervals and leaves; the others are counted.
const DEVICES: usize = 8;
/// Maximum number of step durations; the newest are kept.
const STEPS: usize = 64;
const ROWS: usize = 16;
/// Maximum number of sentences per list, and characters per sentence.
const SENTENCES: usize = 12;
const SENTENCE: usize = 400;
/// Maximum number of characters of a name.
const NAME: usize = 160;

/// Name shown while it is too early for a bottleneck.
pub const STARTING_UP: &str = "starting_up";

/// Bottleneck and share that a display shows now for the report of a running capture: [`STARTING_UP`] and
/// 0 while it is too early, else `named`.
pub(super) fn name_now(report: &Report, named: (Cause, f64)) -> (&'static str, f64) {
    let judged = report.is_watched() || report.devices.is_empty() || !text::is_starting_up(report);
    if judged { (named.0.name(), named.1) } else { (STARTING_UP, 0.0) }
}

/// Fields of the reply to `live` that come from the records. At most 64 kB for any program.
pub(super) fn live_state(report: &Report) -> Object {
    let bottleneck = &report.bottleneck;
    let (cause, share) = bottleneck.live;
    let gain = report.best_case(cause);
    let interval = gain.as_ref().and_then(|gain| gain.interval);
    let until = report.completeness.complete_until.map(|(until, _)| until.nanos());
    let lost: Vec<_> = losses(&report.completeness.loss).collect();
    let counters: Vec<_> = report.counter_losses.iter().filter_map(loss_sentence).collect();
    let object = Object::new()
        .text("host", &shortened(&report.process.host, NAME))
        .optional_text("run", report.process.run().map(|run| shortened(&run, NAME)).as_deref())
        .optional_number("rank", report.process.rank().map(u64::from))
        .optional_text("mode", report.cost.map(|cost| cost.mode.name()))
        .number("observed_ns", report.shown_ns())
        .number("until_unix_ns", until.unwrap_or(report.process.start.nanos() + report.observed_ns))
        .flag("starting_up", text::is_starting_up(report))
        .text("live_bottleneck", cause.name())
        .share("live_share", share)
        .optional_share("best_case", gain.map(|gain| gain.speedup))
        .optional_share("best_case_low", interval.map(|(low, _)| low))
        .optional_share("best_case_high", interval.map(|(_, high)| high))
        .optional_share("busy", live_busy(report))
        .optional_share("cost", report.cost.and_then(|cost| cost.share()))
        .optional_number("bursts", report.bursts.as_ref().and(report.cost).map(|cost| cost.bursts.into()))
        .optional_share("cores", report.cost.and_then(|cost| cost.core_share()))
        .object("steps", steps_state(report))
        .objects(
            "ranking",
            bottleneck.ranking.iter().map(|row| {
                Object::new()
                    .text("cause", row.cause.name())
                    .share("share", row.share)
                    .share("recoverable", row.recoverable)
            }),
        );
    let object = sentences(object, "evidence", &bottleneck.evidence);
    let object = sentences(object, "missing", &[lost, counters].concat());
    object
        .text("advice", &shortened(&bottleneck.recommendation, SENTENCE))
        .texts("causes", Cause::ALL.iter().map(|cause| cause.name()))
        .objects("devices", report.devices.iter().take(DEVICES).map(device))
        .number("devices_beyond", report.devices.len().saturating_sub(DEVICES) as u64)
        .objects("top_kernels", kernels_state(report))
        .objects("lines", lines_state(report))
        .objects("ranges", ranges_state(report))
}

/// Share of the time in which devices were busy; taken from samples where no device work is recorded.
fn live_busy(report: &Report) -> Option<f64> {
    let sampled = report.monitored.as_ref().map(|time| time.busy.0.midpoint(time.busy.1));
    if report.devices.is_empty() { sampled } else { Some(busy_share(report)) }
}

fn steps_state(report: &Report) -> Option<Object> {
    let longest = report.devices.iter().max_by_key(|device| device.window_ns)?;
    let steps = longest.steps.as_ref().filter(|steps| steps.source != StepSource::Window)?;
    let newest = steps.rows.len().saturating_sub(STEPS);
    Some(
        Object::new()
            .number("device", longest.device.id.0.into())
            .text("noun", longest.step_meaning.noun())
            .text("source", steps.source.name())
            .number("seen", steps.seen)
            .number("median_ns", steps.duration_percentile(50))
            .numbers("newest_ns", steps.rows[newest..].iter().map(Step::duration)),
    )
}

/// Kernels with the most time over all devices.
fn kernels_state(report: &Report) -> Vec<Object> {
    let mut totals: HashMap<&str, (u64, u64)> = HashMap::new();
    for row in report.devices.iter().flat_map(|device| device.kernels.iter().take(ROWS)) {
        let (count, nanos) = totals.entry(&row.name).or_default();
        *count += row.durations.count();
        *nanos = nanos.saturating_add(row.durations.total());
    }
    let mut rows: Vec<_> = totals.into_iter().collect();
    rows.sort_by_key(|&(name, (_, nanos))| (Reverse(nanos), name));
    let rows = rows.into_iter().take(ROWS).map(|(name, (count, nanos))| {
        Object::new().text("name", &shortened(name, NAME)).number("count", count).number("total_ns", nanos)
    });
    rows.collect()
}

fn lines_state(report: &Report) -> Vec<Object> {
    let rows = report.host.iter().flat_map(|host| &host.lines).take(ROWS).map(|row| {
        Object::new()
            .text("file", &shortened(&row.file, NAME))
            .number("line", row.line.into())
            .text("function", &shortened(&row.function, NAME))
            .text("cause", row.cause.name())
            .number("total_ns", row.total_ns)
    });
    rows.collect()
}

fn ranges_state(report: &Report) -> Vec<Object> {
    let rows = report.ranges.iter().flat_map(|ranges| &ranges.rows).take(ROWS).map(|row| {
        Object::new()
            .text("domain", &shortened(&row.domain, NAME))
            .text("name", &shortened(&row.message, NAME))
            .number("count", row.host.durations.count())
            .number("host_ns", row.host.durations.total())
            .number("device_ns", row.device_ns)
    });
    rows.collect()
}

fn sentences(object: Object, name: &str, all: &[String]) -> Object {
    let shown: Vec<_> = all.iter().take(SENTENCES).map(|sentence| shortened(sentence, SENTENCE)).collect();
    object.texts(name, shown.iter().map(String::as_str))
}

fn device(device: &DeviceReport) -> Object {
    let leaves = Leaf::ALL.into_iter().map(|leaf| (leaf, device.leaves[leaf as usize])).filter(|(_, nanos)| *nanos > 0);
    let leaves = leaves.fold(Object::new(), |object, (leaf, nanos)| object.number(leaf.name(), nanos));
    // Microseconds: an interval has a million of them, and nanoseconds would only add digits.
    let window = |step: &Step| {
        let causes = Cause::ALL.map(|cause| cause.total(&step.leaves) / 1_000);
        std::iter::once(step.end.nanos()).chain(causes)
    };
    Object::new()
        .number("id", device.device.id.0.into())
        .text("name", &shortened(&device.device.name, NAME))
        .number("window_ns", device.window_ns)
        .object("leaves", Some(leaves))
        .rows("windows", device.windows.iter().map(window))
}
