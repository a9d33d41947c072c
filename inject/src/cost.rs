//! What tracing takes here, measured beside the work, and the budget for it.
//!
//! Owned by the collector: it sees every record, which is what most of the cost is counted by (`gpuwhy_trace::cost`).
//! Callbacks add their own time with two clock readings for a buffer of thousands of records; threads of the library
//! are measured by their clocks at each flush. Nothing here is on the path of a launch.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gpuwhy_trace::cost::{COPY_NANOS, Cost, GRAPH_NODE_NANOS, LAUNCH_NANOS, Mode};
use gpuwhy_trace::record::{OverheadKind, Record, Timestamp};

use crate::sys::threads;

/// Threads of the library whose clocks are read: collector, flusher, sampler.
const THREADS: usize = 3;
/// How often what was taken is written into the trace, so that a killed program's trace has it too.
const WRITTEN_EVERY: u64 = 10_000_000_000;
/// A budget is compared with the cost of a period of this length: ten flushes.
const PERIOD_NANOS: u64 = 1_000_000_000;
/// So many periods in a row must be too costly: loading modules and the first steps are no reason to give something up.
const CONSECUTIVE_COSTLY_PERIODS: u32 = 3;

/// What other threads leave here. All `Relaxed`: statistics that order nothing.
#[derive(Debug, Default)]
pub struct CallbackTimer {
    /// Time in callbacks for buffers, nanoseconds.
    callbacks: AtomicU64,
    /// Thread ids of the library; 0 while there are fewer.
    threads: [AtomicU32; THREADS],
}

impl CallbackTimer {
    /// The calling thread is one of the library's.
    pub fn add_this_thread(&self) {
        let thread = threads::thread_id();
        for place in &self.threads {
            if place.compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }

    /// Does `work`, a callback, and adds the time that it takes.
    pub fn timed<T>(&self, work: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let answer = work();
        let taken = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.callbacks.fetch_add(taken, Ordering::Relaxed);
        answer
    }
}

/// What is to be done after a flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Write what was taken.
    pub write: bool,
    /// Record less from now on.
    pub step_down: Option<Mode>,
}

/// Adds up, and compares with the budget.
#[derive(Debug)]
pub struct CostTracker {
    cost: Cost,
    /// What is recorded now.
    mode: Mode,
    /// Part of the launching threads' time that may be taken.
    budget: Option<f64>,
    /// The flush or the beginning before, while tracing is on.
    last: Option<Timestamp>,
    /// What was taken when the current period began.
    period: Cost,
    /// Periods in a row that took too much.
    too_costly: u32,
    /// Observed time when it was last written.
    written: u64,
    spent: [Duration; THREADS],
}

impl CostTracker {
    /// Nothing taken yet.
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

    /// The totals so far.
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

    /// Tracing is on from here, or was already: short runs have no second flush to measure from.
    pub fn begun(&mut self, at: Timestamp) {
        self.last.get_or_insert(at);
    }

    /// Tracing is off for now: the time until the next flush is not observed.
    pub fn idle(&mut self) {
        self.last = None;
    }

    /// Bursts so far, the time that was recorded in them, and how much longer a step takes since the first one.
    pub fn bursts(&mut self, (bursts, nanos, slowed): (u32, u64, Option<(f64, f64)>)) {
        (self.cost.bursts, self.cost.burst_ns, self.cost.slowed) = (bursts, nanos, slowed);
    }

    /// Nodes of CUDA graphs are records from here on.
    pub fn record_nodes(&mut self, at: Timestamp) {
        self.cost.nodes_since = at;
    }

    /// What recording the nodes of whole graphs would have cost so far, nanoseconds.
    pub fn unrecorded_nodes(&mut self, nanos: u64) {
        self.cost.unrecorded_nodes_ns = nanos;
    }

    /// A flush at `at`.
    pub fn flushed(&mut self, at: Timestamp, meters: &CallbackTimer) -> Due {
        self.finish(at, meters);
        let write = self.cost.observed_ns - self.written >= WRITTEN_EVERY;
        if write {
            self.written = self.cost.observed_ns;
        }
        Due { write, step_down: self.judge(at) }
    }

    /// Brings the totals up to `at`. Nothing is judged any more.
    pub fn finish(&mut self, at: Timestamp, meters: &CallbackTimer) {
        if let Some(last) = self.last.replace(at) {
            self.cost.observed_ns += at.since(last);
        }
        self.cost.callback_ns = meters.callbacks.load(Ordering::Relaxed);
        for (place, spent) in meters.threads.iter().zip(&mut self.spent) {
            // One that has ended keeps what was last seen.
            *spent = threads::thread_cpu_time(place.load(Ordering::Relaxed)).unwrap_or(*spent);
        }
        let spent: Duration = self.spent.iter().sum();
        self.cost.threads_ns = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
    }

    /// Whether too much was taken for too long. Nothing is ever stepped up again: what made it too costly would be back
    /// at once, and CUPTI does not give a launch its full speed back in between.
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

    /// Seconds of `kernels` launches each, in ten flushes; the steps down that were asked for.
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
