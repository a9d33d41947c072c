//! State of a run that is still going, for a display, of bounded length.
//!
//! Totals are counted from the start of the run, so that a client can subtract two replies and the program
//! keeps no state per client.

use std::cmp::Reverse;
use std::collections::HashMap;

use profiler_core::leaf::{Cause, Leaf};
use profiler_core::sorting::SortRows as _;
use profiler_core::steps::{Step, StepSource};

use super::text::{self, busy_share};
use super::{DeviceReport, MemoryOfDevice, Ranked, Report, ServingKind, StepMeaning, loss_sentence};
use crate::state::{DeviceState, KernelTotal, LineTotal, Live, MemoryState, RangeTotal, RankedCause, Steps};
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
pub(super) fn live_state(report: &Report) -> Live {
    let bottleneck = &report.bottleneck;
    let (cause, share) = bottleneck.live;
    let gain = report.best_case(cause);
    let interval = gain.as_ref().and_then(|gain| gain.interval);
    let until = report.completeness.complete_until.map(|(until, _)| until.nanos());
    let lost: Vec<_> = losses(&report.completeness.loss).collect();
    let counters: Vec<_> = report.counter_losses.iter().filter_map(loss_sentence).collect();
    let ranked = |row: &Ranked| RankedCause {
        cause: row.cause.name().to_owned(),
        share: row.share,
        recoverable: row.recoverable,
    };
    Live {
        host: shortened(&report.process.host, NAME),
        run: report.process.run().map(|run| shortened(&run, NAME)),
        rank: report.process.rank().map(u64::from),
        mode: report.cost.map(|cost| cost.mode.name().to_owned()),
        observed_ns: report.shown_ns(),
        until_unix_ns: until.unwrap_or(report.process.start.nanos() + report.observed_ns),
        starting_up: text::is_starting_up(report),
        live_bottleneck: cause.name().to_owned(),
        live_share: share,
        best_case: gain.map(|gain| gain.speedup),
        best_case_low: interval.map(|(low, _)| low),
        best_case_high: interval.map(|(_, high)| high),
        busy: live_busy(report),
        cost: report.cost.and_then(|cost| cost.share()),
        bursts: report.bursts.as_ref().and(report.cost).map(|cost| cost.bursts.into()),
        cores: report.cost.and_then(|cost| cost.core_share()),
        steps: steps_state(report),
        ranking: bottleneck.ranking.iter().map(ranked).collect(),
        evidence: sentences(&bottleneck.evidence),
        missing: sentences(&[lost, counters].concat()),
        advice: shortened(&bottleneck.recommendation, SENTENCE),
        causes: Cause::ALL.map(|cause| cause.name().to_owned()).to_vec(),
        devices: report.devices.iter().take(DEVICES).map(device).collect(),
        devices_beyond: report.devices.len().saturating_sub(DEVICES) as u64,
        memory: report.memory_states(),
        top_kernels: kernels_state(report),
        lines: lines_state(report),
        ranges: ranges_state(report),
    }
}

impl Report {
    /// Memory in use on the first devices with readings.
    pub(crate) fn memory_states(&self) -> Vec<MemoryState> {
        let devices = self.memory.iter().flat_map(|memory| &memory.devices);
        let state = |of: &MemoryOfDevice| {
            Some(MemoryState {
                id: of.device.0.into(),
                used_bytes: of.last_used_bytes?,
                total_bytes: of.total_bytes,
                growth_bytes: of.growth_per_step.map(|growth| growth.bytes),
            })
        };
        devices.filter_map(state).take(DEVICES).collect()
    }
}

/// Share of the time in which devices were busy; taken from samples where no device work is recorded.
fn live_busy(report: &Report) -> Option<f64> {
    let sampled = report.monitored.as_ref().map(|time| time.busy.0.midpoint(time.busy.1));
    if report.devices.is_empty() { sampled } else { Some(busy_share(report)) }
}

fn steps_state(report: &Report) -> Option<Steps> {
    let longest = report.devices.iter().max_by_key(|device| device.window_ns);
    let of_device = longest.and_then(|device| Some((device.device.id.0, device.step_meaning, device.steps.as_ref()?)));
    let monitored = report.monitored_iterations.as_ref().map(|of| (0, StepMeaning::ITERATION, &of.steps));
    let (device, meaning, steps) = of_device.or(monitored).filter(|of| of.2.source != StepSource::Window)?;
    let newest = steps.rows.len().saturating_sub(STEPS);
    Some(Steps {
        device: device.into(),
        noun: meaning.noun().to_owned(),
        source: steps.source.name().to_owned(),
        seen: steps.seen,
        median_ns: steps.duration_percentile(50),
        newest_ns: steps.rows[newest..].iter().map(Step::duration).collect(),
        kinds: report.serving().iter().flat_map(|of| &of.kinds).map(ServingKind::state).collect(),
    })
}

/// Kernels with the most time over all devices.
fn kernels_state(report: &Report) -> Vec<KernelTotal> {
    let mut totals: HashMap<&str, (u64, u64)> = HashMap::new();
    for row in report.devices.iter().flat_map(|device| device.kernels.iter().take(ROWS)) {
        let (count, nanos) = totals.entry(&row.name).or_default();
        *count += row.durations.count();
        *nanos = nanos.saturating_add(row.durations.total());
    }
    let mut rows: Vec<_> = totals.into_iter().collect();
    rows.sort_rows_by_key(|&(name, (_, nanos))| (Reverse(nanos), name));
    let kernel = |(name, (count, total_ns))| KernelTotal { name: shortened(name, NAME), count, total_ns };
    rows.into_iter().take(ROWS).map(kernel).collect()
}

fn lines_state(report: &Report) -> Vec<LineTotal> {
    let rows = report.host.iter().flat_map(|host| &host.lines).take(ROWS).map(|row| LineTotal {
        file: shortened(&row.file, NAME),
        line: row.line.into(),
        function: shortened(&row.function, NAME),
        cause: row.cause.name().to_owned(),
        total_ns: row.total_ns,
    });
    rows.collect()
}

fn ranges_state(report: &Report) -> Vec<RangeTotal> {
    let rows = report.ranges.iter().flat_map(|ranges| &ranges.rows).take(ROWS).map(|row| RangeTotal {
        domain: shortened(&row.domain, NAME),
        name: shortened(&row.message, NAME),
        count: row.host.durations.count(),
        host_ns: row.host.durations.total(),
        device_ns: row.device_ns,
    });
    rows.collect()
}

fn sentences(all: &[String]) -> Vec<String> {
    all.iter().take(SENTENCES).map(|sentence| shortened(sentence, SENTENCE)).collect()
}

fn device(device: &DeviceReport) -> DeviceState {
    let leaves = Leaf::ALL.into_iter().map(|leaf| (leaf, device.leaves[leaf as usize])).filter(|(_, nanos)| *nanos > 0);
    // Microseconds: an interval has a million of them, and nanoseconds would only add digits.
    let window = |step: &Step| {
        let causes = Cause::ALL.map(|cause| cause.total(&step.leaves) / 1_000);
        std::iter::once(step.end.nanos()).chain(causes).collect()
    };
    DeviceState {
        id: device.device.id.0.into(),
        name: shortened(&device.device.name, NAME),
        window_ns: device.window_ns,
        leaves: leaves.map(|(leaf, nanos)| (leaf.name().to_owned(), nanos)).collect(),
        windows: device.windows.iter().map(window).collect(),
    }
}
