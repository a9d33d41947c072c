//! Which part of this module makes which statistic.

use super::input::{Input, Notes};
use super::statistic::Statistic;
use super::table::{Cell, RowSink};
use super::{calls, executions, lines, managed, memory, nvtx, operations, projection, sums, waits};
use crate::error::ExportError;

/// The rows of a summary; `None` for a report that is a trace.
pub(super) fn rows(
    statistic: Statistic,
    input: &mut Input<'_, '_>,
    notes: &mut Notes,
) -> Result<Option<Vec<Vec<Cell>>>, ExportError> {
    match statistic {
        Statistic::ApiTrace
        | Statistic::GpuTrace
        | Statistic::ExecutionTrace
        | Statistic::MemoryUsageTrace
        | Statistic::ProjectionTrace
        | Statistic::PushPopTrace => Ok(None),
        Statistic::MemoryUsageSum => memory::summary(input, notes).map(Some),
        Statistic::HostFaultSum | Statistic::ManagedSum | Statistic::ManagedTotalSum => {
            managed::rows(statistic, input, notes).map(Some)
        }
        Statistic::WaitSum => waits::rows(input, notes).map(Some),
        Statistic::ProjectionSum => projection::summary(input, notes).map(Some),
        Statistic::RangeKernelSum => projection::kernel_summary(input, notes).map(Some),
        Statistic::LibrarySum => lines::libraries(input, notes).map(Some),
        Statistic::LineSum => lines::lines(input, notes).map(Some),
        Statistic::ExecutionSum => executions::summary(input, notes).map(Some),
        Statistic::RangeSum | Statistic::PushPopSum | Statistic::StartEndSum => {
            nvtx::rows(statistic, input, notes).map(Some)
        }
        _ => sums::rows(statistic, input, notes).map(Some),
    }
}

/// Hands the rows of a report that is a trace to `sink`.
pub(super) fn stream(
    statistic: Statistic,
    input: &mut Input<'_, '_>,
    sink: &mut dyn RowSink,
    notes: &mut Notes,
) -> Result<(), ExportError> {
    match statistic {
        Statistic::ApiTrace => calls::stream(input, sink, notes),
        Statistic::GpuTrace => operations::stream(input, sink, notes),
        Statistic::MemoryUsageTrace => memory::stream(input, sink, notes),
        Statistic::ProjectionTrace => projection::trace(input, sink, notes),
        Statistic::PushPopTrace => projection::pushed(input, sink, notes),
        _ => executions::stream(input, sink, notes),
    }
}
