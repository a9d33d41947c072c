//! Sampling rate, limited so that decoding stays within its share of a core.
//!
//! Decoding and evaluation take 18 to 60 us per sample (H200; docs/design/overhead.md), more on a slower
//! processor. Their cost is measured on the clock of the thread, and the rate is lowered if it is too high.
//! It is not raised again: opening takes a fifth of a second of a core each time.

use std::time::Duration;

/// Default rate, samples a second: enough to distinguish the kernels of a 30 ms step within a second
/// (docs/design/attribution.md).
const RATE: u32 = 200;
/// Share of a core that decoding may take.
const SHARE: f64 = 0.01;
/// The same if the user set a rate.
const SHARE_OF_NAMED_RATE: f64 = 0.05;
/// Above this rate, sampling may take a complete core: a user who sets it wants samples shorter than kernels.
const FASTEST_WITHIN_SHARE: u32 = 1000;
/// Factor by which the share may be exceeded before the rate is lowered.
const TOLERANCE: f64 = 1.1;
/// Target of a lowered rate, as a fraction of the share.
const AIM: f64 = 0.85;
/// Time over which the share is measured.
const WINDOW: Duration = Duration::from_secs(5);
/// Minimum rate.
const LOWEST: u32 = 10;
/// Maximum number of samples per decoding: 29 to 57 KB each with 10 or more metrics (H200), and 4 us to
/// clear.
const MOST_ROOM: u32 = 1024;
/// Size of a sample in the hardware's buffer, bytes: 11 to 14 KB (H200).
const HARDWARE_SAMPLE: usize = 14 << 10;
/// Seconds of samples that this buffer, which is pinned host memory, holds: a thread may be late.
const SECONDS_BUFFERED: usize = 4;
/// Minimum and maximum size of the buffer, bytes.
const HARDWARE_BUFFER: [usize; 2] = [16 << 20, 64 << 20];
/// Interval between two decodings: few and large ones, since each has a fixed cost of half a millisecond.
pub const PERIOD: Duration = Duration::from_millis(300);

/// Sampling rate, and the recent cost of decoding.
#[derive(Debug)]
pub struct SamplingRate {
    rate: u32,
    share: f64,
    spent: Duration,
    lasted: Duration,
}

impl SamplingRate {
    /// Creates the rate that the user set, or the default one.
    pub fn new(named: Option<u32>) -> Self {
        let share = match named {
            None => SHARE,
            Some(rate) if rate <= FASTEST_WITHIN_SHARE => SHARE_OF_NAMED_RATE,
            Some(_) => 1.0,
        };
        Self { rate: named.unwrap_or(RATE), share, spent: Duration::ZERO, lasted: Duration::ZERO }
    }

    /// Interval between two samples, nanoseconds.
    pub fn interval_nanos(&self) -> u64 {
        1_000_000_000 / u64::from(self.rate)
    }

    /// Number of samples that one decoding has room for: those of a period, with a margin for a late thread.
    pub fn room(&self) -> u32 {
        self.due().min(MOST_ROOM)
    }

    /// Maximum number of consecutive decodings while each one fills its room: those of a period, and one more
    /// for a late thread. Bounded because samples may arrive as fast as they are decoded.
    pub fn decodings(&self) -> u32 {
        self.due().div_ceil(MOST_ROOM) + 1
    }

    /// Size of the hardware's buffer, bytes.
    pub fn hardware_buffer(&self) -> usize {
        let [least, most] = HARDWARE_BUFFER;
        (self.rate as usize * SECONDS_BUFFERED * HARDWARE_SAMPLE).next_power_of_two().clamp(least, most)
    }

    fn due(&self) -> u32 {
        let of_period = f64::from(self.rate) * PERIOD.as_secs_f64();
        (of_period * 1.6) as u32 + 16
    }

    /// Notes the CPU time of a round of decoding, for all devices, and the time since the last round. Returns
    /// true if the rate was lowered.
    pub fn note(&mut self, spent: Duration, lasted: Duration) -> bool {
        self.spent += spent;
        self.lasted += lasted;
        if self.lasted < WINDOW {
            return false;
        }
        let share = self.spent.as_secs_f64() / self.lasted.as_secs_f64();
        (self.spent, self.lasted) = (Duration::ZERO, Duration::ZERO);
        let lowered = ((f64::from(self.rate) * AIM * self.share / share) as u32).max(LOWEST);
        if share <= self.share * TOLERANCE || lowered >= self.rate {
            return false;
        }
        self.rate = lowered;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(sampling_rate: &mut SamplingRate, micros_a_sample: u64, rounds: u32) -> u32 {
        let mut lowered = 0;
        for _ in 0..rounds {
            let samples = PERIOD.as_nanos() as u64 / sampling_rate.interval_nanos();
            lowered += u32::from(sampling_rate.note(Duration::from_micros(450 + samples * micros_a_sample), PERIOD));
        }
        lowered
    }

    #[test]
    fn the_usual_rate_holds_where_a_sample_takes_forty_microseconds() {
        let mut sampling_rate = SamplingRate::new(None);
        assert_eq!((rounds(&mut sampling_rate, 40, 1000), sampling_rate.interval_nanos()), (0, 5_000_000));
        assert!((60..200).contains(&sampling_rate.room()));
    }

    #[test]
    fn samples_shorter_than_kernels_may_take_a_core_and_bounded_memory() {
        let mut sampling_rate = SamplingRate::new(Some(10_000));
        assert_eq!((rounds(&mut sampling_rate, 75, 1000), sampling_rate.interval_nanos()), (0, 100_000));
        assert!(
            sampling_rate.room() <= 1024 && sampling_rate.room() * (sampling_rate.decodings() - 1) >= 3_000,
            "the samples of a period fit"
        );
        let usual = SamplingRate::new(Some(1000));
        assert_eq!((usual.room(), usual.decodings()), (496, 2));
        let buffers = [None, Some(1000), Some(10_000)].map(|rate| SamplingRate::new(rate).hardware_buffer() >> 20);
        assert_eq!(buffers, [16, 64, 64]);
    }

    #[test]
    fn a_slow_processor_is_sampled_less_and_then_left_alone() {
        let mut sampling_rate = SamplingRate::new(None);
        assert_eq!(rounds(&mut sampling_rate, 200, 1000), 1);
        let rate = 1e9 / sampling_rate.interval_nanos() as f64;
        assert!(rate * 200e-6 < SHARE && rate > 25.0, "{rate}");
        assert_eq!(rounds(&mut SamplingRate::new(Some(1000)), 40, 1000), 0, "five percent for a rate that was named");
        let mut hopeless = SamplingRate::new(None);
        rounds(&mut hopeless, 100_000, 1000);
        assert_eq!(hopeless.interval_nanos(), 100_000_000);
    }
}
