//! Tables and columns of a file.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Result, Row};

/// Tables with data that a trace can hold; one is enough.
const KNOWN: [&str; 9] = [
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    "NVTX_EVENTS",
];

/// For an export in which no CUDA was recorded.
pub(crate) const WITHOUT_CUDA: &str = "an export of Nsight Systems without CUDA data: either the program used no GPU, or \
    CUDA was not recorded; record with nsys profile -t cuda,nvtx, and export again";

/// Tables that other databases do not have, with nothing that a trace can hold.
const OTHERS: [&str; 8] = [
    "StringIds",
    "META_DATA_EXPORT",
    "META_DATA_CAPTURE",
    "TARGET_INFO_SYSTEM_ENV",
    "TARGET_INFO_GPU",
    "OSRT_API",
    "SCHED_EVENTS",
    "COMPOSITE_EVENTS",
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

    /// Why it cannot be read, for the user; `None` if a trace can hold something of it.
    pub(super) fn refusal(&self) -> Option<&'static str> {
        let has_any = |tables: &[&str]| tables.iter().any(|table| self.has(table));
        match (has_any(&KNOWN), has_any(&OTHERS)) {
            (true, _) => None,
            (false, true) => Some(WITHOUT_CUDA),
            (false, false) => Some(
                "this is an SQLite file, but no export of Nsight Systems: it lacks StringIds, and every table of CUDA and NVTX",
            ),
        }
    }

    /// True if it has no table of CUDA's calls or of GPU work.
    pub(super) fn lacks_cuda(&self) -> bool {
        !self.tables.keys().any(|table| table.starts_with("CUPTI_ACTIVITY_KIND_"))
    }

    pub(super) fn has(&self, table: &str) -> bool {
        self.tables.contains_key(table)
    }

    pub(super) fn has_column(&self, table: &str, column: &str) -> bool {
        self.tables.get(table).is_some_and(|columns| columns.contains(column))
    }

    /// Columns of a query in the requested order; those that the table lacks are NULL. Of names with `/` between
    /// them, which versions of nsys gave to one column, the first that the table has.
    pub(super) fn columns(&self, table: &str, columns: &str) -> String {
        let one = |names: &str| match names.split('/').find(|column| self.has_column(table, column)) {
            Some(column) => column.to_owned(),
            None => format!("NULL AS {}", names.split('/').next().unwrap_or_default()),
        };
        columns.split(", ").map(one).collect::<Vec<_>>().join(", ")
    }

    /// True if the table has all of these columns.
    pub(super) fn has_columns(&self, table: &str, columns: &[&str]) -> bool {
        columns.iter().all(|column| self.has_column(table, column))
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

/// A text, in which bytes that are no UTF-8 are replaced; `None` if it is NULL.
pub(super) fn text(row: &Row<'_>, column: usize) -> Result<Option<String>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
    })
}
