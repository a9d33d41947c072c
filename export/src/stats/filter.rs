//! `--filter-time START/END`: only what overlaps a stretch of the trace.
//!
//! Times count from the start of tracing, as nsys's do. An operation that overlaps counts whole.

use std::str::FromStr;

use profiler_core::record::Timestamp;

/// A stretch of time, nanoseconds since the start of tracing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeFilter {
    start: Option<u64>,
    end: Option<u64>,
}

impl TimeFilter {
    /// Whether something from `start` to `end` overlaps it. `origin` is the start of tracing.
    pub(super) fn admits(&self, origin: Timestamp, start: Timestamp, end: Timestamp) -> bool {
        self.start.is_none_or(|from| end.since(origin) >= from) && self.end.is_none_or(|to| start.since(origin) <= to)
    }
}

impl FromStr for TimeFilter {
    type Err = String;

    /// `START/END`, either of them may be missing; numbers are nanoseconds unless a unit stands behind them.
    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = "expected START/END, such as 1.5s/2s, 200ms/ or 0/1000000";
        let (start, end) = text.split_once('/').ok_or(wanted)?;
        let side = |side: &str| match side.trim() {
            "" => Ok(None),
            time => nanoseconds(time).map(Some).ok_or(wanted),
        };
        let filter = Self { start: side(start)?, end: side(end)? };
        match (filter.start, filter.end) {
            (Some(start), Some(end)) if end < start => Err("the end is before the start".to_owned()),
            _ => Ok(filter),
        }
    }
}

fn nanoseconds(text: &str) -> Option<u64> {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let (number, scale) = units
        .iter()
        .find_map(|&(unit, scale)| text.strip_suffix(unit).map(|number| (number, scale)))
        .unwrap_or((text, 1.0));
    let value = number.trim().parse::<f64>().ok()? * scale;
    (value.is_finite() && value >= 0.0).then_some(value.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    #[test]
    fn what_overlaps_is_admitted() {
        let filter: TimeFilter = "1us/2us".parse().unwrap();
        let admits = |start: u64, end: u64| filter.admits(at(10_000), at(10_000 + start), at(10_000 + end));
        assert!(!admits(0, 999) && admits(0, 1_000) && admits(1_500, 1_600) && admits(2_000, 9_000));
        assert!(!admits(2_001, 9_000));
        assert!(TimeFilter::default().admits(at(10_000), at(0), at(1)));
    }

    #[test]
    fn stretches_are_read_and_nonsense_is_not() {
        assert_eq!("1.5s/".parse(), Ok(TimeFilter { start: Some(1_500_000_000), end: None }));
        assert_eq!("/7".parse(), Ok(TimeFilter { start: None, end: Some(7) }));
        for text in ["", "5", "a/b", "-1/2", "2s/1s", "inf/"] {
            assert!(text.parse::<TimeFilter>().is_err(), "{text}");
        }
    }
}
