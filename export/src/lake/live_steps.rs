//! Which steps of a device are final, while its program runs.
//!
//! A row that is in a file cannot be changed. So a step is written some time after its end, when hardly any of its time
//! is attributed anew; what is, is counted. The steps that speak for a device may be others later: what they cover that
//! was written already is left out, and counted too.

use std::collections::{BTreeMap, VecDeque};

use profiler_core::attribution::leaf::Leaves;
use profiler_core::record::DeviceId;
use profiler_core::steps::{OverflowStep, Step, StepSource, Steps};

/// Records come this late at most, but for some: time between a step's end and its row, nanoseconds.
const LATE: u64 = 5_000_000_000;
/// Windows of a second stand for steps where none are found; finding some takes this long at most, usually.
const NOT_FOUND: u64 = 60_000_000_000;
/// Rows that are compared with what is known later: those that the engine remembers.
const COMPARED: usize = profiler_core::steps::REMEMBERED;

/// Steps of one device.
#[derive(Debug, Default)]
pub(super) struct LiveSteps {
    /// End of the newest written step, nanoseconds.
    until: u64,
    /// Number of the next row.
    next: u64,
    /// Capture and series that the rows are from.
    series: Option<(u32, u32)>,
    /// Of this series: steps that are before `until` and were never written, and the begin of the newest of them.
    left_out: u64,
    left_out_until: Option<u64>,
    /// Before this somebody else wrote, nanoseconds.
    earlier: u64,
    /// Written rows by their begins.
    written: BTreeMap<u64, Leaves>,
    /// Time that was attributed anew in written rows, nanoseconds.
    changed_ns: u64,
    /// Steps that the engine has forgotten, by capture and series, until they are written or others are.
    forgotten: BTreeMap<(u32, u32), VecDeque<Step>>,
}

/// What can be written of a device.
pub(super) struct Final {
    pub(super) source: StepSource,
    /// With the number of each.
    pub(super) rows: Vec<(u64, Step)>,
}

impl LiveSteps {
    /// Goes on behind what was written before.
    pub(super) fn behind(until: u64, next: u64) -> Self {
        Self { until, next, earlier: until, ..Self::default() }
    }

    /// Takes a step that the engine has forgotten.
    pub(super) fn forgot(&mut self, capture: u32, step: &OverflowStep) {
        self.forgotten.entry((capture, step.series)).or_default().push_back(step.step);
    }

    /// Steps that wait.
    pub(super) fn waiting(&self) -> usize {
        self.forgotten.values().map(VecDeque::len).sum()
    }

    /// Steps that were found and never get a row.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Time of written steps that is another cause's by now, nanoseconds.
    pub(super) fn changed_ns(&self) -> u64 {
        self.changed_ns
    }

    /// The steps that are final at `now` and were not written. `series`: the capture and series that `steps` are from.
    /// `ended`: nothing comes any more.
    pub(super) fn take(&mut self, series: (u32, u32), steps: &Steps, now: u64, ended: bool) -> Final {
        let waits = if steps.source == StepSource::Window { NOT_FOUND } else { LATE };
        let horizon = if ended { u64::MAX } else { now.saturating_sub(waits) };
        if self.series != Some(series) {
            // Another one may cover what was written.
            self.series = Some(series);
            (self.left_out, self.left_out_until) = (0, None);
            self.written.clear();
        }
        self.compare(&steps.rows);
        let mut rows = Vec::new();
        let mut forgotten = self.forgotten.remove(&series).unwrap_or_default();
        while let Some(&step) = forgotten.front().filter(|step| step.end.nanos() <= horizon) {
            forgotten.pop_front();
            self.row(&step, &mut rows);
        }
        if forgotten.is_empty() {
            steps.rows.iter().take_while(|step| step.end.nanos() <= horizon).for_each(|step| self.row(step, &mut rows));
            // Steps of other series that begin before are never asked for again.
            let until = self.until;
            self.forgotten.values_mut().for_each(|steps| steps.retain(|step| step.start.nanos() >= until));
        } else {
            self.forgotten.insert(series, forgotten);
        }
        while self.written.len() > COMPARED {
            self.written.pop_first();
        }
        Final { source: steps.source, rows }
    }

    fn row(&mut self, step: &Step, rows: &mut Vec<(u64, Step)>) {
        let start = step.start.nanos();
        if self.written.contains_key(&start) {
            return;
        }
        if start < self.until {
            // What somebody else wrote, and was no whole step then.
            let is_new = start >= self.earlier || step.end.nanos() > self.earlier;
            if is_new && self.left_out_until.is_none_or(|until| start > until) {
                self.left_out += 1;
                self.left_out_until = Some(start);
            }
            return;
        }
        rows.push((self.next, *step));
        self.next += 1;
        self.until = step.end.nanos();
        self.written.insert(start, step.leaves);
    }

    /// Counts what has changed in rows that were written.
    fn compare(&mut self, remembered: &[Step]) {
        for step in remembered {
            let Some(written) = self.written.get_mut(&step.start.nanos()) else { continue };
            let moved: u64 = step.leaves.iter().zip(written.iter()).map(|(now, then)| now.saturating_sub(*then)).sum();
            self.changed_ns += moved;
            *written = step.leaves;
        }
    }
}

/// Steps of all devices.
pub(super) type DeviceSteps = BTreeMap<DeviceId, LiveSteps>;

#[cfg(test)]
mod tests {
    use profiler_core::attribution::leaf::LEAF_COUNT;
    use profiler_core::record::Timestamp;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn step(start: u64, end: u64) -> Step {
        let mut leaves = [0; LEAF_COUNT];
        leaves[0] = end - start;
        Step { start: Timestamp::from_nanos(start), end: Timestamp::from_nanos(end), operations: 1, leaves }
    }

    fn steps(source: StepSource, spans: impl IntoIterator<Item = (u64, u64)>) -> Steps {
        let rows: Vec<Step> = spans.into_iter().map(|(start, end)| step(start, end)).collect();
        Steps { source, period: None, seen: rows.len() as u64, rows }
    }

    fn numbers(found: &Final) -> Vec<(u64, u64)> {
        found.rows.iter().map(|(number, step)| (*number, step.start.nanos() / SECOND)).collect()
    }

    #[test]
    fn a_step_is_written_once_and_when_it_is_final() {
        let mut live = LiveSteps::default();
        let all = steps(StepSource::Period, (0..20).map(|n| (n * SECOND, (n + 1) * SECOND)));
        assert_eq!(numbers(&live.take((1, 3), &all, 8 * SECOND, false)), [(0, 0), (1, 1), (2, 2)]);
        assert!(numbers(&live.take((1, 3), &all, 8 * SECOND, false)).is_empty());
        // One that the engine has forgotten meanwhile, and those that it remembers.
        live.forgot(1, &OverflowStep { series: 3, number: 3, step: step(3 * SECOND, 4 * SECOND) });
        live.forgot(1, &OverflowStep { series: 0, number: 3, step: step(0, SECOND) });
        let newer = Steps { rows: all.rows[4..].to_vec(), ..all };
        assert_eq!(numbers(&live.take((1, 3), &newer, 10 * SECOND, false)), [(3, 3), (4, 4)]);
        assert_eq!(live.waiting(), 0, "that of the other series is never asked for");
        assert_eq!(numbers(&live.take((1, 3), &newer, 10 * SECOND, true)).len(), 15);
        assert_eq!((live.left_out(), live.changed_ns()), (0, 0));
    }

    #[test]
    fn windows_wait_longer_and_what_another_series_covers_is_counted() {
        let mut live = LiveSteps::default();
        let windows = steps(StepSource::Window, (0..70).map(|n| (n * SECOND, (n + 1) * SECOND)));
        assert!(numbers(&live.take((1, 0), &windows, 30 * SECOND, false)).is_empty());
        assert_eq!(numbers(&live.take((1, 0), &windows, 70 * SECOND, false)).len(), 10);
        // Steps of two seconds are found at last: five of them lie in what was written.
        let periods = steps(StepSource::Period, (0..40).map(|n| (n * 2 * SECOND, (n + 1) * 2 * SECOND)));
        for _ in 0..2 {
            let rows = numbers(&live.take((1, 1), &periods, 85 * SECOND, false));
            assert!(rows.is_empty() || rows[0] == (10, 10) && rows.len() == 35, "{rows:?}");
            assert_eq!(live.left_out(), 5);
        }
    }

    #[test]
    fn time_that_moves_after_a_row_was_written_is_counted() {
        let mut live = LiveSteps::default();
        let mut all = steps(StepSource::Annotated, [(0, 100), (100, 200)]);
        assert_eq!(live.take((1, 1), &all, 10 * SECOND, false).rows.len(), 2);
        all.rows[1].leaves[0] -= 30;
        all.rows[1].leaves[5] += 30;
        assert!(live.take((1, 1), &all, 10 * SECOND, false).rows.is_empty());
        assert!(live.take((1, 1), &all, 10 * SECOND, true).rows.is_empty());
        assert_eq!(live.changed_ns(), 30);
    }

    #[test]
    fn whoever_goes_on_leaves_out_what_was_written_and_goes_on_counting() {
        let all = steps(StepSource::Period, (0..6).map(|n| (n * SECOND, (n + 1) * SECOND)));
        let mut live = LiveSteps::behind(4 * SECOND, 4);
        assert_eq!(numbers(&live.take((1, 3), &all, 0, true)), [(4, 4), (5, 5)]);
        assert_eq!(live.left_out(), 0);
        let mut live = LiveSteps::behind(4 * SECOND + 1, 5);
        assert_eq!(numbers(&live.take((1, 3), &all, 0, true)), [(5, 5)]);
        assert_eq!(live.left_out(), 1, "a step that had another end when it was written");
    }
}
