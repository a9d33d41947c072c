//! How tables are counted and printed.

use super::fit::TableWidth;
use super::format::TableFormat;
use super::table::TimeUnit;

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
