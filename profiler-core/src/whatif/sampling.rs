//! Which steps are simulated: all at first, then bursts of steps in a row, spread over the rest of the run.
//!
//! The simulation costs half as much as everything else, and what hundreds of steps say the next ones hardly change. So
//! a burst is followed by a pause in which nothing is simulated. Bursts of many steps and of some time, because what is
//! found as a step may be a part of the program's own, a node of a graph even; pauses by *time*, and each step counts
//! for those of the pause before it as well, so that a run whose steps become slower is not judged by its beginning.
//!
//! Pauses become longer as more is known: a burst with the steps it stands for is an eighth of all that count, so that
//! none decides the answer, until pauses are as long as they get. A ceiling is a ratio of two sums over the same steps,
//! so only what differs between them from step to step makes an error: if that is a part `s` of a step, `n` steps leave
//! `s / sqrt(n)`, which is 0.9 % for 20 % and the 512 steps that the least sample is worth. What was measured is in
//! docs/design/attribution.md.
//!
//! After a pause all clocks start from the real times, as at the beginning. Steps count again once an operation came
//! whose launch was simulated (the host may have been far ahead when the pause ended) and some steps more are over, in
//! which the worlds run apart: a host that never waits has to get ahead first.

/// Fewest steps of a device in a burst: twice the sixteen tensors of the allocating lesson, each of which is found as a
/// step.
const BURST: u64 = 32;
/// Shortest burst: in a graph of a thousand nodes some twenty may be found as a step, and what the launch of the graph
/// costs is in one step of fifty.
const BURST_NANOS: u64 = 10_000_000;
/// A burst and the steps it stands for are at most this part of the steps that count before it. So the first sixteen
/// bursts follow each other without a pause: 512 steps or more.
const BURST_PART: u64 = 8;
/// The longest pause lasts this many times as long as the burst before it.
const LONGEST_PAUSE: u64 = 7;
/// Steps of a device after a pause that do not count.
const SETTLING: u64 = 8;

/// What of the run is simulated.
#[derive(Clone, Debug, Default)]
pub(super) struct Sampling {
    /// All steps are simulated.
    whole: bool,
    /// The newest pause: nothing that happens in it is simulated.
    from: u64,
    to: u64,
    /// How many times as long as the burst before it the pause before this burst was; 0 without one.
    pause: u64,
    /// Steps of the run that all bursts before this one stand for.
    weight: u64,
    /// Begins of steps that count in this burst, and the first of them.
    counted: u64,
    since: u64,
    /// Begins of steps since the pause that did not count.
    settled: u64,
    /// An operation came since the pause whose launch was simulated, or has none.
    caught_up: bool,
    /// Begins of steps to come that do not count, whatever else.
    left_out: u64,
}

impl Sampling {
    /// Without any pause.
    pub(super) fn whole() -> Self {
        Self { whole: true, ..Self::default() }
    }

    /// The next `steps` begins of steps do not count.
    pub(super) fn leave_out(&mut self, steps: u64) {
        self.left_out = steps;
    }

    /// Whether what happens at `at` is not simulated.
    #[inline]
    pub(super) fn is_paused(&self, at: u64) -> bool {
        self.from <= at && at < self.to
    }

    /// When the newest pause ends.
    pub(super) fn paused_until(&self) -> u64 {
        self.to
    }

    /// Whether a call made at `at` is simulated with what it launched.
    #[inline]
    pub(super) fn knows(&self, at: u64) -> bool {
        at >= self.to
    }

    /// An operation is simulated that waits for no launch from before the pause.
    #[inline]
    pub(super) fn caught_up(&mut self) {
        self.caught_up = true;
    }

    /// A step of one of `devices` begins outside a pause: whether the one before it may count.
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

    /// How many steps of the run one stands for: those of the pause before are as many as their time allows.
    pub(super) fn stands_for(&self) -> u64 {
        1 + self.pause
    }

    /// A step that counts has begun at `at`, on one of `devices`: whether a pause begins there.
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
            // The next burst begins with this step.
            (self.counted, self.since, self.pause) = (1, at, 0);
            return false;
        }
        let to = at.saturating_add(pause.saturating_mul(lasted));
        *self = Self { from: at, to, pause, weight: self.weight, ..Self::default() };
        true
    }

    /// A device had no work for long, which must not make a pause long: its burst begins anew.
    pub(super) fn break_off(&mut self) {
        self.counted = 0;
    }
}
