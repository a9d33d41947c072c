//! The temporary database on which a query runs.
//!
//! Only used columns are stored. Texts are stored once, and rows contain their numbers; a view with the name
//! of the table joins them, so that the query finds every column.
//!
//! Columns used in joins are stored as plain values, with an index if the query has a join. SQLite creates an
//! automatic index for a join where it can, but not over a text from a view: without this index, each row of
//! one side would read all rows of the other (`cargo bench -p gpuwhy-export --bench lake`).

use std::path::Path;

use rusqlite::{Connection, Statement};
use rustc_hash::FxHashMap;

use super::connection::prepare;
use super::plan::{PLACE_COLUMNS, Used, columns};
use crate::error::ExportError;
use crate::lake::{Lake, visit};
use crate::tables::{Cell, ColumnType, Label, Sink, Table, produce};
use gpuwhy_import::{OpenError, Progress, TraceFile};

/// SQLite's cache, KiB; data beyond it goes to a file in the temporary folder.
const CACHE_KIB: u64 = 256 << 10;
/// Minimum cache if many databases share it (SQLite's default).
const CACHE_LEAST_KIB: u64 = 2000;

/// Wraps an error of the temporary database.
fn failed(error: rusqlite::Error) -> ExportError {
    ExportError::sqlite(Path::new("temporary database (in SQLITE_TMPDIR, TMPDIR or /var/tmp)"), &error)
}

/// Tables being filled.
pub struct Database {
    connection: Connection,
    used: Used,
    texts: FxHashMap<Box<str>, i64>,
    joins: bool,
}

impl Database {
    /// Creates empty tables. `joins`: the query has a join. `databases` share the memory.
    pub fn new(used: &Used, joins: bool, databases: u64) -> Result<Self, ExportError> {
        // An empty name creates a database that SQLite removes on close.
        let connection = Connection::open("").map_err(failed)?;
        prepare(&connection).map_err(failed)?;
        let options = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE;";
        connection
            .execute_batch(&format!(
                "{options} PRAGMA cache_size = -{};
                 BEGIN;
                 CREATE TABLE texts (id INTEGER PRIMARY KEY, text TEXT NOT NULL);",
                (CACHE_KIB / databases.max(1)).max(CACHE_LEAST_KIB)
            ))
            .map_err(failed)?;
        for (&table, used) in used {
            connection.execute_batch(&definition(table, used)).map_err(failed)?;
        }
        Ok(Self { connection, used: used.clone(), texts: FxHashMap::default(), joins })
    }

    /// Adds the rows of `trace`. Returns descriptions of missing data.
    pub fn load(
        &mut self,
        trace: &TraceFile,
        label: &Label,
        progress: &mut Progress<'_>,
    ) -> Result<Vec<String>, ExportError> {
        let mut rows = self.rows(&label.run, label.rank.into())?;
        produce(trace, &mut rows, progress)
    }

    /// Adds the rows of a lake.
    pub fn load_lake(&mut self, lake: &Lake, progress: &mut Progress<'_>) -> Result<(), ExportError> {
        let used = self.used.clone();
        let count = used.len() as u64;
        for (place, (table, used)) in (0..).zip(&used) {
            // A file has only the rank in front of the columns of the table; columns without a name are
            // empty.
            let of_table = columns(*table).zip(used).skip(PLACE_COLUMNS);
            let of_table = of_table.map(|(column, used)| if *used { column.name } else { "" });
            let names: Vec<&str> = std::iter::once("rank").chain(of_table).collect();
            let files = lake.files(*table)?;
            let total = files.len().max(1) as u64;
            for (number, file) in (0..).zip(&files) {
                if progress(place * total + number, count * total).is_break() {
                    return Err(OpenError::interrupted(lake.root()).into());
                }
                let mut rows = self.rows(&file.run, 0)?;
                visit(&file.path, &names, &mut |cells| {
                    let Some((rank, cells)) = cells.split_first() else { return Ok(()) };
                    rows.rank = if let Cell::Integer(rank) = rank { *rank } else { 0 };
                    rows.row(*table, cells)
                })?;
            }
        }
        Ok(())
    }

    fn rows(&mut self, run: &str, rank: i64) -> Result<TableLoader<'_>, ExportError> {
        let Self { connection, used, texts, .. } = self;
        let texts =
            Texts { ids: texts, insert: connection.prepare("INSERT INTO texts VALUES (?, ?)").map_err(failed)? };
        let mut statements = Vec::new();
        for (&table, used) in &*used {
            let marks = vec!["?"; used.iter().filter(|used| **used).count().max(1)].join(", ");
            let insert = format!("INSERT INTO stored_{} VALUES ({marks})", table.name());
            let inline = columns(table).map(|column| is_key(table, column.name)).collect();
            statements.push(Insert { table, used, inline, statement: connection.prepare(&insert).map_err(failed)? });
        }
        Ok(TableLoader { statements, texts, run: run.to_owned(), rank })
    }

    /// Returns the connection for queries.
    pub fn loaded(self) -> Result<Connection, ExportError> {
        for (&table, used) in self.used.iter().filter(|_| self.joins) {
            for (number, keys) in keys(table).iter().enumerate() {
                let places = keys
                    .iter()
                    .filter_map(|key| columns(table).zip(used).position(|(column, used)| *used && column.name == *key));
                let places: Vec<String> = places.map(|place| format!("c{place}")).collect();
                if !places.is_empty() {
                    let (name, places) = (table.name(), places.join(", "));
                    let index = format!("CREATE INDEX keys_{number}_{name} ON stored_{name} ({places})");
                    self.connection.execute_batch(&index).map_err(failed)?;
                }
            }
        }
        self.connection.execute_batch("COMMIT").map_err(failed)?;
        Ok(self.connection)
    }
}

/// Join columns for each index: first those compared with `=`, and among them first those that a join may use
/// without the others.
fn keys(table: Table) -> &'static [&'static [&'static str]] {
    match table {
        // Collective instances are joined across all ranks.
        Table::Collectives => &[&["run", "communicator", "function", "sequence", "ordinal", "rank"]],
        Table::Steps | Table::StepLeaves => &[&["run", "rank", "device", "step"]],
        Table::Api => &[&["run", "rank", "correlation"], &["run", "rank", "thread", "start_ns"]],
        Table::Kernels | Table::Copies | Table::Memsets | Table::Syncs | Table::Events => {
            &[&["run", "rank", "correlation"]]
        }
        Table::Nvtx => &[&["run", "rank", "thread", "start_ns"]],
        _ => &[&["run", "rank", "device"]],
    }
}

/// True if this column is used in joins.
fn is_key(table: Table, column: &str) -> bool {
    keys(table).iter().any(|keys| keys.contains(&column))
}

/// The storage table, and the view for queries.
fn definition(table: Table, used: &[bool]) -> String {
    let (mut stored, mut shown) = (Vec::new(), Vec::new());
    for (number, (column, used)) in columns(table).zip(used).enumerate() {
        let value = match (used, column.kind) {
            (false, _) => "NULL".to_owned(),
            (true, ColumnType::Text) if !is_key(table, column.name) => {
                format!("(SELECT text FROM texts WHERE id = c{number})")
            }
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
    /// For each column of the query, true if it is stored.
    used: &'c [bool],
    /// For each column, true if its texts are stored in the row.
    inline: Vec<bool>,
    statement: Statement<'c>,
}

/// Fills the tables of a query.
struct TableLoader<'c> {
    statements: Vec<Insert<'c>>,
    texts: Texts<'c>,
    run: String,
    rank: i64,
}

impl Sink for TableLoader<'_> {
    fn wants(&self, table: Table) -> bool {
        self.statements.iter().any(|insert| insert.table == table)
    }

    fn row(&mut self, table: Table, cells: &[Cell<'_>]) -> Result<(), ExportError> {
        let Some(insert) = self.statements.iter_mut().find(|insert| insert.table == table) else { return Ok(()) };
        let mut parameter = 0;
        for number in (0..insert.used.len()).filter(|&number| insert.used[number]) {
            parameter += 1;
            let cell = match number.checked_sub(PLACE_COLUMNS) {
                Some(number) => cells[number],
                None if number == 0 => Cell::Text(&self.run),
                None => Cell::Integer(self.rank),
            };
            let stored = match cell {
                Cell::Text(text) if !insert.inline[number] => Cell::Integer(self.texts.id(text)?),
                _ => cell,
            };
            insert.statement.raw_bind_parameter(parameter, stored).map_err(failed)?;
        }
        insert.statement.raw_execute().map(|_| ()).map_err(failed)
    }
}

/// Numbers assigned to texts.
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
