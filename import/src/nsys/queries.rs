//! Tables that are read, and their queries.
//!
//! Every query returns its rows in the order of time, and the columns in the order that `rows` expects.

use rusqlite::{Connection, Result, Statement};
use rustc_hash::FxHashMap;

use super::facts::{DEVICE_WORK, ProcessFacts};
use super::schema::{Schema, text};

/// A table, and the kind of its rows.
#[derive(Clone, Copy, Debug)]
pub(super) enum RowSource {
    Kernel,
    Graph,
    Copy,
    Memset,
    Call,
    Sync,
    Event,
    Overhead,
    Memory,
    HostFault,
    DeviceFault,
    Range,
}

/// Table, kind of its rows, columns that are read. All but events and ranges are returned in the order of their end,
/// or of their start where they have none.
const TABLES: [(&str, RowSource, &str); 10] = [
    (
        "CUPTI_ACTIVITY_KIND_KERNEL",
        RowSource::Kernel,
        "end, start, deviceId, contextId, streamId, correlationId, graphId, graphNodeId, mangledName, demangledName/shortName, \
         gridX, gridY, gridZ, blockX, blockY, blockZ, clusterX, clusterY, clusterZ, registersPerThread, \
         staticSharedMemory, dynamicSharedMemory, sharedMemoryExecuted, localMemoryPerThread, launchType",
    ),
    (
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        RowSource::Graph,
        "end, start, deviceId, contextId, streamId, correlationId, graphId/graphExecId, graphNodeId",
    ),
    (
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        RowSource::Copy,
        "end, start, deviceId, contextId, streamId, correlationId, graphId, graphNodeId, bytes, copyKind, srcKind, \
         dstKind, srcDeviceId, dstDeviceId, virtualAddress, migrationCause",
    ),
    (
        "CUPTI_ACTIVITY_KIND_MEMSET",
        RowSource::Memset,
        "end, start, deviceId, contextId, streamId, correlationId, graphId, graphNodeId, bytes, memKind, value",
    ),
    (
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        RowSource::Call,
        "end, start, globalTid, correlationId, eventClass, nameId, returnValue",
    ),
    (
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        RowSource::Sync,
        "end, start, contextId, streamId, correlationId, syncType, eventId, eventSyncId",
    ),
    ("CUPTI_ACTIVITY_KIND_OVERHEAD", RowSource::Overhead, "end, start, globalTid, correlationId, overheadType"),
    ("CUDA_UM_CPU_PAGE_FAULT_EVENTS", RowSource::HostFault, "start, address, originalFaultPc"),
    (
        "CUDA_UM_GPU_PAGE_FAULT_EVENTS",
        RowSource::DeviceFault,
        "end, start, deviceId, address, numberOfPageFaults, faultAccessType",
    ),
    (
        "CUDA_GPU_MEMORY_USAGE_EVENTS",
        RowSource::Memory,
        "start, memoryOperationType, memKind, deviceId, contextId, streamId, correlationId, address, bytes, name, \
         localMemoryPoolAddress, localMemoryPoolSize, localMemoryPoolUtilizedSize, localMemoryPoolReleaseThreshold",
    ),
];

/// Queries of the tables that the file has.
pub(super) struct Statements<'c>(pub(super) Vec<(RowSource, Statement<'c>)>);

pub(super) fn statements<'c>(
    connection: &'c Connection,
    schema: &Schema,
    process: &ProcessFacts,
) -> Result<Statements<'c>> {
    let mut all = Vec::new();
    for (table, source, columns) in TABLES {
        // A table of overheads without their kind has no usable data. Work without times is counted.
        if schema.has_column(table, "start") || (schema.has(table) && DEVICE_WORK.contains(&table)) {
            let columns = schema.columns(table, columns);
            let from = process.rows(schema, table);
            let query = match rows_without_times(connection, schema, process, table)? {
                0 => format!("SELECT {} AS at, {columns} FROM {from} ORDER BY 1, 3", complete_at(schema, table)),
                _ => with_calls(schema, process, table, &columns),
            };
            all.push((source, connection.prepare(&query)?));
        }
    }
    if let Some(query) = events(schema, process) {
        all.push((RowSource::Event, connection.prepare(&query)?));
    }
    if schema.has_columns("NVTX_EVENTS", &["start", "eventType"]) {
        all.push((RowSource::Range, connection.prepare(&ranges(schema, process))?));
    }
    Ok(Statements(all))
}

/// When a row is complete.
fn complete_at(schema: &Schema, table: &str) -> &'static str {
    ["end", "start"].into_iter().find(|column| schema.has_column(table, column)).unwrap_or("NULL")
}

/// Condition for rows without usable times: both are zero, one is missing, or the end is before the start. The reader
/// of rows tests the same.
pub(super) const UNUSABLE: &str = "(start IS NULL OR end IS NULL OR (start = 0 AND end = 0) OR end < start)";

/// Number of the process's rows without usable times, of a table whose rows have a start and an end.
fn rows_without_times(connection: &Connection, schema: &Schema, process: &ProcessFacts, table: &str) -> Result<i64> {
    if !schema.has_columns(table, &["start", "end"]) {
        return Ok(0);
    }
    let query = format!("SELECT count(*) FROM {} WHERE {UNUSABLE}", process.rows(schema, table));
    connection.query_row(&query, [], |row| row.get(0))
}

/// Query of a table with rows without usable times, which come with the calls that launched them.
fn with_calls(schema: &Schema, process: &ProcessFacts, table: &str, columns: &str) -> String {
    let (rows, calls) = (process.rows(schema, table), "CUPTI_ACTIVITY_KIND_RUNTIME");
    let joined = schema.has_column(table, "correlationId") && table != calls;
    let (called, join) = match joined && schema.has_columns(calls, &["correlationId", "end"]) {
        true => (
            "c.called",
            format!(
                "LEFT JOIN (SELECT correlationId AS id, max(end) AS called FROM {} GROUP BY 1) AS c \
                 ON {UNUSABLE} AND c.id = correlationId",
                process.rows(schema, calls)
            ),
        ),
        false => ("NULL", String::new()),
    };
    format!("SELECT CASE WHEN {UNUSABLE} THEN {called} ELSE end END AS at, {columns} FROM {rows} {join} ORDER BY 1, 3")
}

/// Event records have no time: they take the time of the call that made them.
fn events(schema: &Schema, process: &ProcessFacts) -> Option<String> {
    let table = "CUPTI_ACTIVITY_KIND_CUDA_EVENT";
    if !schema.has(table) || !schema.has_columns("CUPTI_ACTIVITY_KIND_RUNTIME", &["correlationId", "end"]) {
        return None;
    }
    let columns = schema.columns(table, "contextId, streamId, correlationId, eventId, eventSyncId");
    let (events, calls) = (process.rows(schema, table), process.rows(schema, "CUPTI_ACTIVITY_KIND_RUNTIME"));
    Some(format!(
        "SELECT r.end, e.contextId, e.streamId, e.correlationId, e.eventId, e.eventSyncId
         FROM (SELECT {columns} FROM {events}) AS e
         LEFT JOIN (SELECT correlationId, max(end) AS end FROM {calls} GROUP BY 1) AS r
         ON r.correlationId = e.correlationId ORDER BY 1"
    ))
}

/// Types of events that become ranges: marks, ranges of one thread that are nested, and ranges that may end on another
/// one.
const RANGE_TYPES: [i64; 3] = [34, 59, 60];
/// Types that name a category, a thread, or a domain, and the end of a domain.
const DESCRIPTIONS: [i64; 4] = [33, 39, 75, 76];

/// Returns each range twice, at its start and at its end. At equal times, ends come before starts, ends
/// innermost first, starts outermost first, and the end of a range of zero length comes after its start.
fn ranges(schema: &Schema, process: &ProcessFacts) -> String {
    let columns = schema.columns(
        "NVTX_EVENTS",
        "start, end, eventType, globalTid, endGlobalTid, rangeId, color, text, textId, domainId, uint64Value, \
         int64Value, doubleValue, uint32Value, int32Value, floatValue",
    );
    let events = process.rows(schema, "NVTX_EVENTS");
    let [mark, nested, paired] = RANGE_TYPES;
    format!(
        "WITH r AS (SELECT rowid AS id, {columns} FROM {events}
                    WHERE eventType IN ({mark}, {nested}, {paired}) AND start IS NOT NULL)
         SELECT start AS at, 1 AS phase, -coalesce(\"end\", 9e18) AS place, 1 AS begins, r.* FROM r
         UNION ALL
         SELECT \"end\", CASE WHEN start < \"end\" THEN 0 ELSE 2 END, -start, 0, r.* FROM r
         WHERE \"end\" IS NOT NULL AND eventType <> {mark}
         ORDER BY 1, 2, 3"
    )
}

/// Rows of NVTX_EVENTS that are not read, for the user: of types that gpuwhy does not know, or of a file without a
/// column that is needed.
pub(super) fn unread_ranges(
    connection: &Connection,
    schema: &Schema,
    process: &ProcessFacts,
) -> Result<Option<String>> {
    if !schema.has("NVTX_EVENTS") {
        return Ok(None);
    }
    let rows = process.rows(schema, "NVTX_EVENTS");
    let count = |condition: &str| {
        let query = format!("SELECT count(*) FROM {rows} WHERE {condition}");
        connection.query_row(&query, [], |row| row.get::<_, i64>(0))
    };
    let missing = ["eventType", "start"].into_iter().find(|column| !schema.has_column("NVTX_EVENTS", column));
    let (count, why) = match missing {
        Some(column) => (count("1")?, format!("the table has no column {column}")),
        None => {
            let listed = |types: &[i64]| types.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
            let (ranges, others) = (listed(&RANGE_TYPES), listed(&DESCRIPTIONS));
            let unknown = format!(
                "eventType IS NULL OR eventType NOT IN ({ranges}, {others}) OR start IS NULL AND eventType IN ({ranges})"
            );
            (count(&unknown)?, "they are of unknown types, or without a start".to_owned())
        }
    };
    let rows = if count == 1 { "row" } else { "rows" };
    Ok((count > 0).then(|| format!("{count} {rows} of NVTX_EVENTS not read: {why}")))
}

/// Names of NVTX domains, by number.
pub(super) fn domains(connection: &Connection, schema: &Schema) -> Result<FxHashMap<i64, String>> {
    // Versions without these columns have no domains.
    if !schema.has_columns("NVTX_EVENTS", &["domainId", "text", "eventType"]) {
        return Ok(FxHashMap::default());
    }
    let query = match schema.has_column("NVTX_EVENTS", "textId") && schema.has_columns("StringIds", &["id", "value"]) {
        true => {
            "SELECT n.domainId, coalesce(n.text, s.value) FROM NVTX_EVENTS AS n
             LEFT JOIN StringIds AS s ON s.id = n.textId WHERE n.eventType = 75"
        }
        false => "SELECT domainId, text FROM NVTX_EVENTS WHERE eventType = 75",
    };
    let mut statement = connection.prepare(query)?;
    let rows = statement
        .query_map([], |row| Ok((row.get::<_, Option<i64>>(0)?.unwrap_or(0), text(row, 1)?.unwrap_or_default())))?;
    rows.collect()
}
