//! The clock of the records.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cupti_sys::Cupti;
use gpuwhy_trace::record::Timestamp;

/// The year 2020. No clock that counts from system start reaches it: that takes 17 years of ticks at 3 GHz.
const EARLIEST_NANOS: u64 = 1_577_836_800_000_000_000;

/// Current time on the clock of the records.
pub fn now(cupti: &Cupti) -> Timestamp {
    // CUPTI's clock is CLOCK_REALTIME on Linux, so that replaces it if CUPTI no longer responds or has
    // another tool's clock.
    cupti.timestamp().ok().filter(|&nanos| nanos >= EARLIEST_NANOS).map_or_else(wall_clock, Timestamp::from_nanos)
}

/// True if CUPTI uses a clock that another tool has set (`cuptiActivityRegisterTimestampCallback`), which
/// remains after the tool is gone. After torch.profiler, CUPTI returned 391 s instead of the time since 1970,
/// and most records had no time (CUPTI 13.0.85, H200).
pub fn is_on_foreign_clock(cupti: &Cupti) -> bool {
    cupti.timestamp().is_ok_and(|nanos| nanos < EARLIEST_NANOS)
}

/// CLOCK_REALTIME.
pub fn wall_clock() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    Timestamp::from_nanos(since_epoch.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
}

/// Adds an interval to a time.
pub fn after(time: Timestamp, interval: Duration) -> Timestamp {
    Timestamp::from_nanos(time.nanos().saturating_add(nanos(interval)))
}

pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
