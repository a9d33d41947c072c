//! Every kernel and memory operation, in the order of time.

use profiler_core::record::{
    ContextId, CorrelationId, DeviceId, LaunchConfigId, ManagedEvent, MemoryKind, Record, StreamId, Timestamp,
};
use profiler_core::trace::Item;
use rustc_hash::FxHashMap;

use super::input::{Input, Notes, printing};
use super::labels;
use super::table::{Cell, RowSink};
use crate::error::ExportError;
use crate::names::{Names, demangled};
use crate::order::Order;
use gpuwhy_import::Scope;

/// What all operations have.
#[derive(Clone, Copy, Debug)]
struct Operation {
    start: Timestamp,
    end: Timestamp,
    device: DeviceId,
    context: ContextId,
    stream: StreamId,
    correlation: CorrelationId,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Kernel(LaunchConfigId),
    Memory { name: &'static str, bytes: u64, source: MemoryKind, destination: Option<MemoryKind> },
}

impl Operation {
    fn of(record: &Record) -> Option<Self> {
        let (start, end, device, context, stream, correlation, what) = match record {
            Record::Kernel(row) => {
                (row.start, row.end, row.device, row.context, row.stream, row.correlation, What::Kernel(row.config))
            }
            Record::Copy(row) => {
                let name = labels::copy(row.kind);
                let (bytes, source, destination) = (row.bytes, row.source, Some(row.destination));
                let what = What::Memory { name, bytes, source, destination };
                (row.start, row.end, row.device, row.context, row.stream, row.correlation, what)
            }
            Record::Memset(row) => {
                let (name, bytes, source) = (labels::MEMSET, row.bytes, row.memory);
                let what = What::Memory { name, bytes, source, destination: None };
                (row.start, row.end, row.device, row.context, row.stream, row.correlation, what)
            }
            // No call, context or stream moved them.
            Record::Managed(row) if row.kind.is_migration() => {
                let (name, device) = (labels::migration(row.kind), row.device().unwrap_or(ManagedEvent::HOST));
                let (bytes, source, destination) = (row.value, MemoryKind::Unknown, Some(MemoryKind::Unknown));
                let what = What::Memory { name, bytes, source, destination };
                (row.start, row.end, device, ContextId(0), StreamId(0), CorrelationId(0), what)
            }
            _ => return None,
        };
        Some(Self { start, end, device, context, stream, correlation, what })
    }
}

/// Hands a row for each operation to `sink`.
pub(super) fn stream(input: &mut Input<'_, '_>, sink: &mut dyn RowSink, notes: &mut Notes) -> Result<(), ExportError> {
    let (filter, unit) = (input.filter, input.unit);
    let mut order = Order::default();
    let mut names = Names::new(demangled);
    let mut devices: FxHashMap<DeviceId, String> = FxHashMap::default();
    let mut write = |row: Operation, scope: &Scope<'_>| {
        let device = devices.entry(row.device).or_insert_with(|| {
            let name = scope.dictionary.device(row.device).map_or("", |device| device.name.as_str());
            format!("{name} ({})", row.device)
        });
        let mut cells = vec![
            unit.whole(row.start.since(scope.session.start)),
            unit.whole(row.end.since(row.start)),
            Cell::Number(row.correlation.0.into()),
        ];
        // Pages that moved have no context and no stream.
        let some = |id: u32| if row.correlation.0 == 0 && id == 0 { Cell::Empty } else { Cell::Number(id.into()) };
        let megabytes = |bytes: u64| Cell::Decimal(bytes as f64 / 1e6, 3);
        let name = match row.what {
            What::Kernel(config) => {
                let config = scope.dictionary.launch_config(config);
                cells.extend([config.grid, config.block].as_flattened().iter().map(|&n| Cell::Number(n.into())));
                cells.push(Cell::Number(config.registers_per_thread.into()));
                cells.extend([config.static_shared_bytes, config.dynamic_shared_bytes].map(|n| megabytes(n.into())));
                cells.extend([const { Cell::Empty }; 4]);
                names.get(config.name, scope.dictionary).to_owned()
            }
            What::Memory { name, bytes, source, destination } => {
                cells.extend([const { Cell::Empty }; 9]);
                cells.push(megabytes(bytes));
                cells.push(match row.end.since(row.start) {
                    0 => Cell::Empty,
                    nanos => Cell::Decimal(bytes as f64 / nanos as f64 * 1e3, 3),
                });
                cells.push(Cell::Text(labels::memory(source).to_owned()));
                cells.push(destination.map_or(Cell::Empty, |kind| Cell::Text(labels::memory(kind).to_owned())));
                name.to_owned()
            }
        };
        cells.extend([
            Cell::Text(device.clone()),
            some(row.context.0),
            Cell::Empty,
            some(row.stream.0),
            Cell::Text(name),
        ]);
        sink.row(&cells).map_err(printing)
    };
    let passed = input.trace.pass(input.progress, |item, scope| {
        let Item::Record(record) = item else { return Ok(()) };
        match Operation::of(record) {
            Some(row) if filter.admits(scope.session.start, row.start, row.end) => {
                order.push(row.start, row).map_or(Ok(()), |row| write(row, scope))
            }
            _ => Ok(()),
        }
    })?;
    let scope = Scope { session: &passed.session, dictionary: &passed.dictionary };
    while let Some(row) = order.pop() {
        write(row, &scope)?;
    }
    notes.0.extend(passed.notes());
    notes.count(order.late(), "rows are not in the order of time");
    Ok(())
}
