//! Cost of tracing, measured while it runs, and its budget.
//!
//! Owned by the collector: it sees every record, and most of the cost is computed from their counts
//! (`gpuwhy_trace::cost`). Callbacks add their own time with two clock readings per buffer of thousands of
//! records; threads of the library are measured by their CPU clocks at each flush. None of this is on the
//! path of a launch.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gpuwhy_trace::cost::{COPY_NANOS, Cost, LAUNCH_NANOS, Mode};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{OverheadKind, Record, Timestamp};

use crate::cupti::graphs::GraphCost;
use crate::sys::threads;

/// Number of library threads whose clocks are read: all of `start::Threads`.
const THREADS: usize = 6;
/// Interval at which the cost is written to the trace, so that the trace of a killed program has it too.
const WRITTEN_EVERY: u64 = 1_000_000_000;
/// Period over which the cost is compared with the budget: ten flushes.
const PERIOD_NANOS: u64 = 1_000_000_000;
/// Number of consecutive periods that must be too costly: loading modules and the first steps must not cause
/// a step down.
const CONSECUTIVE_COSTLY_PERIODS: u32 = 3;
/// The same for nodes of graphs: by then enough steps are recorded for a report.
const COSTLY_GRAPH_PERIODS: u32 = 10;

/// Limit on the cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Fraction of the launching threads' time that tracing may take, 0 to 1.
    pub share: f64,
    /// True if only nodes of CUDA graphs are limited.
    pub only_graphs: bool,
    /// True if captures can be bursts.
    pub bursts: bool,
}

impl Budget {
    /// Budget of a process in which recording can be switched off and on, or cannot. `None` if nothing can be saved
    /// then.
    pub fn if_bursts(self, can: bool) -> Option<Self> {
        let bursts = self.bursts && can;
        (bursts || !self.only_graphs).then_some(Self { bursts, ..self })
    }
}

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
        for slot in &self.threads {
            if slot.compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return;
            }
        }
        debug_assert!(false, "more than {THREADS} threads");
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
    budget: Option<Budget>,
    pub graphs: GraphCost,
    /// The previous flush or start, while tracing is on.
    last: Option<Timestamp>,
    /// Cost at the start of the current period, and that of graphs.
    period: Cost,
    period_graphs: u64,
    /// Consecutive periods that were too costly.
    too_costly: u32,
    /// Observed time at the last write.
    written: u64,
    spent: [Duration; THREADS],
}

impl CostTracker {
    /// Creates a tracker without any cost.
    pub fn new(mode: Mode, whole_graphs: bool, budget: Option<Budget>) -> Self {
        let cost = Cost { mode, whole_graphs, ..Cost::default() };
        Self {
            cost,
            mode,
            budget,
            graphs: GraphCost::new(whole_graphs),
            last: None,
            period: cost,
            period_graphs: 0,
            too_costly: 0,
            written: 0,
            spent: [Duration::ZERO; THREADS],
        }
    }

    /// Totals up to now.
    pub fn cost(&self) -> Cost {
        let records_ns = self.cost.records_ns.saturating_add(self.graphs.taken_ns());
        let unrecorded_nodes_ns = if self.graphs.is_whole() { self.graphs.unrecorded_ns() } else { 0 };
        Cost { records_ns, unrecorded_nodes_ns, ..self.cost }
    }

    /// Counts a record of CUPTI.
    #[inline]
    pub fn record(&mut self, record: &Record, dictionary: &Dictionary) {
        self.graphs.record(record, dictionary);
        self.cost.records_ns += match record {
            Record::Kernel(kernel) if kernel.graph_id == 0 => LAUNCH_NANOS,
            Record::Copy(copy) if copy.graph_id == 0 => COPY_NANOS,
            Record::Memset(memset) if memset.graph_id == 0 => COPY_NANOS,
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

    /// Notes a CUDA graph that has been instantiated with this number of nodes.
    pub fn instantiated(&mut self, graph: u32, nodes: u32) {
        self.graphs.instantiated(graph, nodes);
    }

    /// Notes that nodes of CUDA graphs are recorded from now on, and were not before.
    pub fn record_nodes(&mut self, at: Timestamp) {
        self.graphs.record_nodes();
        self.cost.nodes_since = at;
    }

    /// Handles a flush at `at`. `share_of_tracing`: the part of a step, 0 to 1, that tracing takes by the simulation;
    /// `None` if unknown.
    pub fn flushed(
        &mut self,
        at: Timestamp,
        meters: &CallbackTimer,
        share_of_tracing: impl FnOnce() -> Option<f64>,
    ) -> Due {
        self.finish(at, meters);
        let write = self.cost.observed_ns - self.written >= WRITTEN_EVERY;
        if write {
            self.written = self.cost.observed_ns;
        }
        Due { write, step_down: self.judge(share_of_tracing) }
    }

    /// Brings the totals up to `at`, without comparing them with the budget.
    pub fn finish(&mut self, at: Timestamp, meters: &CallbackTimer) {
        if let Some(last) = self.last.replace(at) {
            self.cost.observed_ns += at.since(last);
        }
        self.cost.callback_ns = meters.callbacks.load(Ordering::Relaxed);
        for (slot, spent) in meters.threads.iter().zip(&mut self.spent) {
            // A thread that has ended keeps its last value.
            *spent = threads::thread_cpu_time(slot.load(Ordering::Relaxed)).unwrap_or(*spent);
        }
        let spent: Duration = self.spent.iter().sum();
        self.cost.threads_ns = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
    }

    /// Returns the mode to step down to, if tracing was too costly for too long. It never steps up again: the
    /// high cost would return at once, and CUPTI does not restore the full launch speed in between.
    fn judge(&mut self, share_of_tracing: impl FnOnce() -> Option<f64>) -> Option<Mode> {
        let budget = self.budget?;
        let cost = self.cost();
        let taken = cost.since(&self.period);
        if taken.observed_ns < PERIOD_NANOS {
            return None;
        }
        let mode = self.mode.below(budget.bursts)?;
        self.period = cost;
        let graphs = self.graphs.taken_ns();
        let of_graphs = graphs.saturating_sub(std::mem::replace(&mut self.period_graphs, graphs));
        let (is_costly, periods) = if budget.only_graphs {
            let share = of_graphs as f64 / taken.observed_ns as f64;
            // A thread that launches ahead of the device hides the cost, which only the simulation knows.
            let is_costly = share > budget.share && share_of_tracing().unwrap_or(share) > budget.share;
            (is_costly, COSTLY_GRAPH_PERIODS)
        } else {
            (taken.share()? > budget.share, CONSECUTIVE_COSTLY_PERIODS)
        };
        self.too_costly = if is_costly { self.too_costly + 1 } else { 0 };
        if self.too_costly < periods {
            return None;
        }
        self.too_costly = 0;
        Some(mode)
    }

    /// Notes that less is recorded from `at` on.
    pub fn stepped_down(&mut self, at: Timestamp, mode: Mode) {
        self.mode = mode;
        self.cost.step_down(at, mode);
    }
}

#[cfg(test)]
mod tests {
    use gpuwhy_trace::record::Kernel;

    use super::*;

    const BUDGET: Budget = Budget { share: 0.01, only_graphs: false, bursts: false };

    /// Runs seconds with `kernels` launches each, in ten flushes; returns the steps down.
    fn run(account: &mut CostTracker, from: u64, seconds: &[u32]) -> Vec<(u64, Mode)> {
        run_graphs(account, from, seconds, 0, None)
    }

    /// The same, with nodes of a graph. Tracing takes this share of a step.
    fn run_graphs(
        account: &mut CostTracker,
        from: u64,
        seconds: &[u32],
        graph_id: u32,
        share: Option<f64>,
    ) -> Vec<(u64, Mode)> {
        let (meters, dictionary) = (CallbackTimer::default(), Dictionary::new());
        let mut steps = Vec::new();
        for (second, kernels) in (from..).zip(seconds) {
            for tenth in 0..10 {
                for _ in 0..kernels / 10 {
                    account.record(&Record::Kernel(Kernel { graph_id, ..Kernel::default() }), &dictionary);
                }
                let at = Timestamp::from_nanos(1_000_000_000 * (second + 1) + 100_000_000 * tenth);
                if let Some(mode) = account.flushed(at, &meters, || share).step_down {
                    account.stepped_down(at, mode);
                    steps.push((second, mode));
                }
            }
        }
        steps
    }

    #[test]
    fn three_costly_seconds_in_a_row_step_down_and_one_quiet_one_forgives() {
        let mut account = CostTracker::new(Mode::Full, false, Some(BUDGET));
        // 20,000 launches a second are 1.8 %, 5,000 are 0.5 %.
        assert_eq!(run(&mut account, 0, &[20_000, 20_000, 5_000, 20_000, 20_000]), []);
        let steps = run(&mut account, 5, &[20_000; 9]);
        assert_eq!(steps.iter().map(|step| step.1).collect::<Vec<_>>(), [Mode::Light, Mode::Monitor]);
        assert_eq!(account.cost().steps_down().count(), 2);
        assert_eq!(account.cost().mode, Mode::Full, "what was chosen");
        let mut account = CostTracker::new(Mode::Light, false, Some(Budget { bursts: true, ..BUDGET }));
        assert_eq!(run(&mut account, 0, &[20_000; 20]).len(), 1, "bursts have a budget of their own");
        assert!(account.cost().has_bursts());
    }

    #[test]
    fn ten_seconds_of_costly_nodes_lead_to_bursts_unless_the_device_hides_them() {
        let graphs = Budget { share: 0.03, only_graphs: true, bursts: true };
        let tracker = || CostTracker::new(Mode::Light, false, Some(graphs));
        assert_eq!(run(&mut tracker(), 0, &[1_000_000; 20]), [], "launches are not limited");
        for share in [None, Some(0.2)] {
            let steps = run_graphs(&mut tracker(), 0, &[100_000; 20], 1, share);
            assert_eq!(steps.iter().map(|&(_, mode)| mode).collect::<Vec<_>>(), [Mode::Auto]);
            assert!((9..=11).contains(&steps[0].0), "{steps:?}");
        }
        assert_eq!(run_graphs(&mut tracker(), 0, &[100_000; 20], 1, Some(0.01)), [], "hidden");
        assert_eq!(run_graphs(&mut tracker(), 0, &[1_000; 20], 1, Some(0.2)), [], "something else is traced");
    }

    #[test]
    fn a_library_whose_kernel_records_stay_on_has_no_budget_for_graphs() {
        let graphs = Budget { only_graphs: true, bursts: true, ..BUDGET };
        assert_eq!((graphs.if_bursts(true), graphs.if_bursts(false)), (Some(graphs), None));
        assert_eq!(Budget { bursts: true, ..BUDGET }.if_bursts(false), Some(BUDGET));
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
        account.flushed(Timestamp::from_nanos(1_000_000_001), &meters, || None);
        assert!(account.cost().core_share().is_some_and(|share| share > 0.0), "{:?}", account.cost());
        assert!(account.cost().callback_ns > 0 && account.cost().threads_ns > 0, "{:?}", account.cost());
    }
}
