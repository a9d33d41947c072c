//! A report as a stream of rows, and how cells look.
//!
//! Some reports have a row for each operation, so rows are handed on and not kept. The text form, whose columns are as
//! wide as their widest cell, is made by producing the rows twice.

use std::io;
use std::str::FromStr;

/// A value in a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Not applicable or unknown.
    Empty,
    Number(u64),
    /// A number of no known meaning: printed without a mark between thousands.
    Signed(i64),
    /// The same with a fraction, in as many digits as it has.
    Real(f64),
    /// A number with so many decimals.
    Decimal(f64, usize),
    Text(String),
}

/// Nanoseconds, in the unit that was asked for; the column's name has it between brackets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeUnit {
    /// ns
    #[default]
    Nanoseconds,
    /// us
    Microseconds,
    /// ms
    Milliseconds,
    /// s
    Seconds,
}

impl TimeUnit {
    /// Behind the name of a column.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Nanoseconds => "ns",
            Self::Microseconds => "us",
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
        }
    }

    /// Decimals that lose no nanosecond, and what to divide by.
    const fn scale(self) -> (usize, f64) {
        match self {
            Self::Nanoseconds => (0, 1.0),
            Self::Microseconds => (3, 1e3),
            Self::Milliseconds => (6, 1e6),
            Self::Seconds => (9, 1e9),
        }
    }

    /// A time that is whole nanoseconds. Ranges of the program may lie before the start of tracing.
    #[must_use]
    pub fn whole(self, nanos: i64) -> Cell {
        match (self.scale(), u64::try_from(nanos)) {
            ((0, _), Ok(nanos)) => Cell::Number(nanos),
            ((0, _), Err(_)) => Cell::Signed(nanos),
            ((decimals, divisor), _) => Cell::Decimal(nanos as f64 / divisor, decimals),
        }
    }

    /// A time that is no whole nanoseconds, such as a mean: one decimal more.
    #[must_use]
    pub fn fraction(self, nanos: f64) -> Cell {
        let (decimals, divisor) = self.scale();
        Cell::Decimal(nanos / divisor, decimals + 1)
    }
}

impl FromStr for TimeUnit {
    type Err = String;

    /// The names that nsys takes.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "ns" | "nsec" | "nanoseconds" => Ok(Self::Nanoseconds),
            "us" | "usec" | "microseconds" => Ok(Self::Microseconds),
            "ms" | "msec" | "milliseconds" => Ok(Self::Milliseconds),
            "s" | "sec" | "seconds" => Ok(Self::Seconds),
            _ => Err("expected nsec, usec, msec or sec".to_owned()),
        }
    }
}

/// What a report consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heading {
    /// For people; empty for none.
    pub title: &'static str,
    /// nsys's name for the report.
    pub name: &'static str,
    /// What stands between title and table, for people only.
    pub note: Option<String>,
    pub columns: Vec<Column>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// With its unit, as nsys writes it.
    pub name: String,
    /// Whether its cells are texts, which are aligned to the left.
    pub is_text: bool,
}

/// Where rows go.
pub trait RowSink {
    /// Before the first row.
    fn begin(&mut self, heading: &Heading) -> io::Result<()>;
    /// A row, with a cell for each column.
    fn row(&mut self, cells: &[Cell]) -> io::Result<()>;
    /// Behind the last row.
    fn end(&mut self) -> io::Result<()>;
}
