//! Schedule of bursts: when a run is recorded briefly that is otherwise monitored (mode auto) or not recorded because
//! that costs too much, and for how long.
//!
//! A burst starts if the samples of the last 20 s do not determine the bottleneck or there are none, if the step time
//! drifts ([`Drift`]), or a second after a CUDA graph was captured. Without named steps, the busy fraction of the
//! devices takes the place of the step time, if the run is monitored.
//! Bursts are bounded in three ways:
//!
//! * Credit: a burst takes one, and one is added per period ([`BurstLimits::every_ns`]). At most two are
//!   saved, and the second one is reserved for drifts. So there are at most `2 + time / period` bursts.
//! * Budget: the cost of bursts stays within a fraction of the total time ([`BurstLimits::budget`]). The
//!   remaining budget limits the length of the next one; below half a second there is none.
//! * Length: the longest one, or [`ENOUGH_STEPS`] steps.
//!
//! CUPTI does not restore the full speed of launches when it is switched off (docs/design/overhead.md). That
//! cost is measured if the program names steps: those before the first burst against those after it. It
//! counts toward the budget for the rest of the run, so it can end bursts permanently.
//!
//! No clock: times are arguments.

use gpuwhy_trace::cost::Cost;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{Record, Timestamp, Trigger};

use super::drift::Drift;
use super::named_steps::{NamedStep, NamedSteps};

/// An unknown bottleneck counts once it has been unknown for as long as the period of the samples it is based
/// on, nanoseconds.
const OPEN_FOR: u64 = 20_000_000_000;
/// Shortest burst, nanoseconds: some steps of most programs.
const SHORTEST: u64 = 500_000_000;
/// Number of steps that ends a burst: eight of start-up and sixteen more (`steps::WARM_UP_STEPS`).
const ENOUGH_STEPS: u64 = 24;
/// Assumed cost of recording before the first burst was measured, as a fraction of its time: empty launches,
/// the most expensive program known, took 31 to 38 % longer in mode light (docs/design/performance.md).
const UNKNOWN_PRICE: f64 = 0.35;
/// Time after a burst whose samples are not compared, nanoseconds: CUPTI is still being switched off.
const AFTER_BURST: u64 = 1_000_000_000;
/// Deviations that count as chance, as fractions: of a step, and of the busy time.
const CHANCE: f64 = 0.05;
/// Number of compared steps before and after the first burst, and the ranks in their order between which the
/// median lies with 95 % confidence (binomial distribution with 32 trials: H. A. David, H. N. Nagaraja,
/// "Order Statistics", 2003, section 7.1).
const COMPARED: usize = 32;
const MEDIAN_BETWEEN: (usize, usize) = (9, 22);

/// Limits on bursts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstLimits {
    /// Period in which one more burst is allowed, nanoseconds.
    pub every_ns: u64,
    /// Longest burst, nanoseconds.
    pub longest_ns: u64,
    /// Fraction of the run's time that they may cost, 0 to 1.
    pub budget: f64,
}

/// State of the monitor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MonitorView {
    /// True if the samples of the last 20 s determine a bottleneck.
    pub names_one: bool,
    /// Completed seconds in order: the start of each in nanoseconds, and the fraction of it in which devices
    /// were busy. On a busy machine several are new at once. Empty if the run is not monitored.
    pub busy: Vec<(u64, f64)>,
    /// Steps found in the current burst.
    pub burst_steps: u64,
}

/// Decision of the planner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BurstDecision {
    /// A burst starts for this reason.
    Begin(Trigger),
    /// The burst ends.
    End,
}

#[derive(Clone, Copy, Debug)]
struct Burst {
    at: Timestamp,
    longest_ns: u64,
    taken_before: u64,
    trigger: Trigger,
}

/// Decides when a burst starts and ends.
#[derive(Debug)]
pub struct BurstPlanner {
    limits: BurstLimits,
    begin: Option<Timestamp>,
    /// Cost of tracing before the first burst could start.
    taken_before: u64,
    /// True if the program makes CUDA graphs; see [`graph_made`](Self::graph_made).
    has_graphs: bool,
    /// Credit in nanoseconds of the period, and when it was last increased.
    credit_ns: u64,
    credited: Timestamp,
    open: Option<Burst>,
    /// End of the last burst.
    ended: Option<Timestamp>,
    /// Cost of a burst as a fraction of its time.
    price: f64,
    bursts: u32,
    burst_ns: u64,
    open_since: Option<Timestamp>,
    drifts: bool,
    drift: Drift,
    steps: NamedSteps,
    busy_seen: u64,
    /// Steps before the first burst, sorted.
    before: Vec<u64>,
    after_first: Option<u64>,
    /// Slowdown of a step since the first burst: 1.02 is 2 %.
    slowed: Option<(f64, f64)>,
}

impl BurstPlanner {
    /// For a run that starts now, or that is recorded only in bursts from now on. The `cost` up to now does not count
    /// against the budget.
    pub fn new(limits: BurstLimits, cost: &Cost) -> Self {
        Self {
            limits,
            begin: None,
            taken_before: cost.taken_ns(),
            has_graphs: false,
            credit_ns: 2 * limits.every_ns,
            credited: Timestamp::ZERO,
            open: None,
            ended: None,
            price: UNKNOWN_PRICE,
            bursts: 0,
            burst_ns: 0,
            open_since: None,
            drifts: false,
            drift: Drift::default(),
            steps: NamedSteps::default(),
            busy_seen: 0,
            before: Vec::new(),
            after_first: None,
            slowed: None,
        }
    }

    /// Processes a record: tracks the steps that the program names.
    pub fn push(&mut self, record: &Record, dictionary: &Dictionary) {
        if let Record::Range(event) = record {
            self.steps.push(event, dictionary);
        }
    }

    /// The program makes CUDA graphs: no burst starts from now on, because switching recording while one is launched
    /// can crash the program (docs/design/overhead.md).
    pub fn graph_made(&mut self) {
        self.has_graphs = true;
    }

    /// Decision at time `at`, given the data received up to now; tracing took `cost`, all of it for bursts.
    pub fn decide(&mut self, at: Timestamp, view: &MonitorView, cost: &Cost) -> Option<BurstDecision> {
        let begin = *self.begin.get_or_insert(at);
        let elapsed = at.since(begin);
        let earned = at.since(self.credited.max(begin));
        self.credited = at;
        self.credit_ns = self.credit_ns.saturating_add(earned).min(2 * self.limits.every_ns);
        self.watch(view);
        self.compare();
        if view.names_one {
            self.open_since = None;
        } else {
            self.open_since.get_or_insert(at);
        }
        if let Some(open) = self.open {
            let lasted = at.since(open.at);
            let taken = cost.taken_ns().saturating_sub(open.taken_before);
            let is_over = lasted >= open.longest_ns
                || (lasted >= SHORTEST && view.burst_steps >= ENOUGH_STEPS)
                || self.affordable(elapsed, cost) <= 0.0;
            return is_over.then(|| self.end(at, open, taken));
        }
        let trigger = self.reason(at)?;
        let affordable = self.affordable(elapsed, cost);
        let longest_ns = ((affordable / self.price) as u64).min(self.limits.longest_ns);
        if longest_ns < SHORTEST.min(self.limits.longest_ns) {
            return None;
        }
        self.open = Some(Burst { at, longest_ns, taken_before: cost.taken_ns(), trigger });
        self.credit_ns -= self.limits.every_ns;
        if self.bursts == 0 && trigger == Trigger::Open {
            self.before = sorted(self.steps.newest().rev());
        }
        Some(BurstDecision::Begin(trigger))
    }

    /// The run ends at time `at`, and with it a burst.
    pub fn finish(&mut self, at: Timestamp, cost: &Cost) {
        if let Some(open) = self.open {
            self.end(at, open, cost.taken_ns().saturating_sub(open.taken_before));
        }
    }

    /// True while a burst is recorded.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// The burst that [`decide`](Self::decide) requested did not start.
    pub fn refused(&mut self) {
        if self.open.take().is_some() {
            self.credit_ns += self.limits.every_ns;
        }
    }

    /// Number of bursts, the time recorded in them in nanoseconds, and the slowdown of a step since the first
    /// one (1.02 is 2 %, an interval of at least 90 %); `None` if unknown.
    pub fn summary(&self) -> (u32, u64, Option<(f64, f64)>) {
        (self.bursts, self.burst_ns, self.slowed)
    }

    /// Nanoseconds left in the budget.
    fn affordable(&self, elapsed: u64, cost: &Cost) -> f64 {
        let slower = self.slowed.map_or(0.0, |(low, _)| (low - 1.0).max(0.0));
        let since = self.ended.zip(self.begin).map_or(0, |(ended, begin)| elapsed.saturating_sub(ended.since(begin)));
        let taken = cost.taken_ns().saturating_sub(self.taken_before);
        self.limits.budget * elapsed as f64 - taken as f64 - slower * since as f64
    }

    fn reason(&self, at: Timestamp) -> Option<Trigger> {
        let saved = self.credit_ns / self.limits.every_ns.max(1);
        let is_open = self.open_since.is_some_and(|since| at.since(since) >= OPEN_FOR);
        match saved {
            _ if self.has_graphs => None,
            1.. if self.drifts => Some(Trigger::Drift),
            2.. if is_open => Some(Trigger::Open),
            _ => None,
        }
    }

    fn end(&mut self, at: Timestamp, open: Burst, taken: u64) -> BurstDecision {
        let lasted = at.since(open.at);
        self.open = None;
        self.bursts += 1;
        self.burst_ns += lasted;
        // A burst without launches predicts nothing for the next one.
        if taken > 0 && lasted > 0 {
            self.price = (taken as f64 / lasted as f64).clamp(0.001, 1.0);
        }
        if self.bursts == 1 && open.trigger == Trigger::Open && self.before.len() == COMPARED {
            self.after_first = Some(at.nanos() + AFTER_BURST);
        }
        self.ended = Some(at);
        self.drifts = false;
        self.drift.restart();
        BurstDecision::End
    }

    /// Checks for a drift in the data since the last call.
    fn watch(&mut self, view: &MonitorView) {
        let is_free =
            |begin: u64| self.open.is_none() && self.ended.is_none_or(|ended| begin >= ended.nanos() + AFTER_BURST);
        let mut values = Vec::new();
        while let Some(NamedStep { begin, nanos }) = self.steps.next_second() {
            if is_free(begin) {
                values.push((nanos as f64).ln());
            }
        }
        for &(begin, busy) in view.busy.iter().filter(|&&(begin, _)| begin > self.busy_seen) {
            if is_free(begin) && !self.steps.any() {
                values.push(busy);
            }
        }
        self.busy_seen = view.busy.last().map_or(self.busy_seen, |&(begin, _)| begin.max(self.busy_seen));
        for value in values {
            if self.drift.push(value, CHANCE) {
                self.drifts = true;
                self.drift.restart();
            }
        }
    }

    /// Compares steps after the first burst with those before it, once there are enough.
    fn compare(&mut self) {
        let Some(from) = self.after_first.filter(|_| self.open.is_none() && self.bursts == 1 && !self.drifts) else {
            return;
        };
        let after = sorted(self.steps.newest().rev().filter(|step| step.begin >= from));
        if after.len() < COMPARED {
            return;
        }
        self.after_first = None;
        let (low, high) = MEDIAN_BETWEEN;
        let ratio = |after: u64, before: u64| after as f64 / before.max(1) as f64;
        self.slowed = Some((ratio(after[low], self.before[high]), ratio(after[high], self.before[low])));
    }
}

/// Durations of the first [`COMPARED`] of these steps, shortest first.
fn sorted<'a>(steps: impl Iterator<Item = &'a NamedStep>) -> Vec<u64> {
    let mut nanos: Vec<u64> = steps.take(COMPARED).map(|step| step.nanos).collect();
    nanos.sort_unstable();
    nanos
}

#[cfg(test)]
mod tests;
