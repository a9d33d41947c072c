//! Which tables and columns a file has.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, Result};

/// Tables that hold what a trace can hold; one of them is enough.
const KNOWN: [&str; 8] = [
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    "NVTX_EVENTS",
];

/// The columns of each table.
#[derive(Debug)]
pub(super) struct Schema(BTreeMap<String, BTreeSet<String>>);

impl Schema {
    pub(super) fn of(connection: &Connection) -> Result<Self> {
        let mut statement = connection.prepare(
            "SELECT m.name, c.name FROM sqlite_master AS m JOIN pragma_table_info(m.name) AS c
             WHERE m.type IN ('table', 'view')",
        )?;
        let mut tables: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            tables.entry(row.get(0)?).or_default().insert(row.get(1)?);
        }
        Ok(Self(tables))
    }

    pub(super) fn is_nsys(&self) -> bool {
        self.has("StringIds") && KNOWN.iter().any(|table| self.has(table))
    }

    pub(super) fn has(&self, table: &str) -> bool {
        self.0.contains_key(table)
    }

    pub(super) fn has_column(&self, table: &str, column: &str) -> bool {
        self.0.get(table).is_some_and(|columns| columns.contains(column))
    }

    /// The columns of a query: those that the table lacks are NULL. In the order that is asked for.
    pub(super) fn columns(&self, table: &str, columns: &str) -> String {
        let one = |column: &str| match self.has_column(table, column) {
            true => column.to_owned(),
            false => format!("NULL AS {column}"),
        };
        columns.split(", ").map(one).collect::<Vec<_>>().join(", ")
    }

    /// Tables that would have been read and are not there.
    pub(super) fn absent(&self) -> Vec<&'static str> {
        KNOWN.iter().copied().filter(|table| !self.has(table)).collect()
    }
}
