//! Table of the steps of one device with their time by cause.
//!
//! There is one series for each way in which steps were found: named ranges, a period (training and
//! evaluation have one each), an anchor, windows. A series has at most one open step, which stores the
//! device's accounts at its start: its leaves are the difference, so they sum to its time by construction,
//! and an operation costs the same no matter how many steps are open. The series that represents the device
//! is chosen only on request.

use std::collections::VecDeque;

use gpuwhy_trace::record::{DeviceId, Timestamp};

use super::kinds::IterationTotals;
use super::{
    Boundary, Cut, Cuts, Iteration, IterationCut, IterationKind, Step, StepKind, StepSeries, StepSource, Steps,
};
use crate::leaf::{Leaf, Leaves};

/// Steps remembered per series (272 bytes each).
pub const REMEMBERED: usize = 1_024;
/// A window ends with the first operation that starts this long after the window's start, nanoseconds.
pub const WINDOW_NANOS: u64 = 1_000_000_000;
/// Maximum number of series; beyond that, the one with the fewest operations is dropped. A wrong period is
/// soon replaced.
pub(crate) const SERIES_LIMIT: usize = 6;
/// A more reliable source represents the device if its steps have at least this part (as a divisor) of the
/// operations of any other. Operations rather than time, because start-up is long and has few operations.
const REPRESENTATIVE_PART: u64 = 10;

/// Maximum steps in the log between two times that it is taken; further ones are not logged.
const LOG_LIMIT: usize = 1 << 20;

/// Start and end of a step of a series on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedStep {
    /// Series of the step.
    pub series: StepSeries,
    /// Start of the step.
    pub start: Timestamp,
    /// End of the step.
    pub end: Timestamp,
    /// Its kind, if it is an iteration of a server.
    pub kind: Option<IterationKind>,
}

/// A step that is no longer remembered, because there are [`REMEMBERED`] newer ones in its series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverflowStep {
    /// Number of its series, unique within the device.
    pub series: u32,
    /// Its number in the series, starting at 0.
    pub number: u64,
    /// The step as known when it was forgotten.
    pub step: Step,
}

/// Series that a device's steps are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverflowSeries {
    /// The device.
    pub device: DeviceId,
    /// Its number in [`OverflowStep`].
    pub series: u32,
    /// Time of its forgotten steps that was reassigned to another cause after they were forgotten,
    /// nanoseconds.
    pub moved_too_late_ns: u64,
}

/// Accounts at the start of a step.
#[derive(Debug)]
struct OpenStep {
    start: u64,
    operations: u64,
    leaves: Leaves,
}

impl OpenStep {
    /// Time recorded since then. Modulo 2^64, so that moving past time about never underflows in between.
    fn since(&self, leaves: &Leaves) -> Leaves {
        std::array::from_fn(|leaf| leaves[leaf].wrapping_sub(self.leaves[leaf]))
    }
}

#[derive(Debug)]
struct Series {
    /// Unique and never reused, unlike a source and period, which can recur.
    id: u32,
    source: StepSource,
    /// Launches per step; 0 unless it is a period.
    period: u32,
    seen: u64,
    operations: u64,
    launches: u64,
    matched: u64,
    rows: VecDeque<Step>,
    /// Totals of its iterations, if it has any.
    iterations: IterationTotals,
    /// True if the steps are iterations, and the newest ones are those of a server.
    serves: bool,
    /// True if the numbers of the iterations are twice as large as they are.
    wide: bool,
    /// Time of the steps that are no longer in the rows, nanoseconds.
    forgotten_ns: u64,
    open: Option<OpenStep>,
    /// Time of forgotten steps that was found to belong to another leaf afterwards, nanoseconds.
    moved_too_late_ns: u64,
}

impl Series {
    fn new(id: u32, source: StepSource, period: u32) -> Self {
        let rows = VecDeque::new();
        let (seen, operations, launches, matched, moved_too_late_ns, forgotten_ns) = (0, 0, 0, 0, 0, 0);
        Self {
            id,
            source,
            period,
            seen,
            operations,
            launches,
            matched,
            rows,
            iterations: IterationTotals::default(),
            serves: false,
            wide: false,
            forgotten_ns,
            open: None,
            moved_too_late_ns,
        }
    }

    /// Starts a step; the open one, which is `iteration` if it is that of a server, ends there and is logged.
    fn begin(
        &mut self,
        now: &OpenStep,
        iteration: Option<Iteration>,
        log: Option<&mut Vec<LoggedStep>>,
        overflow: Option<&mut Vec<OverflowStep>>,
    ) {
        let &OpenStep { start: at, operations, leaves } = now;
        let Some(open) = self.open.replace(OpenStep { start: at, operations, leaves }) else { return };
        if let Some(log) = log.filter(|log| log.len() < LOG_LIMIT) {
            let (start, end) = (Timestamp::from_nanos(open.start), Timestamp::from_nanos(at));
            let (series, kind) = (StepSeries { source: self.source, period: self.period }, iteration.map(|of| of.kind));
            log.push(LoggedStep { series, start, end, kind });
        }
        let (start, operations, leaves) = (open.start, operations - open.operations, open.since(&leaves));
        self.seen += 1;
        self.operations += operations;
        if self.rows.len() >= REMEMBERED
            && let Some(step) = self.rows.pop_front()
        {
            self.forgotten_ns += step.duration();
            if let Some(overflow) = overflow {
                let step = self.corrected(&step);
                overflow.push(OverflowStep { series: self.id, number: self.seen - 1 - REMEMBERED as u64, step });
            }
        }
        let (start, end) = (Timestamp::from_nanos(start), Timestamp::from_nanos(at));
        let step = Step { start, end, operations, leaves, iteration };
        if let Some(of) = iteration {
            self.iterations[of.kind as usize].add(&step, of.tokens);
        }
        self.rows.push_back(step);
    }
}

impl Series {
    /// Remembered steps, oldest first.
    fn steps(&self) -> Vec<Step> {
        self.rows.iter().map(|step| self.corrected(step)).collect()
    }

    /// The step with the numbers of its iteration for the size of its tokens.
    fn corrected(&self, step: &Step) -> Step {
        let halved = |of: Iteration| Iteration { sequences: of.sequences / 2, tokens: of.tokens / 2, ..of };
        Step { iteration: step.iteration.map(|of| if self.wide { halved(of) } else { of }), ..*step }
    }
}

/// All series of one device.
#[derive(Debug)]
pub(crate) struct StepTable {
    /// The first series are the windows.
    series: Vec<Series>,
    /// Time at which the open window is long enough; 0 before the first.
    window_end: u64,
    operations: u64,
    /// Steps that ended since the log was taken, if it is used.
    log: Option<Vec<LoggedStep>>,
    /// Steps that were forgotten since this was taken, if it is used.
    overflow: Option<Vec<OverflowStep>>,
    series_given: u32,
}

impl Default for StepTable {
    fn default() -> Self {
        let series = vec![Series::new(0, StepSource::Window, 0)];
        Self { series, window_end: 0, operations: 0, log: None, overflow: None, series_given: 1 }
    }
}

impl StepTable {
    /// An operation starts at `at`, up to which `leaves`, the accounts of the device, are complete.
    /// `annotated`: a named step starts with it.
    pub(crate) fn operation(&mut self, at: u64, annotated: bool, cuts: Cuts, leaves: &Leaves) {
        let window_ends = at >= self.window_end;
        if annotated || cuts != Cuts::default() || window_ends {
            let now = OpenStep { start: at, operations: self.operations, leaves: *leaves };
            if annotated {
                let index = self.find_or_add(StepSource::Annotated, 0);
                self.series[index].begin(&now, None, self.log.as_mut(), self.overflow.as_mut());
            }
            if let Some(IterationCut { ended, serves, wide }) = cuts.iteration {
                let index = self.find_or_add(StepSource::Iteration, 0);
                let series = &mut self.series[index];
                (series.serves, series.wide) = (serves, wide);
                if ended.is_none() {
                    series.open = None;
                }
                series.begin(&now, ended, self.log.as_mut(), self.overflow.as_mut());
            }
            match cuts.step {
                Some(Cut::Begin(boundary)) => self.begin(boundary, &now),
                Some(Cut::Lost) => self.close_found(None),
                None => {}
            }
            if window_ends {
                self.series[0].begin(&now, None, None, self.overflow.as_mut());
                self.window_end = at.saturating_add(WINDOW_NANOS);
            }
        }
        self.operations += 1;
    }

    fn begin(&mut self, boundary: Boundary, now: &OpenStep) {
        let Boundary { source, period, launches, matched } = boundary;
        self.close_found(Some((source, period)));
        let index = self.find_or_add(source, period);
        let series = &mut self.series[index];
        if series.open.is_some() {
            series.launches += u64::from(launches);
            series.matched += u64::from(matched);
        }
        series.begin(now, None, self.log.as_mut(), self.overflow.as_mut());
    }

    /// Keeps forgotten steps from now on, until [`take_overflow`](Self::take_overflow).
    pub(crate) fn keep_overflow(&mut self) {
        self.overflow.get_or_insert_default();
    }

    /// Steps of all series that were forgotten since the last call, if they are kept.
    pub(crate) fn take_overflow(&mut self) -> Vec<OverflowStep> {
        self.overflow.as_mut().map_or_else(Vec::new, std::mem::take)
    }

    /// Series that represents `device`, to which this table belongs.
    pub(crate) fn overflow_series(&self, device: DeviceId) -> OverflowSeries {
        let representative = self.representative().unwrap_or(&self.series[0]);
        OverflowSeries { device, series: representative.id, moved_too_late_ns: representative.moved_too_late_ns }
    }

    /// Steps that ended since the last call; they are logged from the first call on.
    pub(crate) fn take_log(&mut self) -> Vec<LoggedStep> {
        self.log.replace(Vec::new()).unwrap_or_default()
    }

    /// Drops the open steps of series that the detector found, except in `keep`.
    fn close_found(&mut self, keep: Option<(StepSource, u32)>) {
        for series in &mut self.series {
            let found = matches!(series.source, StepSource::Period | StepSource::Anchor);
            if found && Some((series.source, series.period)) != keep {
                series.open = None;
            }
        }
    }

    /// Moves `from..to` from one leaf to another, in ended steps too. `leaves`: the accounts before the move.
    pub(crate) fn transfer(&mut self, was: Leaf, is: Leaf, from: u64, to: u64, leaves: &Leaves) {
        let (was, is) = (was as usize, is as usize);
        let within = |start: u64, end: u64| end.min(to).saturating_sub(start.max(from));
        for series in &mut self.series {
            if let Some(open) = &mut series.open {
                // Time before the step moves in the accounts at the step's start.
                let nanos = within(open.start, u64::MAX).min(open.since(leaves)[was]);
                let before = to - from - nanos;
                open.leaves[was] = open.leaves[was].wrapping_sub(before);
                open.leaves[is] = open.leaves[is].wrapping_add(before);
            }
            if series.seen > series.rows.len() as u64 {
                let forgotten_until = series.rows.front().map_or(0, |row| row.start.nanos());
                series.moved_too_late_ns += to.min(forgotten_until).saturating_sub(from);
            }
            for row in series.rows.iter_mut().rev().take_while(|row| row.end.nanos() > from) {
                let nanos = within(row.start.nanos(), row.end.nanos()).min(row.leaves[was]);
                row.leaves[was] -= nanos;
                row.leaves[is] += nanos;
            }
        }
    }

    /// Steps that represent the device best: from the most reliable source that covers a fair part of it.
    pub(crate) fn steps(&self) -> Steps {
        let Some(series) = self.representative() else {
            return Steps { source: StepSource::Window, period: None, seen: 0, rows: Vec::new() };
        };
        let rows = series.steps();
        let period = (series.source == StepSource::Period).then(|| {
            let mut operations: Vec<u64> = rows.iter().map(|row| row.operations).collect();
            operations.sort_unstable();
            operations[operations.len() / 2]
        });
        Steps { source: series.source, period, seen: series.seen, rows }
    }

    /// Kinds of those steps, if they are the iterations of a server.
    pub(crate) fn iteration_kinds(&self) -> Vec<StepKind> {
        let series = self.representative().filter(|series| series.source == StepSource::Iteration);
        series.map_or_else(Vec::new, |series| {
            let mut kinds = StepKind::by_iteration(&series.steps(), &series.iterations);
            kinds
                .iter_mut()
                .for_each(|kind| kind.tokens = kind.tokens.map(|tokens| if series.wide { tokens / 2 } else { tokens }));
            kinds
        })
    }

    /// Time of those steps that are no longer remembered, as far as it is after `from`, nanoseconds.
    pub(crate) fn forgotten_ns(&self, from: Timestamp) -> u64 {
        let Some(series) = self.representative() else { return 0 };
        let first = series.rows.front().map_or(from, |row| row.start);
        series.forgotten_ns.min(first.nanos().saturating_sub(from.nanos()))
    }

    /// Remembered windows, oldest first.
    pub(crate) fn windows(&self) -> Vec<Step> {
        self.series[0].rows.iter().copied().collect()
    }

    /// Newest `count` windows at most, oldest first.
    pub(crate) fn newest_windows(&self, count: usize) -> Vec<Step> {
        let rows = &self.series[0].rows;
        rows.range(rows.len().saturating_sub(count)..).copied().collect()
    }

    /// Series of those steps.
    pub(crate) fn representative_series(&self) -> StepSeries {
        let representative = self.representative().unwrap_or(&self.series[0]);
        StepSeries { source: representative.source, period: representative.period }
    }

    /// Fraction of the launches in these steps with the same kernel and grid as the launch one period before;
    /// `None` unless they were found by period.
    pub(crate) fn match_rate(&self) -> Option<f64> {
        let series = self.representative().filter(|series| series.source == StepSource::Period)?;
        Some(series.matched as f64 / series.launches.max(1) as f64)
    }

    fn representative(&self) -> Option<&Series> {
        let most = self.series.iter().map(|series| series.operations).max()?;
        let speaks = |series: &&Series| {
            let named = series.source == StepSource::Annotated;
            let is_found = series.source != StepSource::Iteration || series.serves;
            is_found && !series.rows.is_empty() && (named || series.operations >= most / REPRESENTATIVE_PART)
        };
        self.series.iter().filter(speaks).min_by_key(|series| (series.source, std::cmp::Reverse(series.operations)))
    }

    fn find_or_add(&mut self, source: StepSource, period: u32) -> usize {
        let same = |series: &Series| (series.source, series.period) == (source, period);
        self.series.iter().position(same).unwrap_or_else(|| {
            if self.series.len() >= SERIES_LIMIT {
                let periods = self.series.iter().enumerate().filter(|(_, series)| series.source == StepSource::Period);
                let least = periods.min_by_key(|(_, series)| (series.open.is_some(), series.operations));
                if let Some((index, _)) = least {
                    self.series.remove(index);
                }
            }
            self.series.push(Series::new(self.series_given, source, period));
            self.series_given += 1;
            self.series.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leaf::LEAF_COUNT;

    /// A step table with the accounts of its device.
    struct DeviceSteps {
        step_table: StepTable,
        leaves: Leaves,
    }

    impl DeviceSteps {
        fn new() -> Self {
            Self { step_table: StepTable::default(), leaves: [0; LEAF_COUNT] }
        }

        fn operation(&mut self, at: u64, annotated: bool, cut: Option<Cut>) {
            self.step_table.operation(at, annotated, Cuts { step: cut, iteration: None }, &self.leaves);
        }

        fn add(&mut self, leaf: Leaf, nanos: u64) {
            self.leaves[leaf as usize] += nanos;
        }

        fn steps(&self) -> Steps {
            self.step_table.steps()
        }
    }

    fn period(period: u32) -> Option<Cut> {
        Some(Cut::Begin(Boundary { source: StepSource::Period, period, launches: 2, matched: 1 }))
    }

    #[test]
    fn a_step_has_what_was_entered_between_its_boundaries() {
        let mut device = DeviceSteps::new();
        for step in 0..3 {
            device.operation(100 * step, false, period(2));
            device.add(Leaf::Compute, 60);
            device.operation(100 * step + 60, false, None);
            device.add(Leaf::Dispatch, 40);
        }
        let steps = device.steps();
        assert_eq!((steps.source, steps.period, steps.seen), (StepSource::Period, Some(2), 2));
        for row in &steps.rows {
            assert_eq!(row.leaves.iter().sum::<u64>(), row.end.since(row.start));
            assert_eq!((row.leaves[Leaf::Compute as usize], row.operations), (60, 2));
        }
        assert_eq!(device.step_table.match_rate(), Some(0.5));
    }

    #[test]
    fn a_late_operation_changes_steps_that_are_over() {
        let mut device = DeviceSteps::new();
        for step in 0..4 {
            device.operation(100 * step, false, period(1));
            device.add(Leaf::HostCpu, 100);
        }
        device.step_table.transfer(Leaf::HostCpu, Leaf::Compute, 150, 330, &device.leaves);
        device.leaves[Leaf::HostCpu as usize] -= 180;
        device.leaves[Leaf::Compute as usize] += 180;
        device.operation(400, false, period(1));
        let compute: Vec<_> = device.steps().rows.iter().map(|row| row.leaves[Leaf::Compute as usize]).collect();
        assert_eq!(compute, [0, 50, 100, 30], "the last step was open");
    }

    #[test]
    fn the_trustworthy_speak_when_they_cover_enough() {
        let mut device = DeviceSteps::new();
        let second = WINDOW_NANOS;
        for at in 0..3 {
            device.operation(at, false, period(15));
        }
        for at in 1..20 {
            device.operation(at * second, false, (at > 10).then(|| period(1_206)).flatten());
            device.add(Leaf::Compute, second);
        }
        assert_eq!(device.steps().period, Some(1), "operations, not launches");
        assert_eq!((device.steps().source, device.steps().seen), (StepSource::Period, 8));
        for at in 20..200 {
            device.operation(at * second, false, Some(Cut::Lost));
        }
        assert_eq!(device.steps().source, StepSource::Window);
        for at in 200..203 {
            device.operation(at * second, true, None);
        }
        assert_eq!((device.steps().source, device.steps().seen), (StepSource::Annotated, 2));
    }

    #[test]
    fn what_is_forgotten_can_be_taken_and_sums_with_what_is_remembered() {
        let mut device = DeviceSteps::new();
        device.step_table.keep_overflow();
        let mut taken = Vec::new();
        for step in 0..5_000 {
            device.operation(100 * step, true, None);
            device.add(Leaf::Compute, 100);
            if step % 777 == 0 {
                taken.extend(device.step_table.take_overflow());
            }
        }
        taken.extend(device.step_table.take_overflow());
        let OverflowSeries { series, moved_too_late_ns: late, .. } = device.step_table.overflow_series(DeviceId(0));
        let steps = device.steps();
        let of_series = taken.iter().filter(|step| step.series == series);
        let all: Vec<_> = of_series.map(|step| step.step).chain(steps.rows.iter().copied()).collect();
        assert_eq!((all.len() as u64, late), (steps.seen, 0));
        assert!(all.iter().zip(0..).all(|(step, number)| step.start.nanos() == 100 * number), "in order, none twice");
        let numbers = taken.iter().filter(|step| step.series == series).map(|step| step.number);
        assert!(numbers.eq(0..steps.seen - REMEMBERED as u64));
        assert!(device.step_table.take_overflow().is_empty());
        // Half of the range was before the oldest remembered step.
        let oldest = steps.rows[0].start.nanos();
        device.step_table.transfer(Leaf::Compute, Leaf::Dispatch, oldest - 50, oldest + 50, &device.leaves);
        assert_eq!(device.step_table.overflow_series(DeviceId(0)).moved_too_late_ns, 50);
        assert_eq!(device.steps().rows[0].leaves[Leaf::Dispatch as usize], 50);
    }

    #[test]
    fn a_series_that_comes_again_has_another_number() {
        let mut device = DeviceSteps::new();
        device.step_table.keep_overflow();
        for at in 0..2_000 {
            device.operation(at, false, period(7));
        }
        for other in 100..110 {
            device.operation(u64::from(other) * 100, false, period(other));
        }
        for at in 20_000..23_000 {
            device.operation(at, false, period(7));
        }
        let taken = device.step_table.take_overflow();
        let representative = device.step_table.overflow_series(DeviceId(0)).series;
        let of_representative = taken.iter().filter(|step| step.series == representative).count();
        let steps = device.steps();
        assert_eq!(of_representative + steps.rows.len(), steps.seen as usize, "{} of all", taken.len());
    }

    #[test]
    fn no_more_is_kept_than_the_limits_allow() {
        let mut device = DeviceSteps::new();
        for step in 0..10_000 {
            device.operation(step, true, period(1 + (step / 1_000) as u32));
        }
        assert!(device.step_table.series.len() <= SERIES_LIMIT);
        let steps = device.steps();
        assert_eq!((steps.seen, steps.rows.len()), (9_999, REMEMBERED));
        assert_eq!(steps.rows.last().map(|row| row.end.nanos()), Some(9_999));
    }
}
