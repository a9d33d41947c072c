//! Captures and bursts: their rows, and how the bottleneck changed. In mode auto, sample totals cover the complete run
//! and stay separate from the recordings of the bursts.

use gpuwhy_trace::record::Timestamp;
use profiler_core::leaf::Cause;
use profiler_core::monitoring::BottleneckChange;
use profiler_core::steps::StepSource;

use super::{BurstRow, BurstTable, CaptureRow, Report};
use crate::text_format::{counted, duration};
use crate::words;

/// Bottleneck changes listed in the text.
const CHANGES_SHOWN: usize = 6;

impl CaptureRow {
    /// Copies the result of `report` into the row of the capture that ended at `end`.
    pub(crate) fn conclude(&mut self, end: Timestamp, report: &Report) {
        if self.begin == Timestamp::ZERO {
            self.begin = report.process.start;
        }
        self.end = Some(end);
        self.kernels = report.completeness.kernels;
        self.bottleneck = Some((report.bottleneck.cause, report.bottleneck.share));
    }
}

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

/// Sentence that lists the bottlenecks over time; `None` while none is known.
pub(super) fn changes(bursts: &BurstTable, start: Timestamp) -> Option<String> {
    let one = |change: &BottleneckChange| {
        let by =
            change.burst.map_or_else(|| "samples of up to 20 s before".to_owned(), |number| format!("burst {number}"));
        format!("{} from {} on ({by})", words::bottleneck(change.cause), duration(change.at.since(start)))
    };
    let skipped = bursts.changes.len().saturating_sub(CHANGES_SHOWN);
    let rows: Vec<_> = bursts.changes.iter().skip(skipped).map(one).collect();
    let earlier = skipped as u64 + bursts.earlier_changes;
    let times = (bursts.changes.len() as u64 + bursts.earlier_changes).checked_sub(1)?;
    if times == 0 {
        return Some(format!("The bottleneck was {}. Before, nothing showed which one it was.", rows.join("; ")));
    }
    let earlier = if earlier > 0 { format!("{earlier} earlier ones, ") } else { String::new() };
    Some(format!("The bottleneck changed {}: {earlier}{}.", counted(times, "time"), rows.join("; ")))
}
