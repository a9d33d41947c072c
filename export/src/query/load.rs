//! The temporary database that a query is asked of.
//!
//! Only used columns are stored. Texts are stored once and rows hold their numbers; a view with the name of the table
//! puts them together again, so that the query finds every column.

use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, Statement};
use rustc_hash::FxHashMap;

use super::connection::strict;
use super::plan::{Used, columns};
use crate::error::ExportError;
use crate::tables::{Cell, Kind, Label, Sink, Table, produce};
use gpuwhy_import::{Progress, TraceFile};

/// Of SQLite's own, KiB; what does not fit goes to a file in the folder for temporary files.
const CACHE_KIB: u32 = 256 << 10;

/// An error of the temporary database.
fn failed(error: rusqlite::Error) -> ExportError {
    ExportError::sqlite(Path::new("temporary database (in SQLITE_TMPDIR, TMPDIR or /var/tmp)"), &error)
}

/// Tables as they are filled.
pub struct Database {
    connection: Connection,
    used: Used,
    texts: FxHashMap<Box<str>, i64>,
}

impl Database {
    /// Without rows.
    pub fn new(used: &Used) -> Result<Self, ExportError> {
        // An empty name is a database that SQLite removes.
        let connection = Connection::open("").map_err(failed)?;
        strict(&connection).map_err(failed)?;
        let options = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE;";
        connection
            .execute_batch(&format!(
                "{options} PRAGMA cache_size = -{CACHE_KIB};
                 BEGIN;
                 CREATE TABLE texts (id INTEGER PRIMARY KEY, text TEXT NOT NULL);"
            ))
            .map_err(failed)?;
        for (&table, used) in used {
            connection.execute_batch(&definition(table, used)).map_err(failed)?;
        }
        Ok(Self { connection, used: used.clone(), texts: FxHashMap::default() })
    }

    /// Adds the rows of `trace`. Answers what it lacks.
    pub fn load(
        &mut self,
        trace: &TraceFile,
        label: &Label,
        progress: &mut Progress<'_>,
    ) -> Result<Vec<String>, ExportError> {
        let Self { connection, used, texts } = self;
        let mut texts =
            Texts { ids: texts, insert: connection.prepare("INSERT INTO texts VALUES (?, ?)").map_err(failed)? };
        let run = texts.id(&label.run)?;
        let mut statements = Vec::new();
        for (&table, used) in &*used {
            let marks = vec!["?"; used.iter().filter(|used| **used).count().max(1)].join(", ");
            let insert = format!("INSERT INTO stored_{} VALUES ({marks})", table.name());
            statements.push(Insert { table, used, statement: connection.prepare(&insert).map_err(failed)? });
        }
        let mut rows = Rows { statements, texts, run, rank: label.rank.into() };
        produce(trace, &mut rows, progress)
    }

    /// The connection to ask.
    pub fn loaded(self) -> Result<Connection, ExportError> {
        self.connection.execute_batch("COMMIT").map_err(failed)?;
        Ok(self.connection)
    }
}

/// The table that stores, and the view that is asked.
fn definition(table: Table, used: &[bool]) -> String {
    let (mut stored, mut shown) = (Vec::new(), Vec::new());
    for (number, (column, used)) in columns(table).zip(used).enumerate() {
        let value = match (used, column.kind) {
            (false, _) => "NULL".to_owned(),
            (true, Kind::Text) => format!("(SELECT text FROM texts WHERE id = c{number})"),
            (true, _) => format!("c{number}"),
        };
        shown.push(format!("{value} AS \"{}\"", column.name));
        if *used {
            stored.push(format!("c{number}"));
        }
    }
    // A query that only counts rows.
    if stored.is_empty() {
        stored.push("unused".to_owned());
    }
    let (name, stored, shown) = (table.name(), stored.join(", "), shown.join(", "));
    format!("CREATE TABLE stored_{name} ({stored}); CREATE VIEW {name} AS SELECT {shown} FROM stored_{name};")
}

/// Fills one table.
struct Insert<'c> {
    table: Table,
    /// For each column of the query whether it is stored.
    used: &'c [bool],
    statement: Statement<'c>,
}

/// Fills the tables of a query.
struct Rows<'c> {
    statements: Vec<Insert<'c>>,
    texts: Texts<'c>,
    run: i64,
    rank: i64,
}

impl Sink for Rows<'_> {
    fn wants(&self, table: Table) -> bool {
        self.statements.iter().any(|insert| insert.table == table)
    }

    fn row(&mut self, table: Table, cells: &[Cell<'_>]) -> Result<(), ExportError> {
        let Some(insert) = self.statements.iter_mut().find(|insert| insert.table == table) else { return Ok(()) };
        let place = [Value::Integer(self.run), Value::Integer(self.rank)];
        let mut parameter = 0;
        for (number, _) in insert.used.iter().enumerate().filter(|(_, used)| **used) {
            parameter += 1;
            let value = match place.get(number) {
                Some(value) => value.clone(),
                None => match cells[number - place.len()] {
                    Cell::Empty => Value::Null,
                    Cell::Integer(number) => Value::Integer(number),
                    Cell::Real(number) => Value::Real(number),
                    Cell::Flag(flag) => Value::Integer(flag.into()),
                    Cell::Text(text) => Value::Integer(self.texts.id(text)?),
                },
            };
            insert.statement.raw_bind_parameter(parameter, value).map_err(failed)?;
        }
        insert.statement.raw_execute().map(|_| ()).map_err(failed)
    }
}

/// Numbers of texts.
struct Texts<'c> {
    ids: &'c mut FxHashMap<Box<str>, i64>,
    insert: Statement<'c>,
}

impl Texts<'_> {
    fn id(&mut self, text: &str) -> Result<i64, ExportError> {
        if let Some(&id) = self.ids.get(text) {
            return Ok(id);
        }
        let id = self.ids.len() as i64;
        self.insert.execute((id, text)).map_err(failed)?;
        self.ids.insert(text.into(), id);
        Ok(id)
    }
}
