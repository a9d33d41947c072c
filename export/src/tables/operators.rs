//! The table of operators.

use gpuwhy_import::{Progress, TraceFile};
use gpuwhy_report::operators::{OperatorRow, Operators, OperatorsBy};

use super::cell::{Cell, Cells, Column, ColumnType};
use super::records::table;
use super::{Sink, Table};
use crate::error::ExportError;

table! {
    OPERATORS, operator(row: &'a OperatorRow, of: &Operators) {
        "name" Text "as in PyTorch's key_averages()" = row.name.as_str();
        "shapes" Text "of its inputs; empty if not recorded" = row.shapes.as_str();
        "calls" Integer "number of" = row.calls;
        "host_ns" Integer "time on the host" = row.host_ns;
        "own_host_ns" Integer "the part outside operators and CUDA calls inside" = row.own_host_ns;
        "device_ns" Integer "device work that it and operators inside launched" = row.device_ns;
        "own_device_ns" Integer "the part that no operator inside launched" = row.own_device_ns;
        "memory_bytes" Integer "allocated in it, less what was freed; empty if not recorded" = row.memory_bytes;
        "flops" Integer "floating point operations by the formulas of torch.profiler; empty if unknown"
            = row.flops.and_then(|flops| i64::try_from(flops).ok());
        "peak_share" Real "part of the peak for the type of its products, 0 to 1; empty if unknown" = row.peak_share;
        "source" Text "ranges, torch_profiler" = of.source.name();
    }
}

/// Passes the rows to `sink`; none if the trace has no operators.
pub(super) fn rows(trace: &TraceFile, sink: &mut dyn Sink, progress: &mut Progress<'_>) -> Result<(), ExportError> {
    let Some(of) = trace.operators(OperatorsBy::Shapes, progress)? else { return Ok(()) };
    let mut cells = Cells::new(OPERATORS.len(), u64::MAX);
    of.rows.iter().try_for_each(|row| {
        cells.clear();
        operator(row, &of, &mut cells);
        sink.row(Table::Operators, &cells)
    })
}
