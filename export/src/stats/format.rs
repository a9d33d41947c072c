//! The four forms in which nsys prints reports: text with aligned columns, CSV, TSV, JSON.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::table::{Cell, Heading, RowSink};
use crate::json::quoted;

/// The form of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableFormat {
    /// Columns aligned for people.
    #[default]
    Table,
    /// Comma-separated.
    Csv,
    /// Tab-separated.
    Tsv,
    /// An array of objects.
    Json,
}

/// Measures how wide the columns of a text must be.
#[derive(Debug, Default)]
pub struct Widths(Vec<usize>);

impl RowSink for Widths {
    fn begin(&mut self, heading: &Heading) -> io::Result<()> {
        self.0 = heading.columns.iter().map(|column| column.name.chars().count()).collect();
        Ok(())
    }

    fn row(&mut self, cells: &[Cell]) -> io::Result<()> {
        for (width, cell) in self.0.iter_mut().zip(cells) {
            *width = (*width).max(grouped(cell).chars().count());
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes rows.
pub struct Printer<'a> {
    output: &'a mut dyn Write,
    format: TableFormat,
    widths: Vec<usize>,
    heading: Option<Heading>,
    rows: u64,
}

impl<'a> Printer<'a> {
    /// `widths` counts only for [`TableFormat::Table`].
    pub fn new(output: &'a mut dyn Write, format: TableFormat, widths: Widths) -> Self {
        Self { output, format, widths: widths.0, heading: None, rows: 0 }
    }

    fn aligned(&self, cells: &[Cell]) -> String {
        let mut line = String::new();
        for (number, (cell, &width)) in cells.iter().zip(&self.widths).enumerate() {
            let text = grouped(cell);
            line.push_str(if number == 0 { " " } else { "  " });
            // Writing to a String cannot fail.
            let _ = match cell {
                Cell::Text(_) => write!(line, "{text:<width$}"),
                _ => write!(line, "{text:>width$}"),
            };
        }
        line.truncate(line.trim_end().len());
        line
    }

    fn separated(&mut self, cells: &[Cell], separator: char) -> io::Result<()> {
        let fields: Vec<String> = cells.iter().map(|cell| field(&plain(cell), separator)).collect();
        writeln!(self.output, "{}", fields.join(&separator.to_string()))
    }
}

impl RowSink for Printer<'_> {
    fn begin(&mut self, heading: &Heading) -> io::Result<()> {
        let names: Vec<Cell> = heading.columns.iter().map(|column| Cell::Text(column.name.clone())).collect();
        self.heading = Some(heading.clone());
        self.rows = 0;
        match self.format {
            TableFormat::Table => {
                if !heading.title.is_empty() {
                    writeln!(self.output, "\n ** {} ({}):\n", heading.title, heading.name)?;
                    if let Some(note) = &heading.note {
                        writeln!(self.output, "{note}\n")?;
                    }
                    if heading.columns.is_empty() {
                        return Ok(());
                    }
                }
                let mut line = String::new();
                let mut rule = String::new();
                for (number, (column, &width)) in heading.columns.iter().zip(&self.widths).enumerate() {
                    let gap = if number == 0 { " " } else { "  " };
                    let _ = match column.is_text {
                        true => write!(line, "{gap}{:<width$}", column.name),
                        false => write!(line, "{gap}{:>width$}", column.name),
                    };
                    let _ = write!(rule, "{gap}{}", "-".repeat(width));
                }
                writeln!(self.output, "{}\n{rule}", line.trim_end())
            }
            TableFormat::Csv => self.separated(&names, ','),
            TableFormat::Tsv => self.separated(&names, '\t'),
            TableFormat::Json => write!(self.output, "["),
        }
    }

    fn row(&mut self, cells: &[Cell]) -> io::Result<()> {
        self.rows += 1;
        match self.format {
            TableFormat::Table => {
                let line = self.aligned(cells);
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

/// Quoted where the separator, a quote or a line break would end the field.
fn field(text: &str, separator: char) -> String {
    if text.contains([separator, '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn plain(cell: &Cell) -> String {
    match cell {
        Cell::Empty => String::new(),
        Cell::Number(number) => number.to_string(),
        Cell::Signed(number) => number.to_string(),
        Cell::Real(number) => number.to_string(),
        Cell::Decimal(number, decimals) => format!("{number:.decimals$}"),
        Cell::Text(text) => text.clone(),
    }
}

/// With a comma between thousands.
fn grouped(cell: &Cell) -> String {
    let text = plain(cell);
    if !matches!(cell, Cell::Number(_) | Cell::Decimal(..)) {
        return text;
    }
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

#[cfg(test)]
mod tests {
    use super::super::table::{Column, TimeUnit};
    use super::*;

    fn printed(format: TableFormat) -> String {
        let column = |name: &str, is_text| Column { name: name.to_owned(), is_text };
        let heading = Heading {
            title: "Some Summary",
            name: "some_sum",
            note: None,
            columns: vec![column("Time (ns)", false), column("Name", true)],
        };
        let rows = [
            [TimeUnit::Nanoseconds.whole(1_234_567), Cell::Text("gemm<1, 2>".to_owned())],
            [TimeUnit::Nanoseconds.fraction(5.25), Cell::Empty],
        ];
        let produce = |sink: &mut dyn RowSink| {
            sink.begin(&heading).unwrap();
            rows.iter().for_each(|row| sink.row(row).unwrap());
            sink.end().unwrap();
        };
        let mut widths = Widths::default();
        produce(&mut widths);
        let mut output = Vec::new();
        produce(&mut Printer::new(&mut output, format, widths));
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
}
