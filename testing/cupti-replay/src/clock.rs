//! The play clock: the current time of the replay, on the recording's clock.
//!
//! At a given speed it follows the wall clock. At maximum speed it jumps from step to step, so that every run
//! sees the same times. In both cases it stops at the start until play begins, before a step that is not
//! carried out yet, at the requested end of play, and at the end of the recording, and never goes back. If
//! play reaches a step late, because the host was busy or play was stopped, it continues from there at its
//! speed and does not catch up with the wall clock.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Accepted speeds. Far beyond the useful range at both ends, and far from where times overflow.
const SLOWEST_TO_FASTEST: RangeInclusive<f64> = 0.001..=1_000_000.0;

/// Maximum lateness that play still makes up for: sleeps take longer than requested.
const LATE: Duration = Duration::from_millis(50);

/// Time that a client may need to read what was sampled.
const READING: Duration = Duration::from_millis(200);

/// Speed of play.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Speed {
    /// As fast as the client takes the records.
    #[default]
    Max,
    /// Seconds of the recording per second; from 0.001 to 1,000,000.
    Factor(f64),
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "" | "max" => Ok(Self::Max),
            number => match number.parse() {
                Ok(factor) if SLOWEST_TO_FASTEST.contains(&factor) => Ok(Self::Factor(factor)),
                _ => Err(format!(
                    "GPUWHY_REPLAY_SPEED={text:?}: give `max` or a number from {} to {}; 1 is real time",
                    SLOWEST_TO_FASTEST.start(),
                    SLOWEST_TO_FASTEST.end()
                )),
            },
        }
    }
}

/// The play clock.
#[derive(Debug)]
pub struct Clock {
    speed: Speed,
    start: u64,
    end: u64,
    /// At maximum speed: the time. Otherwise: the latest time that was returned, so that it never goes back.
    reached: AtomicU64,
    /// Time of the next step: for a late player, the clock must not have passed that time.
    step: AtomicU64,
    /// Wall-clock time at which play began.
    begun: OnceLock<Instant>,
    /// Lead of the wall clock over play, in nanoseconds of the recording.
    ahead: AtomicU64,
    /// A tool's own clock, which also replaces the time that other clients see.
    replaced: OnceLock<TimestampCallback>,
}

/// `CUpti_TimestampCallbackFunc`
pub type TimestampCallback = extern "C" fn() -> u64;

impl Clock {
    /// A clock that is stopped at `start` and will stop at `end`, in nanoseconds.
    #[must_use]
    pub const fn new(speed: Speed, start: u64, end: u64) -> Self {
        Self {
            speed,
            start,
            end,
            reached: AtomicU64::new(start),
            step: AtomicU64::new(u64::MAX),
            begun: OnceLock::new(),
            ahead: AtomicU64::new(0),
            replaced: OnceLock::new(),
        }
    }

    /// Replaces the time that clients see from here on; play keeps its own clock.
    pub fn replace(&self, clock: TimestampCallback) {
        let _ = self.replaced.set(clock);
    }

    /// The time that clients see.
    pub fn client_time(&self) -> u64 {
        self.replaced.get().map_or_else(|| self.now(), |clock| clock())
    }

    /// Start of play in nanoseconds.
    #[must_use]
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// True if the client sets the rate of play.
    #[must_use]
    pub fn is_patient(&self) -> bool {
        self.speed == Speed::Max
    }

    /// Time of the recording by which a client may be behind, in nanoseconds; `None` at maximum speed, at
    /// which it sets the rate of play.
    pub fn reading_time(&self) -> Option<u64> {
        let Speed::Factor(factor) = self.speed else { return None };
        u64::try_from(READING.mul_f64(factor).as_nanos()).ok()
    }

    /// The current time in nanoseconds.
    pub fn now(&self) -> u64 {
        if let (Speed::Factor(factor), Some(begun)) = (self.speed, self.begun.get()) {
            let now = self.start.saturating_add(self.played(begun, factor)).min(self.end);
            let now = now.min(self.step.load(Ordering::SeqCst));
            self.reached.fetch_max(now, Ordering::SeqCst).max(now)
        } else {
            self.reached.load(Ordering::SeqCst)
        }
    }

    /// Time played since `begun`, in nanoseconds of the recording.
    fn played(&self, begun: &Instant, factor: f64) -> u64 {
        let wall = u64::try_from(begun.elapsed().mul_f64(factor).as_nanos()).unwrap_or(u64::MAX);
        wall.saturating_sub(self.ahead.load(Ordering::SeqCst))
    }

    /// Lets time advance to the next step, at `at`.
    pub fn allow(&self, at: u64) {
        self.step.store(at, Ordering::SeqCst);
    }

    /// Starts the clock; later calls have no effect.
    pub fn begin(&self) {
        self.begun.get_or_init(Instant::now);
    }

    /// Returns when the clock has reached `at`, which then cannot lie in the future any more.
    pub fn wait_until(&self, at: u64) {
        match self.speed {
            Speed::Max => {
                self.reached.fetch_max(at, Ordering::SeqCst);
            }
            Speed::Factor(factor) => {
                if let Some(begun) = self.begun.get() {
                    let late = self.played(begun, factor).saturating_sub(at.min(self.end).saturating_sub(self.start));
                    if Duration::from_nanos(late) > LATE.mul_f64(factor) {
                        self.ahead.fetch_add(late, Ordering::SeqCst);
                    }
                }
                while let Some(left) = at.min(self.end).checked_sub(self.now()).filter(|&left| left > 0) {
                    // At least a microsecond: a sleep of zero would spin.
                    thread::sleep(Duration::from_nanos(left).div_f64(factor).max(Duration::from_micros(1)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_read() {
        assert_eq!("max".parse(), Ok(Speed::Max));
        assert_eq!("2.5".parse(), Ok(Speed::Factor(2.5)));
        for bad in ["0", "-1", "inf", "NaN", "fast"] {
            assert!(bad.parse::<Speed>().unwrap_err().contains(bad), "{bad}");
        }
    }

    #[test]
    fn at_maximum_speed_time_is_where_play_is() {
        let clock = Clock::new(Speed::Max, 100, 200);
        assert_eq!(clock.now(), 100);
        clock.begin();
        clock.wait_until(150);
        clock.wait_until(120);
        assert_eq!(clock.now(), 150);
    }

    #[test]
    fn time_does_not_pass_a_step() {
        let clock = Clock::new(Speed::Factor(1_000_000.0), 0, 5_000_000_000);
        clock.allow(7);
        clock.begin();
        clock.wait_until(7);
        assert_eq!(clock.now(), 7);
        clock.allow(9);
        clock.wait_until(9);
        assert_eq!(clock.now(), 9);
    }

    #[test]
    fn play_that_comes_late_to_a_step_does_not_hurry() {
        const MILLISECOND: u64 = 1_000_000;
        let clock = Clock::new(Speed::Factor(1.0), 0, 3_600_000 * MILLISECOND);
        let begun = Instant::now();
        clock.allow(MILLISECOND);
        clock.begin();
        thread::sleep(LATE * 4);
        for step in [MILLISECOND, 100 * MILLISECOND] {
            clock.allow(step);
            clock.wait_until(step);
        }
        // A clock that catches up would be done at the end of the sleep.
        assert!(begun.elapsed() >= LATE * 4 + Duration::from_millis(99), "{:?}", begun.elapsed());
    }

    #[test]
    fn at_a_given_speed_time_ends_at_the_end() {
        let clock = Clock::new(Speed::Factor(1000.0), 0, 5_000_000);
        assert_eq!(clock.now(), 0, "not begun");
        clock.begin();
        clock.wait_until(5_000_000);
        assert_eq!(clock.now(), 5_000_000);
        clock.wait_until(9_000_000);
        assert_eq!(clock.now(), 5_000_000);
    }
}
