//! Database connections for queries.

use std::path::Path;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::functions;
use crate::error::ExportError;

/// Adds functions, and makes names in double quotes refer to columns only. By default, SQLite treats a
/// misspelled name as a text and runs the query.
pub fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    functions::add(connection)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false).map(drop)
}

/// Wraps an error about the query itself.
pub fn failed(error: &rusqlite::Error) -> ExportError {
    ExportError::sqlite(Path::new("query"), error)
}
