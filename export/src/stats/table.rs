//! Cells of a table, and units of time.

use std::str::FromStr;

/// A value in a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Not applicable or unknown.
    Empty,
    Number(u64),
    /// An integer without a known meaning: printed without thousands separators.
    Signed(i64),
    /// A floating-point number without a known meaning: printed with all of its digits.
    Real(f64),
    /// A number with the given number of decimal places.
    Decimal(f64, usize),
    Text(String),
}

/// Unit in which nanoseconds are shown; the column name contains it in parentheses.
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
    /// Suffix of a column name.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Nanoseconds => "ns",
            Self::Microseconds => "us",
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
        }
    }

    /// Number of decimal places needed for nanosecond resolution, and the divisor.
    const fn scale(self) -> (usize, f64) {
        match self {
            Self::Nanoseconds => (0, 1.0),
            Self::Microseconds => (3, 1e3),
            Self::Milliseconds => (6, 1e6),
            Self::Seconds => (9, 1e9),
        }
    }

    /// A time in integer nanoseconds. Ranges of the program may precede the start of tracing.
    #[must_use]
    pub fn whole(self, nanos: i64) -> Cell {
        match (self.scale(), u64::try_from(nanos)) {
            ((0, _), Ok(nanos)) => Cell::Number(nanos),
            ((0, _), Err(_)) => Cell::Signed(nanos),
            ((decimals, divisor), _) => Cell::Decimal(nanos as f64 / divisor, decimals),
        }
    }

    /// A time in fractional nanoseconds, such as an average: one more decimal place.
    #[must_use]
    pub fn fraction(self, nanos: f64) -> Cell {
        let (decimals, divisor) = self.scale();
        Cell::Decimal(nanos / divisor, decimals + 1)
    }
}

impl FromStr for TimeUnit {
    type Err = String;

    /// Accepts nsys's names.
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
