//! The statistics of `nsys stats`, under its names, with its columns and units.
//!
//! Users of nsys have scripts around these tables, so names, columns, order and rounding are nsys's (2024 and later)
//! even where gpuprof's own report says the same with other words. What a trace of gpuprof does not hold, such as
//! priorities, stays empty.
//!
//! Reading order: `table` (rows and cells), `format` (text, CSV, TSV, JSON), `distribution`, `sums`, `launches` (calls
//! joined with kernels), `executions`, `nvtx`, `instances` and `projection` (ranges and the work in them), `operations` and `calls` (the trace reports).

mod calls;
mod distribution;
mod executions;
mod filter;
mod format;
mod instances;
mod labels;
mod launches;
mod memory;
mod nvtx;
mod operations;
mod projection;
mod report;
pub mod rules;
mod sums;
mod table;
mod waits;

use std::io::{self, Write};

use crate::error::ExportError;
use crate::source::{Progress, TraceFile};

pub use filter::{RangeFilter, TimeFilter};
pub use format::TableFormat;
pub use report::Statistic;
pub use table::TimeUnit;

pub(crate) use format::{Printer, Widths};
pub(crate) use projection::{ProjectedRange, projected_ranges};
pub(crate) use table::{Cell, Column, Heading, RowSink};

/// How to count and print.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatsOptions {
    /// The form of the output.
    pub format: TableFormat,
    /// The unit of times.
    pub unit: TimeUnit,
    /// What is counted.
    pub filter: TimeFilter,
}

/// Writes the table of `statistic` about `trace`. A statistic without a single row writes nothing, and a note says so.
///
/// # Errors
///
/// When the trace cannot be read, or `output` cannot be written; the error names the file, and standard output as
/// such.
pub fn write(
    trace: &TraceFile,
    statistic: Statistic,
    options: &StatsOptions,
    output: &mut dyn Write,
    progress: &mut Progress<'_>,
) -> Result<Vec<String>, ExportError> {
    let heading = statistic.heading(options.unit);
    let mut input = Input { trace, options, progress };
    let mut notes = Notes::default();
    if let Some(rows) = report::rows(statistic, &mut input, &mut notes)? {
        return finish(
            trace,
            statistic,
            &heading,
            notes,
            rows.is_empty(),
            |sink| rows.iter().try_for_each(|row| sink.row(row)).map_err(printing),
            options.format,
            output,
        );
    }
    // The rows of a trace are not kept: they are made a second time for a text, and counted before anything is
    // written.
    let mut any = Any(false);
    report::stream(statistic, &mut input, &mut any, &mut notes)?;
    let mut again = Notes::default();
    finish(
        trace,
        statistic,
        &heading,
        notes,
        !any.0,
        |sink| report::stream(statistic, &mut input, sink, &mut again),
        options.format,
        output,
    )
}

#[expect(clippy::too_many_arguments, reason = "the end of two ways through one function")]
fn finish(
    trace: &TraceFile,
    statistic: Statistic,
    heading: &Heading,
    mut notes: Notes,
    is_empty: bool,
    mut produce: impl FnMut(&mut dyn RowSink) -> Result<(), ExportError>,
    format: TableFormat,
    output: &mut dyn Write,
) -> Result<Vec<String>, ExportError> {
    if is_empty {
        notes.0.push(format!("{statistic}: {} has no such records", trace.path().display()));
        return Ok(notes.0);
    }
    let mut widths = Widths::default();
    if format == TableFormat::Table {
        widths.begin(heading).map_err(printing)?;
        produce(&mut widths)?;
    }
    let mut printer = Printer::new(output, format, widths);
    printer.begin(heading).map_err(printing)?;
    produce(&mut printer)?;
    printer.end().map_err(printing)?;
    Ok(notes.0)
}

/// What reports are made from.
struct Input<'a, 'p> {
    trace: &'a TraceFile,
    options: &'a StatsOptions,
    progress: &'a mut Progress<'p>,
}

/// What a report could not do exactly: sentences for the user.
#[derive(Debug, Default)]
struct Notes(Vec<String>);

impl Notes {
    fn count(&mut self, count: u64, what: &str) {
        if count > 0 {
            self.0.push(format!("{count} {what}"));
        }
    }
}

/// Whether there is a row.
struct Any(bool);

impl RowSink for Any {
    fn begin(&mut self, _: &Heading) -> io::Result<()> {
        Ok(())
    }

    fn row(&mut self, _: &[Cell]) -> io::Result<()> {
        self.0 = true;
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn printing(error: io::Error) -> ExportError {
    ExportError::output(error)
}
