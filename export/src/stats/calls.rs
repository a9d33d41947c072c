//! Every call of the CUDA API, in the order of time.
//!
//! Priority and name of the thread are not in a trace of gpuwhy: those columns are empty.

use profiler_core::record::{ApiCall, Record};
use profiler_core::trace::Item;

use super::columns::call;
use super::input::{Input, Notes, printing};
use super::table::{Cell, RowSink};
use crate::error::ExportError;
use crate::order::Order;
use gpuwhy_import::Scope;

/// Hands a row for each call to `sink`.
pub(super) fn stream(input: &mut Input<'_, '_>, sink: &mut dyn RowSink, notes: &mut Notes) -> Result<(), ExportError> {
    let (filter, unit) = (input.filter, input.unit);
    let mut order = Order::default();
    let mut write = |row: ApiCall, scope: &Scope<'_>| {
        let cells = [
            unit.whole(row.start.since(scope.session.start)),
            unit.whole(row.end.since(row.start)),
            Cell::Text(call(row.function, scope.dictionary).to_owned()),
            Cell::Number(row.return_value.into()),
            Cell::Number(row.correlation.0.into()),
            Cell::Number(scope.session.process_id.into()),
            Cell::Number(row.thread.0.into()),
            Cell::Empty,
            Cell::Empty,
        ];
        sink.row(&cells).map_err(printing)
    };
    let passed = input.trace.pass(input.progress, |item, scope| match item {
        Item::Record(Record::Api(row)) if filter.admits(scope.session.start, row.start, row.end) => {
            order.push(row.start, *row).map_or(Ok(()), |row| write(row, scope))
        }
        _ => Ok(()),
    })?;
    let scope = Scope { session: &passed.session, dictionary: &passed.dictionary };
    while let Some(row) = order.pop() {
        write(row, &scope)?;
    }
    notes.0.extend(passed.notes());
    notes.count(order.late(), "rows are not in the order of time");
    Ok(())
}
