//! Operators of a run that recorded none: guesses from its kernels.

use rustc_hash::FxHashMap;

use super::Report;
use super::operators::{OperatorRow, OperatorSource, Operators, OperatorsBy, text};
use crate::library::Library;

/// Guesses from the kernels of a report without records of operators: PyTorch's function or the library by the name
/// of the kernel, or by line the estimates that samples of launches give.
#[must_use]
pub fn guessed_operators(report: &Report, by: OperatorsBy) -> Operators {
    let mut rows: FxHashMap<(String, String), OperatorRow> = FxHashMap::default();
    let mut add = |name: String, place: String, calls: u64, nanos: u64| {
        let row = rows.entry((name, place)).or_default();
        row.calls += calls;
        row.device_ns += nanos;
    };
    let by_place = matches!(by, OperatorsBy::Module | OperatorsBy::Line);
    let kernels = report.devices.iter().flat_map(|device| &device.kernels);
    let device_ns = kernels.clone().map(|row| row.durations.total()).sum();
    for row in kernels.filter(|_| !by_place) {
        add(text::guess(&row.name), String::new(), row.durations.count(), row.durations.total());
    }
    for row in report.kernel_lines.iter().flat_map(|lines| &lines.rows).filter(|_| by_place) {
        let place = match by {
            OperatorsBy::Module => row.place.module.clone().unwrap_or_default(),
            _ => row.place.line_text(),
        };
        let name = row.place.operator.as_ref().map(|operator| format!("aten::{operator}"));
        add(name.unwrap_or_else(|| text::guess(&row.kernel)), place, 0, row.time.total_ns as u64);
    }
    let rows =
        rows.into_iter().map(|((name, place), row)| OperatorRow { name, place, own_device_ns: row.device_ns, ..row });
    let rows: Vec<OperatorRow> = rows.collect();
    let placed: u64 = rows.iter().map(|row| row.device_ns).sum();
    let outside_ns = u64::saturating_sub(device_ns, placed);
    let is_pytorch = report.kernel_libraries.iter().any(|row| row.library.as_deref() == Some(Library::Pytorch.name()));
    let source = OperatorSource::Kernels;
    Operators { source, by, device_ns, outside_ns, beyond: 0, rows, peaks: None, is_pytorch }.finished()
}
