//! What a table is about: one trace, or several, whose rows then follow one another behind their run and rank.
//!
//! Nothing is summed over traces: medians cannot be, and which rank differs is what several are looked at for. Sums are
//! a query (`gpuwhy query`), whose tables have the same two columns.

use super::filter::TimeFilter;
use crate::tables::Label;
use gpuwhy_import::TraceFile;

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
    /// What is to be said about it, behind its name when there are others.
    pub(crate) fn said(&self, note: String, several: bool) -> String {
        if several { format!("{}: {note}", self.trace.path().display()) } else { note }
    }
}
