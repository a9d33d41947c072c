//! The play clock: the recording's time, at which the replay stands.
//!
//! At a given speed it follows the wall clock. At maximum speed it jumps from step to step, so that every run sees
//! the same times. In both cases it stands still at the start until play begins, at a step that is not carried out
//! yet, where play was to go no further, and at the end when it is over, and never goes back. Play that comes late to
//! a step, because the machine was busy or because play stood, goes on from there at its speed: it does not hurry after
//! the wall clock.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Speeds that can be asked for. Far beyond both ends of what is of use, and far from where times overflow.
const SLOWEST_TO_FASTEST: RangeInclusive<f64> = 0.001..=1_000_000.0;

/// So late play still catches up with the wall clock: sleeps are longer than they were asked for.
const LATE: Duration = Duration::from_millis(50);

/// How fast to play.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Speed {
    /// As fast as the client takes the records.
    #[default]
    Max,
    /// This many seconds of the recording in one second; from 0.001 to 1,000,000.
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

/// The clock.
#[derive(Debug)]
pub struct Clock {
    speed: Speed,
    start: u64,
    end: u64,
    /// At maximum speed: the time. Otherwise: the latest time that was told, so that it never goes back.
    reached: AtomicU64,
    /// Time of the next step: a player that is late must not find that time has passed it.
    step: AtomicU64,
    /// When play began, on the wall.
    begun: OnceLock<Instant>,
    /// What the wall clock is ahead of play, nanoseconds of the recording.
    ahead: AtomicU64,
    /// A tool's own clock, which the others are told the time by too.
    replaced: OnceLock<TimestampCallback>,
}

/// `CUpti_TimestampCallbackFunc`
pub type TimestampCallback = extern "C" fn() -> u64;

impl Clock {
    /// A clock that stands at `start` and will stop at `end`, nanoseconds.
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

    /// Has the time told by another clock from here on; play keeps to its own.
    pub fn replace(&self, clock: TimestampCallback) {
        let _ = self.replaced.set(clock);
    }

    /// The time as clients are told it.
    pub fn told(&self) -> u64 {
        self.replaced.get().map_or_else(|| self.now(), |clock| clock())
    }

    /// When play begins, nanoseconds.
    #[must_use]
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// Whether the client sets the pace.
    #[must_use]
    pub fn is_patient(&self) -> bool {
        self.speed == Speed::Max
    }

    /// The time, nanoseconds.
    pub fn now(&self) -> u64 {
        if let (Speed::Factor(factor), Some(begun)) = (self.speed, self.begun.get()) {
            let now = self.start.saturating_add(self.played(begun, factor)).min(self.end);
            let now = now.min(self.step.load(Ordering::SeqCst));
            self.reached.fetch_max(now, Ordering::SeqCst).max(now)
        } else {
            self.reached.load(Ordering::SeqCst)
        }
    }

    /// What was played since `begun`, nanoseconds of the recording.
    fn played(&self, begun: &Instant, factor: f64) -> u64 {
        let wall = u64::try_from(begun.elapsed().mul_f64(factor).as_nanos()).unwrap_or(u64::MAX);
        wall.saturating_sub(self.ahead.load(Ordering::SeqCst))
    }

    /// Lets time go on to the next step, at `at`.
    pub fn allow(&self, at: u64) {
        self.step.store(at, Ordering::SeqCst);
    }

    /// Starts the clock; later calls change nothing.
    pub fn begin(&self) {
        self.begun.get_or_init(Instant::now);
    }

    /// Returns when the clock has reached `at`, which no longer can lie in the future then.
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
                    // At least a microsecond: a sleep of nothing would spin.
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
        // A clock that hurries would be there with the end of the sleep.
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
