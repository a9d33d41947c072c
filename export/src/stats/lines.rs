//! Kernel time by library, and by the line that launched it. nsys has no such reports; the numbers are those of the
//! engine's report, so a filter by time does not apply.

use profiler_core::report::Report;

use super::filter::TimeFilter;
use super::input::{Input, Notes};
use super::table::Cell;
use crate::attributed::attributed;
use crate::error::ExportError;

/// Kernels by library, the one with the most time first.
pub(super) fn libraries(input: &mut Input<'_, '_>, notes: &mut Notes) -> Result<Vec<Vec<Cell>>, ExportError> {
    let report = whole(input, notes, "cuda_kern_library_sum")?;
    let unit = input.unit;
    let row = |row: &profiler_core::report::LibraryRow| {
        vec![
            Cell::Decimal(row.share * 100.0, 1),
            unit.whole(row.total_ns),
            Cell::Number(row.count),
            Cell::Number(row.names),
            unit.whole(row.by_samples_ns),
            row.library.clone().map_or(Cell::Empty, Cell::Text),
            Cell::Text(row.largest.clone()),
        ]
    };
    Ok(report.kernel_libraries.iter().map(row).collect())
}

/// Kernels by the line that launched them, the largest estimate first.
pub(super) fn lines(input: &mut Input<'_, '_>, notes: &mut Notes) -> Result<Vec<Vec<Cell>>, ExportError> {
    let report = whole(input, notes, "cuda_kern_line_sum")?;
    let unit = input.unit;
    let Some(lines) = &report.kernel_lines else { return Ok(Vec::new()) };
    notes.count(
        lines.distinct_rows.saturating_sub(lines.rows.len() as u64),
        "kernels at lines, the smallest, are left out",
    );
    let text = |text: Option<&str>| text.map_or(Cell::Empty, |text| Cell::Text(text.to_owned()));
    let whole = |nanos: f64| unit.whole(nanos.round() as u64);
    let row = |row: &profiler_core::report::KernelLineRow| {
        let place = &row.place;
        vec![
            Cell::Decimal(row.time.total_ns / lines.kernel_ns.max(1) as f64 * 100.0, 1),
            whole(row.time.total_ns),
            whole(row.time.low_ns),
            whole(row.time.high_ns),
            Cell::Number(row.time.samples),
            Cell::Number(row.kernel_samples),
            unit.whole(row.kernel_ns),
            text(row.library.map(profiler_core::report::library::Library::name)),
            text(place.module.as_deref()),
            text(place.operator.as_deref()),
            text(Some(&place.file)),
            if place.line > 0 { Cell::Number(place.line.into()) } else { Cell::Empty },
            text(Some(&place.function)),
            text(Some(&row.kernel)),
        ]
    };
    Ok(lines.rows.iter().map(row).collect())
}

fn whole(input: &mut Input<'_, '_>, notes: &mut Notes, name: &str) -> Result<Report, ExportError> {
    if input.filter != TimeFilter::default() {
        notes.0.push(format!("{name}: the whole trace is meant, filters do not apply"));
    }
    let (report, passed) = attributed(input.trace, input.progress)?;
    notes.0.extend(passed.notes());
    Ok(report)
}
