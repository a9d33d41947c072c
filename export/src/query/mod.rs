//! SQL over traces: queries on the tables of [`tables`](crate::tables), executed by SQLite.
//!
//! A query is checked against empty tables before a trace is read, so mistakes are reported immediately. The
//! same check determines which tables and columns it uses, and whether it may read a table repeatedly.
//!
//! If it does not, and reads only tables of records, these are virtual: SQLite takes their rows while the trace is
//! read, and nothing is stored (`virtual_table`). Otherwise the used columns are stored in a temporary database that
//! SQLite keeps in its cache and moves to a file as it grows; in a query with a join, the join columns have an index.
//! So memory is bounded and no file is left.

mod connection;
mod grouped;
mod load;
mod parallel;
mod plan;
mod source;
mod virtual_table;

use std::io::Write;
use std::ops::ControlFlow;

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Statement};

use crate::error::ExportError;
use crate::lake::Lake;
use crate::stats::{Cell, Heading, Printer, StatsOptions};
use crate::tables::{Label, Table};
use gpuwhy_import::{Progress, TraceFile};

pub use plan::described;

pub(crate) use connection::failed;
pub(crate) use load::Database;
pub(crate) use parallel::parallel;
use plan::Plan;
pub(crate) use plan::Used;
pub(crate) use source::Source;
pub(crate) use virtual_table::connected;

/// A query that was checked.
#[derive(Debug)]
pub struct Query {
    sql: String,
    plan: Plan,
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
        Ok(Self { sql: sql.to_owned(), plan: plan::used(sql)? })
    }

    /// Tables that the query reads.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        self.plan.used.keys().copied().collect()
    }

    /// Names of the result columns.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.plan.columns
    }

    /// Text of the query.
    #[must_use]
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// True if its tables need not be stored; see the [module](self).
    pub(crate) fn is_streamed(&self) -> bool {
        !self.plan.repeats && self.plan.used.keys().all(|table| table.is_of_records())
    }

    /// Adds the tables and columns of this query to `used`.
    pub(crate) fn add_used(&self, used: &mut Used) {
        for (&table, columns) in &self.plan.used {
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
        let mut database = Database::new(&self.plan.used, self.plan.repeats, 1)?;
        database.load_lake(lake, progress)?;
        self.print(&database.loaded()?, None, options, output)
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
        let (answered, notes) = if self.is_streamed() && !self.plan.used.is_empty() {
            let (source, tables) = (Source::new(traces.to_vec()), self.tables());
            let connection = connected(&source, &tables).map_err(|error| failed(&error))?;
            let scans = tables.len() as u64;
            let work = |_| {
                let connection = connected(&source, &tables).map_err(|error| failed(&error))?;
                few_rows(&connection, &self.sql, |_| Ok(()))
            };
            let kept = parallel(std::slice::from_ref(&source), scans, 1, work, progress)?.pop().flatten();
            (self.print(&connection, kept, options, output)?, source.notes(&tables)?)
        } else {
            let mut database = Database::new(&self.plan.used, self.plan.repeats, 1)?;
            let count = traces.len() as u64;
            let load = |(number, (trace, label)): (u64, &(TraceFile, Label))| {
                database.load(trace, label, &mut |done, total| progress(total / count * number + done / count, total))
            };
            let notes = (0..).zip(traces).map(load).collect::<Result<_, _>>()?;
            (self.print(&database.loaded()?, None, options, output)?, notes)
        };
        let notes = notes.into_iter().zip(traces).flat_map(|(notes, (trace, _))| {
            notes.into_iter().map(|note| format!("{}: {note}", trace.path().display()))
        });
        Ok(Answered { notes: notes.collect(), ..answered })
    }

    /// Prints the result: the rows `kept`, or those of `connection`.
    fn print(
        &self,
        connection: &Connection,
        kept: Option<Vec<Vec<Value>>>,
        options: &StatsOptions,
        output: &mut dyn Write,
    ) -> Result<Answered, ExportError> {
        let mut printer = Printer::new(output, *options, []);
        let heading = Heading { name: "query", columns: self.columns().to_vec(), ..Heading::default() };
        let any = printer.print(&heading, &mut |visit| {
            let mut show = |row: &[Value]| {
                visit(&row.iter().map(cell).collect::<Vec<_>>())?;
                Ok(ControlFlow::Continue(()))
            };
            match &kept {
                Some(rows) => rows.iter().try_for_each(|row| show(row).map(drop))?,
                None => each_row(connection, &self.sql, |_| Ok(()), &mut show)?,
            }
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

/// Maximum rows of a result that is kept until it is printed.
const FEW: usize = 10_000;

/// Takes a row; a break ends the query.
type VisitRow<'v> = dyn FnMut(&[Value]) -> Result<ControlFlow<()>, ExportError> + 'v;

/// Runs `sql` after `bind` has set its parameters; passes rows to `visit` until it breaks.
pub(crate) fn each_row(
    connection: &Connection,
    sql: &str,
    bind: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<()>,
    visit: &mut VisitRow<'_>,
) -> Result<(), ExportError> {
    let sqlite = |error| failed(&error);
    let mut statement = connection.prepare(sql).map_err(sqlite)?;
    bind(&mut statement).map_err(sqlite)?;
    let columns = statement.column_count();
    let mut rows = statement.raw_query();
    let mut values = Vec::with_capacity(columns);
    while let Some(row) = rows.next().map_err(sqlite)? {
        values.clear();
        for column in 0..columns {
            values.push(owned(row.get_ref(column).map_err(sqlite)?));
        }
        if visit(&values)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// The rows of `sql`; `None` if they are more than [`FEW`].
pub(crate) fn few_rows(
    connection: &Connection,
    sql: &str,
    bind: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<()>,
) -> Result<Option<Vec<Vec<Value>>>, ExportError> {
    let mut rows = Vec::new();
    each_row(connection, sql, bind, &mut |row| {
        rows.push(row.to_vec());
        Ok(if rows.len() > FEW { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(Some(rows).filter(|rows| rows.len() <= FEW))
}

fn owned(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Real(number) => Value::Real(number),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
    }
}

fn cell(value: &Value) -> Cell {
    match value {
        Value::Null => Cell::Empty,
        Value::Integer(number) => Cell::Signed(*number),
        // JSON cannot represent infinity.
        Value::Real(number) if !number.is_finite() => Cell::Text(number.to_string()),
        Value::Real(number) => Cell::Real(*number),
        Value::Text(text) => Cell::Text(text.clone()),
        Value::Blob(bytes) => Cell::Text(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use gpuwhy_import::unwatched;

    use super::*;

    /// Recorded traces with their labels.
    fn traces() -> Vec<(TraceFile, Label)> {
        let of = |(rank, name): (u32, &str)| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/fixtures/traces").join(name);
            (TraceFile::open(path).unwrap(), Label { run: "job".to_owned(), rank })
        };
        [(0, "checkpoint.gpuwhy"), (1, "managed.gpuwhy")].map(of).into()
    }

    #[test]
    fn rows_as_they_are_read_equal_stored_ones() {
        let traces = traces();
        let tables: Vec<Table> = Table::ALL.iter().copied().filter(|table| table.is_of_records()).collect();
        let source = Source::new(traces.clone());
        let streamed = connected(&source, &tables).unwrap();
        let answer = |connection: &Connection, sql: &str| {
            let mut rows = Vec::new();
            each_row(connection, sql, |_| Ok(()), &mut |row| {
                rows.push(format!("{row:?}"));
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
            rows
        };
        let mut counts = Vec::new();
        for &table in &tables {
            let name = table.name();
            let groups = ["run, rank", table.columns()[0].name];
            let all = format!("SELECT * FROM {name}");
            let mut queries = vec![all, format!("SELECT count(*) FROM {name}")];
            let texts = plan::columns(table).filter(|column| column.kind == crate::tables::ColumnType::Text);
            for group in groups.into_iter().chain(texts.map(|column| column.name)) {
                let last = table.columns().last().unwrap().name;
                queries
                    .push(format!("SELECT {group}, count(*), max({last}), min({last}) FROM {name} GROUP BY {group}"));
                queries.push(format!("SELECT {group}, count(*) FROM {name} GROUP BY {group} ORDER BY {group} DESC"));
            }
            for sql in queries {
                let query = Query::new(&sql).unwrap();
                assert!(query.is_streamed(), "{sql}");
                let mut database = Database::new(&query.plan.used, false, 1).unwrap();
                let notes = traces.iter().map(|(trace, label)| database.load(trace, label, &mut unwatched).unwrap());
                let notes: Vec<Vec<String>> = notes.collect();
                let stored = answer(&database.loaded().unwrap(), &sql);
                assert_eq!(answer(&streamed, &sql), stored, "{sql}");
                assert_eq!(source.notes(&[table]).unwrap(), notes, "{sql}");
                counts.push(stored.len());
            }
        }
        assert!(counts.iter().any(|&count| count > 1000), "{counts:?}");
    }
}
