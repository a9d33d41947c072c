//! Follows a known period from launch to launch and says where steps begin.
//!
//! Counting alone would run off with the first launch that is inserted or left out, so a step begins with a launch
//! that comes once in it; counting takes over for one step when just that launch differs and its surroundings do
//! not. The decision falls when the launch is seen and is never changed, so that it does not depend on what is
//! known later.

use rustc_hash::FxHashMap;

use super::sequence::{Launched, Sequence};
use super::{Boundary, Cut, StepSource};

/// Launches before an expected boundary that are compared with those one period earlier.
const CONTEXT: u32 = 8;
/// How many of them must be equal.
const CONTEXT_EQUAL: u32 = 6;

/// The steps that are being followed.
#[derive(Debug)]
pub(super) struct Tracker {
    source: StepSource,
    /// Launches of a step; about, for an anchor.
    pub(super) period: u32,
    /// The launch that begins a step. Without any, steps are counted out.
    pub(super) marker: Option<u32>,
    /// The function in which the host waits before a step; a step begins with whatever is launched next.
    wait: Option<u32>,
    /// Launches since the step began; `None` before the first one and after losing track.
    since: Option<u32>,
    /// Launches since it waits for the first one; more than two periods after losing track.
    waiting: u32,
    matched: u32,
}

impl Tracker {
    /// Follows `period`. Of the launches that came once in the newest one, and in their place in the two before, the
    /// one after the longest pause begins a step: programs fetch input and evaluate between steps.
    pub(super) fn of_period(period: u32, sequence: &Sequence) -> Self {
        let first = sequence.count().saturating_sub(u64::from(period));
        let newest: Vec<(u64, Launched)> = (first..).zip(sequence.since(first)).collect();
        let mut appearances: FxHashMap<u32, u32> = FxHashMap::default();
        for (_, launched) in &newest {
            *appearances.entry(launched.symbol).or_default() += 1;
        }
        // A launch of that moment alone must not be waited for ever after.
        let steady = |number| (1..=2).all(|times| sequence.repeats(number, times * period) != Some(false));
        let once =
            newest.iter().rev().filter(|(number, launched)| appearances[&launched.symbol] == 1 && steady(*number));
        let marker = once.max_by_key(|(_, launched)| launched.pause).map(|(_, launched)| launched.symbol);
        Self { marker, ..Self::new(StepSource::Period, period) }
    }

    /// Follows an anchor.
    pub(super) fn of_anchor(symbol: u32, distance: u32) -> Self {
        Self { marker: Some(symbol), ..Self::new(StepSource::Anchor, distance) }
    }

    /// Follows `period`, before which the host waits in `function`.
    pub(super) fn of_wait(period: u32, function: u32) -> Self {
        Self { wait: Some(function), ..Self::new(StepSource::Period, period) }
    }

    fn new(source: StepSource, period: u32) -> Self {
        Self { source, period, marker: None, wait: None, since: None, waiting: 0, matched: 0 }
    }

    /// Whether it follows steps that the host's waits tell, of which a period of `unit` launches is a part.
    pub(super) fn is_around(&self, unit: u32) -> bool {
        self.wait.is_some() && self.since.is_some() && unit < self.period
    }

    pub(super) fn source(&self) -> StepSource {
        self.source
    }

    /// Whether no step has begun for more than two periods.
    pub(super) fn is_lost(&self) -> bool {
        self.since.is_none() && self.waiting > self.period.saturating_mul(2)
    }

    /// Judges launch `number`, the newest, before which the host waited in the function `waited`.
    #[inline]
    pub(super) fn next(&mut self, sequence: &Sequence, number: u64, symbol: u32, waited: Option<u32>) -> Option<Cut> {
        let expected = match self.wait {
            None => self.marker.is_none_or(|marker| marker == symbol),
            wait => waited == wait,
        };
        let Some(since) = &mut self.since else {
            self.waiting = self.waiting.saturating_add(1);
            return expected.then(|| self.begin(0, sequence));
        };
        *since = since.saturating_add(1);
        let since = *since;
        let begins = if self.source == StepSource::Period && since == self.period {
            expected || self.undisturbed(sequence, number)
        } else {
            (self.marker.is_some() || self.wait.is_some()) && expected && since >= self.period.div_ceil(2)
        };
        if begins {
            return Some(self.begin(since, sequence));
        }
        if since > self.period.saturating_mul(2) {
            // What repeated in it is no part of any step.
            (self.since, self.waiting, self.matched) = (None, since, 0);
            return Some(Cut::Lost);
        }
        self.matched += u32::from(sequence.newest_repeats(self.period));
        None
    }

    /// A step of `launches` is over and another begins.
    #[inline(never)]
    fn begin(&mut self, launches: u32, sequence: &Sequence) -> Cut {
        let first = u32::from(sequence.newest_repeats(self.period));
        let matched = std::mem::replace(&mut self.matched, first);
        self.since = Some(0);
        let period = if self.source == StepSource::Period { self.period } else { 0 };
        Cut::Begin(Boundary { source: self.source, period, launches, matched })
    }

    fn undisturbed(&self, sequence: &Sequence, number: u64) -> bool {
        let equal = (1..=u64::from(CONTEXT))
            .filter(|&back| number.checked_sub(back).and_then(|n| sequence.repeats(n, self.period)) == Some(true));
        equal.count() as u32 >= CONTEXT_EQUAL
    }
}
