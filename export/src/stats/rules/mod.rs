//! The rules of `nsys analyze`, under its names, with its columns, options and thresholds; and one of our own.
//!
//! Names, columns, defaults and what a rule leaves out are those of Nsight Systems' user guide (Expert Systems) and of
//! what nsys 2025.3 prints. A rule of nsys says that a device idled, never why: that is our own rule
//! `gpu_idle_causes`, which stands apart so that scripts find nsys's columns as they know them.

mod blocking;
mod causes;
mod largest;
mod rule;
mod utilization;

use std::io::Write;

use super::fit::Widths;
use super::format::Printer;
use super::format::TableFormat;
use super::input::{Input, Notes, StatsOptions, printing};
use super::print;
use super::subject::Subject;
use super::subject::{self, Labeled};
use super::table::RowSink as _;
use crate::error::ExportError;
use gpuwhy_import::Progress;
use rule::Found;

pub use rule::{Request, Rule};

/// Writes what a rule finds in the traces, with the columns `Run` and `Rank` in front when there are several. Without a
/// finding, a text says so and other forms are empty.
///
/// # Errors
///
/// When a trace cannot be read, or `output` cannot be written.
pub fn analyze(
    subjects: &[Subject<'_>],
    request: &Request,
    options: &StatsOptions,
    output: &mut dyn Write,
    progress: &mut Progress<'_>,
) -> Result<Vec<String>, ExportError> {
    let several = subjects.len() > 1;
    let (mut said, mut tables, mut left_out) = (Vec::new(), Vec::new(), 0);
    for subject in subjects {
        let mut notes = Notes::default();
        let (rows, more) = found(request, &mut subject.input(options, progress), &mut notes)?;
        said.extend(subject.said(notes, several));
        left_out += more;
        tables.push((subject, rows));
    }
    let is_empty = tables.iter().all(|(_, rows)| rows.is_empty());
    let heading = request.rule.heading(options.unit, is_empty);
    let mut heading = if several { subject::of_several(heading) } else { heading };
    if let Some(note) = heading.note.as_mut().filter(|_| left_out > 0) {
        note.push_str(&format!("\n{left_out} more are not shown (rows=-1 shows all)."));
    }
    if is_empty {
        if options.format == TableFormat::Table {
            heading.columns.clear();
            let mut printer = Printer::new(output, options, Widths::default());
            printer.begin(&heading).map_err(printing)?;
        }
        return Ok(said);
    }
    print(&heading, options, output, |sink| {
        for (subject, rows) in &tables {
            let mut sink = Labeled::new(subject, several, sink);
            rows.iter().try_for_each(|row| sink.row(row)).map_err(printing)?;
        }
        Ok(())
    })?;
    Ok(said)
}

/// The rows of one trace, and how many more there are than are shown.
fn found(request: &Request, input: &mut Input<'_, '_>, notes: &mut Notes) -> Result<Found, ExportError> {
    match request.rule {
        Rule::MemcpyAsync | Rule::MemcpySync | Rule::MemsetSync => blocking::operations(request, input, notes),
        Rule::ApiSync => blocking::calls(request, input, notes),
        Rule::Gaps => utilization::gaps(request, input, notes),
        Rule::TimeUtilization => utilization::chunks(request, input, notes),
        Rule::IdleCauses => causes::rows(request, input, notes),
    }
}
