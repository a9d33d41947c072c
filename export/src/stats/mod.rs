//! Tables in the formats of `nsys stats`: text, CSV, TSV, JSON; and the filters of its reports.
//!
//! Reading order: `table` (rows and cells), `subject` (one trace or several), `format` (text, CSV, TSV,
//! JSON), `fit` (the width of a text), `document` (several tables).

mod document;
mod filter;
mod fit;
mod format;
mod number;
mod subject;
mod table;

pub use document::TableWriter;
pub use filter::{RangeFilter, TimeFilter};
pub use fit::TableWidth;
pub use format::{StatsOptions, TableFormat};
pub use subject::Subject;
pub use table::TimeUnit;

pub(crate) use fit::Widths;
pub(crate) use format::Printer;
pub(crate) use table::{Cell, Heading, RowSink, StatsColumn};
