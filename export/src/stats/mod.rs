//! Tables in the forms of `nsys stats`, and its reports, under its names, with its columns and units.
//!
//! Users of nsys have scripts around these tables, so names, columns, order and rounding are nsys's (2024 and later)
//! even where gpuwhy's own report says the same with other words. What a trace of gpuwhy does not hold, such as
//! priorities, stays empty.
//!
//! Reading order: `table` (rows and cells), `input` (how to print), `subject` (one trace or several), `format` (text,
//! CSV, TSV, JSON), `fit` (the width of a text), `document` (several tables), `report` (what is asked).

mod document;
mod filter;
mod fit;
mod format;
mod input;
mod number;
mod report;
mod subject;
mod table;

pub use document::Document;
pub use filter::{RangeFilter, TimeFilter};
pub use fit::TableWidth;
pub use format::TableFormat;
pub use input::StatsOptions;
pub use report::{Report, Reports};
pub use subject::Subject;
pub use table::TimeUnit;

pub(crate) use fit::Widths;
pub(crate) use format::Printer;
pub(crate) use table::{Cell, Column, Heading, RowSink};
