//! Statements that insert a row.

use rusqlite::{CachedStatement, Connection, Result};

/// Prepares an `INSERT` with one placeholder per column.
pub(super) fn insert<'c>(connection: &'c Connection, table: &str, columns: &str) -> Result<CachedStatement<'c>> {
    let marks = vec!["?"; columns.split(',').count()].join(", ");
    connection.prepare_cached(&format!("INSERT INTO {table} ({columns}) VALUES ({marks})"))
}
