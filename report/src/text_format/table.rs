//! Tables of a text.

use std::fmt::{self, Display, Write};

use super::Page;

/// A table: columns of fixed widths, so that the rows of several texts can be compared line by line, and a last one of
/// any width. A longer cell moves the rest of its row.
pub struct Table {
    /// Width, and true if the cells are aligned to the left.
    columns: Vec<(usize, bool)>,
    /// The names of the columns, and the rows.
    lines: Vec<String>,
}

impl Table {
    /// A table with these columns, written as `time:10|host:<12|name`: each with its name and its width, aligned to the
    /// right or, with `<`, to the left.
    pub fn new(columns: &str) -> Self {
        let column = |column| {
            let (name, layout) = str::rsplit_once(column, ':').unwrap_or((column, ""));
            match layout.trim_start_matches('<').parse() {
                Ok(width) => (name, (width, layout.starts_with('<'))),
                // The last one, whose name may have a colon.
                Err(_) => (column, (0, true)),
            }
        };
        let (names, columns): (Vec<&str>, _) = columns.split('|').map(column).unzip();
        let mut table = Self { columns, lines: Vec::new() };
        let names: Vec<&dyn Display> = names.iter().map(|name| name as _).collect();
        table.row(&names);
        table
    }

    /// Appends a row. Its last cell ends the line, even if there are further columns.
    pub fn row(&mut self, cells: &[&dyn Display]) {
        let mut line = String::new();
        let mut was_left = true;
        for (number, (cell, &(width, is_left))) in cells.iter().zip(&self.columns).enumerate() {
            let cell = cell.to_string();
            let is_last = number + 1 == cells.len();
            if number > 0 {
                // A text needs more distance from a number before it.
                line.push_str(if (is_left || is_last) && !was_left { "  " } else { " " });
            }
            let _ = match (is_last, is_left) {
                (true, _) => write!(line, "{cell}"),
                (_, true) => write!(line, "{cell:<width$}"),
                (_, false) => write!(line, "{cell:>width$}"),
            };
            was_left = is_left;
        }
        self.lines.push(line);
    }

    /// Appends `title` and the table to a text; nothing if it has no rows.
    pub fn write(&self, out: &mut Page, title: &str) {
        if self.lines.len() > 1 {
            let _ = write!(out, "{title}{self}");
        }
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text_format::Style;

    #[test]
    fn cells_are_below_the_names_of_their_columns_and_the_last_one_ends_the_line() {
        let text = |rows: &[&[&dyn Display]]| {
            let mut table = Table::new("time:6|host:<6|%:4|at: kernel");
            rows.iter().for_each(|row| table.row(row));
            let mut out = Page::new(Style::default());
            table.write(&mut out, "\n== t\n");
            out.into_text()
        };
        assert_eq!(text(&[]), "");
        let rows: [&[&dyn Display]; 3] =
            [&[&1, &"a", &"2.0", &"a.py: k"], &[&1_234_567, &"", &"", &"sum"], &[&2, &"more"]];
        assert_eq!(
            text(&rows),
            "\n== t\n  time  host      %  at: kernel\n     1  a       2.0  a.py: k\n1234567               sum\n     2  more\n"
        );
    }
}
