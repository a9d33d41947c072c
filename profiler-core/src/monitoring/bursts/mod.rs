//! When a monitored run is recorded for a moment (mode auto), and for how long.
//!
//! A burst begins where the samples of the last 20 s leave the verdict open, or where the step time drifts
//! ([`Drift`]). Without named steps the part of the time in which devices were busy stands for the step time. Bursts
//! are bounded in three ways:
//!
//! * Credit: a burst takes one, and one comes in each period ([`BurstLimits::every_ns`]). At most two are saved, and
//!   the second one is kept for drifts. So there are at most `2 + time / period` of them.
//! * Budget: what bursts cost stays within a part of the whole time ([`BurstLimits::budget`]). What the next one may
//!   cost limits its length; below half a second there is none.
//! * Length: the longest one, or [`ENOUGH_STEPS`] steps.
//!
//! CUPTI does not give launches their full speed back when it is switched off (docs/design/overhead.md). The price of
//! that is measured where the program names steps: those before the first burst against those after it. It counts into
//! the budget for the rest of the run, so that it can end bursts for good.
//!
//! No clock: times are given.

use gpuwhy_trace::cost::Cost;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{Record, Timestamp, Trigger};

use super::drift::Drift;
use super::named_steps::{NamedStep, NamedSteps};

/// An open verdict counts once it has been open for as long as the samples that it rests on, nanoseconds.
const OPEN_FOR: u64 = 20_000_000_000;
/// The shortest burst, nanoseconds: some steps of most programs.
const SHORTEST: u64 = 500_000_000;
/// A burst ends with so many steps: eight of warm-up and sixteen more (`steps::WARM_UP_STEPS`).
const ENOUGH_STEPS: u64 = 24;
/// What recording is taken to cost before the first burst has told, as a part of its time: empty launches, the most
/// expensive program known, took 31 to 38 % longer in mode light (docs/design/performance.md).
const UNKNOWN_PRICE: f64 = 0.35;
/// What is sampled so soon after a burst is not compared: CUPTI is still being switched off, nanoseconds.
const AFTER_BURST: u64 = 1_000_000_000;
/// Deviations that count as chance, as parts: of a step, and of the time that is busy.
const CHANCE: f64 = 0.05;
/// Steps before and after the first burst that are compared, and the places in their order between which the median
/// is with 95 % (binomial distribution with 32 trials: H. A. David, H. N. Nagaraja, "Order Statistics", 2003, section
/// 7.1).
const COMPARED: usize = 32;
const MEDIAN_BETWEEN: (usize, usize) = (9, 22);

/// What bursts may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstLimits {
    /// In each period of this length there is one more, nanoseconds.
    pub every_ns: u64,
    /// The longest burst, nanoseconds.
    pub longest_ns: u64,
    /// Part of the run's time that they may cost, 0 to 1.
    pub budget: f64,
}

/// What the monitor says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MonitorView {
    /// Whether the samples of the last 20 s name a bottleneck.
    pub names_one: bool,
    /// The newest second that is over: its begin in nanoseconds, and the part of it in which devices were busy.
    pub busy: Option<(u64, f64)>,
    /// Steps found in the burst that is being recorded.
    pub burst_steps: u64,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BurstDecision {
    /// A burst begins, for this reason.
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

/// Decides when a burst begins and ends.
#[derive(Debug)]
pub struct BurstPlanner {
    limits: BurstLimits,
    begin: Option<Timestamp>,
    /// Credit in nanoseconds of the period, and when it was last added to.
    credit_ns: u64,
    credited: Timestamp,
    open: Option<Burst>,
    /// When the last burst ended.
    ended: Option<Timestamp>,
    /// What a burst costs, as a part of its time.
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
    /// How much longer a step takes since the first burst: 1.02 is 2 %.
    slowed: Option<(f64, f64)>,
}

impl BurstPlanner {
    /// For a run that begins now.
    pub fn new(limits: BurstLimits) -> Self {
        Self {
            limits,
            begin: None,
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

    /// Takes a record: steps that the program names are followed.
    pub fn push(&mut self, record: &Record, dictionary: &Dictionary) {
        if let Record::Range(event) = record {
            self.steps.push(event, dictionary);
        }
    }

    /// What is to be done `at` this time, by what has come so far; tracing took `cost`, all of it for bursts.
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

    /// The run ends `at` this time, and with it a burst.
    pub fn finish(&mut self, at: Timestamp, cost: &Cost) {
        if let Some(open) = self.open {
            self.end(at, open, cost.taken_ns().saturating_sub(open.taken_before));
        }
    }

    /// The burst that [`decide`](Self::decide) wanted did not begin.
    pub fn refused(&mut self) {
        if self.open.take().is_some() {
            self.credit_ns += self.limits.every_ns;
        }
    }

    /// Bursts so far, the time that was recorded in them in nanoseconds, and how much longer a step takes since the
    /// first one (1.02 is 2 %, an interval of 90 % or more); `None` where that is not known.
    pub fn summary(&self) -> (u32, u64, Option<(f64, f64)>) {
        (self.bursts, self.burst_ns, self.slowed)
    }

    /// Nanoseconds that may still be spent.
    fn affordable(&self, elapsed: u64, cost: &Cost) -> f64 {
        let slower = self.slowed.map_or(0.0, |(low, _)| (low - 1.0).max(0.0));
        let since = self.ended.zip(self.begin).map_or(0, |(ended, begin)| elapsed.saturating_sub(ended.since(begin)));
        self.limits.budget * elapsed as f64 - cost.taken_ns() as f64 - slower * since as f64
    }

    fn reason(&self, at: Timestamp) -> Option<Trigger> {
        let saved = self.credit_ns / self.limits.every_ns.max(1);
        let is_open = self.open_since.is_some_and(|since| at.since(since) >= OPEN_FOR);
        match (self.drifts, is_open) {
            (true, _) if saved >= 1 => Some(Trigger::Drift),
            (_, true) if saved >= 2 => Some(Trigger::Open),
            _ => None,
        }
    }

    fn end(&mut self, at: Timestamp, open: Burst, taken: u64) -> BurstDecision {
        let lasted = at.since(open.at);
        self.open = None;
        self.bursts += 1;
        self.burst_ns += lasted;
        // A burst that launched nothing says nothing about the next one.
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

    /// Looks for a drift in what came since this was last called.
    fn watch(&mut self, view: &MonitorView) {
        let is_free =
            |begin: u64| self.open.is_none() && self.ended.is_none_or(|ended| begin >= ended.nanos() + AFTER_BURST);
        let mut values = Vec::new();
        while let Some(NamedStep { begin, nanos }) = self.steps.next_second() {
            if is_free(begin) {
                values.push((nanos as f64).ln());
            }
        }
        if let Some((begin, busy)) = view.busy.filter(|&(begin, _)| begin > self.busy_seen) {
            self.busy_seen = begin;
            if is_free(begin) && !self.steps.any() {
                values.push(busy);
            }
        }
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

/// Durations of the first [`COMPARED`] of these steps, the shortest first.
fn sorted<'a>(steps: impl Iterator<Item = &'a NamedStep>) -> Vec<u64> {
    let mut nanos: Vec<u64> = steps.take(COMPARED).map(|step| step.nanos).collect();
    nanos.sort_unstable();
    nanos
}

#[cfg(test)]
mod tests;
