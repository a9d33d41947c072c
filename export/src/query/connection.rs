//! Connections as queries need them.

use std::path::Path;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::functions;
use crate::error::ExportError;

/// Adds functions, and makes a name in double quotes a column or nothing. SQLite takes one that is misspelt for a text,
/// and answers.
pub fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    functions::add(connection)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false).map(drop)
}

/// An error about the query itself.
pub fn failed(error: &rusqlite::Error) -> ExportError {
    ExportError::sqlite(Path::new("query"), error)
}
