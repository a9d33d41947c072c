//! API calls in stretches: when they are recorded, while device work always is.
//!
//! Records of calls are what costs second most (docs/design/overhead.md). The first stretch begins with the first
//! kernel and is long enough for steps to be found in it. The pauses between later ones differ in length, so that they
//! never keep step with the program; their lengths are drawn from a fixed sequence, so that runs are alike.
//!
//! What is made of such records is in [`crate::attribution`].

use crate::record::Timestamp;

/// The first stretch: some steps of nearly all programs.
const FIRST_NANOS: u64 = 1_000_000_000;
/// Each later one.
const LENGTH_NANOS: u64 = 150_000_000;
/// Shortest and longest pause. In the mean an eighth of the time is recorded: launches that cost 8 to 9 % more with
/// records of calls (CUPTI 13.0, H200) then cost 1 % more.
const PAUSE_NANOS: [u64; 2] = [525_000_000, 1_575_000_000];
/// The fractional part of the golden ratio in 64 bits: its multiples are spread evenly (H. Weyl).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// What the stretches are at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// No kernel has run yet.
    #[default]
    Begin,
    /// Calls are recorded up to this time.
    On(u64),
    /// Calls are left out up to this time.
    Off(u64),
}

/// When API calls are recorded.
#[derive(Debug, Default)]
pub struct Stretches {
    phase: Phase,
    /// Pauses so far.
    pauses: u64,
}

impl Stretches {
    /// Whether calls are to be recorded as of `at`. `runs`: a kernel has run. `whole`: somebody needs all of them.
    pub fn wants(&mut self, at: Timestamp, runs: bool, whole: bool) -> bool {
        let at = at.nanos();
        self.phase = match self.phase {
            _ if whole || !runs => Phase::Begin,
            Phase::Begin => Phase::On(at.saturating_add(FIRST_NANOS)),
            Phase::On(until) if at >= until => {
                self.pauses += 1;
                Phase::Off(at.saturating_add(pause(self.pauses)))
            }
            Phase::Off(until) if at >= until => Phase::On(at.saturating_add(LENGTH_NANOS)),
            same => same,
        };
        !matches!(self.phase, Phase::Off(_))
    }

    /// When it changes next.
    pub fn deadline(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::Begin => None,
            Phase::On(until) | Phase::Off(until) => Some(Timestamp::from_nanos(until)),
        }
    }
}

/// How long the pause of this number lasts, nanoseconds.
fn pause(number: u64) -> u64 {
    let [shortest, longest] = PAUSE_NANOS;
    let part = u128::from(number.wrapping_mul(GOLDEN));
    shortest + ((part * u128::from(longest - shortest)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    #[test]
    fn the_first_stretch_begins_with_the_first_kernel() {
        let mut stretches = Stretches::default();
        assert!(stretches.wants(at(5_000_000_000), false, false));
        assert_eq!(stretches.deadline(), None);
        assert!(stretches.wants(at(7_000_000_000), true, false));
        assert_eq!(stretches.deadline(), Some(at(8_000_000_000)));
        assert!(stretches.wants(at(7_999_999_999), true, false));
        assert!(!stretches.wants(at(8_000_000_000), true, false));
    }

    #[test]
    fn an_eighth_of_the_time_is_recorded_and_no_two_pauses_are_alike() {
        let (mut stretches, mut recorded, mut total) = (Stretches::default(), 0, 0);
        let mut now = 1;
        stretches.wants(at(now), true, false);
        now += FIRST_NANOS;
        let mut pauses = Vec::new();
        for _ in 0..1_000 {
            assert!(!stretches.wants(at(now), true, false));
            let until = stretches.deadline().unwrap().nanos();
            pauses.push(until - now);
            assert!(stretches.wants(at(until), true, false));
            let end = stretches.deadline().unwrap().nanos();
            (recorded, total, now) = (recorded + end - until, total + end - now, end);
        }
        let part = recorded as f64 / total as f64;
        assert!((part - 0.125).abs() < 0.002, "{part}");
        assert!(pauses.iter().all(|pause| (PAUSE_NANOS[0]..PAUSE_NANOS[1]).contains(pause)));
        pauses.sort_unstable();
        pauses.dedup();
        assert_eq!(pauses.len(), 1_000);
    }

    #[test]
    fn whoever_needs_all_calls_gets_them_and_a_long_stretch_behind() {
        let mut stretches = Stretches::default();
        stretches.wants(at(1), true, false);
        assert!(!stretches.wants(at(1 + FIRST_NANOS), true, false));
        assert!(stretches.wants(at(2 + FIRST_NANOS), true, true));
        assert!(stretches.wants(at(3 + FIRST_NANOS), true, false));
        assert_eq!(stretches.deadline(), Some(at(3 + 2 * FIRST_NANOS)));
    }
}
