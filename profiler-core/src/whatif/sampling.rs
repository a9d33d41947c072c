//! Which steps are replayed once many have been: bursts of steps in a row, spread evenly over the rest of the run.
//!
//! Replaying costs about half as much as everything else, and what thousands of steps say the next ones hardly change. So a
//! burst is followed by a pause in which nothing is replayed. Bursts of many steps, because what is found as a step may be a
//! part of the program's own; a fixed part of the *time*, and each step counts for those of the pause before it as well, so
//! that a run whose steps become slower is not judged by its beginning.
//!
//! After a pause all clocks start from the real times, as at the beginning. Steps count again once an operation came
//! whose launch was replayed (the host may have been far ahead when the pause ended) and some steps more are over, in
//! which the worlds run apart: a host that never waits has to get ahead first.

/// Steps of a device that are replayed without a pause: so many that a burst, which stands for 512, weighs little beside them.
const UNBROKEN: u64 = 4_096;
/// Steps of a device in each burst afterwards: four times the sixteen tensors of the allocating lesson, each of which
/// is found as a step.
const BURST: u64 = 64;
/// A pause lasts this many times as long as the burst before it, or as the last of the unbroken steps.
const PAUSE: u64 = 7;
/// Steps of a device after a pause that do not count.
const SETTLING: u64 = 8;

/// What of the run is replayed.
#[derive(Clone, Debug, Default)]
pub(super) struct Sampling {
    /// The newest pause: nothing that happens in it is replayed.
    from: u64,
    to: u64,
    /// Begins of steps that count, since then.
    counted: u64,
    /// The first begin of the burst.
    since: u64,
    /// Begins of steps since then that did not count.
    settled: u64,
    /// An operation came since then whose launch was replayed, or has none.
    caught_up: bool,
}

impl Sampling {
    /// Whether what happens at `at` is not replayed.
    #[inline]
    pub(super) fn is_paused(&self, at: u64) -> bool {
        self.from <= at && at < self.to
    }

    /// Whether a call made at `at` is replayed with what it launched.
    #[inline]
    pub(super) fn knows(&self, at: u64) -> bool {
        at >= self.to
    }

    /// An operation is replayed that waits for no launch from before the pause.
    #[inline]
    pub(super) fn caught_up(&mut self) {
        self.caught_up = true;
    }

    /// A step of one of `devices` begins outside a pause: whether the one before it may count.
    pub(super) fn counts(&mut self, devices: u64) -> bool {
        if self.to == 0 {
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
        if self.to == 0 { 1 } else { 1 + PAUSE }
    }

    /// A step that counts has begun at `at`, on one of `devices`: whether a pause begins there.
    pub(super) fn counted(&mut self, at: u64, devices: u64) -> bool {
        if self.counted == self.before_burst(devices) {
            self.since = at;
        }
        self.counted += 1;
        if self.counted <= self.before_burst(devices) + BURST * devices {
            return false;
        }
        let lasted = at.saturating_sub(self.since);
        *self = Self { from: at, to: at.saturating_add(PAUSE.saturating_mul(lasted)), ..Self::default() };
        true
    }

    /// A device had no work for long, which must not make a pause long: its burst begins anew.
    pub(super) fn break_off(&mut self, devices: u64) {
        self.counted = self.counted.min(self.before_burst(devices));
    }

    /// Steps that count before those whose time says how long the next pause is.
    fn before_burst(&self, devices: u64) -> u64 {
        if self.to == 0 { (UNBROKEN - BURST) * devices } else { 0 }
    }
}
