//! Prints the result of a query engine.

use std::io::Write;

use serde_json::{Map, Value};

use crate::error::ExportError;
use crate::stats::{Cell, Heading, Printer, RowSink as _, StatsColumn, StatsOptions, TableFormat, Widths};

/// Prints rows, which are objects keyed by column name, in the output forms of `gpuwhy query`.
///
/// # Errors
/// If `output` cannot be written.
pub fn print(
    columns: &[String],
    rows: &[Map<String, Value>],
    options: &StatsOptions,
    output: &mut dyn Write,
) -> Result<(), ExportError> {
    let rows: Vec<Vec<Cell>> =
        rows.iter().map(|row| columns.iter().map(|name| cell(row.get(name))).collect()).collect();
    let is_text = |place: usize| rows.iter().any(|row| matches!(row[place], Cell::Text(_)));
    let columns = columns
        .iter()
        .enumerate()
        .map(|(place, name)| StatsColumn { name: name.clone(), is_text: is_text(place) })
        .collect();
    let heading = Heading { title: "", name: "query", note: None, columns };
    let mut widths = Widths::new(options.width);
    if options.format == TableFormat::Table {
        widths.begin(&heading).map_err(ExportError::output)?;
        for row in &rows {
            widths.row(row).map_err(ExportError::output)?;
        }
    }
    let mut printer = Printer::new(output, options, widths);
    printer.begin(&heading).map_err(ExportError::output)?;
    for row in &rows {
        printer.row(row).map_err(ExportError::output)?;
    }
    printer.end().map_err(ExportError::output)
}

fn cell(value: Option<&Value>) -> Cell {
    match value {
        None | Some(Value::Null) => Cell::Empty,
        Some(Value::Bool(flag)) => Cell::Signed(i64::from(*flag)),
        Some(Value::String(text)) => Cell::Text(text.clone()),
        Some(Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => Cell::Signed(number),
            (None, Some(number)) => Cell::Real(number),
            (None, None) => Cell::Text(number.to_string()),
        },
        Some(other) => Cell::Text(other.to_string()),
    }
}
