//! Choice of the steps to simulate: all at first, then bursts of consecutive steps, spread over the rest of
//! the run.
//!
//! The simulation costs half as much as everything else, and after hundreds of steps the next ones hardly
//! change the result. So a burst is followed by a pause without simulation. Bursts have many steps and a
//! minimum time, because a detected step may be a part of the program's own, even a single node of a graph.
//! Pauses are defined by *time*, and each step also counts for the steps of the pause before it, so that a
//! run whose steps become slower is not judged by its first part.
//!
//! Pauses become longer as more is known: a burst with the steps it represents is at most an eighth of all
//! that count, so that none dominates the result, until pauses reach their maximum length. A best case is a
//! ratio of two sums over the same steps, so only the variation of their difference from step to step causes
//! an error: if that is a fraction `s` of a step, `n` steps leave `s / sqrt(n)`, which is 0.9 % for 20 % and
//! the 512 steps that the smallest sample is worth. Measurements are in docs/design/attribution.md.
//!
//! After a pause all clocks start from the real times, as at the start of the run. Steps count again once an
//! operation with a simulated launch has arrived (the host may have been far ahead when the pause ended) and
//! some more steps are over, in which the scenarios diverge: a host that never waits has to get ahead first.

/// Fewest steps of a device in a burst: twice the sixteen tensors of the allocation lesson, each of which is
/// detected as a step.
const BURST: u64 = 32;
/// Shortest burst: in a graph of a thousand nodes some twenty may be detected as a step, and only one step in
/// fifty has the cost of the graph launch.
const BURST_NANOS: u64 = 10_000_000;
/// A burst and the steps it represents are at most this part (as a divisor) of the steps that count before
/// it. So the first sixteen bursts follow each other without a pause: 512 steps or more.
const BURST_PART: u64 = 8;
/// The longest pause, as a multiple of the burst before it.
const LONGEST_PAUSE: u64 = 7;
/// Steps of a device after a pause that do not count.
const SETTLING: u64 = 8;

/// State of the sampling.
#[derive(Clone, Debug, Default)]
pub(super) struct Sampling {
    /// True if all steps are simulated.
    whole: bool,
    /// Newest pause, which is not simulated.
    from: u64,
    to: u64,
    /// Length of the pause before this burst, as a multiple of the burst before it; 0 without one.
    pause: u64,
    /// Steps of the run that all earlier bursts represent.
    weight: u64,
    /// Number of counted step starts in this burst, and the time of the first one.
    counted: u64,
    since: u64,
    /// Number of step starts since the pause that did not count.
    settled: u64,
    /// True if an operation whose launch was simulated, or that has none, came since the pause.
    caught_up: bool,
    /// Number of step starts to come that do not count in any case.
    left_out: u64,
}

impl Sampling {
    /// Sampling without pauses.
    pub(super) fn whole() -> Self {
        Self { whole: true, ..Self::default() }
    }

    /// The next `steps` step starts do not count.
    pub(super) fn leave_out(&mut self, steps: u64) {
        self.left_out = steps;
    }

    /// True if input at `at` is not simulated.
    #[inline]
    pub(super) fn is_paused(&self, at: u64) -> bool {
        self.from <= at && at < self.to
    }

    /// End of the newest pause.
    pub(super) fn paused_until(&self) -> u64 {
        self.to
    }

    /// True if a call made at `at` is simulated together with its operations.
    #[inline]
    pub(super) fn knows(&self, at: u64) -> bool {
        at >= self.to
    }

    /// An operation that depends on no launch from before the pause is simulated.
    #[inline]
    pub(super) fn caught_up(&mut self) {
        self.caught_up = true;
    }

    /// A step of one of `devices` starts outside a pause. Returns true if the previous one may count.
    pub(super) fn counts(&mut self, devices: u64) -> bool {
        if self.left_out > 0 {
            self.left_out -= 1;
            return false;
        }
        if self.pause == 0 {
            return true;
        }
        if self.settled < SETTLING * devices {
            self.settled += u64::from(self.caught_up);
            return false;
        }
        true
    }

    /// Number of steps of the run that one step represents: the pause before contains as many as its time
    /// allows.
    pub(super) fn stands_for(&self) -> u64 {
        1 + self.pause
    }

    /// A step that counts has started at `at`, on one of `devices`. Returns true if a pause starts there.
    pub(super) fn counted(&mut self, at: u64, devices: u64) -> bool {
        if self.counted == 0 {
            self.since = at;
        }
        let (steps, lasted) = (self.counted, at.saturating_sub(self.since));
        self.counted += 1;
        if self.whole || steps < BURST * devices || lasted < BURST_NANOS {
            return false;
        }
        self.weight += steps * self.stands_for();
        let pause = (self.weight / (BURST_PART * steps)).saturating_sub(1).min(LONGEST_PAUSE);
        if pause == 0 {
            // The next burst starts with this step.
            (self.counted, self.since, self.pause) = (1, at, 0);
            return false;
        }
        let to = at.saturating_add(pause.saturating_mul(lasted));
        *self = Self { from: at, to, pause, weight: self.weight, ..Self::default() };
        true
    }

    /// A device had no work for a long time, which must not make a pause long: its burst starts over.
    pub(super) fn break_off(&mut self) {
        self.counted = 0;
    }
}
