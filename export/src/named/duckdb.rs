//! DuckDB: declares the tables of a lake to it, and prints what it answers.

use std::io::Write;

use serde_json::{Map, Value};

use crate::error::ExportError;
use crate::lake::{Lake, RANK};
use crate::stats::{Cell, Heading, Printer, StatsOptions};
use crate::tables::{Column, ColumnType, Table};

/// Columns from the path.
const PATH: [&str; 2] = ["date", "run"];

/// The rank column and the columns of a table.
fn columns(table: Table) -> impl Iterator<Item = &'static Column> {
    RANK.iter().chain(table.columns())
}

/// Statements that create a view for each table. A table without files is empty, as is a column that the files of
/// an older version lack. `run` and `date` come from the path and are declared as texts: otherwise, DuckDB would read a
/// run named 17 as a number.
///
/// # Errors
/// If a folder of the lake cannot be read.
pub fn views(lake: &Lake, tables: &[Table]) -> Result<String, ExportError> {
    let mut statements = String::new();
    for &table in tables {
        let empty: Vec<String> = columns(table)
            .map(|column| (column.name, duckdb_type(column.kind)))
            .chain(PATH.map(|name| (name, "VARCHAR")))
            .map(|(name, kind)| format!("CAST(NULL AS {kind}) AS {name}"))
            .collect();
        let mut view = format!("CREATE VIEW {} AS SELECT {} WHERE false", table.name(), empty.join(", "));
        if lake.has(table)? {
            view.push_str(&format!(
                " UNION ALL BY NAME SELECT * FROM read_parquet('{}', hive_partitioning = true, union_by_name = true, \
                 hive_types = {{'date': VARCHAR, 'run': VARCHAR}})",
                lake.table(table).join("*/*/*.parquet").display().to_string().replace('\'', "''")
            ));
        }
        statements.push_str(&view);
        statements.push_str(";\n");
    }
    Ok(statements)
}

const fn duckdb_type(kind: ColumnType) -> &'static str {
    match kind {
        ColumnType::Integer => "BIGINT",
        ColumnType::Real => "DOUBLE",
        ColumnType::Flag => "BOOLEAN",
        ColumnType::Text => "VARCHAR",
    }
}

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
    let heading = Heading { name: "query", columns: columns.to_vec(), ..Heading::default() };
    Printer::new(output, *options, []).print(&heading, &mut |visit| {
        rows.iter().try_for_each(|row| visit(row))?;
        Ok(0)
    })?;
    Ok(())
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
