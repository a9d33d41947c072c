//! Subject of a table: one trace or several, whose rows follow one another, each preceded by its run and
//! rank.
//!
//! Values are not summed over traces: medians cannot be, and tables of several traces serve to find the rank
//! that differs. Use a query (`gpuwhy query`) for sums; its tables have the same two columns.

use super::filter::TimeFilter;
use crate::tables::Label;
use gpuwhy_import::TraceFile;

/// A trace in a table.
#[derive(Clone, Debug)]
pub struct Subject<'t> {
    /// The trace.
    pub trace: &'t TraceFile,
    /// Run and rank, shown if there are other traces.
    pub label: Label,
    /// Interval that is counted.
    pub filter: TimeFilter,
}

impl<'t> From<&'t TraceFile> for Subject<'t> {
    fn from(trace: &'t TraceFile) -> Self {
        Self { trace, label: Label::default(), filter: TimeFilter::default() }
    }
}

impl Subject<'_> {
    /// A note about the trace, preceded by its path if there are other traces.
    pub(crate) fn said(&self, note: String, several: bool) -> String {
        if several { format!("{}: {note}", self.trace.path().display()) } else { note }
    }
}
