//! Ranges of the program by domain and text.
//!
//! A range without an end in the trace counts up to the end of the trace, as in nsys.

use std::cmp::Reverse;

use profiler_core::record::{NameId, RangeEventKind, Record, Timestamp};
use profiler_core::trace::Item;
use rustc_hash::FxHashMap;

use super::columns::times;
use super::distribution::Distribution;
use super::input::{Input, Notes};
use super::projection::{name, style};
use super::statistic::Statistic;
use super::table::Cell;
use crate::error::ExportError;
use crate::ranges::{OpenRanges, Range};

/// Domain, text, and whether it was started rather than pushed.
type Key = (NameId, NameId, bool);

/// The rows of `statistic`, the largest total first.
pub(super) fn rows(
    statistic: Statistic,
    input: &mut Input<'_, '_>,
    notes: &mut Notes,
) -> Result<Vec<Vec<Cell>>, ExportError> {
    let mut groups: FxHashMap<Key, Distribution> = FxHashMap::default();
    let mut open = OpenRanges::default();
    let mut last = Timestamp::ZERO;
    let (filter, unit) = (input.filter, input.unit);
    let mut count = |range: &Range, origin: Timestamp| {
        let started = range.begin.kind == RangeEventKind::Start;
        let wanted = match statistic {
            Statistic::PushPopSum => !started,
            Statistic::StartEndSum => started,
            _ => true,
        };
        if wanted && filter.admits(origin, range.begin.at, range.end) {
            let group = groups.entry((range.begin.domain, range.begin.message, started)).or_default();
            group.add(range.end.since(range.begin.at));
        }
    };
    let passed = input.trace.pass(input.progress, |item, scope| {
        match item {
            Item::Record(Record::Range(event)) => {
                last = last.max(event.at);
                if let Some(range) = open.take(event) {
                    count(&range, scope.session.start);
                }
            }
            Item::Record(Record::Api(call)) => last = last.max(call.end),
            Item::Flush(at) | Item::End(_, at) => last = last.max(*at),
            _ => {}
        }
        Ok::<_, ExportError>(())
    })?;
    for range in open.finish(last) {
        count(&range, passed.session.start);
    }
    notes.0.extend(passed.notes());
    notes.0.extend(open.notes());
    let all: f64 = groups.values().map(|group| group.total() as f64).sum();
    let mut groups: Vec<(String, bool, Distribution)> = groups
        .into_iter()
        .map(|((domain, message, started), group)| (name(domain, message, &passed.dictionary), started, group))
        .collect();
    groups.sort_by(|(a, _, left), (b, _, right)| (Reverse(left.total()), a).cmp(&(Reverse(right.total()), b)));
    let row = |(name, started, group): (String, bool, Distribution)| {
        let mut cells = times(&group, all, unit);
        if statistic == Statistic::RangeSum {
            cells.push(Cell::Text(style(started).to_owned()));
        }
        cells.push(Cell::Text(name));
        cells
    };
    Ok(groups.into_iter().map(row).collect())
}
