//! What a table is about: one trace, or several, whose rows then follow one another behind their run and rank.
//!
//! Nothing is summed over traces: medians cannot be, and which rank differs is what several are looked at for. Sums are
//! a query (`gpuwhy query`), whose tables have the same two columns.

use std::io;

use super::filter::TimeFilter;
use super::input::{Input, Notes, StatsOptions};
use super::table::{Cell, Column, Heading, RowSink};
use crate::tables::Label;
use gpuwhy_import::{Progress, TraceFile};

/// A trace in a table.
#[derive(Clone, Debug)]
pub struct Subject<'t> {
    /// The trace.
    pub trace: &'t TraceFile,
    /// Its run and rank, shown when there are other traces.
    pub label: Label,
    /// What of it is counted.
    pub filter: TimeFilter,
}

impl<'t> From<&'t TraceFile> for Subject<'t> {
    fn from(trace: &'t TraceFile) -> Self {
        Self { trace, label: Label::default(), filter: TimeFilter::default() }
    }
}

impl Subject<'_> {
    pub(super) fn input<'a, 'p>(&'a self, options: &StatsOptions, progress: &'a mut Progress<'p>) -> Input<'a, 'p> {
        Input { trace: self.trace, filter: self.filter, unit: options.unit, progress }
    }

    /// What is to be said about it, behind its name when there are others.
    pub(super) fn said(&self, notes: Notes, several: bool) -> Vec<String> {
        let named = |note: String| match several {
            true => format!("{}: {note}", self.trace.path().display()),
            false => note,
        };
        notes.0.into_iter().map(named).collect()
    }

    /// The cells that stand before those of a row.
    fn cells(&self) -> [Cell; 2] {
        [Cell::Text(self.label.run.clone()), Cell::Number(self.label.rank.into())]
    }
}

/// The heading of a table about several traces.
pub(super) fn of_several(mut heading: Heading) -> Heading {
    let column = |name: &str, is_text| Column { name: name.to_owned(), is_text };
    heading.columns.splice(0..0, [column("Run", true), column("Rank", false)]);
    heading
}

/// Hands rows of one of several traces on.
pub(super) struct Labeled<'s> {
    sink: &'s mut dyn RowSink,
    cells: Vec<Cell>,
    label: usize,
}

impl<'s> Labeled<'s> {
    /// Rows stay as they are when there is one trace only.
    pub(super) fn new(subject: &Subject<'_>, several: bool, sink: &'s mut dyn RowSink) -> Self {
        let cells: Vec<Cell> = subject.cells().into_iter().filter(|_| several).collect();
        Self { sink, label: cells.len(), cells }
    }
}

impl RowSink for Labeled<'_> {
    fn begin(&mut self, heading: &Heading) -> io::Result<()> {
        self.sink.begin(heading)
    }

    fn row(&mut self, cells: &[Cell]) -> io::Result<()> {
        self.cells.truncate(self.label);
        self.cells.extend_from_slice(cells);
        self.sink.row(&self.cells)
    }

    fn end(&mut self) -> io::Result<()> {
        self.sink.end()
    }
}
