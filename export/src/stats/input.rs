//! What tables are made from and how they are printed: the arguments of every statistic and rule.

use std::io;

use gpuwhy_import::{Progress, TraceFile};

use super::filter::TimeFilter;
use super::fit::TableWidth;
use super::format::TableFormat;
use super::table::TimeUnit;
use crate::error::ExportError;

/// How to count and print.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatsOptions {
    /// The form of the output.
    pub format: TableFormat,
    /// The unit of times.
    pub unit: TimeUnit,
    /// How wide [`TableFormat::Table`] may be.
    pub width: TableWidth,
    /// Whether a terminal shows it: then control characters are escaped in CSV and TSV too, as always elsewhere.
    pub is_shown: bool,
}

/// What reports are made from.
pub(super) struct Input<'a, 'p> {
    pub(super) trace: &'a TraceFile,
    pub(super) filter: TimeFilter,
    pub(super) unit: TimeUnit,
    pub(super) progress: &'a mut Progress<'p>,
}

/// What a report could not do exactly: sentences for the user.
#[derive(Debug, Default)]
pub(super) struct Notes(pub(super) Vec<String>);

impl Notes {
    pub(super) fn count(&mut self, count: u64, what: &str) {
        if count > 0 {
            self.0.push(format!("{count} {what}"));
        }
    }
}

/// An error of writing a table.
pub(super) fn printing(error: io::Error) -> ExportError {
    ExportError::output(error)
}
