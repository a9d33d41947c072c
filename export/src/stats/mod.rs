//! The statistics of `nsys stats`, under its names, with its columns and units.
//!
//! Users of nsys have scripts around these tables, so names, columns, order and rounding are nsys's (2024 and later)
//! even where gpuwhy's own report says the same with other words. What a trace of gpuwhy does not hold, such as
//! priorities, stays empty.
//!
//! Reading order: `table` (rows and cells), `input` (the arguments of every table), `subject` (one trace or several),
//! `format` (text, CSV, TSV, JSON), `fit` (the width of a text), `document` (several tables), `statistic` (which there
//! are, and their columns), `report` (who makes which), `distribution`, `columns` and `sums`, `launches` (calls joined
//! with kernels), `executions`, `lines` (kernels by line and library), `nvtx`, `instances` and `projection` (ranges and
//! the work in them), `operations` and `calls` (the trace reports).

mod calls;
mod columns;
mod distribution;
mod document;
mod executions;
mod filter;
mod fit;
mod format;
mod input;
mod instances;
mod labels;
mod launches;
mod lines;
mod managed;
mod memory;
mod number;
mod nvtx;
mod operations;
mod projection;
mod report;
pub mod rules;
mod statistic;
mod subject;
mod sums;
mod table;
mod waits;

use std::io::{self, Write};

use crate::error::ExportError;
use gpuwhy_import::Progress;
use input::{Notes, printing};
use subject::Labeled;

pub use document::Document;
pub use filter::{RangeFilter, TimeFilter};
pub use fit::TableWidth;
pub use format::TableFormat;
pub use input::StatsOptions;
pub use statistic::Statistic;
pub use subject::Subject;
pub use table::TimeUnit;

pub(crate) use fit::Widths;
pub(crate) use format::Printer;
pub(crate) use projection::{ProjectedRange, projected_ranges};
pub(crate) use table::{Cell, Column, Heading, RowSink};

/// Writes the table of `statistic` about the traces, with the columns `Run` and `Rank` in front when there are several.
/// A statistic without a single row writes nothing; a note says of which traces it has none.
///
/// # Errors
///
/// When a trace cannot be read, or `output` cannot be written; the error names the file, and standard output as
/// such.
pub fn write(
    subjects: &[Subject<'_>],
    statistic: Statistic,
    options: &StatsOptions,
    output: &mut dyn Write,
    progress: &mut Progress<'_>,
) -> Result<Vec<String>, ExportError> {
    let several = subjects.len() > 1;
    let (mut said, mut tables) = (Vec::new(), Vec::new());
    for subject in subjects {
        let mut input = subject.input(options, progress);
        let mut notes = Notes::default();
        let rows = report::rows(statistic, &mut input, &mut notes)?;
        let is_empty = match &rows {
            Some(rows) => rows.is_empty(),
            // The rows of a trace report are not kept: they are looked for here, and made again for each pass over the
            // output.
            None => {
                let mut any = Any(false);
                report::stream(statistic, &mut input, &mut any, &mut notes)?;
                !any.0
            }
        };
        said.extend(subject.said(notes, several));
        if is_empty {
            let part = if subject.filter == TimeFilter::default() { "" } else { " in the part that the filter leaves" };
            said.push(format!("{statistic}: {} has no such records{part}", subject.trace.path().display()));
        } else {
            tables.push((subject, rows));
        }
    }
    if tables.is_empty() {
        return Ok(said);
    }
    let heading = statistic.heading(options.unit);
    let heading = if several { subject::of_several(heading) } else { heading };
    print(&heading, options, output, |sink| {
        for (subject, rows) in &tables {
            let mut sink = Labeled::new(subject, several, sink);
            match rows {
                Some(rows) => rows.iter().try_for_each(|row| sink.row(row)).map_err(printing)?,
                None => {
                    let mut input = subject.input(options, progress);
                    report::stream(statistic, &mut input, &mut sink, &mut Notes::default())?;
                }
            }
        }
        Ok(())
    })?;
    Ok(said)
}

/// Writes a table; a text has its rows produced twice, since columns are as wide as their widest cell.
fn print(
    heading: &Heading,
    options: &StatsOptions,
    output: &mut dyn Write,
    mut produce: impl FnMut(&mut dyn RowSink) -> Result<(), ExportError>,
) -> Result<(), ExportError> {
    let mut widths = Widths::new(options.width);
    if options.format == TableFormat::Table {
        widths.begin(heading).map_err(printing)?;
        produce(&mut widths)?;
    }
    let mut printer = Printer::new(output, options, widths);
    printer.begin(heading).map_err(printing)?;
    produce(&mut printer)?;
    printer.end().map_err(printing)
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
