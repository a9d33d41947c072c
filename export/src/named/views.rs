//! Declares the tables of a lake to each engine.
//!
//! A table without files is empty, as is a column that the files of an older version lack. `run` and `date`
//! come from the path and are declared as texts: otherwise, engines would read a run named 17 as a number.

use crate::error::ExportError;
use crate::lake::{Lake, RANK};
use crate::tables::{Column, ColumnType, Table};

/// Columns from the path.
const PATH: [&str; 2] = ["date", "run"];

/// The rank column and the columns of a table.
fn columns(table: Table) -> impl Iterator<Item = &'static Column> {
    RANK.iter().chain(table.columns())
}

/// Statements that create a view for each table, for DuckDB.
///
/// # Errors
/// If a folder of the lake cannot be read.
pub fn duckdb(lake: &Lake, tables: &[Table]) -> Result<String, ExportError> {
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
