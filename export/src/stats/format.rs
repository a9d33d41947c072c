//! The four output formats of nsys reports: text with aligned columns, CSV, TSV, JSON.

use std::borrow::Cow;
use std::io::{self, Write};

use gpuwhy_report::text_format::printable;

use super::fit::{TableWidth, Widths, cut, fitting};
use super::number::plain;
use super::table::{Cell, Heading, RowSink, TimeUnit};
use crate::json::quoted;

/// Output format of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableFormat {
    /// Aligned text.
    #[default]
    Table,
    /// Comma-separated.
    Csv,
    /// Tab-separated.
    Tsv,
    /// An array of objects.
    Json,
}

/// Options for statistics.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatsOptions {
    /// Output format.
    pub format: TableFormat,
    /// Unit of times.
    pub unit: TimeUnit,
    /// Width limit of [`TableFormat::Table`].
    pub width: TableWidth,
    /// True if the output is shown on a terminal: control characters are then also escaped in CSV and TSV, as
    /// they always are in the other formats.
    pub is_shown: bool,
}

/// Writes rows.
pub struct Printer<'a> {
    output: &'a mut dyn Write,
    format: TableFormat,
    is_shown: bool,
    measured: Widths,
    /// Widths of the columns.
    widths: Vec<usize>,
    heading: Option<Heading>,
    rows: u64,
}

impl<'a> Printer<'a> {
    /// Creates a printer. `measured` is only used for [`TableFormat::Table`].
    pub fn new(output: &'a mut dyn Write, options: &StatsOptions, measured: Widths) -> Self {
        let StatsOptions { format, is_shown, .. } = *options;
        Self { output, format, is_shown, measured, widths: Vec::new(), heading: None, rows: 0 }
    }

    /// Writes the title, note and column names, for display.
    fn head(&mut self, heading: &Heading) -> io::Result<()> {
        if !heading.title.is_empty() {
            writeln!(self.output, "\n ** {} ({}):\n", heading.title, heading.name)?;
            if let Some(note) = &heading.note {
                writeln!(self.output, "{note}\n")?;
            }
            if heading.columns.is_empty() {
                return Ok(());
            }
        }
        self.widths = self.measured.fitted(heading);
        let columns = heading.columns.iter().zip(&self.widths);
        let line =
            aligned(columns.map(|(column, &width)| (cut(printable(&column.name), width), column.is_text, width)));
        let rule = aligned(self.widths.iter().map(|&width| ("-".repeat(width).into(), true, width)));
        writeln!(self.output, "{line}\n{rule}")
    }

    fn separated(&mut self, cells: &[Cell], separator: char) -> io::Result<()> {
        let fields: Vec<String> = cells
            .iter()
            .map(|cell| match plain(cell) {
                text if self.is_shown => field(&printable(&text), separator),
                text => field(&text, separator),
            })
            .collect();
        writeln!(self.output, "{}", fields.join(&separator.to_string()))
    }
}

impl RowSink for Printer<'_> {
    fn begin(&mut self, heading: &Heading) -> io::Result<()> {
        let names: Vec<Cell> = heading.columns.iter().map(|column| Cell::Text(column.name.clone())).collect();
        self.heading = Some(heading.clone());
        self.rows = 0;
        match self.format {
            TableFormat::Table => self.head(heading),
            TableFormat::Csv => self.separated(&names, ','),
            TableFormat::Tsv => self.separated(&names, '\t'),
            TableFormat::Json => write!(self.output, "["),
        }
    }

    fn row(&mut self, cells: &[Cell]) -> io::Result<()> {
        self.rows += 1;
        match self.format {
            TableFormat::Table => {
                let cells = cells.iter().zip(&self.widths);
                let line =
                    aligned(cells.map(|(cell, &width)| (fitting(cell, width), matches!(cell, Cell::Text(_)), width)));
                writeln!(self.output, "{line}")
            }
            TableFormat::Csv => self.separated(cells, ','),
            TableFormat::Tsv => self.separated(cells, '\t'),
            TableFormat::Json => {
                let columns = self.heading.iter().flat_map(|heading| &heading.columns);
                let members = columns.zip(cells).map(|(column, cell)| {
                    let value = match cell {
                        Cell::Empty => "null".to_owned(),
                        Cell::Text(text) => quoted(text),
                        _ => plain(cell),
                    };
                    format!("{}: {value}", quoted(&column.name))
                });
                let members: Vec<String> = members.collect();
                let separator = if self.rows == 1 { "" } else { "," };
                write!(self.output, "{separator}\n  {{{}}}", members.join(", "))
            }
        }
    }

    fn end(&mut self) -> io::Result<()> {
        match self.format {
            TableFormat::Table => writeln!(self.output),
            TableFormat::Json => writeln!(self.output, "\n]"),
            TableFormat::Csv | TableFormat::Tsv => Ok(()),
        }
    }
}

/// Joins cells in columns. Each has a flag for left alignment and the width of its column, which a text may
/// exceed. Does not use `{:<width$}`, which panics above 65,535.
fn aligned<'t>(cells: impl Iterator<Item = (Cow<'t, str>, bool, usize)>) -> String {
    let mut line = String::new();
    // Spaces are only written before text, not at the end of the line.
    let mut owed = 1;
    for (text, is_left, width) in cells {
        let padding = width.saturating_sub(text.chars().count());
        if !text.is_empty() {
            let before = owed + if is_left { 0 } else { padding };
            line.extend(std::iter::repeat_n(' ', before));
            line.push_str(&text);
            owed = if is_left { padding } else { 0 };
        } else {
            owed += padding;
        }
        owed += 2;
    }
    line
}

/// Quotes a field if it contains the separator, a quote or a line break.
fn field(text: &str, separator: char) -> String {
    if text.contains([separator, '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::StatsColumn;
    use super::*;

    fn printed(format: TableFormat) -> String {
        let rows = [
            [TimeUnit::Nanoseconds.whole(1_234_567), Cell::Text("gemm<1, 2>".to_owned())],
            [TimeUnit::Nanoseconds.fraction(5.25), Cell::Empty],
        ];
        of_rows(format, TableWidth::default(), &rows)
    }

    fn of_rows(format: TableFormat, width: TableWidth, rows: &[[Cell; 2]]) -> String {
        with(&StatsOptions { format, width, ..StatsOptions::default() }, rows)
    }

    fn with(options: &StatsOptions, rows: &[[Cell; 2]]) -> String {
        let column = |name: &str, is_text| StatsColumn { name: name.to_owned(), is_text };
        let heading = Heading {
            title: "Some Summary",
            name: "some_sum",
            note: None,
            columns: vec![column("Time (ns)", false), column("Name", true)],
        };
        let produce = |sink: &mut dyn RowSink| {
            sink.begin(&heading).unwrap();
            rows.iter().for_each(|row| sink.row(row).unwrap());
            sink.end().unwrap();
        };
        let mut widths = Widths::new(options.width);
        produce(&mut widths);
        let mut output = Vec::new();
        produce(&mut Printer::new(&mut output, options, widths));
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn forms() {
        assert_eq!(printed(TableFormat::Csv), "Time (ns),Name\n1234567,\"gemm<1, 2>\"\n5.2,\n");
        assert_eq!(printed(TableFormat::Tsv), "Time (ns)\tName\n1234567\tgemm<1, 2>\n5.2\t\n");
        let json: serde_json::Value = serde_json::from_str(&printed(TableFormat::Json)).unwrap();
        assert_eq!(json[0]["Time (ns)"], 1_234_567);
        assert_eq!(json[1]["Name"], serde_json::Value::Null);
        let wanted = "\n ** Some Summary (some_sum):\n\n Time (ns)  Name\n ---------  ----------\n 1,234,567  gemm<1, 2>\n       5.2\n\n";
        assert_eq!(printed(TableFormat::Table), wanted);
    }

    #[test]
    fn a_name_of_any_length_can_be_printed() {
        let name = "n".repeat(70_000);
        let rows = [[Cell::Number(1), Cell::Text(name.clone())], [Cell::Number(2), Cell::Text("short".to_owned())]];
        let whole = of_rows(TableFormat::Table, TableWidth::Unlimited, &rows);
        assert!(whole.contains(&name));
        let cut = of_rows(TableFormat::Table, TableWidth::Line(80), &rows);
        assert!(cut.lines().all(|line| line.chars().count() <= 80), "{cut}");
        assert_eq!(cut.lines().nth(5).map(str::len), Some(80), "{cut}");
        assert!(of_rows(TableFormat::Csv, TableWidth::Line(80), &rows).contains(&name));
    }

    #[test]
    fn a_name_cannot_control_the_terminal_or_forge_a_row() {
        let rows = [[Cell::Number(1), Cell::Text("\x1b]0;x\x07\n 9  forged".to_owned())]];
        let table = of_rows(TableFormat::Table, TableWidth::Unlimited, &rows);
        assert!(table.contains("\\x1b]0;x\\x07\\n 9  forged") && !table.contains('\x1b'), "{table:?}");
        assert_eq!(table.lines().count(), 7, "{table:?}");
    }
    #[test]
    fn a_terminal_gets_no_control_characters_in_csv_and_a_pipe_gets_what_there_is() {
        let rows = [[Cell::Number(1), Cell::Text("\x1b]0;x\x07\u{9b}\n9".to_owned())]];
        for (format, separator) in [(TableFormat::Csv, ','), (TableFormat::Tsv, '\t')] {
            let options = StatsOptions { format, ..StatsOptions::default() };
            let piped = with(&options, &rows);
            assert!(piped.ends_with(&format!("\n1{separator}\"\x1b]0;x\x07\u{9b}\n9\"\n")), "{piped:?}");
            let shown = with(&StatsOptions { is_shown: true, ..options }, &rows);
            assert!(shown.ends_with(&format!("\n1{separator}\\x1b]0;x\\x07\\x9b\\n9\n")), "{shown:?}");
        }
        let json = of_rows(TableFormat::Json, TableWidth::default(), &rows);
        assert!(json.contains("\\u001b]0;x\\u0007\\u009b\\n9"), "{json:?}");
    }
}
