//! Connections as queries need them.

use std::path::Path;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::error::ExportError;

/// Makes a name in double quotes a column or nothing. SQLite takes one that is misspelt for a text, and answers.
pub fn strict(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false).map(drop)
}

/// An error about the query itself.
pub fn failed(error: &rusqlite::Error) -> ExportError {
    ExportError::sqlite(Path::new("query"), error)
}
