//! Memory that the program held: sums by device and kind, and every event. Reports of our own: nsys shows these events
//! in its timeline only.

use profiler_core::allocations::Holdings;
use profiler_core::record::{DeviceId, MemoryEvent, MemoryOperation, NameId, Record, Timestamp};
use profiler_core::trace::Item;

use super::filter::TimeFilter;
use super::input::{Input, Notes, printing};
use super::labels;
use super::table::{Cell, RowSink};
use crate::error::ExportError;
use crate::order::Order;
use gpuwhy_import::{Passed, Scope};

fn megabytes(bytes: u64) -> Cell {
    Cell::Decimal(bytes as f64 / 1e6, 3)
}

/// Hands every event to `take`, in the order of time, with what is held after it.
fn in_order(
    input: &mut Input<'_, '_>,
    notes: &mut Notes,
    mut take: impl FnMut(&MemoryEvent, &Holdings, &Scope<'_>) -> Result<(), ExportError>,
) -> Result<(Holdings, Passed), ExportError> {
    let mut order = Order::default();
    let mut holdings = Holdings::default();
    let mut next = |event: MemoryEvent, scope: &Scope<'_>| {
        holdings.take(&event);
        take(&event, &holdings, scope)
    };
    let passed = input.trace.pass(input.progress, |item, scope| match item {
        Item::Record(Record::Memory(event)) if event.at != Timestamp::ZERO => {
            order.push(event.at, *event).map_or(Ok(()), |event| next(event, scope))
        }
        _ => Ok(()),
    })?;
    let scope = Scope { session: &passed.session, dictionary: &passed.dictionary };
    while let Some(event) = order.pop() {
        next(event, &scope)?;
    }
    notes.0.extend(passed.notes());
    notes.count(order.late(), "events of memory came too late for their place");
    Ok((holdings, passed))
}

/// Sums by device and kind, the largest peak first. A filter by time does not apply: what is held
/// depends on everything before.
pub(super) fn summary(input: &mut Input<'_, '_>, notes: &mut Notes) -> Result<Vec<Vec<Cell>>, ExportError> {
    let unit = input.unit;
    if input.filter != TimeFilter::default() {
        notes.0.push("cuda_memory_usage_sum: the whole trace is meant, filters do not apply".to_owned());
    }
    let (holdings, passed) = in_order(input, notes, |_, _, _| Ok(()))?;
    notes.count(holdings.unknown_releases(), "releases are of memory that was held before");
    notes.count(holdings.table_overflow(), "allocations are not recognized when they are released");
    let mut rows: Vec<_> = holdings.rows().filter(|(_, holding)| holding.allocations > 0).collect();
    rows.sort_by(|(a, left), (b, right)| right.peak.cmp(&left.peak).then(a.cmp(b)));
    let row = |((device, kind), holding): ((DeviceId, _), &profiler_core::allocations::Holding)| {
        vec![
            megabytes(holding.peak),
            unit.whole(holding.peak_at.since(passed.session.start)),
            megabytes(holding.current),
            Cell::Number(holding.allocations),
            Cell::Number(holding.releases),
            megabytes(holding.allocated),
            megabytes(holding.largest),
            megabytes(holding.pool_peak),
            Cell::Number(passed.session.process_id.into()),
            Cell::Number(device.0.into()),
            Cell::Text(labels::memory(kind).to_owned()),
        ]
    };
    Ok(rows.into_iter().map(row).collect())
}

/// Every event, with what is held after it on its device and of its kind.
pub(super) fn stream(input: &mut Input<'_, '_>, sink: &mut dyn RowSink, notes: &mut Notes) -> Result<(), ExportError> {
    let (filter, unit) = (input.filter, input.unit);
    in_order(input, notes, |event, holdings, scope| {
        if !filter.admits(scope.session.start, event.at, event.at) {
            return Ok(());
        }
        let held = holdings.get((event.device, event.kind)).map_or(0, |holding| holding.current);
        let operation = match event.operation {
            MemoryOperation::Unknown => "Unknown",
            MemoryOperation::Allocation => "Allocation",
            MemoryOperation::Release => "Deallocation",
            MemoryOperation::PoolCreated => "Pool created",
            MemoryOperation::PoolDestroyed => "Pool destroyed",
            MemoryOperation::PoolTrimmed => "Pool trimmed",
        };
        let of_pool = operation.starts_with("Pool");
        let name = if event.name == NameId::UNKNOWN { "" } else { scope.dictionary.name(event.name) };
        let cells = [
            unit.whole(event.at.since(scope.session.start)),
            Cell::Text(operation.to_owned()),
            megabytes(if of_pool { event.pool_bytes } else { event.bytes }),
            megabytes(held),
            Cell::Text(labels::memory(event.kind).to_owned()),
            Cell::Number(scope.session.process_id.into()),
            Cell::Number(event.device.0.into()),
            Cell::Number(event.context.0.into()),
            if event.stream.0 == u32::MAX { Cell::Empty } else { Cell::Number(event.stream.0.into()) },
            Cell::Number(event.correlation.0.into()),
            Cell::Number(if of_pool { event.pool } else { event.address }),
            Cell::Text(name.to_owned()),
        ];
        sink.row(&cells).map_err(printing)
    })?;
    Ok(())
}
