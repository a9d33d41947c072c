//! Tables of records for SQLite, without a copy: a row is decoded when SQLite asks for it, with the columns that the
//! query uses.
//!
//! A scan reads the trace, so this is for queries that read no table repeatedly (`plan` tells). If rows are only
//! needed by groups of columns with few values, they come in this order, and SQLite need not sort them.
#![expect(unsafe_code, reason = "the traits of virtual tables state a layout, which the compiler does not check")]

use std::ffi::c_int;
use std::sync::Arc;

use rusqlite::vtab::{
    Context, DistinctMode, Filters, IndexInfo, VTab, VTabConnection, VTabCursor, eponymous_only_module, sqlite3_vtab,
    sqlite3_vtab_cursor,
};
use rusqlite::{Connection, Error};

use super::connection::prepare;
use super::grouped::{Grouped, Key};
use super::plan::columns;
use super::source::{Scan, Source};
use crate::error::ExportError;
use crate::tables::{ColumnType, Table};

/// Columns of numbers with few different values.
const FEW_VALUES: [&str; 12] = [
    "rank", "device", "context", "stream", "thread", "graph", "grid_x", "grid_y", "grid_z", "block_x", "block_y",
    "block_z",
];

/// A connection whose `tables`, which are tables of records, are those of `source`.
pub fn connected(source: &Arc<Source>, tables: &[Table]) -> rusqlite::Result<Connection> {
    let connection = Connection::open_in_memory()?;
    prepare(&connection)?;
    for &table in tables {
        let of = (Arc::clone(source), table);
        connection.create_module(table.name(), eponymous_only_module::<VirtualTable>(), Some(of))?;
    }
    Ok(connection)
}

fn failed(error: ExportError) -> Error {
    Error::ModuleError(error.to_string())
}

/// A table of records.
#[repr(C)]
struct VirtualTable {
    base: sqlite3_vtab,
    source: Arc<Source>,
    table: Table,
}

// SAFETY: SQLite sees only the first field, through a pointer to the whole: `repr(C)` puts `base` first, and rusqlite
// allocates, passes and drops the whole. SQLite fills `base`. It uses a table on the thread of its connection; what
// is shared with other threads is `Source`, which is `Sync`.
unsafe impl VTab<'_> for VirtualTable {
    type Aux = (Arc<Source>, Table);
    type Cursor = Cursor;

    fn connect(_: &mut VTabConnection, of: Option<&Self::Aux>, _: &[&[u8]]) -> rusqlite::Result<(String, Self)> {
        let (source, table) = of.ok_or_else(|| Error::ModuleError("no traces".to_owned()))?;
        // Without types, as in the tables that `load` makes: values are compared as they are.
        let names: Vec<&str> = columns(*table).map(|column| column.name).collect();
        let sql = format!("CREATE TABLE rows (\"{}\")", names.join("\", \""));
        Ok((sql, Self { base: sqlite3_vtab::default(), source: Arc::clone(source), table: *table }))
    }

    /// The plan is passed as text: columns that are used, one bit each, then those that order the rows.
    fn best_index(&self, info: &mut IndexInfo) -> rusqlite::Result<()> {
        let mut plan = info.col_used().to_string();
        let has_few_values = |column: c_int| {
            let column = usize::try_from(column).ok().and_then(|place| columns(self.table).nth(place));
            column.is_some_and(|column| {
                matches!(column.kind, ColumnType::Text | ColumnType::Flag) || FEW_VALUES.contains(&column.name)
            })
        };
        let is_grouped = info.distinct() == DistinctMode::Grouped && info.num_of_order_by() > 0;
        if is_grouped && info.order_bys().all(|by| has_few_values(by.column())) {
            for by in info.order_bys() {
                plan.push_str(&format!(" {} {}", by.column(), u8::from(by.is_order_by_desc())));
            }
            info.set_order_by_consumed(true);
        }
        info.set_idx_str(&plan);
        info.set_estimated_cost(1e9);
        info.set_estimated_rows(1_000_000);
        Ok(())
    }

    fn open(&mut self) -> rusqlite::Result<Cursor> {
        Ok(Cursor {
            base: sqlite3_vtab_cursor::default(),
            source: Arc::clone(&self.source),
            table: self.table,
            places: Vec::new(),
            keys: Vec::new(),
            rows: None,
            number: 0,
        })
    }
}

/// Position in a table.
#[repr(C)]
struct Cursor {
    base: sqlite3_vtab_cursor,
    source: Arc<Source>,
    table: Table,
    /// For each column, its index in a row.
    places: Vec<Option<usize>>,
    keys: Vec<Key>,
    /// `None` at the end.
    rows: Option<Rows>,
    number: i64,
}

enum Rows {
    AsRead(Scan),
    Grouped(Grouped),
}

// SAFETY: as for the table.
unsafe impl VTabCursor for Cursor {
    fn filter(&mut self, _: c_int, plan: Option<&str>, _: &Filters<'_>) -> rusqlite::Result<()> {
        let mut numbers = plan.unwrap_or_default().split(' ').map_while(|number| number.parse::<u64>().ok());
        let count = columns(self.table).count();
        let wanted = numbers.next().unwrap_or(u64::MAX) & ((1 << count) - 1);
        self.places = (0..count)
            .map(|column| (wanted >> column & 1 == 1).then(|| (wanted & ((1 << column) - 1)).count_ones() as usize))
            .collect();
        self.keys.clear();
        while let (Some(column), Some(falls)) = (numbers.next(), numbers.next()) {
            let place = self.places.get(column as usize).copied().flatten();
            self.keys.push((place.ok_or_else(|| Error::ModuleError("an unused column".to_owned()))?, falls == 1));
        }
        let scan = Scan::new(&self.source, self.table, wanted);
        self.rows = Some(match self.keys.is_empty() {
            true => Rows::AsRead(scan),
            false => Rows::Grouped(Grouped::new(scan, &self.keys).map_err(failed)?),
        });
        self.number = 0;
        self.next()
    }

    fn next(&mut self) -> rusqlite::Result<()> {
        let is_row = match &mut self.rows {
            None => Ok(false),
            Some(Rows::AsRead(scan)) => scan.next(),
            Some(Rows::Grouped(grouped)) => grouped.next(&self.keys),
        };
        if !is_row.map_err(failed)? {
            self.rows = None;
        }
        self.number += 1;
        Ok(())
    }

    fn eof(&self) -> bool {
        self.rows.is_none()
    }

    fn column(&self, context: &mut Context, column: c_int) -> rusqlite::Result<()> {
        let place = usize::try_from(column).ok().and_then(|column| self.places.get(column).copied().flatten());
        let (row, texts) = match &self.rows {
            Some(Rows::AsRead(scan)) => (scan.row(), scan.texts()),
            Some(Rows::Grouped(grouped)) => (grouped.row(), grouped.texts()),
            None => return Ok(()),
        };
        let value = place.and_then(|place| row.get(place).copied()).unwrap_or_default();
        context.set_result(&texts.cell(value))
    }

    fn rowid(&self) -> rusqlite::Result<i64> {
        Ok(self.number)
    }
}
