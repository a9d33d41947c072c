//! Bursts: their rows and their text. In mode auto, sample totals cover the complete run and stay separate from the
//! recordings of the bursts.

use std::fmt::Write;

use gpuwhy_trace::record::{Timestamp, Trigger};
use profiler_core::leaf::Cause;
use profiler_core::monitoring::BottleneckChange;
use profiler_core::steps::StepSource;

use super::{BurstRow, BurstTable, CaptureRow, Report};
use crate::text_format::{Page, counted, duration, wrapped};
use crate::words;

/// Rows in the text, if the run is monitored in between, and else; the JSON lists all.
const SHOWN: usize = 12;
const SHOWN_ALONE: usize = 3;
/// Bottleneck changes listed in the text.
const CHANGES_SHOWN: usize = 6;

impl BurstRow {
    /// Builds the row from the report of its capture.
    pub(crate) fn of(row: &CaptureRow, report: &Report) -> Self {
        let total = |cause: Cause| report.devices.iter().map(|device| cause.total(&device.leaves)).sum::<u64>();
        let longest = report.devices.iter().max_by_key(|device| device.window_ns);
        let steps = longest.and_then(|device| device.steps.as_ref()).filter(|steps| steps.source != StepSource::Window);
        Self {
            number: row.number,
            trigger: row.trigger,
            begin: row.begin,
            end: row.end.unwrap_or(row.begin),
            kernels: row.kernels,
            cause: report.bottleneck.cause,
            share: report.bottleneck.share,
            window_ns: report.devices.iter().map(|device| device.window_ns).sum(),
            causes: Cause::ALL.map(|cause| (cause, total(cause))).into_iter().filter(|&(_, ns)| ns > 0).collect(),
            steps: steps.map_or((0, 0), |steps| (steps.seen, steps.duration_percentile(50))),
        }
    }
}

pub(super) fn lines(out: &mut Page, report: &Report, bursts: &BurstTable) {
    let count = report.cost.map_or(0, |cost| u64::from(cost.bursts)).max(bursts.rows.len() as u64);
    if count == 0 {
        return;
    }
    let recorded = duration(report.cost.map_or(0, |cost| cost.burst_ns));
    let all = counted(count, "burst");
    wrapped(out, "", &format!("Recorded in {all}, {recorded} of the run (--capture N shows one):"));
    let monitored = report.cost.is_some_and(|cost| cost.mode.monitors());
    let skipped = bursts.rows.len().saturating_sub(if monitored { SHOWN } else { SHOWN_ALONE });
    if skipped > 0 {
        let _ = writeln!(out, "  ... {skipped} earlier ones");
    }
    for row in bursts.rows.iter().skip(skipped) {
        wrapped(out, &format!("  {:>3}: ", row.number), &sentence(row, report.process.start, monitored));
    }
}

fn sentence(row: &BurstRow, start: Timestamp, monitored: bool) -> String {
    let why = match row.trigger {
        Trigger::Drift => "the step time changed",
        Trigger::Graph => "a CUDA graph was new",
        _ if monitored => "samples left the bottleneck open",
        _ => "the last one was long ago",
    };
    let (from, lasted) = (duration(row.begin.since(start)), duration(row.end.since(row.begin)));
    let result = words::result(row.cause, row.share);
    let steps = match row.steps {
        (0, _) => String::new(),
        (seen, median) => format!("; {} of {}", counted(seen, "step"), duration(median)),
    };
    format!("{lasted} from {from} on, as {why}: {result}{steps}.")
}

/// Sentence that lists the bottlenecks over time; `None` while none is known.
pub(super) fn changes(bursts: &BurstTable, start: Timestamp) -> Option<String> {
    let one = |change: &BottleneckChange| {
        let by = change.burst.map_or_else(|| "samples".to_owned(), |number| format!("burst {number}"));
        format!("{} from {} on ({by})", words::bottleneck(change.cause), duration(change.at.since(start)))
    };
    let skipped = bursts.changes.len().saturating_sub(CHANGES_SHOWN);
    let rows: Vec<_> = bursts.changes.iter().skip(skipped).map(one).collect();
    let earlier = skipped as u64 + bursts.earlier_changes;
    let times = (bursts.changes.len() as u64 + bursts.earlier_changes).checked_sub(1)?;
    if times == 0 {
        return Some(format!("The bottleneck was {}. Before that time, it was unknown.", rows.join("; ")));
    }
    let earlier = if earlier > 0 { format!("{earlier} earlier ones, ") } else { String::new() };
    Some(format!("The bottleneck changed {}: {earlier}{}.", counted(times, "time"), rows.join("; ")))
}
