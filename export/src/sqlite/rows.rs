//! Writes rows of gpuwhy's tables as rows of nsys's, by the statements in `rows.sql`.

use std::path::Path;
use std::sync::Arc;

use gpuwhy_trace::process_info::ProcessInfo;
use gpuwhy_trace::record::Timestamp;
use parking_lot::Mutex;
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, Error, Result, Statement};
use rustc_hash::FxHashMap;

use super::facts::global_pid;
use crate::error::ExportError;
use crate::names::base;
use crate::options::ExportOutcome;
use crate::tables::{Cell, Sink, Table};

/// Texts with their numbers.
type Numbers = Arc<Mutex<FxHashMap<String, i64>>>;

/// A statement, and the columns of its parameters: number of the parameter, index of the column.
struct Insert<'c> {
    statement: Statement<'c>,
    columns: Vec<(usize, usize)>,
}

/// Receives the rows of a trace.
pub struct Rows<'c> {
    path: &'c Path,
    inserts: FxHashMap<Table, Vec<Insert<'c>>>,
    pub texts: Numbers,
    pub domains: Numbers,
    /// Latest time in a row of a record.
    pub end: Timestamp,
    has_managed: bool,
    outcome: ExportOutcome,
}

impl<'c> Rows<'c> {
    /// Prepares the statements. `path` is the name of the file in messages.
    pub fn new(connection: &'c Connection, session: &ProcessInfo, path: &'c Path) -> Result<Self> {
        let (texts, domains) = (numbers(connection, "text_id", 0)?, numbers(connection, "domain_id", 1)?);
        connection.create_scalar_function("base_name", 1, FunctionFlags::SQLITE_UTF8, |context| {
            Ok(base(context.get_raw(0).as_str()?).to_owned())
        })?;
        let mut inserts: FxHashMap<Table, Vec<Insert<'c>>> = FxHashMap::default();
        for part in include_str!("rows.sql").split("\n\n-- ").skip(1) {
            let (name, sql) = part.split_once('\n').unwrap_or_default();
            let table = Table::ALL.iter().find(|table| table.name() == name);
            let &table = table.ok_or_else(|| Error::InvalidParameterName(name.to_owned()))?;
            inserts.entry(table).or_default().push(insert(connection.prepare(sql)?, table, session)?);
        }
        Ok(Self {
            path,
            inserts,
            texts,
            domains,
            end: Timestamp::ZERO,
            has_managed: false,
            outcome: ExportOutcome::default(),
        })
    }

    /// Returns true if there was a row about managed memory, and what was written.
    pub fn finish(self) -> (bool, ExportOutcome) {
        (self.has_managed, self.outcome)
    }
}

fn insert<'c>(mut statement: Statement<'c>, table: Table, session: &ProcessInfo) -> Result<Insert<'c>> {
    let mut columns = Vec::new();
    for parameter in 1..=statement.parameter_count() {
        let name = statement.parameter_name(parameter).unwrap_or_default().trim_start_matches(':').to_owned();
        match name.as_str() {
            "origin" => statement.raw_bind_parameter(parameter, session.start.nanos() as i64)?,
            "process" => statement.raw_bind_parameter(parameter, global_pid(session))?,
            _ => {
                let column = table.columns().iter().position(|column| column.name == name);
                columns.push((parameter, column.ok_or(Error::InvalidParameterName(name))?));
            }
        }
    }
    Ok(Insert { statement, columns })
}

impl Sink for Rows<'_> {
    fn wants(&self, table: Table) -> bool {
        table.is_recorded()
    }

    fn row(&mut self, table: Table, cells: &[Cell<'_>]) -> std::result::Result<(), ExportError> {
        let mut inserted = 0;
        for Insert { statement, columns } in self.inserts.get_mut(&table).into_iter().flatten() {
            let mut columns = columns.iter();
            let bound = columns.try_for_each(|&(place, column)| statement.raw_bind_parameter(place, cells[column]));
            inserted +=
                bound.and_then(|()| statement.raw_execute()).map_err(|error| ExportError::sqlite(self.path, &error))?;
        }
        if table == Table::GpuMetrics {
            return Ok(());
        }
        if inserted == 0 {
            self.outcome.leave_out(table as usize);
            return Ok(());
        }
        self.outcome.written += 1;
        self.has_managed |= table == Table::Managed;
        for (column, cell) in table.columns().iter().zip(cells) {
            if let (true, Cell::Integer(at)) = (matches!(column.name, "start_ns" | "end_ns" | "at_ns"), *cell) {
                self.end = self.end.max(Timestamp::from_nanos(at.cast_unsigned()));
            }
        }
        Ok(())
    }
}

/// Adds an SQL function that numbers texts, from `first`.
fn numbers(connection: &Connection, function: &str, first: i64) -> Result<Numbers> {
    let numbers = Numbers::default();
    let of_function = Arc::clone(&numbers);
    connection.create_scalar_function(function, 1, FunctionFlags::SQLITE_UTF8, move |context| {
        let Some(text) = context.get_raw(0).as_str_or_null()? else { return Ok(None) };
        let mut numbers = of_function.lock();
        if let Some(&number) = numbers.get(text) {
            return Ok(Some(number));
        }
        let number = first + numbers.len() as i64;
        numbers.insert(text.to_owned(), number);
        Ok(Some(number))
    })?;
    Ok(numbers)
}
