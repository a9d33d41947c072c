//! Impossible times of a file, found by the calls around the work.

use gpuwhy_trace::record::{CorrelationId, Record, ThreadId, Timestamp};
use rusqlite::{Connection, Result, Row};
use rustc_hash::{FxHashMap, FxHashSet};

use super::facts::{DEVICE_WORK, ProcessFacts};
use super::queries::UNUSABLE;
use super::schema::Schema;
use crate::plausible::{Clocks, Waits, clocks_differ};

const CALLS: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";

/// Work whose times are impossible by its calls.
#[derive(Debug, Default)]
pub(super) struct Impossible {
    /// By call and start.
    found: FxHashMap<(CorrelationId, Timestamp), Clocks>,
    /// Note on a file whose clocks differ in all of it.
    pub(super) differ: Option<String>,
}

impl Impossible {
    /// `start` is the beginning of the session, which times of the file count from.
    pub(super) fn find(
        connection: &Connection,
        schema: &Schema,
        process: &ProcessFacts,
        start: Timestamp,
    ) -> Result<Self> {
        let mut all = Self::default();
        if !schema.has_columns(CALLS, &["correlationId", "start", "end", "globalTid"]) {
            return Ok(all);
        }
        let tables =
            DEVICE_WORK.into_iter().filter(|table| schema.has_columns(table, &["correlationId", "start", "end"]));
        let tables: Vec<_> = tables.collect();
        let calls = process.rows(schema, CALLS);
        let waits = waits(connection, schema, process, &tables, start)?;
        let mut linked = 0;
        for table in tables {
            let query = format!(
                "SELECT work.id, work.start, work.end, call.tid, call.start, call.end
                 FROM (SELECT correlationId AS id, start, end FROM {} WHERE NOT {UNUSABLE}) AS work
                 JOIN (SELECT correlationId AS id, globalTid AS tid, start, end FROM {calls} WHERE NOT {UNUSABLE}) AS call
                 USING (id)",
                process.rows(schema, table)
            );
            let mut statement = connection.prepare(&query)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let Ok(id) = row.get::<_, u32>(0) else { continue };
                let time = |column| time(row, column, start);
                let (work, call) = ((time(1)?, time(2)?), (thread(row, 3)?, time(4)?, time(5)?));
                linked += 1;
                let clocks = waits.clocks(work, call);
                if clocks != Clocks::Agree {
                    all.found.insert((CorrelationId(id), work.0), clocks);
                }
            }
        }
        all.differ = clocks_differ(all.found.len(), linked);
        if all.differ.is_some() {
            all.found.clear();
        }
        Ok(all)
    }

    pub(super) fn of(&self, record: &Record) -> Clocks {
        let work = record.device_work().filter(|_| !self.found.is_empty());
        work.and_then(|work| self.found.get(&(work.correlation, work.start))).copied().unwrap_or_default()
    }
}

/// Calls that wait for all work in these tables.
fn waits(
    connection: &Connection,
    schema: &Schema,
    process: &ProcessFacts,
    tables: &[&str],
    start: Timestamp,
) -> Result<Waits> {
    if !schema.has_column(CALLS, "nameId") || !schema.has_columns("StringIds", &["id", "value"]) {
        return Ok(Waits::default());
    }
    let mut streams: FxHashSet<(Option<i64>, Option<i64>, Option<i64>)> = FxHashSet::default();
    for table in tables {
        let (columns, rows) = (schema.columns(table, "deviceId, contextId, streamId"), process.rows(schema, table));
        let mut statement = connection.prepare(&format!("SELECT DISTINCT {columns} FROM {rows}"))?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        streams.extend(rows.flatten());
    }
    let query = format!(
        "SELECT s.value, c.globalTid, c.start, c.end FROM {} AS c JOIN StringIds AS s ON s.id = c.nameId
         WHERE s.value LIKE '%Synchronize%' AND c.end >= c.start",
        process.rows(schema, CALLS)
    );
    let mut statement = connection.prepare(&query)?;
    let rows = statement.query_map([], |row| {
        Ok((row.get::<_, String>(0)?, thread(row, 1)?, time(row, 2, start)?, time(row, 3, start)?))
    })?;
    let rows: Vec<_> = rows.flatten().collect();
    let calls = rows.iter().map(|(name, thread, start, end)| (name.as_str(), *thread, *start, *end));
    Ok(Waits::of(calls, &streams))
}

/// As the reader of rows has it.
fn time(row: &Row<'_>, column: usize, start: Timestamp) -> Result<Timestamp> {
    Ok(Timestamp::from_nanos(start.nanos().saturating_add_signed(row.get(column)?).max(1)))
}

/// The thread, which has its number in the low 24 bits.
fn thread(row: &Row<'_>, column: usize) -> Result<ThreadId> {
    Ok(ThreadId((row.get::<_, Option<i64>>(column)?.unwrap_or(0) & 0xff_ffff) as u32))
}
