//! Tables that are read, and their queries.
//!
//! Every query returns its rows in the order of time, and the columns in the order that `rows` expects.

use rusqlite::{Connection, Result, Statement};
use rustc_hash::FxHashMap;

use super::facts::ProcessFacts;
use super::schema::Schema;

/// A table, and the kind of its rows.
#[derive(Clone, Copy, Debug)]
pub(super) enum RowSource {
    Kernel,
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

/// Table, kind of its rows, columns that are read. All but events, host page faults and ranges are returned
/// in the order of their end.
const TABLES: [(&str, RowSource, &str); 9] = [
    (
        "CUPTI_ACTIVITY_KIND_KERNEL",
        RowSource::Kernel,
        "end, start, deviceId, contextId, streamId, correlationId, graphId, graphNodeId, mangledName, demangledName, \
         gridX, gridY, gridZ, blockX, blockY, blockZ, clusterX, clusterY, clusterZ, registersPerThread, \
         staticSharedMemory, dynamicSharedMemory, sharedMemoryExecuted, localMemoryPerThread, launchType",
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
        // A table of overheads without their kind has no usable data.
        if schema.has(table) && schema.has_column(table, "start") {
            let (columns, condition) = (schema.columns(table, columns), process.condition(schema, table));
            let query = format!("SELECT {columns} FROM {table} WHERE {condition} ORDER BY 1, 2");
            all.push((source, connection.prepare(&query)?));
        }
    }
    if let Some(query) = events(schema, process) {
        all.push((RowSource::Event, connection.prepare(&query)?));
    }
    if schema.has("NVTX_EVENTS") {
        all.push((RowSource::Range, connection.prepare(&ranges(schema, process))?));
    }
    Ok(Statements(all))
}

/// Event records have no time: they take the time of the call that made them.
fn events(schema: &Schema, process: &ProcessFacts) -> Option<String> {
    let table = "CUPTI_ACTIVITY_KIND_CUDA_EVENT";
    if !schema.has(table) || !schema.has("CUPTI_ACTIVITY_KIND_RUNTIME") {
        return None;
    }
    let columns = schema.columns(table, "contextId, streamId, correlationId, eventId, eventSyncId");
    let (event, call) = (process.condition(schema, table), process.condition(schema, "CUPTI_ACTIVITY_KIND_RUNTIME"));
    Some(format!(
        "SELECT r.end, e.contextId, e.streamId, e.correlationId, e.eventId, e.eventSyncId
         FROM (SELECT {columns} FROM {table} WHERE {event}) AS e
         LEFT JOIN (SELECT correlationId, max(end) AS end FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE {call} GROUP BY 1) AS r
         ON r.correlationId = e.correlationId ORDER BY 1"
    ))
}

/// Returns each range twice, at its start and at its end. At equal times, ends come before starts, ends
/// innermost first, starts outermost first, and the end of a range of zero length comes after its start.
fn ranges(schema: &Schema, process: &ProcessFacts) -> String {
    let columns = schema.columns(
        "NVTX_EVENTS",
        "start, end, eventType, globalTid, endGlobalTid, rangeId, color, text, textId, domainId, uint64Value, \
         int64Value, doubleValue, uint32Value, int32Value, floatValue",
    );
    let condition = process.condition(schema, "NVTX_EVENTS");
    format!(
        "WITH r AS (SELECT rowid AS id, {columns} FROM NVTX_EVENTS WHERE {condition} AND eventType IN (34, 59, 60))
         SELECT start AS at, 1 AS phase, -coalesce(\"end\", 9e18) AS place, 1 AS begins, r.* FROM r
         UNION ALL
         SELECT \"end\", CASE WHEN start < \"end\" THEN 0 ELSE 2 END, -start, 0, r.* FROM r
         WHERE \"end\" IS NOT NULL AND eventType <> 34
         ORDER BY 1, 2, 3"
    )
}

/// Names of NVTX domains, by number.
pub(super) fn domains(connection: &Connection, schema: &Schema) -> Result<FxHashMap<i64, String>> {
    // Versions without these columns have no domains.
    if !["domainId", "text", "textId", "eventType"].iter().all(|column| schema.has_column("NVTX_EVENTS", column)) {
        return Ok(FxHashMap::default());
    }
    let mut statement = connection.prepare(
        "SELECT n.domainId, coalesce(n.text, s.value) FROM NVTX_EVENTS AS n LEFT JOIN StringIds AS s ON s.id = n.textId
         WHERE n.eventType = 75",
    )?;
    let rows = statement.query_map([], |row| {
        Ok((row.get::<_, Option<i64>>(0)?.unwrap_or(0), row.get::<_, Option<String>>(1)?.unwrap_or_default()))
    })?;
    rows.collect()
}
