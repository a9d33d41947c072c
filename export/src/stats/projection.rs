//! Ranges of the program projected onto the devices: what was launched within them.
//!
//! Work belongs to the ranges of its launching thread that hold the launching call as a whole, the innermost one and
//! all around it. The projection of a range lasts from the begin of its first operation to the end of its last. A range
//! in which nothing was launched has none and no row.

use std::cmp::Reverse;

use profiler_core::dictionary::Dictionary;
use profiler_core::record::{DeviceId, DeviceWork, NameId, Record, StreamId, ThreadId, Timestamp};
use rustc_hash::{FxHashMap, FxHashSet};

use super::columns::spread;
use super::distribution::Distribution;
use super::filter::TimeFilter;
use super::input::{Input, Notes, printing};
use super::instances::{Instance, Instances, Wanted};
use super::launches::{join, kernels, operations};
use super::table::TimeUnit;
use super::table::{Cell, RowSink};
use crate::correlations::Correlations;
use crate::error::ExportError;
use crate::names::demangled;
use gpuwhy_import::{Passed, Progress, TraceFile};

const WITHOUT_CALL: &str = "operations whose launching call is not in the trace are in no range";

/// `domain:text`; the domain without a name is empty.
pub(super) fn name(domain: NameId, message: NameId, dictionary: &Dictionary) -> String {
    format!("{}:{}", dictionary.name(domain), dictionary.name(message))
}

/// How nsys calls the two kinds of ranges.
pub(super) const fn style(started: bool) -> &'static str {
    if started { "StartEnd" } else { "PushPop" }
}

/// What was launched in one range.
#[derive(Clone, Copy, Debug)]
struct Projected {
    first: u64,
    last: u64,
    operations: u64,
}

/// A pushed range over what was launched in it on one stream.
#[derive(Clone, Copy, Debug)]
pub struct ProjectedRange {
    /// Its text.
    pub message: NameId,
    /// Where its operations ran.
    pub device: DeviceId,
    /// Where its operations ran.
    pub stream: StreamId,
    /// The begin of the first.
    pub first: Timestamp,
    /// The end of the last.
    pub last: Timestamp,
}

/// Every pushed range on every stream that it launched something on, and what could not be placed.
///
/// # Errors
///
/// When the trace cannot be read at all.
pub fn projected_ranges(
    trace: &TraceFile,
    progress: &mut Progress<'_>,
) -> Result<(Vec<ProjectedRange>, Vec<String>), ExportError> {
    let mut input = Input { trace, filter: TimeFilter::default(), unit: TimeUnit::default(), progress };
    let mut unread = Notes::default();
    let (ranges, _) = Instances::read(&mut input, Wanted::All, &mut unread)?;
    let mut rows: FxHashMap<(u32, DeviceId, StreamId), ProjectedRange> = FxHashMap::default();
    let (_, without_call) = join(&mut input, operations, |call, record, _| {
        let Some(DeviceWork { device, stream, start, end, .. }) = record.device_work() else { return Ok(()) };
        for place in ranges.around(call) {
            let Instance { message, started, .. } = ranges.all[place as usize];
            if !started {
                let new = ProjectedRange { message, device, stream, first: start, last: end };
                let row = rows.entry((place, device, stream)).or_insert(new);
                row.first = row.first.min(start);
                row.last = row.last.max(end);
            }
        }
        Ok(())
    })?;
    let mut notes = Notes::default();
    notes.count(without_call, WITHOUT_CALL);
    let mut rows: Vec<ProjectedRange> = rows.into_values().collect();
    rows.sort_by_key(|row| (row.first, Reverse(row.last)));
    Ok((rows, notes.0))
}

/// Every range in which something was launched, by place.
fn project(
    input: &mut Input<'_, '_>,
    notes: &mut Notes,
) -> Result<(Instances, FxHashMap<u32, Projected>, Passed), ExportError> {
    let filter = input.filter;
    let (ranges, passed) = Instances::read(input, Wanted::All, notes)?;
    let origin = passed.session.start;
    let mut calls = Correlations::default();
    let mut projected: FxHashMap<u32, Projected> = FxHashMap::default();
    let (_, without_call) = join(input, operations, |call, record, _| {
        let Some(DeviceWork { start, end, correlation, .. }) = record.device_work() else { return Ok(()) };
        // As in nsys, what one call launched is one operation, be it a graph.
        let is_new = calls.insert(correlation);
        for place in ranges.around(call) {
            if admits(filter, origin, &ranges.all[place as usize]) {
                let none = Projected { first: u64::MAX, last: 0, operations: 0 };
                let row = projected.entry(place).or_insert(none);
                row.first = row.first.min(start.nanos());
                row.last = row.last.max(end.nanos());
                row.operations += u64::from(is_new);
            }
        }
        Ok(())
    })?;
    notes.count(without_call, WITHOUT_CALL);
    Ok((ranges, projected, passed))
}

/// How many ranges with a projection each range has directly within it.
fn children(ranges: &Instances, projected: &FxHashMap<u32, Projected>) -> FxHashMap<u32, u64> {
    let mut children: FxHashMap<u32, u64> = FxHashMap::default();
    for parent in projected.keys().filter_map(|&place| ranges.all[place as usize].parent) {
        *children.entry(parent).or_default() += 1;
    }
    children
}

fn admits(filter: TimeFilter, origin: Timestamp, range: &Instance) -> bool {
    filter.admits(origin, Timestamp::from_nanos(range.begin), Timestamp::from_nanos(range.end))
}

/// Sums by name and style, the longest projection first.
pub(super) fn summary(input: &mut Input<'_, '_>, notes: &mut Notes) -> Result<Vec<Vec<Cell>>, ExportError> {
    #[derive(Default)]
    struct Group {
        projected: Distribution,
        host: u64,
        operations: u64,
        levels: u64,
        children: u64,
    }
    let unit = input.unit;
    let (ranges, projected, passed) = project(input, notes)?;
    let children = children(&ranges, &projected);
    let mut groups: FxHashMap<(NameId, NameId, bool), Group> = FxHashMap::default();
    for (&place, row) in &projected {
        let range = &ranges.all[place as usize];
        let group = groups.entry((range.domain, range.message, range.started)).or_default();
        group.projected.add(row.last - row.first);
        group.host = group.host.saturating_add(range.duration());
        group.operations += row.operations;
        group.levels += u64::from(range.level);
        group.children += children.get(&place).copied().unwrap_or(0);
    }
    let mut groups: Vec<_> = groups
        .into_iter()
        .map(|((domain, message, started), group)| (name(domain, message, &passed.dictionary), started, group))
        .collect();
    groups.sort_by(|(a, _, left), (b, _, right)| {
        (Reverse(left.projected.total()), a).cmp(&(Reverse(right.projected.total()), b))
    });
    let row = |(name, started, group): (String, bool, Group)| {
        let count = group.projected.count();
        let mean = |sum: u64| Cell::Decimal(sum as f64 / count.max(1) as f64, 1);
        let mut cells = vec![
            Cell::Text(name),
            Cell::Text(style(started).to_owned()),
            unit.whole(group.projected.total()),
            unit.whole(group.host),
            Cell::Number(count),
        ];
        cells.extend(spread(&group.projected, unit));
        cells.push(Cell::Number(group.operations));
        cells.extend([group.operations, group.levels, group.children].map(mean));
        cells
    };
    Ok(groups.into_iter().map(row).collect())
}

/// Every range in which something was launched, in the order of their begins.
pub(super) fn trace(input: &mut Input<'_, '_>, sink: &mut dyn RowSink, notes: &mut Notes) -> Result<(), ExportError> {
    let unit = input.unit;
    let (ranges, projected, passed) = project(input, notes)?;
    ranges.note_depth(notes);
    let children = children(&ranges, &projected);
    let since = |nanos: u64| unit.since(Timestamp::from_nanos(nanos), passed.session.start);
    for (place, range) in (0u32..).zip(&ranges.all) {
        let Some(row) = projected.get(&place) else { continue };
        let cells = [
            Cell::Text(name(range.domain, range.message, &passed.dictionary)),
            since(row.first),
            unit.whole(row.last - row.first),
            since(range.begin),
            unit.whole(range.duration()),
            Cell::Text(style(range.started).to_owned()),
            Cell::Number(passed.session.process_id.into()),
            Cell::Number(range.thread.0.into()),
            Cell::Number(row.operations),
            Cell::Number(range.level.into()),
            Cell::Number(children.get(&place).copied().unwrap_or(0)),
            Cell::Number(u64::from(place) + 1),
            range.parent.map_or(Cell::Empty, |parent| Cell::Number(u64::from(parent) + 1)),
            Cell::Text(ranges.stack(place)),
        ];
        sink.row(&cells).map_err(printing)?;
    }
    Ok(())
}

/// Every pushed range, in the order of their begins.
pub(super) fn pushed(input: &mut Input<'_, '_>, sink: &mut dyn RowSink, notes: &mut Notes) -> Result<(), ExportError> {
    let (filter, unit) = (input.filter, input.unit);
    let (ranges, passed) = Instances::read(input, Wanted::Pushed, notes)?;
    ranges.note_depth(notes);
    let origin = passed.session.start;
    // How many each has directly within it, and their time.
    let mut children = vec![(0u64, 0u64); ranges.all.len()];
    for range in &ranges.all {
        if let Some(parent) = range.parent {
            let (count, nanos) = &mut children[parent as usize];
            *count += 1;
            *nanos = nanos.saturating_add(range.duration());
        }
    }
    for (place, range) in (0u32..).zip(&ranges.all) {
        if !admits(filter, origin, range) {
            continue;
        }
        let since = |nanos: u64| unit.since(Timestamp::from_nanos(nanos), origin);
        let (children, children_ns) = children[place as usize];
        let name = name(range.domain, range.message, &passed.dictionary);
        let cells = [
            since(range.begin),
            since(range.end),
            unit.whole(range.duration()),
            unit.whole(children_ns),
            unit.whole(range.duration().saturating_sub(children_ns)),
            Cell::Text(name.clone()),
            Cell::Number(passed.session.process_id.into()),
            Cell::Number(range.thread.0.into()),
            Cell::Number(range.level.into()),
            Cell::Number(children),
            Cell::Number(u64::from(place) + 1),
            range.parent.map_or(Cell::Empty, |parent| Cell::Number(u64::from(parent) + 1)),
            Cell::Text(ranges.stack(place)),
            Cell::Text(ranges.indented(place, &name)),
        ];
        sink.row(&cells).map_err(printing)?;
    }
    Ok(())
}

/// Kernels by the ranges that hold their launches, those in no range first, as nsys orders them: by range, thread and
/// the longest total.
pub(super) fn kernel_summary(input: &mut Input<'_, '_>, notes: &mut Notes) -> Result<Vec<Vec<Cell>>, ExportError> {
    /// Domain, text and style of the range, if the launch is in one; thread, kernel.
    type Key = (Option<(NameId, NameId, bool)>, ThreadId, NameId);
    let (filter, unit) = (input.filter, input.unit);
    let (ranges, passed) = Instances::read(input, Wanted::All, notes)?;
    let origin = passed.session.start;
    let mut groups: FxHashMap<Key, (Distribution, u64)> = FxHashMap::default();
    let mut counted: FxHashSet<(u32, NameId)> = FxHashSet::default();
    let (_, without_call) = join(input, kernels, |call, record, scope| {
        let Record::Kernel(kernel) = record else { return Ok(()) };
        let kernel_name = scope.dictionary.launch_config(kernel.config).name;
        let duration = kernel.end.since(kernel.start);
        let mut in_range = false;
        for place in ranges.around(call) {
            in_range = true;
            let range = &ranges.all[place as usize];
            if admits(filter, origin, range) {
                let key = (Some((range.domain, range.message, range.started)), range.thread, kernel_name);
                let (durations, instances) = groups.entry(key).or_default();
                durations.add(duration);
                *instances += u64::from(counted.insert((place, kernel_name)));
            }
        }
        if !in_range && filter.admits(origin, kernel.start, kernel.end) {
            groups.entry((None, call.thread, kernel_name)).or_default().0.add(duration);
        }
        Ok(())
    })?;
    notes.count(without_call, WITHOUT_CALL);
    let dictionary = &passed.dictionary;
    let named = |(key, group): (Key, (Distribution, u64))| {
        let range = key.0.map(|(domain, message, started)| (name(domain, message, dictionary), style(started)));
        (range, key.1, key.2, group)
    };
    let mut groups: Vec<_> = groups.into_iter().map(named).collect();
    groups.sort_by(|(range, thread, kernel, left), (other_range, other_thread, other_kernel, right)| {
        let of = |range: &Option<(String, &str)>| range.as_ref().map(|(name, _)| name.clone());
        (of(range), thread, Reverse(left.0.total()), range, kernel).cmp(&(
            of(other_range),
            other_thread,
            Reverse(right.0.total()),
            other_range,
            other_kernel,
        ))
    });
    let row = |(range, thread, kernel, (durations, instances)): (_, ThreadId, NameId, (Distribution, u64))| {
        let (name, style) = match range {
            Some((name, style)) => (Cell::Text(name), Cell::Text(String::from(style))),
            None => (Cell::Empty, Cell::Empty),
        };
        let mut cells = vec![
            name,
            style,
            Cell::Number(passed.session.process_id.into()),
            Cell::Number(thread.0.into()),
            Cell::Number(instances),
            Cell::Number(durations.count()),
            unit.whole(durations.total()),
        ];
        cells.extend(spread(&durations, unit));
        cells.push(Cell::Text(demangled(dictionary.name(kernel))));
        cells
    };
    Ok(groups.into_iter().map(row).collect())
}
