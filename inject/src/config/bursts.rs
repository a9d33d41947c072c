//! What mode auto may record, and how often.

use std::time::Duration;

use profiler_core::monitoring::BurstLimits;

use crate::config::setting::Setting;
use crate::config::value::parse_duration;
use crate::config::variable;
use crate::sys::clock::nanos;

/// What bursts may cost where GPUWHY_MAX_OVERHEAD is not set.
const BUDGET: f64 = 0.01;

/// [`variable::BURST_EVERY`]
pub const BURST_EVERY: Setting<Duration> = Setting {
    name: variable::BURST_EVERY,
    default: "2m",
    expected: "a duration from 1s to 24h",
    meaning: "With GPUWHY_MODE=auto: one more burst may be recorded each time this has passed. Two may be saved up, of which the \
              second one is kept for a step time that drifts. So there are at most 2 and one for each of these periods. Bursts \
              may cost GPUWHY_MAX_OVERHEAD of the run's time, 1 % where that is off.",
    parse: |text| {
        parse_duration(text).filter(|time| (Duration::from_secs(1)..=Duration::from_secs(86_400)).contains(time))
    },
};

/// [`variable::BURST_LENGTH`]
pub const BURST_LENGTH: Setting<Duration> = Setting {
    name: variable::BURST_LENGTH,
    default: "2s",
    expected: "a duration from 100ms to 1m",
    meaning: "With GPUWHY_MODE=auto: the longest burst. One ends before that once it has 24 steps and half a second, or when its \
              cost reaches the budget.",
    parse: |text| {
        parse_duration(text).filter(|time| (Duration::from_millis(100)..=Duration::from_secs(60)).contains(time))
    },
};

/// The limits that follow from these and from the budget.
pub fn limits(every: Duration, length: Duration, max_overhead: Option<f64>) -> BurstLimits {
    BurstLimits { every_ns: nanos(every), longest_ns: nanos(length), budget: max_overhead.unwrap_or(BUDGET) }
}
