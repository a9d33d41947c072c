//! The process, its devices and contexts.

use std::path::Path;

use profiler_core::dictionary::Dictionary;
use profiler_core::record::{Context, ContextId, Device, DeviceId, StreamId, Timestamp};
use profiler_core::session::Session;
use rusqlite::{Connection, OptionalExtension as _, Result};

use super::schema::Schema;

/// When a file does not say when tracing began: times must not be 0, which means "not recorded".
const START_UNKNOWN: u64 = 1_000_000_000;

/// The process that is read.
#[derive(Debug)]
pub(super) struct Process {
    /// Hardware, virtual machine and process in one number; `None` when the file tells no processes apart.
    global_pid: Option<i64>,
    /// How many others are in the file.
    others: usize,
}

impl Process {
    /// The one with most device work, else with most calls.
    pub(super) fn choose(connection: &Connection, schema: &Schema) -> Result<Self> {
        let by_pid = |table: &str| format!("SELECT globalPid AS pid FROM {table}");
        let by_tid = |table: &str| format!("SELECT (globalTid >> 24) << 24 AS pid FROM {table}");
        let device = [
            "CUPTI_ACTIVITY_KIND_KERNEL",
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            "CUPTI_ACTIVITY_KIND_MEMSET",
            "CUDA_GPU_MEMORY_USAGE_EVENTS",
        ];
        let device = device.iter().filter(|table| schema.has_column(table, "globalPid")).map(|table| by_pid(table));
        let host = ["CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"];
        let host = host.iter().filter(|table| schema.has_column(table, "globalTid")).map(|table| by_tid(table));
        for selects in [device.collect::<Vec<_>>(), host.collect()] {
            if selects.is_empty() {
                continue;
            }
            let query = format!(
                "SELECT pid, count(*) FROM ({}) WHERE pid IS NOT NULL GROUP BY pid ORDER BY 2 DESC, 1",
                selects.join(" UNION ALL ")
            );
            let mut statement = connection.prepare(&query)?;
            let pids: Vec<i64> = statement.query_map([], |row| row.get(0))?.collect::<Result<_>>()?;
            if let Some(&first) = pids.first() {
                return Ok(Self { global_pid: Some(first), others: pids.len() - 1 });
            }
        }
        Ok(Self { global_pid: None, others: 0 })
    }

    /// The condition under which a row belongs to it.
    pub(super) fn condition(&self, schema: &Schema, table: &str) -> String {
        match self.global_pid {
            Some(pid) if schema.has_column(table, "globalPid") => format!("globalPid = {pid}"),
            Some(pid) if schema.has_column(table, "globalTid") => format!("globalTid >> 24 = {}", pid >> 24),
            _ => "1".to_owned(),
        }
    }

    fn id(&self) -> u32 {
        self.global_pid.map_or(0, |pid| (pid >> 24 & 0xff_ffff) as u32)
    }
}

/// Who was traced.
pub(super) fn session(connection: &Connection, schema: &Schema, process: &Process, path: &Path) -> Result<Session> {
    let text = |query: &str| -> Result<Option<String>> {
        Ok(connection.query_row(query, [], |row| row.get(0)).optional()?.flatten())
    };
    let meta = |name: &str| match schema.has("META_DATA_EXPORT") {
        true => text(&format!("SELECT value FROM META_DATA_EXPORT WHERE name = '{name}'")),
        false => Ok(None),
    };
    let start: Option<i64> = match schema.has_column("TARGET_INFO_SESSION_START_TIME", "utcEpochNs") {
        true => connection
            .query_row("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME", [], |row| row.get(0))
            .optional()?
            .flatten(),
        false => None,
    };
    let name = match schema.has("PROCESSES") {
        true => text(&format!("SELECT name FROM PROCESSES WHERE {}", process.condition(schema, "PROCESSES")))?,
        false => None,
    };
    let (product, version) = (meta("EXPORT_PRODUCT_NAME")?, meta("EXPORT_PRODUCT_VERSION")?);
    let writer = format!("{} {}", product.unwrap_or_default(), version.unwrap_or_default());
    let mut notes = vec![format!("imported from {}, an SQLite file of {}", path.display(), writer.trim())];
    if start.is_none() {
        notes.push("the file does not say when tracing began: times of day are not real".to_owned());
    }
    if process.others > 0 {
        notes.push(format!("{} other processes in the file are left out", process.others));
    }
    let absent = schema.absent();
    if !absent.is_empty() {
        notes.push(format!("not in the file: {}", absent.join(", ")));
    }
    Ok(Session {
        process_id: process.id(),
        command: vec![name.unwrap_or_else(|| "Nsight Systems".to_owned())],
        host: meta("EXPORT_HOST")?.unwrap_or_default(),
        start: Timestamp::from_nanos(
            start.and_then(|start| u64::try_from(start).ok()).filter(|&start| start > 0).unwrap_or(START_UNKNOWN),
        ),
        notes,
        ..Session::default()
    })
}

/// Devices and contexts of the process.
pub(super) fn describe(
    connection: &Connection,
    schema: &Schema,
    process: &Process,
    dictionary: &mut Dictionary,
) -> Result<()> {
    if schema.has("TARGET_INFO_GPU") {
        let columns = schema.columns(
            "TARGET_INFO_GPU",
            "id, name, totalMemory, memoryBandwidth, clockRate, smCount, uuid, maxShmemPerSm, maxRegistersPerSm, \
             threadsPerWarp, maxWarpsPerSm, maxBlocksPerSm, computeMajor, computeMinor",
        );
        // Ordinals of CUDA differ from the file's own numbers when some devices were hidden from the process.
        let ordinal = match schema.has("TARGET_INFO_CUDA_DEVICE") {
            true => format!(
                "coalesce((SELECT cudaId FROM TARGET_INFO_CUDA_DEVICE WHERE gpuId = g.id AND pid = {}), g.id)",
                process.id()
            ),
            false => "g.id".to_owned(),
        };
        let mut statement = connection.prepare(&format!("SELECT {columns}, {ordinal} FROM TARGET_INFO_GPU AS g"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let number = |column: usize| row.get::<_, Option<i64>>(column).map(Option::unwrap_or_default);
            let small = |column: usize| number(column).map(|value| u32::try_from(value).unwrap_or(0));
            dictionary.add_device(Device {
                id: DeviceId(small(14)?),
                name: row.get::<_, Option<String>>(1)?.unwrap_or_default(),
                memory_bytes: number(2)?.max(0) as u64,
                memory_bandwidth_kbps: number(3)?.max(0) as u64 / 1000,
                core_clock_khz: u32::try_from(number(4)? / 1000).unwrap_or(0),
                multiprocessors: small(5)?,
                uuid: row.get::<_, Option<String>>(6)?.as_deref().and_then(uuid).unwrap_or_default(),
                shared_bytes_per_multiprocessor: small(7)?,
                registers_per_multiprocessor: small(8)?,
                threads_per_multiprocessor: small(9)?.saturating_mul(small(10)?),
                blocks_per_multiprocessor: small(11)?,
                compute_capability: [small(12)?, small(13)?],
            });
        }
    }
    let table = "TARGET_INFO_CUDA_CONTEXT_INFO";
    if schema.has(table) {
        let columns = schema.columns(table, "contextId, deviceId, nullStreamId");
        let query = format!("SELECT {columns} FROM {table} WHERE processId = {}", process.id());
        let mut statement = connection.prepare(&query)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let number = |column: usize| row.get::<_, Option<u32>>(column).map(Option::unwrap_or_default);
            let (id, device) = (ContextId(number(0)?), DeviceId(number(1)?));
            dictionary.add_context(Context { id, device, null_stream: StreamId(number(2)?) });
        }
    }
    Ok(())
}

/// The bytes of `288225d0-ce3b-8b70-34cd-5eb76b321fc1`.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32)?;
    Some(number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::uuid;

    #[test]
    fn uuids_are_read_with_their_dashes() {
        let bytes = uuid("00010203-0405-0607-0809-0a0b0c0d0e0f").unwrap();
        assert_eq!(bytes.to_vec(), (0..16).collect::<Vec<u8>>());
        assert_eq!(uuid("GPU-1"), None);
    }
}
