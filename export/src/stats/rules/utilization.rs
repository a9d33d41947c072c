//! When devices ran nothing, or little.
//!
//! A device counts from the begin of its first operation to the end of its last, by itself. Operations are taken in the
//! order of their begins, within a window of a million; one that comes later than that is counted.

use std::collections::BTreeMap;

use profiler_core::record::{ContextId, DeviceId, DeviceWork, Timestamp};
use profiler_core::trace::Item;

use super::largest::Largest;
use super::rule::{Found, Request};
use crate::error::ExportError;
use crate::order::Order;
use crate::stats::input::{Input, Notes};
use crate::stats::table::Cell;
use gpuwhy_import::Passed;

/// An operation.
#[derive(Clone, Copy, Debug)]
struct Work {
    device: DeviceId,
    context: ContextId,
    start: u64,
    end: u64,
}

/// Hands every operation to `take`, by begin.
fn in_order(input: &mut Input<'_, '_>, notes: &mut Notes, mut take: impl FnMut(Work)) -> Result<Passed, ExportError> {
    let filter = input.filter;
    let mut order = Order::default();
    let passed = input.trace.pass(input.progress, |item, scope| {
        let Item::Record(record) = item else { return Ok::<_, ExportError>(()) };
        let Some(DeviceWork { device, context, start, end, .. }) = record.device_work() else { return Ok(()) };
        if start != Timestamp::ZERO && filter.admits(scope.session.start, start, end) {
            let work = Work { device, context, start: start.nanos(), end: end.nanos() };
            order.push(start, work).into_iter().for_each(&mut take);
        }
        Ok(())
    })?;
    while let Some(work) = order.pop() {
        take(work);
    }
    notes.0.extend(passed.notes());
    notes.count(order.late(), "operations came too late for their place");
    Ok(passed)
}

/// The context of a device's work; `None` when there are several.
fn only(contexts: &BTreeMap<DeviceId, Option<ContextId>>, device: DeviceId) -> Cell {
    contexts.get(&device).copied().flatten().map_or(Cell::Empty, |context| Cell::Number(context.0.into()))
}

fn note_context(contexts: &mut BTreeMap<DeviceId, Option<ContextId>>, work: &Work) {
    let known = contexts.entry(work.device).or_insert(Some(work.context));
    if *known != Some(work.context) {
        *known = None;
    }
}

/// Stretches of at least `gap` in which a device ran nothing, the longest first.
pub(super) fn gaps(request: &Request, input: &mut Input<'_, '_>, notes: &mut Notes) -> Result<Found, ExportError> {
    let unit = input.unit;
    let mut busy_until: BTreeMap<DeviceId, u64> = BTreeMap::new();
    let mut contexts = BTreeMap::new();
    let mut largest: Largest<u64, (DeviceId, u64, u64)> = Largest::new(request.rows);
    let passed = in_order(input, notes, |work| {
        note_context(&mut contexts, &work);
        let until = busy_until.entry(work.device).or_insert(work.start);
        let idle = work.start.saturating_sub(*until);
        if idle > 0 && idle >= request.gap {
            largest.push(idle, (work.device, *until, idle));
        }
        *until = (*until).max(work.end);
    })?;
    let (rows, left_out) = largest.finish();
    let row = |(number, (device, start, idle)): (u64, (DeviceId, u64, u64))| {
        vec![
            Cell::Number(number),
            unit.whole(idle),
            unit.whole(Timestamp::from_nanos(start).since(passed.session.start)),
            Cell::Number(passed.session.process_id.into()),
            Cell::Number(device.0.into()),
            only(&contexts, device),
        ]
    };
    Ok(((1..).zip(rows).map(row).collect(), left_out))
}

/// A device's time in equal parts, of which the last may be shorter.
#[derive(Debug)]
struct Parts {
    start: u64,
    end: u64,
    length: u64,
    /// Time of operations in each part: what overlaps counts for each of them, as in nsys.
    used: Vec<u64>,
}

/// Parts one after another that were all used little.
#[derive(Clone, Copy, Debug, PartialEq)]
struct LowUseSpan {
    start: u64,
    end: u64,
    /// Percent.
    share: f64,
}

impl Parts {
    fn new(start: u64, end: u64, count: u32) -> Self {
        // Rounded up, as in nsys: the parts reach the end, perhaps before their number is used up.
        let length = (end - start).div_ceil(count.into()).max(1);
        Self { start, end, length, used: vec![0; (end - start).div_ceil(length) as usize] }
    }

    /// Something ran.
    fn take(&mut self, start: u64, end: u64) {
        let (mut at, end) = (start.max(self.start), end.min(self.end));
        while at < end {
            let part = (at - self.start) / self.length;
            // The last part may reach beyond 2^64.
            let next = self.start.saturating_add((part + 1).saturating_mul(self.length)).min(end);
            if let Some(used) = self.used.get_mut(part as usize) {
                *used = used.saturating_add(next - at);
            }
            at = next;
        }
    }

    /// Parts that were used for less than `threshold` percent; those that follow one another are one.
    fn below(&self, threshold: f64) -> Vec<LowUseSpan> {
        let mut found: Vec<LowUseSpan> = Vec::new();
        for (number, &used) in (0..).zip(&self.used) {
            let start = self.start + number * self.length;
            let end = start.saturating_add(self.length).min(self.end);
            let share = used as f64 / (end - start) as f64 * 100.0;
            if share >= threshold {
                continue;
            }
            match found.last_mut().filter(|last| last.end == start) {
                Some(last) => {
                    let sum = last.share * (last.end - last.start) as f64 + share * (end - start) as f64;
                    last.share = sum / (end - last.start) as f64;
                    last.end = end;
                }
                None => found.push(LowUseSpan { start, end, share }),
            }
        }
        found
    }
}

/// Stretches of a device's time in which operations took less than the threshold, the emptiest first.
pub(super) fn chunks(request: &Request, input: &mut Input<'_, '_>, notes: &mut Notes) -> Result<Found, ExportError> {
    let unit = input.unit;
    let mut windows: BTreeMap<DeviceId, (u64, u64)> = BTreeMap::new();
    let mut contexts = BTreeMap::new();
    in_order(input, &mut Notes::default(), |work| {
        note_context(&mut contexts, &work);
        let (first, last) = windows.entry(work.device).or_insert((work.start, work.end));
        *first = (*first).min(work.start);
        *last = (*last).max(work.end);
    })?;
    let mut parts: BTreeMap<DeviceId, Parts> = windows
        .into_iter()
        .map(|(device, (start, end))| (device, Parts::new(start, end.max(start), request.chunks)))
        .collect();
    let passed = in_order(input, notes, |work| {
        if let Some(parts) = parts.get_mut(&work.device) {
            parts.take(work.start, work.end);
        }
    })?;
    let mut largest = Largest::new(request.rows);
    for (&device, parts) in &parts {
        for stretch in parts.below(request.threshold) {
            // Sorted as whole numbers, since fractions have no order: millionths, then the shortest first.
            let empty = u64::MAX - (stretch.share * 1e6) as u64;
            largest.push((empty, u64::MAX - (stretch.end - stretch.start)), (device, stretch));
        }
    }
    let (rows, left_out) = largest.finish();
    let row = |(number, (device, stretch)): (u64, (DeviceId, LowUseSpan))| {
        vec![
            Cell::Number(number),
            Cell::Decimal(stretch.share, 1),
            unit.whole(stretch.end - stretch.start),
            unit.whole(Timestamp::from_nanos(stretch.start).since(passed.session.start)),
            Cell::Number(passed.session.process_id.into()),
            Cell::Number(device.0.into()),
            only(&contexts, device),
        ]
    };
    Ok(((1..).zip(rows).map(row).collect(), left_out))
}

#[cfg(test)]
mod tests {
    use super::{LowUseSpan, Parts};

    #[test]
    fn work_counts_in_every_part_it_touches_and_overlapping_work_twice() {
        let mut parts = Parts::new(100, 200, 4);
        for (start, end) in [(100, 110), (105, 120), (120, 130), (160, 200)] {
            parts.take(start, end);
        }
        assert_eq!((parts.length, &parts.used[..]), (25, &[30, 5, 15, 25][..]));
        let second = LowUseSpan { start: 125, end: 175, share: 40.0 };
        assert_eq!(parts.below(100.0), [second]);
        assert_eq!(parts.below(30.0), [LowUseSpan { start: 125, end: 150, share: 20.0 }]);
    }

    #[test]
    fn times_up_to_the_largest_number_are_divided() {
        let (start, end) = (1_000, u64::MAX);
        let mut parts = Parts::new(start, end, 30);
        parts.take(start, end);
        parts.take(end - 10, end);
        assert_eq!(parts.used.iter().map(|&used| u128::from(used)).sum::<u128>(), u128::from(end - start) + 10);
        assert!(parts.below(100.0).is_empty());
        for _ in 0..40 {
            parts.take(start, end);
        }
        assert_eq!(parts.used[0], u64::MAX, "more than there is a number for");
    }

    #[test]
    fn a_window_that_does_not_divide_is_covered() {
        let mut parts = Parts::new(0, 10, 3);
        parts.take(0, 9);
        assert_eq!((parts.length, &parts.used[..]), (4, &[4, 4, 1][..]));
        assert_eq!(parts.below(60.0), [LowUseSpan { start: 8, end: 10, share: 50.0 }]);
        let mut empty = Parts::new(5, 5, 2);
        empty.take(5, 5);
        assert!(empty.below(100.0).is_empty());
    }
}
