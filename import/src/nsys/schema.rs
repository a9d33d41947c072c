//! Tables and columns of a file.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, Result};

/// Tables with data that a trace can hold; one is enough.
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

/// Columns of each table, and the names of views.
#[derive(Debug)]
pub(super) struct Schema {
    tables: BTreeMap<String, BTreeSet<String>>,
    views: BTreeSet<String>,
}

impl Schema {
    pub(super) fn of(connection: &Connection) -> Result<Self> {
        // Only tables that hold rows: virtual tables, which have no root page, run code of their module.
        let mut statement = connection.prepare(
            "SELECT m.name, c.name FROM sqlite_master AS m JOIN pragma_table_info(m.name) AS c
             WHERE m.type = 'table' AND m.rootpage > 0",
        )?;
        let mut tables: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            tables.entry(row.get(0)?).or_default().insert(row.get(1)?);
        }
        let mut statement = connection.prepare("SELECT name FROM sqlite_master WHERE type = 'view'")?;
        let views = statement.query_map([], |row| row.get(0))?.collect::<Result<_>>()?;
        Ok(Self { tables, views })
    }

    /// Returns a view in the place of a table: its rows are computed, and may never end. Views with other
    /// names do no harm.
    pub(super) fn view(&self) -> Option<&str> {
        ["StringIds", "GPU_METRICS", "TARGET_INFO_GPU_METRICS"]
            .into_iter()
            .chain(KNOWN)
            .find(|&table| self.views.contains(table))
    }

    pub(super) fn is_nsys(&self) -> bool {
        self.has("StringIds") && KNOWN.iter().any(|table| self.has(table))
    }

    pub(super) fn has(&self, table: &str) -> bool {
        self.tables.contains_key(table)
    }

    pub(super) fn has_column(&self, table: &str, column: &str) -> bool {
        self.tables.get(table).is_some_and(|columns| columns.contains(column))
    }

    /// Columns of a query in the requested order; those that the table lacks are NULL.
    pub(super) fn columns(&self, table: &str, columns: &str) -> String {
        let one = |column: &str| match self.has_column(table, column) {
            true => column.to_owned(),
            false => format!("NULL AS {column}"),
        };
        columns.split(", ").map(one).collect::<Vec<_>>().join(", ")
    }

    /// Tables that are read and exist.
    pub(super) fn present(&self) -> impl Iterator<Item = &'static str> {
        KNOWN.into_iter().filter(|table| self.has(table))
    }

    /// Tables that would be read but do not exist.
    pub(super) fn absent(&self) -> Vec<&'static str> {
        KNOWN.iter().copied().filter(|table| !self.has(table)).collect()
    }
}
