//! Prints tables in the formats of `nsys stats`: text with aligned columns, CSV, JSON.
//!
//! Rows are passed on and not stored, because some reports have a row for each operation. The columns of a text
//! fit their widest cell, so its rows are produced twice, unless they are few. Numbers are never cut. Names are cut in
//! the middle: C++ names start alike, and the parts that distinguish two of them, such as a functor or the type of an
//! argument, are near the end.

use std::borrow::Cow;
use std::io::Write;
use std::str::FromStr;

use gpuwhy_report::text_format::printable;

use super::table::{Cell, TimeUnit};
use crate::error::ExportError;
use crate::json::quoted;

/// Default maximum length of a name, characters; the same as in nsys.
const CELL: usize = 100;
/// Minimum length to which a name is cut to fit a line, characters.
const LEAST: usize = 24;
/// Maximum number of rows that are kept while their widest cells are searched.
const FEW: usize = 10_000;
/// Marks the position at which characters were removed.
const CUT: char = '~';

/// Output format of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableFormat {
    /// Aligned text.
    #[default]
    Table,
    /// Comma-separated.
    Csv,
    /// An array of objects.
    Json,
}

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

/// Options for statistics.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatsOptions {
    /// Output format.
    pub format: TableFormat,
    /// Unit of times.
    pub unit: TimeUnit,
    /// Width limit of [`TableFormat::Table`].
    pub width: TableWidth,
    /// True if the output is shown on a terminal: control characters are then also escaped in CSV, as they always
    /// are in the other formats.
    pub is_shown: bool,
}

/// Heading of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heading {
    /// Title for display; empty if there is none.
    pub title: &'static str,
    /// nsys's name of the report.
    pub name: &'static str,
    /// Text between title and table, for display only; empty if there is none.
    pub note: String,
    /// Names of the columns with their units, as in nsys.
    pub columns: Vec<String>,
    /// What is printed without rows.
    pub empty: Empty,
}

/// What is printed of a table without rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Empty {
    /// The names of the columns.
    #[default]
    Columns,
    /// Nothing; in JSON, an empty array.
    Nothing,
    /// As [`Nothing`](Self::Nothing), but in the text format the title and this sentence.
    Note(&'static str),
}

/// Passes the rows of a table, with a cell for each column, to a function. Returns the number of further rows, which
/// the user did not ask for.
pub type Rows<'r> = dyn FnMut(&mut dyn FnMut(&[Cell]) -> Result<(), ExportError>) -> Result<u64, ExportError> + 'r;

/// Prints tables as one parseable text. Tables of CSV have an empty line between them. Several tables of JSON are an
/// object with a member for each, because consecutive arrays are not a valid document.
pub struct Printer<W> {
    output: W,
    options: StatsOptions,
    /// Names of the tables, if there are several.
    names: Vec<String>,
    /// Number of tables printed.
    printed: usize,
    /// True if a table has written any output.
    has_written: bool,
}

impl<W: Write> Printer<W> {
    /// Creates a text of tables with these names.
    pub fn new(output: W, options: StatsOptions, names: impl IntoIterator<Item = String>) -> Self {
        Self { output, options, names: unique(names), printed: 0, has_written: false }
    }

    /// Options of the tables.
    pub(crate) const fn options(&self) -> &StatsOptions {
        &self.options
    }

    /// Prints the next table. Returns true if it has rows.
    pub(crate) fn print(&mut self, heading: &Heading, rows: &mut Rows<'_>) -> Result<bool, ExportError> {
        let (mut widths, mut kept, mut count) = (Vec::new(), Vec::new(), 0);
        let mut note = heading.note.clone();
        if self.options.format == TableFormat::Table {
            let mut columns: Vec<Measured> = heading.columns.iter().map(|name| Measured::of(name)).collect();
            let left_out = rows(&mut |cells| {
                count += 1;
                if count <= FEW {
                    kept.push(cells.to_vec());
                }
                columns.iter_mut().zip(cells).for_each(|(column, cell)| column.take(cell));
                Ok(())
            })?;
            let any = count > 0;
            if left_out > 0 && !note.is_empty() {
                note.push_str(&format!("\n{left_out} more are not shown (rows=-1 shows all)."));
            }
            if let (false, Empty::Note(none)) = (any, heading.empty) {
                note = none.to_owned();
            }
            if any || heading.empty != Empty::Nothing {
                self.title(heading, &note)?;
            }
            if any || heading.empty == Empty::Columns {
                widths = fitted(&columns, self.options.width);
                let columns = columns.iter().zip(&widths);
                let names = columns
                    .zip(&heading.columns)
                    .map(|((column, &width), name)| (cut(printable(name), width), column.is_text, width));
                let line = aligned(names);
                let rule = aligned(widths.iter().map(|&width| ("-".repeat(width).into(), true, width)));
                self.line(&format!("{line}\n{rule}"))?;
            }
        }
        let mut any = false;
        if heading.empty == Empty::Columns {
            self.begin(heading)?;
        }
        let is_kept = self.options.format == TableFormat::Table && count <= FEW;
        let mut show = |cells: &[Cell]| {
            if !any && heading.empty != Empty::Columns {
                self.begin(heading)?;
            }
            self.row(heading, cells, &widths, !std::mem::replace(&mut any, true))
        };
        if is_kept {
            kept.iter().try_for_each(|cells| show(cells))?;
        } else {
            rows(&mut show)?;
        }
        let has_begun = any || heading.empty == Empty::Columns;
        match (self.options.format, has_begun) {
            (TableFormat::Table, true) => self.line("")?,
            (TableFormat::Json, true) => self.line("\n]")?,
            (TableFormat::Json, false) => {
                self.member()?;
                self.line("[]")?;
            }
            (TableFormat::Csv, _) | (TableFormat::Table, false) => {}
        }
        self.printed += 1;
        Ok(any)
    }

    /// Completes the text.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn finish(mut self) -> Result<(), ExportError> {
        if self.options.format == TableFormat::Json && self.names.len() > 1 {
            self.line("}")?;
        }
        self.output.flush().map_err(ExportError::output)
    }

    fn write(&mut self, text: &str) -> Result<(), ExportError> {
        self.has_written = true;
        self.output.write_all(text.as_bytes()).map_err(ExportError::output)
    }

    fn line(&mut self, text: &str) -> Result<(), ExportError> {
        self.write(text)?;
        self.write("\n")
    }

    fn title(&mut self, heading: &Heading, note: &str) -> Result<(), ExportError> {
        if heading.title.is_empty() {
            return Ok(());
        }
        self.line(&format!("\n ** {} ({}):\n", heading.title, heading.name))?;
        if note.is_empty() { Ok(()) } else { self.line(&format!("{note}\n")) }
    }

    /// Starts a table for programs.
    fn begin(&mut self, heading: &Heading) -> Result<(), ExportError> {
        match self.options.format {
            TableFormat::Table => Ok(()),
            TableFormat::Csv => {
                if self.has_written {
                    self.line("")?;
                }
                let names: Vec<Cell> = heading.columns.iter().map(|name| Cell::Text(name.clone())).collect();
                self.separated(&names)
            }
            TableFormat::Json => {
                self.member()?;
                self.write("[")
            }
        }
    }

    /// Starts the member of a table of several in JSON.
    fn member(&mut self) -> Result<(), ExportError> {
        match self.names.get(self.printed).filter(|_| self.names.len() > 1) {
            None => Ok(()),
            Some(name) => {
                let before = if self.printed == 0 { "{\n" } else { ",\n" };
                let member = format!("{before}{}: ", quoted(name));
                self.write(&member)
            }
        }
    }

    fn row(&mut self, heading: &Heading, cells: &[Cell], widths: &[usize], is_first: bool) -> Result<(), ExportError> {
        match self.options.format {
            TableFormat::Table => {
                let cells = cells.iter().zip(widths);
                let shown = cells.map(|(cell, &width)| match cell {
                    Cell::Text(text) => (cut(printable(text), width), true, width),
                    _ => (shown(cell), false, width),
                });
                self.line(&aligned(shown))
            }
            TableFormat::Csv => self.separated(cells),
            TableFormat::Json => {
                let members = heading.columns.iter().zip(cells).map(|(name, cell)| {
                    let value = match cell {
                        Cell::Empty => "null".to_owned(),
                        Cell::Text(text) => quoted(text),
                        _ => plain(cell),
                    };
                    format!("{}: {value}", quoted(name))
                });
                let members: Vec<String> = members.collect();
                let separator = if is_first { "" } else { "," };
                self.write(&format!("{separator}\n  {{{}}}", members.join(", ")))
            }
        }
    }

    fn separated(&mut self, cells: &[Cell]) -> Result<(), ExportError> {
        let field = |cell: &Cell| match plain(cell) {
            text if self.options.is_shown => field(&printable(&text)),
            text => field(&text),
        };
        let fields: Vec<String> = cells.iter().map(field).collect();
        self.line(&fields.join(","))
    }
}

/// A table that is requested repeatedly, possibly with other options, gets a number after its name.
fn unique(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut taken: Vec<String> = Vec::new();
    for name in names {
        let numbered = (2..).map(|number| format!("{name}_{number}"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|name| !taken.contains(name));
        taken.extend(free);
    }
    taken
}

/// A column of a text: characters of its name, of its widest cell, and whether it has texts, which are left-aligned.
struct Measured {
    name: usize,
    cells: usize,
    is_text: bool,
}

impl Measured {
    fn of(name: &str) -> Self {
        Self { name: printable(name).chars().count(), cells: 0, is_text: false }
    }

    fn take(&mut self, cell: &Cell) {
        self.cells = self.cells.max(shown(cell).chars().count());
        self.is_text |= matches!(cell, Cell::Text(_));
    }
}

/// Widths of columns, reduced to fit the limit.
fn fitted(columns: &[Measured], limit: TableWidth) -> Vec<usize> {
    let capped = |cap: usize| {
        columns.iter().map(move |&Measured { name, cells, is_text }| {
            let whole = name.max(cells);
            let least = if is_text { whole.min(LEAST) } else { cells.max(name.min(LEAST)) };
            whole.min(cap).max(least)
        })
    };
    let cap = match limit {
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

/// At most `width` characters of `text`: its start, [`CUT`], and its end, which is twice as long.
fn cut(text: Cow<'_, str>, width: usize) -> Cow<'_, str> {
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

/// Quotes a field of CSV if it contains a comma, a quote or a line break.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// A cell for programs.
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

/// A cell for display, uncut: with a comma between thousands; fractions are rounded to significant digits.
fn shown(cell: &Cell) -> Cow<'_, str> {
    match cell {
        Cell::Text(text) => printable(text),
        Cell::Real(number) => rounded(*number).into(),
        Cell::Number(_) | Cell::Decimal(..) => {
            let text = plain(cell);
            let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
            let mut grouped = String::new();
            for (place, digit) in whole.chars().enumerate() {
                if place > 0 && (whole.len() - place).is_multiple_of(3) {
                    grouped.push(',');
                }
                grouped.push(digit);
            }
            (grouped + fraction).into()
        }
        Cell::Empty | Cell::Signed(_) => plain(cell).into(),
    }
}

/// Three decimal places; four digits for a number below 1.
fn rounded(number: f64) -> String {
    let size = number.abs();
    if size != 0.0 && !(1e-4..1e15).contains(&size) {
        return format!("{number:.3e}");
    }
    let zeros = if size < 1.0 && size > 0.0 { -size.log10().floor() as usize } else { 0 };
    format!("{number:.*}", 3 + zeros).trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts of tables with their names and rows, each with a column of times and one of names.
    fn of_tables(options: StatsOptions, empty: Empty, tables: &[(&str, &[[Cell; 2]])]) -> String {
        let mut output = Vec::new();
        let mut printer = Printer::new(&mut output, options, tables.iter().map(|(name, _)| (*name).to_owned()));
        for (_, rows) in tables {
            let columns = ["Time (ns)", "Name"].map(str::to_owned).to_vec();
            let heading = Heading { title: "Some Summary", name: "some_sum", columns, empty, ..Heading::default() };
            let any = printer
                .print(&heading, &mut |visit| {
                    rows.iter().try_for_each(|row| visit(row))?;
                    Ok(0)
                })
                .unwrap();
            assert_eq!(any, !rows.is_empty());
        }
        printer.finish().unwrap();
        String::from_utf8(output).unwrap()
    }

    fn of_rows(format: TableFormat, width: TableWidth, rows: &[[Cell; 2]]) -> String {
        of_tables(StatsOptions { format, width, ..StatsOptions::default() }, Empty::Nothing, &[("a", rows)])
    }

    #[test]
    fn forms() {
        let rows = [
            [TimeUnit::Nanoseconds.whole(1_234_567), Cell::Text("gemm<1, 2>".to_owned())],
            [TimeUnit::Nanoseconds.fraction(5.25), Cell::Empty],
        ];
        let printed = |format| of_rows(format, TableWidth::default(), &rows);
        assert_eq!(printed(TableFormat::Csv), "Time (ns),Name\n1234567,\"gemm<1, 2>\"\n5.2,\n");
        let json: serde_json::Value = serde_json::from_str(&printed(TableFormat::Json)).unwrap();
        assert_eq!(json[0]["Time (ns)"], 1_234_567);
        assert_eq!(json[1]["Name"], serde_json::Value::Null);
        let wanted = "\n ** Some Summary (some_sum):\n\n Time (ns)  Name\n ---------  ----------\n 1,234,567  gemm<1, 2>\n       5.2\n\n";
        assert_eq!(printed(TableFormat::Table), wanted);
    }

    #[test]
    fn several_tables_are_one_json_document() {
        let row = |number| [[Cell::Number(number), Cell::Empty]];
        let (one, two) = (row(1), row(2));
        let options = StatsOptions { format: TableFormat::Json, ..StatsOptions::default() };
        let json = |tables: &[(&str, &[[Cell; 2]])]| -> serde_json::Value {
            serde_json::from_str(&of_tables(options, Empty::Nothing, tables)).unwrap()
        };
        let row = |number: u64| serde_json::json!([{"Time (ns)": number, "Name": null}]);
        let all = json(&[("a", &[]), ("b", &one), ("a", &two), ("c", &[])]);
        assert_eq!(all, serde_json::json!({"a": [], "b": row(1), "a_2": row(2), "c": []}));
        assert_eq!(json(&[("a", &one)]), row(1));
        assert_eq!(json(&[("a", &[])]), serde_json::json!([]));
    }

    #[test]
    fn an_empty_line_is_between_tables_of_csv_and_nowhere_else() {
        let row = |number| [[Cell::Number(number), Cell::Empty]];
        let (one, two) = (row(1), row(2));
        let options = StatsOptions { format: TableFormat::Csv, ..StatsOptions::default() };
        let tables: [(&str, &[[Cell; 2]]); 5] = [("a", &[]), ("b", &one), ("c", &[]), ("d", &two), ("e", &[])];
        let text = of_tables(options, Empty::Nothing, &tables);
        assert_eq!(text, "Time (ns),Name\n1,\n\nTime (ns),Name\n2,\n");
    }

    #[test]
    fn a_table_without_rows_is_its_columns_nothing_or_a_sentence() {
        let empty = |format, empty| of_tables(StatsOptions { format, ..StatsOptions::default() }, empty, &[("a", &[])]);
        assert_eq!(empty(TableFormat::Csv, Empty::Columns), "Time (ns),Name\n");
        assert_eq!(empty(TableFormat::Csv, Empty::Note("none")), "");
        assert_eq!(empty(TableFormat::Json, Empty::Columns), "[\n]\n");
        assert_eq!(empty(TableFormat::Table, Empty::Nothing), "");
        assert_eq!(empty(TableFormat::Table, Empty::Note("none")), "\n ** Some Summary (some_sum):\n\nnone\n\n");
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
        let options = StatsOptions { format: TableFormat::Csv, ..StatsOptions::default() };
        let piped = of_tables(options, Empty::Nothing, &[("a", &rows)]);
        assert!(piped.ends_with("\n1,\"\x1b]0;x\x07\u{9b}\n9\"\n"), "{piped:?}");
        let shown = of_tables(StatsOptions { is_shown: true, ..options }, Empty::Nothing, &[("a", &rows)]);
        assert!(shown.ends_with("\n1,\\x1b]0;x\\x07\\x9b\\n9\n"), "{shown:?}");
        let json = of_rows(TableFormat::Json, TableWidth::default(), &rows);
        assert!(json.contains("\\u001b]0;x\\u0007\\u009b\\n9"), "{json:?}");
    }

    #[test]
    fn names_keep_their_begin_and_more_of_their_end() {
        assert_eq!(cut("gemm".into(), 4), "gemm");
        assert_eq!(cut("vectorized_kernel<Fill>".into(), 10), "vec~<Fill>");
        assert_eq!(cut("g\u{e9}mm\u{e9}s".into(), 4), "g~\u{e9}s");
        assert_eq!(cut("gemm".into(), 0), "~");
    }

    #[test]
    fn a_line_fits_unless_its_numbers_do_not() {
        let cells = [Cell::Number(1_234_567), Cell::Text("n".repeat(70_000)), Cell::Text("c".repeat(30))];
        let mut columns = ["Time (ns)", "Name", "API"].map(Measured::of);
        columns.iter_mut().zip(&cells).for_each(|(column, cell)| column.take(cell));
        let fitted = |limit| fitted(&columns, limit);
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

    #[test]
    fn people_see_the_digits_that_say_something_and_programs_all() {
        let numbers = [147.482_368_240_866_66, 5.015_891_666_666_667e-7, 0.0125, 2.0, 0.0, -0.333_333_333, 1.5e18];
        let texts = numbers.map(|number| shown(&Cell::Real(number)).into_owned());
        assert_eq!(texts, ["147.482", "5.016e-7", "0.0125", "2", "0", "-0.3333", "1.500e18"]);
        assert_eq!(plain(&Cell::Real(numbers[0])), "147.48236824086666");
    }
}
