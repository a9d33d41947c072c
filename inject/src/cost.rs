//! Cost of tracing, measured while it runs, and its budget.
//!
//! Owned by the collector: it sees every record, and most of the cost is computed from their counts
//! (`gpuwhy_trace::cost`). Callbacks add their own time with two clock readings per buffer of thousands of
//! records; threads of the library are measured by their CPU clocks at each flush. None of this is on the
//! path of a launch.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gpuwhy_trace::cost::{COPY_NANOS, Cost, GRAPH_NODE_NANOS, LAUNCH_NANOS, Mode};
use gpuwhy_trace::record::{OverheadKind, Record, Timestamp};

use crate::sys::threads;

/// Number of library threads whose clocks are read: collector, flusher, sampler.
const THREADS: usize = 3;
/// Interval at which the cost is written to the trace, so that the trace of a killed program has it too.
const WRITTEN_EVERY: u64 = 10_000_000_000;
/// Period over which the cost is compared with the budget: ten flushes.
const PERIOD_NANOS: u64 = 1_000_000_000;
/// Number of consecutive periods that must be too costly: loading modules and the first steps must not cause
/// a step down.
const CONSECUTIVE_COSTLY_PERIODS: u32 = 3;

/// Measurements that other threads add. All `Relaxed`: statistics without ordering.
#[derive(Debug, Default)]
pub struct CallbackTimer {
    /// Time in buffer callbacks, nanoseconds.
    callbacks: AtomicU64,
    /// Thread ids of the library; 0 for unused entries.
    threads: [AtomicU32; THREADS],
}

impl CallbackTimer {
    /// Registers the calling thread as one of the library's.
    pub fn add_this_thread(&self) {
        let thread = threads::thread_id();
        for place in &self.threads {
            if place.compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }

    /// Runs `work`, a callback, and adds its time.
    pub fn timed<T>(&self, work: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let answer = work();
        let taken = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.callbacks.fetch_add(taken, Ordering::Relaxed);
        answer
    }
}

/// Actions that are due after a flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Write the cost to the trace.
    pub write: bool,
    /// Record less from now on.
    pub step_down: Option<Mode>,
}

/// Adds up the cost, and compares it with the budget.
#[derive(Debug)]
pub struct CostTracker {
    cost: Cost,
    /// Current mode.
    mode: Mode,
    /// Fraction of the launching threads' time that tracing may take.
    budget: Option<f64>,
    /// The previous flush or start, while tracing is on.
    last: Option<Timestamp>,
    /// Cost at the start of the current period.
    period: Cost,
    /// Consecutive periods that were too costly.
    too_costly: u32,
    /// Observed time at the last write.
    written: u64,
    spent: [Duration; THREADS],
}

impl CostTracker {
    /// Creates a tracker without any cost.
    pub fn new(mode: Mode, whole_graphs: bool, budget: Option<f64>) -> Self {
        let cost = Cost { mode, whole_graphs, ..Cost::default() };
        Self {
            cost,
            mode,
            budget,
            last: None,
            period: cost,
            too_costly: 0,
            written: 0,
            spent: [Duration::ZERO; THREADS],
        }
    }

    /// Totals up to now.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    #[inline]
    pub fn record(&mut self, record: &Record) {
        let node = |graph: u32, alone| if graph == 0 { alone } else { GRAPH_NODE_NANOS };
        self.cost.records_ns += match record {
            Record::Kernel(kernel) => node(kernel.graph_id, LAUNCH_NANOS),
            Record::Copy(copy) => node(copy.graph_id, COPY_NANOS),
            Record::Memset(memset) => node(memset.graph_id, COPY_NANOS),
            _ => 0,
        };
        if let Record::Overhead(overhead) = record {
            let by_tracing = matches!(
                overhead.kind,
                OverheadKind::Instrumentation | OverheadKind::Resource | OverheadKind::ActivityBufferRequest
            );
            if by_tracing && overhead.thread.0 != 0 && overhead.start != Timestamp::ZERO {
                self.cost.cupti_ns += overhead.end.since(overhead.start);
            }
        }
    }

    /// Notes that tracing is on at `at`, unless it was already: short runs have no second flush to measure
    /// from.
    pub fn begun(&mut self, at: Timestamp) {
        self.last.get_or_insert(at);
    }

    /// Notes that tracing is off: the time until the next flush is not observed.
    pub fn idle(&mut self) {
        self.last = None;
    }

    /// Sets the number of bursts, the time recorded in them, and the increase of the step time since the
    /// first one.
    pub fn bursts(&mut self, (bursts, nanos, slowed): (u32, u64, Option<(f64, f64)>)) {
        (self.cost.bursts, self.cost.burst_ns, self.cost.slowed) = (bursts, nanos, slowed);
    }

    /// Notes that nodes of CUDA graphs are recorded from now on.
    pub fn record_nodes(&mut self, at: Timestamp) {
        self.cost.nodes_since = at;
    }

    /// Sets what recording the nodes of whole graphs would have cost up to now, nanoseconds.
    pub fn unrecorded_nodes(&mut self, nanos: u64) {
        self.cost.unrecorded_nodes_ns = nanos;
    }

    /// Handles a flush at `at`.
    pub fn flushed(&mut self, at: Timestamp, meters: &CallbackTimer) -> Due {
        self.finish(at, meters);
        let write = self.cost.observed_ns - self.written >= WRITTEN_EVERY;
        if write {
            self.written = self.cost.observed_ns;
        }
        Due { write, step_down: self.judge(at) }
    }

    /// Brings the totals up to `at`, without comparing them with the budget.
    pub fn finish(&mut self, at: Timestamp, meters: &CallbackTimer) {
        if let Some(last) = self.last.replace(at) {
            self.cost.observed_ns += at.since(last);
        }
        self.cost.callback_ns = meters.callbacks.load(Ordering::Relaxed);
        for (place, spent) in meters.threads.iter().zip(&mut self.spent) {
            // A thread that has ended keeps its last value.
            *spent = threads::thread_cpu_time(place.load(Ordering::Relaxed)).unwrap_or(*spent);
        }
        let spent: Duration = self.spent.iter().sum();
        self.cost.threads_ns = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
    }

    /// Returns the mode to step down to, if tracing was too costly for too long. It never steps up again: the
    /// high cost would return at once, and CUPTI does not restore the full launch speed in between.
    fn judge(&mut self, at: Timestamp) -> Option<Mode> {
        let budget = self.budget?;
        let taken = self.cost.since(&self.period);
        if taken.observed_ns < PERIOD_NANOS {
            return None;
        }
        self.period = self.cost;
        self.too_costly = if taken.share()? > budget { self.too_costly + 1 } else { 0 };
        if self.too_costly < CONSECUTIVE_COSTLY_PERIODS {
            return None;
        }
        self.too_costly = 0;
        self.mode = self.mode.below()?;
        self.cost.step_down(at, self.mode);
        Some(self.mode)
    }
}

#[cfg(test)]
mod tests {
    use gpuwhy_trace::record::Kernel;

    use super::*;

    /// Runs seconds with `kernels` launches each, in ten flushes; returns the steps down.
    fn run(account: &mut CostTracker, from: u64, seconds: &[u32]) -> Vec<(u64, Mode)> {
        let meters = CallbackTimer::default();
        let mut steps = Vec::new();
        for (second, kernels) in (from..).zip(seconds) {
            for tenth in 0..10 {
                for _ in 0..kernels / 10 {
                    account.record(&Record::Kernel(Kernel::default()));
                }
                let at = Timestamp::from_nanos(1_000_000_000 * (second + 1) + 100_000_000 * tenth);
                steps.extend(account.flushed(at, &meters).step_down.map(|mode| (second, mode)));
            }
        }
        steps
    }

    #[test]
    fn three_costly_seconds_in_a_row_step_down_and_one_quiet_one_forgives() {
        let mut account = CostTracker::new(Mode::Full, false, Some(0.01));
        // 20,000 launches a second are 1.8 %, 5,000 are 0.5 %.
        assert_eq!(run(&mut account, 0, &[20_000, 20_000, 5_000, 20_000, 20_000]), []);
        let steps = run(&mut account, 5, &[20_000; 9]);
        assert_eq!(steps.iter().map(|step| step.1).collect::<Vec<_>>(), [Mode::Light, Mode::Monitor]);
        assert_eq!(account.cost().steps_down().count(), 2);
        assert_eq!(account.cost().mode, Mode::Full, "what was chosen");
    }

    #[test]
    fn without_a_budget_nothing_is_given_up() {
        let mut account = CostTracker::new(Mode::Light, false, None);
        assert_eq!(run(&mut account, 0, &[1_000_000; 5]), []);
        let share = account.cost().share().unwrap();
        assert!((0.9..1.0).contains(&share), "{share}");
    }

    #[test]
    fn time_in_callbacks_and_on_own_threads_is_seen() {
        let meters = CallbackTimer::default();
        meters.add_this_thread();
        let answer = meters.timed(|| (0..2_000_000u64).fold(0, |sum, number| sum ^ std::hint::black_box(number)));
        assert!(answer < u64::MAX);
        let mut account = CostTracker::new(Mode::Light, false, None);
        account.begun(Timestamp::from_nanos(1));
        account.flushed(Timestamp::from_nanos(1_000_000_001), &meters);
        assert!(account.cost().core_share().is_some_and(|share| share > 0.0), "{:?}", account.cost());
        assert!(account.cost().callback_ns > 0 && account.cost().threads_ns > 0, "{:?}", account.cost());
    }
}
