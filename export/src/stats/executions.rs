//! From the launching call to the end of the kernel: one by one, and summed.
//!
//! The queue time is what lies between the return of the call and the start of the kernel. A kernel that starts
//! before the call returns has none, and does not count among those that were queued.

use std::cmp::Reverse;

use profiler_core::record::{ApiCall, ApiFunctionId, DeviceId, Kernel, NameId, Record, ThreadId};
use rustc_hash::FxHashMap;

use super::columns::{call, spread};
use super::distribution::Distribution;
use super::input::{Input, Notes, printing};
use super::labels;
use super::launches::{join, kernels};
use super::table::{Cell, RowSink};
use crate::error::ExportError;
use crate::names::{Names, demangled};
use crate::order::Order;
use gpuwhy_import::Scope;

const WITHOUT_CALL: &str = "kernels whose launching call is not in the trace are left out";

/// The four durations of a group.
#[derive(Debug, Default)]
struct Group {
    total: Distribution,
    call: Distribution,
    queue: Distribution,
    kernel: Distribution,
}

/// From the call until both it and the kernel are over, as nsys has it: a kernel may end before its call returns.
fn whole(call: &ApiCall, kernel: &Kernel) -> u64 {
    kernel.end.max(call.end).since(call.start)
}

/// The time between the return of the call and the start of the kernel.
fn queued(call: &ApiCall, kernel: &Kernel) -> Option<u64> {
    (kernel.start > call.end).then(|| kernel.start.since(call.end))
}

/// Sums by thread, device, function and kernel; those with the largest total come first.
pub(super) fn summary(input: &mut Input<'_, '_>, notes: &mut Notes) -> Result<Vec<Vec<Cell>>, ExportError> {
    let mut groups: FxHashMap<(ThreadId, DeviceId, ApiFunctionId, NameId), Group> = FxHashMap::default();
    let (filter, unit) = (input.filter, input.unit);
    let (passed, without_call) = join(input, kernels, |call, record, scope| {
        let Record::Kernel(kernel) = record else { return Ok(()) };
        if filter.admits(scope.session.start, kernel.start, kernel.end) {
            let name = scope.dictionary.launch_config(kernel.config).name;
            let group = groups.entry((call.thread, kernel.device, call.function, name)).or_default();
            group.total.add(whole(call, kernel));
            group.call.add(call.end.since(call.start));
            group.kernel.add(kernel.end.since(kernel.start));
            if let Some(queue) = queued(call, kernel) {
                group.queue.add(queue);
            }
        }
        Ok(())
    })?;
    notes.0.extend(passed.notes());
    notes.count(without_call, WITHOUT_CALL);
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(key, group)| (Reverse(group.total.total()), *key));
    let row = |((thread, device, function, name), group): ((ThreadId, DeviceId, ApiFunctionId, NameId), Group)| {
        let mut cells: Vec<Cell> = [passed.session.process_id, thread.0, device.0]
            .map(|number| Cell::Number(number.into()))
            .into_iter()
            .chain([Cell::Number(group.total.count()), Cell::Number(group.queue.count())])
            .collect();
        for part in [&group.total, &group.call, &group.queue, &group.kernel] {
            if part.count() == 0 {
                // nsys leaves a group without values empty but for its deviation.
                cells.extend([const { Cell::Empty }; 4]);
                cells.push(unit.fraction(0.0));
            } else {
                cells.extend(spread(part, unit));
            }
        }
        cells.push(Cell::Text(call(function, &passed.dictionary).to_owned()));
        cells.push(Cell::Text(demangled(passed.dictionary.name(name))));
        cells
    };
    Ok(groups.into_iter().map(row).collect())
}

/// Every kernel, in the order of the launching calls.
pub(super) fn stream(input: &mut Input<'_, '_>, sink: &mut dyn RowSink, notes: &mut Notes) -> Result<(), ExportError> {
    let (filter, unit) = (input.filter, input.unit);
    let mut order = Order::default();
    let mut names = Names::new(demangled);
    let mut write = |(called, kernel): (ApiCall, Kernel), scope: &Scope<'_>| {
        let origin = scope.session.start;
        let queue = queued(&called, &kernel);
        let config = scope.dictionary.launch_config(kernel.config);
        let cells = [
            unit.whole(called.start.since(origin)),
            unit.whole(called.end.since(called.start)),
            queue.map_or(Cell::Empty, |_| unit.whole(called.end.since(origin))),
            queue.map_or(Cell::Empty, |queue| unit.whole(queue)),
            unit.whole(kernel.start.since(origin)),
            unit.whole(kernel.end.since(kernel.start)),
            unit.whole(whole(&called, &kernel)),
            Cell::Number(scope.session.process_id.into()),
            Cell::Number(called.thread.0.into()),
            Cell::Number(kernel.device.0.into()),
            Cell::Text(call(called.function, scope.dictionary).to_owned()),
            Cell::Text(labels::extent(config.grid)),
            Cell::Text(labels::extent(config.block)),
            Cell::Text(names.get(config.name, scope.dictionary).to_owned()),
        ];
        sink.row(&cells).map_err(printing)
    };
    let (passed, without_call) = join(input, kernels, |call, record, scope| {
        let Record::Kernel(kernel) = record else { return Ok(()) };
        if !filter.admits(scope.session.start, kernel.start, kernel.end) {
            return Ok(());
        }
        order.push(call.start, (*call, *kernel)).map_or(Ok(()), |row| write(row, scope))
    })?;
    let scope = Scope { session: &passed.session, dictionary: &passed.dictionary };
    while let Some(row) = order.pop() {
        write(row, &scope)?;
    }
    notes.0.extend(passed.notes());
    notes.count(without_call, WITHOUT_CALL);
    notes.count(order.late(), "rows are not in the order of time");
    Ok(())
}
