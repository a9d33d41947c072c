//! `--filter-time START/END` and `--filter-nvtx RANGE[@DOMAIN][/INDEX]`: limits statistics to an interval of
//! the trace.
//!
//! As in nsys, times are relative to the start of tracing. An operation that overlaps the interval counts
//! entirely.

use std::str::FromStr;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::record::{Record, Timestamp};

use crate::error::ExportError;
use crate::ranges::{ClosedRange, OpenRanges};
use gpuwhy_import::{Progress, TraceFile};

/// A time interval, nanoseconds since the start of tracing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeFilter {
    start: Option<u64>,
    end: Option<u64>,
}

impl TimeFilter {
    /// True if the span from `start` to `end` overlaps the interval. `origin` is the start of tracing.
    pub(crate) fn admits(&self, origin: Timestamp, start: Timestamp, end: Timestamp) -> bool {
        self.start.is_none_or(|from| end.since(origin) >= from) && self.end.is_none_or(|to| start.since(origin) <= to)
    }
}

impl TimeFilter {
    /// The interval in nanoseconds since the Unix epoch: a span is admitted if it ends at or after the first
    /// value and starts at or before the second.
    pub(crate) fn bounds(self, origin: Timestamp) -> (i64, i64) {
        let of_day = |since: u64| i64::try_from(origin.nanos().saturating_add(since)).unwrap_or(i64::MAX);
        // Spans before the origin count as starting at the origin.
        (self.start.filter(|&start| start > 0).map_or(i64::MIN, of_day), self.end.map_or(i64::MAX, of_day))
    }
}

impl FromStr for TimeFilter {
    type Err = String;

    /// `START/END`, either of which may be missing; numbers are nanoseconds unless followed by a unit.
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

/// A range of the program selected by name, as with nsys's `--filter-nvtx`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeFilter {
    text: String,
    /// Empty for the default domain.
    domain: String,
    /// Index among ranges with the same name, by start time.
    index: usize,
}

impl FromStr for RangeFilter {
    type Err = String;

    /// `RANGE[@DOMAIN][/INDEX]`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, index) = match text.rsplit_once('/') {
            Some((name, index)) if index.bytes().all(|byte| byte.is_ascii_digit()) && !index.is_empty() => {
                (name, index.parse().map_err(|_| "the index is too large".to_owned())?)
            }
            _ => (text, 0),
        };
        let (text, domain) = name.rsplit_once('@').unwrap_or((name, ""));
        if text.is_empty() {
            return Err("expected RANGE[@DOMAIN][/INDEX], such as step, step@train or step@train/3".to_owned());
        }
        Ok(Self { text: text.to_owned(), domain: domain.to_owned(), index })
    }
}

impl RangeFilter {
    /// Interval of the range in `trace`; `None` if there is no such range.
    ///
    /// # Errors
    /// If the trace cannot be read.
    pub fn interval(&self, trace: &TraceFile, progress: &mut Progress<'_>) -> Result<Option<TimeFilter>, ExportError> {
        let mut open = OpenRanges::default();
        let mut found: Vec<(Timestamp, Timestamp)> = Vec::new();
        let mut last = Timestamp::ZERO;
        let passed = trace.pass(progress, |event, scope| {
            match event {
                Event::Record(Record::Range(event)) => {
                    last = last.max(event.at);
                    if let Some(range) = open.take(event)
                        && self.names(&range, scope.dictionary)
                    {
                        found.push((range.begin.at, range.end));
                    }
                }
                Event::Record(Record::Api(call)) => last = last.max(call.end),
                Event::Flush(at) | Event::End(_, at) => last = last.max(*at),
                _ => {}
            }
            Ok::<_, ExportError>(())
        })?;
        let left = open.finish(last);
        let left = left.iter().filter(|range| self.names(range, &passed.dictionary));
        found.extend(left.map(|range| (range.begin.at, range.end)));
        found.sort_unstable();
        let since = |at: Timestamp| Some(at.since(passed.session.start));
        Ok(found.get(self.index).map(|&(start, end)| TimeFilter { start: since(start), end: since(end) }))
    }

    fn names(&self, range: &ClosedRange, dictionary: &Dictionary) -> bool {
        dictionary.name(range.begin.message) == self.text && dictionary.name(range.begin.domain) == self.domain
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
    fn ranges_are_read_with_domain_and_index() {
        let range = |text: &str, domain: &str, index| {
            Ok(RangeFilter { text: text.to_owned(), domain: domain.to_owned(), index })
        };
        assert_eq!("step".parse(), range("step", "", 0));
        assert_eq!("step@train/3".parse(), range("step", "train", 3));
        assert_eq!("a/b".parse(), range("a/b", "", 0));
        assert!("@train".parse::<RangeFilter>().is_err() && "".parse::<RangeFilter>().is_err());
    }

    #[test]
    fn intervals_are_read_and_nonsense_is_not() {
        assert_eq!("1.5s/".parse(), Ok(TimeFilter { start: Some(1_500_000_000), end: None }));
        assert_eq!("/7".parse(), Ok(TimeFilter { start: None, end: Some(7) }));
        for text in ["", "5", "a/b", "-1/2", "2s/1s", "inf/"] {
            assert!(text.parse::<TimeFilter>().is_err(), "{text}");
        }
    }
}
