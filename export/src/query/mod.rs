//! SQL over traces: queries on the tables of [`tables`](crate::tables), executed by SQLite.
//!
//! A query is checked against empty tables before a trace is read, so mistakes are reported immediately. The
//! same check determines which tables and columns it uses, and only these are created. They are stored in a
//! temporary database that SQLite keeps in its cache and moves to a file as it grows, so memory is bounded
//! and no file is left. `docs/guide/export.md` explains why SQLite is used rather than a columnar engine.
//!
//! If a query has a join, the join columns have an index.

mod connection;
mod load;
mod plan;

use std::io::Write;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use crate::error::ExportError;
use crate::lake::Lake;
use crate::stats::{Cell, Heading, Printer, StatsOptions};
use crate::tables::{Label, Table};
use gpuwhy_import::{Progress, TraceFile};

pub use plan::described;

pub(crate) use connection::failed;
pub(crate) use load::Database;
pub(crate) use plan::Used;

/// A query that was checked.
#[derive(Debug)]
pub struct Query {
    sql: String,
    used: Used,
    columns: Vec<String>,
}

/// Information about a query result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Describes missing data in the traces, for the user.
    pub notes: Vec<String>,
    /// True if the result has no rows.
    pub is_empty: bool,
    /// If the result is empty: tables of the query without rows.
    pub empty_tables: Vec<Table>,
}

impl Query {
    /// Checks `sql`, which must be one `SELECT`.
    ///
    /// # Errors
    /// If it is not valid SQL, uses tables or columns that do not exist, or does anything but read.
    pub fn new(sql: &str) -> Result<Self, ExportError> {
        let (used, columns) = plan::used(sql)?;
        Ok(Self { sql: sql.to_owned(), used, columns })
    }

    /// Tables that the query reads.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        self.used.keys().copied().collect()
    }

    /// Names of the result columns.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Text of the query.
    #[must_use]
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// Adds the tables and columns of this query to `used`.
    pub(crate) fn add_used(&self, used: &mut Used) {
        for (&table, columns) in &self.used {
            let all = used.entry(table).or_insert_with(|| vec![false; columns.len()]);
            all.iter_mut().zip(columns).for_each(|(of_all, of_this)| *of_all |= of_this);
        }
    }

    /// Writes the result of the query on the tables of a lake.
    ///
    /// # Errors
    /// As [`answer`](Self::answer).
    pub fn answer_lake(
        &self,
        lake: &Lake,
        options: &StatsOptions,
        output: &mut dyn Write,
        progress: &mut Progress<'_>,
    ) -> Result<Answered, ExportError> {
        let mut database = Database::new(&self.used, self.joins(), 1)?;
        database.load_lake(lake, progress)?;
        self.print(&database.loaded()?, options, output)
    }

    /// Writes the result of the query on `traces`.
    ///
    /// # Errors
    /// If a trace cannot be read, the temporary database cannot grow, or `output` cannot be written.
    pub fn answer(
        &self,
        traces: &[(TraceFile, Label)],
        options: &StatsOptions,
        output: &mut dyn Write,
        progress: &mut Progress<'_>,
    ) -> Result<Answered, ExportError> {
        let mut database = Database::new(&self.used, self.joins(), 1)?;
        let mut notes = Vec::new();
        let count = traces.len() as u64;
        for (number, (trace, label)) in (0..).zip(traces) {
            let of_trace = database
                .load(trace, label, &mut |done, total| progress(total / count * number + done / count, total))?;
            notes.extend(of_trace.into_iter().map(|note| format!("{}: {note}", trace.path().display())));
        }
        Ok(Answered { notes, ..self.print(&database.loaded()?, options, output)? })
    }

    /// True if the query contains `JOIN` or `EXISTS`. Joins by comma are not detected.
    fn joins(&self) -> bool {
        let mut words = self.sql.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.any(|word| word.eq_ignore_ascii_case("join") || word.eq_ignore_ascii_case("exists"))
    }

    fn print(
        &self,
        connection: &Connection,
        options: &StatsOptions,
        output: &mut dyn Write,
    ) -> Result<Answered, ExportError> {
        let mut statement = connection.prepare(&self.sql).map_err(|error| failed(&error))?;
        let columns = statement.column_names().into_iter().map(str::to_owned).collect();
        let mut printer = Printer::new(output, *options, []);
        let any = printer.print(&Heading { name: "query", columns, ..Heading::default() }, &mut |visit| {
            rows(&mut statement, visit)?;
            Ok(0)
        })?;
        let mut answered = Answered { is_empty: !any, ..Answered::default() };
        if answered.is_empty {
            for table in self.tables() {
                let sql = format!("SELECT 1 FROM {} LIMIT 1", table.name());
                let mut statement = connection.prepare(&sql).map_err(|error| failed(&error))?;
                if !statement.exists([]).map_err(|error| failed(&error))? {
                    answered.empty_tables.push(table);
                }
            }
        }
        Ok(answered)
    }
}

/// Runs the statement.
fn rows(
    statement: &mut rusqlite::Statement<'_>,
    visit: &mut dyn FnMut(&[Cell]) -> Result<(), ExportError>,
) -> Result<(), ExportError> {
    let columns = statement.column_count();
    let mut rows = statement.query([]).map_err(|error| failed(&error))?;
    let mut cells = Vec::with_capacity(columns);
    while let Some(row) = rows.next().map_err(|error| failed(&error))? {
        cells.clear();
        for column in 0..columns {
            cells.push(cell(row, column)?);
        }
        visit(&cells)?;
    }
    Ok(())
}

fn cell(row: &Row<'_>, column: usize) -> Result<Cell, ExportError> {
    Ok(match row.get_ref(column).map_err(|error| failed(&error))? {
        ValueRef::Null => Cell::Empty,
        ValueRef::Integer(number) => Cell::Signed(number),
        // JSON cannot represent infinity.
        ValueRef::Real(number) if !number.is_finite() => Cell::Text(number.to_string()),
        ValueRef::Real(number) => Cell::Real(number),
        ValueRef::Text(text) => Cell::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Cell::Text(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
    })
}
