//! Operators of a run that recorded none: guesses from its kernels.

use super::Report;
use super::operators::{OperatorRow, OperatorSource, Operators, OperatorsBy, text};
use crate::library::Library;

/// Guesses from the kernels of a report without records of operators: PyTorch's function or the library by the name
/// of the kernel, or by line the estimates that samples of launches give.
#[must_use]
pub fn guessed_operators(report: &Report, by: OperatorsBy) -> Operators {
    let row = |name, place, calls, device_ns| {
        let sums = OperatorRow { calls, device_ns, own_device_ns: device_ns, ..OperatorRow::default() };
        OperatorRow { name, place, ..sums }
    };
    let kernels = report.devices.iter().flat_map(|device| &device.kernels);
    let device_ns = kernels.clone().map(|kernel| kernel.durations.total()).fold(0, u64::saturating_add);
    let rows: Vec<OperatorRow> = if matches!(by, OperatorsBy::Module | OperatorsBy::Line) {
        let lines = report.kernel_lines.iter().flat_map(|lines| &lines.rows).map(|line| {
            let place = match by {
                OperatorsBy::Module => line.place.module.clone().unwrap_or_default(),
                _ => line.place.line_text(),
            };
            let name = line.place.operator.as_ref().map(|operator| format!("aten::{operator}"));
            row(name.unwrap_or_else(|| text::guess(&line.kernel)), place, 0, line.time.total_ns as u64)
        });
        lines.collect()
    } else {
        let named = kernels.map(|kernel| {
            let durations = &kernel.durations;
            row(text::guess(&kernel.name), String::new(), durations.count(), durations.total())
        });
        named.collect()
    };
    let placed = rows.iter().map(|row| row.device_ns).fold(0, u64::saturating_add);
    let outside_ns = device_ns.saturating_sub(placed);
    let is_pytorch = report.kernel_libraries.iter().any(|row| row.library.as_deref() == Some(Library::Pytorch.name()));
    let source = OperatorSource::Kernels;
    Operators { source, by, device_ns, outside_ns, beyond: 0, unjoined: 0, rows, peaks: None, is_pytorch }.finished()
}
