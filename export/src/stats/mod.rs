//! Tables in the formats of `nsys stats`, and the filters of its reports.

mod filter;
mod printer;
mod table;

pub use filter::{RangeFilter, TimeFilter};
pub use printer::{Printer, StatsOptions, TableFormat, TableWidth};
pub use table::TimeUnit;

pub(crate) use printer::{Empty, Heading};
pub(crate) use table::Cell;
