//! Column widths of a text table, and shortening of names.
//!
//! Numbers are never cut. Names are cut in the middle: C++ names start alike, and the parts that distinguish
//! two of them, such as a functor or the type of an argument, are near the end.

use std::borrow::Cow;
use std::io;
use std::str::FromStr;

use gpuwhy_report::text_format::printable;

use super::number::grouped;
use super::table::{Cell, Heading, RowSink};

/// Default maximum length of a name, characters; the same as in nsys.
const CELL: usize = 100;
/// Minimum length to which a name is cut to fit a line, characters.
const LEAST: usize = 24;
/// Marks the position at which characters were removed.
const CUT: char = '~';

/// Width limit of a text table. Other formats are never cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableWidth {
    /// Names are not cut.
    Unlimited,
    /// Names have at most this many characters.
    Cell(usize),
    /// Lines have at most this many characters, unless the numbers alone are wider: names keep 24 characters.
    Line(u16),
}

impl Default for TableWidth {
    fn default() -> Self {
        Self::Cell(CELL)
    }
}

impl FromStr for TableWidth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("nolimit", _) => Ok(Self::Unlimited),
            (_, Ok(columns)) if columns > 0 => Ok(Self::Line(columns)),
            _ => Err("expected the characters of a line, or nolimit".to_owned()),
        }
    }
}

/// Measures the column widths of a text table.
#[derive(Debug, Default)]
pub struct Widths {
    limit: TableWidth,
    names: Vec<usize>,
    cells: Vec<usize>,
}

impl Widths {
    /// Creates a measurement for a table with this width limit.
    pub fn new(limit: TableWidth) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Measured widths, reduced to fit the limit.
    pub(super) fn fitted(&self, heading: &Heading) -> Vec<usize> {
        let columns: Vec<(usize, usize)> = heading
            .columns
            .iter()
            .zip(self.names.iter().zip(&self.cells))
            .map(|(column, (&name, &cells))| {
                let whole = name.max(cells);
                let least = if column.is_text { whole.min(LEAST) } else { cells.max(name.min(LEAST)) };
                (least, whole)
            })
            .collect();
        let capped = |cap: usize| columns.iter().map(move |&(least, whole)| whole.min(cap).max(least));
        let cap = match self.limit {
            TableWidth::Unlimited => usize::MAX,
            TableWidth::Cell(cap) => cap,
            TableWidth::Line(limit) => {
                let limit = usize::from(limit);
                let gaps = 2 * columns.len();
                let fits = |cap: usize| capped(cap).sum::<usize>() + gaps <= limit + 1;
                (LEAST..=limit).rev().find(|&cap| fits(cap)).unwrap_or(LEAST)
            }
        };
        capped(cap).collect()
    }
}

impl RowSink for Widths {
    fn begin(&mut self, heading: &Heading) -> io::Result<()> {
        self.names = heading.columns.iter().map(|column| printable(&column.name).chars().count()).collect();
        self.cells = vec![0; self.names.len()];
        Ok(())
    }

    fn row(&mut self, cells: &[Cell]) -> io::Result<()> {
        for (width, cell) in self.cells.iter_mut().zip(cells) {
            *width = (*width).max(shown(cell).chars().count());
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A cell as displayed, uncut.
fn shown(cell: &Cell) -> Cow<'_, str> {
    match cell {
        Cell::Text(text) => printable(text),
        _ => Cow::Owned(grouped(cell)),
    }
}

/// A cell as displayed, with a name of at most `width` characters.
pub(super) fn fitting(cell: &Cell, width: usize) -> Cow<'_, str> {
    match cell {
        Cell::Text(text) => cut(printable(text), width),
        _ => shown(cell),
    }
}

/// At most `width` characters of `text`: its start, [`CUT`], and its end, which is twice as long.
pub(super) fn cut(text: Cow<'_, str>, width: usize) -> Cow<'_, str> {
    if text.len() <= width {
        return text;
    }
    let count = text.chars().count();
    if count <= width {
        return text;
    }
    let kept = width.saturating_sub(1);
    let begin = kept / 3;
    let end = text.chars().skip(count - (kept - begin));
    Cow::Owned(text.chars().take(begin).chain([CUT]).chain(end).collect())
}

#[cfg(test)]
mod tests {
    use super::super::table::StatsColumn;
    use super::*;

    #[test]
    fn names_keep_their_begin_and_more_of_their_end() {
        assert_eq!(cut("gemm".into(), 4), "gemm");
        assert_eq!(cut("vectorized_kernel<Fill>".into(), 10), "vec~<Fill>");
        assert_eq!(cut("g\u{e9}mm\u{e9}s".into(), 4), "g~\u{e9}s");
        assert_eq!(cut("gemm".into(), 0), "~");
    }

    #[test]
    fn a_line_fits_unless_its_numbers_do_not() {
        let column = |name: &str, is_text| StatsColumn { name: name.to_owned(), is_text };
        let columns = vec![column("Time (ns)", false), column("Name", true), column("API", true)];
        let heading = Heading { title: "", name: "", note: None, columns };
        let fitted = |limit| {
            let mut widths = Widths::new(limit);
            widths.begin(&heading).unwrap();
            widths.row(&[Cell::Number(1_234_567), Cell::Text("n".repeat(70_000)), Cell::Text("c".repeat(30))]).unwrap();
            widths.fitted(&heading)
        };
        assert_eq!(fitted(TableWidth::Unlimited), [9, 70_000, 30]);
        assert_eq!(fitted(TableWidth::default()), [9, 100, 30]);
        assert_eq!(fitted(TableWidth::Line(80)), [9, 36, 30]);
        assert_eq!(fitted(TableWidth::Line(70)), [9, 28, 28]);
        assert_eq!(fitted(TableWidth::Line(20)), [9, 24, 24]);
    }

    #[test]
    fn a_width_is_a_number_or_none() {
        assert_eq!("nolimit".parse(), Ok(TableWidth::Unlimited));
        assert_eq!("120".parse(), Ok(TableWidth::Line(120)));
        assert!("0".parse::<TableWidth>().is_err() && "70000".parse::<TableWidth>().is_err());
    }
}
