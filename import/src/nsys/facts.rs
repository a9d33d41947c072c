//! The process, its devices and its contexts.

use std::fmt;
use std::path::Path;

use gpuwhy_report::text_format::printable;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::process_info::ProcessInfo;
use gpuwhy_trace::record::{Context, ContextId, Device, DeviceId, StreamId, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, Result};

use super::schema::{Schema, text};

/// Used if a file lacks the start of tracing: times must not be 0, which means "not recorded".
const START_UNKNOWN: u64 = 1_000_000_000;

/// Devices as each process numbers them.
pub(super) const CUDA_DEVICES: &str = "TARGET_INFO_CUDA_DEVICE";

/// Number of other processes that a note names; the rest are counted.
const NAMED: usize = 8;

#[derive(Debug)]
pub(super) struct ProcessFacts {
    /// Hardware, virtual machine and process in one number; `None` if the file does not distinguish
    /// processes.
    pub(super) global_pid: Option<i64>,
    /// Its devices, as in [`Candidate`].
    devices: Option<String>,
    /// Other processes in the file.
    pub(super) others: Vec<Candidate>,
}

impl ProcessFacts {
    /// Chooses the process `pid`, or the first one. If `found` is empty, the file does not distinguish
    /// processes. If the file has no process `pid`, the error lists those that it has.
    pub(super) fn choose(mut found: Vec<Candidate>, pid: Option<u32>) -> Result<Self, String> {
        let index = match pid {
            None if found.is_empty() => return Ok(Self { global_pid: None, devices: None, others: Vec::new() }),
            None => 0,
            Some(pid) => found.iter().position(|one| id(one.global_pid) == pid).ok_or_else(|| {
                format!("there is no process {pid} in this file, but {}", described(&found).join(", "))
            })?,
        };
        let chosen = found.remove(index);
        Ok(Self { global_pid: Some(chosen.global_pid), devices: chosen.devices, others: found })
    }

    /// What is left out because a trace is about one process, and how to read it, for the user.
    pub(super) fn left_out(&self) -> Option<String> {
        let others = described(&self.others).join(", ");
        (!self.others.is_empty())
            .then(|| format!("other processes in the file are left out (--pid chooses one): {others}"))
    }

    /// Ordinals of the devices on which it ran anything.
    pub(super) fn devices(&self) -> impl Iterator<Item = u32> {
        self.devices.as_deref().into_iter().flat_map(|devices| devices.split(',')).filter_map(|id| id.parse().ok())
    }

    /// The rows of this process in a table, as SQL after FROM.
    pub(super) fn rows(&self, schema: &Schema, table: &str) -> String {
        match self.global_pid {
            Some(pid) if schema.has_column(table, "globalPid") => {
                format!("(SELECT rowid, * FROM {table} WHERE globalPid = {pid})")
            }
            Some(pid) if schema.has_column(table, "globalTid") => {
                format!("(SELECT rowid, * FROM {table} WHERE globalTid >> 24 = {})", pid >> 24)
            }
            _ => table.to_owned(),
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.global_pid.map_or(0, id)
    }
}

/// Process id of the operating system.
fn id(global_pid: i64) -> u32 {
    (global_pid >> 24 & 0xff_ffff) as u32
}

/// A process of the file.
#[derive(Debug)]
pub(super) struct Candidate {
    global_pid: i64,
    /// Number of device operations.
    operations: u64,
    /// Its devices, by ordinal, as the file writes them: `0,1`.
    devices: Option<String>,
    pub(super) name: Option<String>,
}

impl Candidate {
    pub(super) fn id(&self) -> u32 {
        id(self.global_pid)
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = printable(self.name.as_deref().unwrap_or("unnamed"));
        let plural = if self.operations == 1 { "" } else { "s" };
        write!(f, "{} ({name}, {} operation{plural}", self.id(), self.operations)?;
        let devices = self.devices.as_deref().filter(|_| self.operations > 0);
        let on = devices.map(|devices| format!(" on GPU {}", devices.replace(',', ", "))).unwrap_or_default();
        write!(f, "{on})")
    }
}

fn described(candidates: &[Candidate]) -> Vec<String> {
    let more = candidates.len().checked_sub(NAMED + 1).map(|more| format!("and {} more", more + 1));
    candidates.iter().take(NAMED).map(Candidate::to_string).chain(more).collect()
}

/// Tables with work of devices.
pub(super) const DEVICE_WORK: [&str; 4] = [
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
];

/// All processes with activity: first the one with the most device work, else with the most calls and ranges.
pub(super) fn processes(connection: &Connection, schema: &Schema) -> Result<Vec<Candidate>> {
    let of_device = |table: &&&str| schema.has_column(table, "globalPid");
    let host = ["CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "CUDA_GPU_MEMORY_USAGE_EVENTS"];
    let selects: Vec<String> = DEVICE_WORK
        .iter()
        .filter(of_device)
        .map(|table| format!("SELECT globalPid AS pid, 1 AS work, {} FROM {table}", schema.columns(table, "deviceId")))
        .chain(host.iter().filter_map(|table| {
            let pid = match () {
                () if schema.has_column(table, "globalTid") => "(globalTid >> 24) << 24",
                () if schema.has_column(table, "globalPid") => "globalPid",
                () => return None,
            };
            Some(format!("SELECT {pid} AS pid, 0 AS work, NULL AS deviceId FROM {table}"))
        }))
        .collect();
    if selects.is_empty() {
        return Ok(Vec::new());
    }
    let query = format!(
        "SELECT pid, sum(work), count(*), group_concat(DISTINCT deviceId) FROM ({}) WHERE pid IS NOT NULL
         GROUP BY pid ORDER BY 2 DESC, 3 DESC, 1",
        selects.join(" UNION ALL ")
    );
    let mut statement = connection.prepare(&query)?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let (global_pid, operations, devices) = (row.get(0)?, row.get(1)?, text(row, 3)?);
        let name = process_name(connection, schema, global_pid)?;
        found.push(Candidate { global_pid, operations, devices, name });
    }
    Ok(found)
}

fn process_name(connection: &Connection, schema: &Schema, global_pid: i64) -> Result<Option<String>> {
    if !schema.has_columns("PROCESSES", &["globalPid", "name"]) {
        return Ok(None);
    }
    let query = "SELECT name FROM PROCESSES WHERE globalPid = ?";
    let name = connection.query_row(query, [global_pid], |row| text(row, 0));
    Ok(name.optional()?.flatten())
}

/// Describes the traced process.
pub(super) fn session(
    connection: &Connection,
    schema: &Schema,
    process: &ProcessFacts,
    path: &Path,
) -> Result<ProcessInfo> {
    let meta = |name: &str| -> Result<Option<String>> {
        if !schema.has_columns("META_DATA_EXPORT", &["name", "value"]) {
            return Ok(None);
        }
        let query = "SELECT value FROM META_DATA_EXPORT WHERE name = ?";
        Ok(connection.query_row(query, [name], |row| text(row, 0)).optional()?.flatten())
    };
    let start: Option<i64> = match schema.has_column("TARGET_INFO_SESSION_START_TIME", "utcEpochNs") {
        true => connection
            .query_row("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME", [], |row| row.get(0))
            .optional()?
            .flatten(),
        false => None,
    };
    let name = match process.global_pid {
        Some(global_pid) => process_name(connection, schema, global_pid)?,
        None => None,
    };
    let (product, version) = (meta("EXPORT_PRODUCT_NAME")?, meta("EXPORT_PRODUCT_VERSION")?);
    let writer = format!("{} {}", product.as_deref().unwrap_or("Nsight Systems"), version.unwrap_or_default());
    let mut notes = vec![format!("imported from {}, an SQLite file of {}", path.display(), writer.trim())];
    if start.is_none() {
        notes.push("the file does not say when tracing began: times of day are not real".to_owned());
    }
    notes.extend(process.left_out());
    let absent = schema.absent();
    if !absent.is_empty() {
        notes.push(format!("not in the file: {}", absent.join(", ")));
    }
    Ok(ProcessInfo {
        process_id: process.id(),
        command: vec![name.unwrap_or_else(|| "Nsight Systems".to_owned())],
        host: meta("EXPORT_HOST")?.unwrap_or_default(),
        gpuwhy_version: meta("GPUWHY_VERSION")?.unwrap_or_default(),
        start: Timestamp::from_nanos(
            start.and_then(|start| u64::try_from(start).ok()).filter(|&start| start > 0).unwrap_or(START_UNKNOWN),
        ),
        notes,
        ..ProcessInfo::default()
    })
}

/// Columns with unsigned 32-bit numbers, and columns with sizes.
const IDS: [&str; 4] = ["deviceId", "contextId", "streamId", "correlationId"];
const SIZES: [&str; 2] = ["bytes", "localMemoryPoolSize"];

/// Counts rows with numbers out of range, which are read as absent: sentences for the user.
pub(super) fn impossible(connection: &Connection, schema: &Schema, process: &ProcessFacts) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    for table in schema.present() {
        let of = |columns: &[&'static str]| -> Vec<&str> {
            columns.iter().copied().filter(|column| schema.has_column(table, column)).collect()
        };
        let ids = of(&IDS).into_iter().map(|column| format!("{column} NOT BETWEEN 0 AND {}", u32::MAX));
        let sizes = of(&SIZES).into_iter().map(|column| format!("{column} < 0"));
        let wrong: Vec<String> = ids.chain(sizes).collect();
        if wrong.is_empty() {
            continue;
        }
        let query = format!("SELECT count(*) FROM {} WHERE {}", process.rows(schema, table), wrong.join(" OR "));
        let count: i64 = connection.query_row(&query, [], |row| row.get(0))?;
        if count > 0 {
            notes.push(format!(
                "{count} row{} of {table} with a negative size, or a number of a device, context, stream or call that is \
                 negative or of more than 32 bits: read as if it were not there",
                if count == 1 { "" } else { "s" }
            ));
        }
    }
    Ok(notes)
}

/// Devices and contexts of the process.
pub(super) fn describe(
    connection: &Connection,
    schema: &Schema,
    process: &ProcessFacts,
    dictionary: &mut Dictionary,
) -> Result<()> {
    devices(connection, schema, process, dictionary)?;
    let table = "TARGET_INFO_CUDA_CONTEXT_INFO";
    if schema.has_column(table, "contextId") {
        let columns = schema.columns(table, "contextId, deviceId, nullStreamId");
        let of_process = match schema.has_column(table, "processId") {
            true => format!("processId = {}", process.id()),
            false => "1".to_owned(),
        };
        let mut statement = connection.prepare(&format!("SELECT {columns} FROM {table} WHERE {of_process}"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let number = |column: usize| row.get::<_, Option<u32>>(column).map(Option::unwrap_or_default);
            let (id, device) = (ContextId(number(0)?), DeviceId(number(1)?));
            dictionary.add_context(Context { id, device, null_stream: StreamId(number(2)?) });
        }
    }
    Ok(())
}

/// The devices. CUDA's numbers of them differ from those of the file if some were hidden from the process.
fn devices(
    connection: &Connection,
    schema: &Schema,
    process: &ProcessFacts,
    dictionary: &mut Dictionary,
) -> Result<()> {
    let table = "TARGET_INFO_GPU";
    let Some(id) = ["id", "deviceId"].into_iter().find(|column| schema.has_column(table, column)) else {
        return Ok(());
    };
    let columns = schema.columns(
        table,
        "name, totalMemory, memoryBandwidth, clockRate, smCount, uuid, maxShmemPerSm, maxRegistersPerSm, \
         threadsPerWarp, maxWarpsPerSm, maxBlocksPerSm, computeMajor, computeMinor",
    );
    let ordinal = match schema.has_columns(CUDA_DEVICES, &["gpuId", "cudaId", "pid"]) {
        true => format!(
            "coalesce((SELECT cudaId FROM {CUDA_DEVICES} WHERE gpuId = g.{id} AND pid = {}), g.{id})",
            process.id()
        ),
        false => format!("g.{id}"),
    };
    let described = older_devices(connection, schema, process)?;
    let mut statement = connection.prepare(&format!("SELECT {ordinal}, {columns} FROM {table} AS g"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let number = |column: usize| row.get::<_, Option<i64>>(column).map(Option::unwrap_or_default);
        let small = |column: usize| number(column).map(|value| u32::try_from(value).unwrap_or(0));
        let id = DeviceId(small(0)?);
        let older = described.iter().find(|device| device.id == id);
        let or_older = |here: u32, there: fn(&Device) -> u32| if here == 0 { older.map_or(0, there) } else { here };
        dictionary.add_device(Device {
            id,
            name: text(row, 1)?.unwrap_or_default(),
            memory_bytes: number(2)?.max(0) as u64,
            memory_bandwidth_kbps: number(3)?.max(0) as u64 / 1000,
            core_clock_khz: u32::try_from(number(4)? / 1000).unwrap_or(0),
            multiprocessors: or_older(small(5)?, |device| device.multiprocessors),
            uuid: text(row, 6)?.as_deref().and_then(uuid).unwrap_or_default(),
            shared_bytes_per_multiprocessor: small(7)?,
            registers_per_multiprocessor: small(8)?,
            threads_per_multiprocessor: small(9)?.saturating_mul(small(10)?),
            blocks_per_multiprocessor: small(11)?,
            compute_capability: [
                or_older(small(12)?, |device| device.compute_capability[0]),
                or_older(small(13)?, |device| device.compute_capability[1]),
            ],
        });
    }
    Ok(())
}

/// What versions of nsys up to 2021 wrote about the process's devices in a table of their own.
fn older_devices(connection: &Connection, schema: &Schema, process: &ProcessFacts) -> Result<Vec<Device>> {
    let table = "TARGET_INFO_CUDA_GPU";
    if !schema.has_column(table, "deviceId") {
        return Ok(Vec::new());
    }
    let columns =
        schema.columns(table, "deviceId, numMultiprocessors, computeCapabilityMajor, computeCapabilityMinor, pid");
    let mut statement = connection.prepare(&format!("SELECT {columns} FROM {table}"))?;
    let rows = statement.query_map([], |row| {
        let small = |column: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<u32>>(column)?.unwrap_or(0));
        let device = Device {
            id: DeviceId(small(0)?),
            multiprocessors: small(1)?,
            compute_capability: [small(2)?, small(3)?],
            ..Device::default()
        };
        Ok((device, row.get::<_, Option<u32>>(4)?))
    })?;
    let rows = rows.collect::<Result<Vec<_>>>()?;
    let of_process = rows.into_iter().filter(|(_, pid)| pid.is_none_or(|pid| pid == process.id() || process.id() == 0));
    Ok(of_process.map(|(device, _)| device).collect())
}

/// Parses `288225d0-ce3b-8b70-34cd-5eb76b321fc1`.
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
