//! Fills the tables about the process, the devices and the export itself.

use std::collections::BTreeMap;

use gpuwhy_trace::process_info::ProcessInfo;
use gpuwhy_trace::record::ThreadId;
use rusqlite::{Connection, Result, params};

use super::rows::Rows;
use crate::process_names;
use gpuwhy_import::Passed;

/// nsys packs hardware, virtual machine, process and thread into one number: 8, 8, 24 and 24 bits.
pub fn global_pid(session: &ProcessInfo) -> i64 {
    const VIRTUAL_MACHINE: i64 = 1 << 48;
    VIRTUAL_MACHINE | (i64::from(session.process_id) & 0xff_ffff) << 24
}

/// Packed id of a thread of the process.
pub fn global_tid(session: &ProcessInfo, thread: ThreadId) -> i64 {
    global_pid(session) | (i64::from(thread.0) & 0xff_ffff)
}

/// Fills the tables after all `rows`.
pub fn write(connection: &Connection, passed: &Passed, rows: &Rows<'_>) -> Result<()> {
    let session = &passed.session;
    connection.execute(
        "INSERT INTO PROCESSES VALUES (?, ?, ?)",
        params![global_pid(session), session.process_id, process_names::program(session)],
    )?;
    connection.execute(
        "INSERT INTO TARGET_INFO_SESSION_START_TIME
         VALUES (?1, strftime('%Y-%m-%dT%H:%M:%S', ?2, 'unixepoch'), strftime('%Y-%m-%dT%H:%M:%S', ?2, 'unixepoch'))",
        params![session.start.nanos() as i64, (session.start.nanos() / 1_000_000_000) as i64],
    )?;
    let duration = rows.end.since(session.start) as i64;
    connection.execute("INSERT INTO ANALYSIS_DETAILS VALUES (?, ?, 0, ?)", params![1i64 << 48, duration, duration])?;
    for device in passed.dictionary.devices() {
        connection.execute(
            "INSERT INTO TARGET_INFO_GPU (vmId, id, name, totalMemory, memoryBandwidth, clockRate, smCount, uuid, cuDevice,
                 maxShmemPerSm, maxRegistersPerSm, threadsPerWarp, maxWarpsPerSm, maxBlocksPerSm,
                 computeMajor, computeMinor, smMajor, smMinor)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 32, ?, ?, ?14, ?15, ?14, ?15)",
            params![
                1i64 << 48,
                device.id.0,
                device.name,
                device.memory_bytes as i64,
                device.memory_bandwidth_kbps.saturating_mul(1000) as i64,
                i64::from(device.core_clock_khz) * 1000,
                device.multiprocessors,
                uuid(&device.uuid),
                device.id.0,
                device.shared_bytes_per_multiprocessor,
                device.registers_per_multiprocessor,
                device.threads_per_multiprocessor / 32,
                device.blocks_per_multiprocessor,
                device.compute_capability[0],
                device.compute_capability[1],
            ],
        )?;
        connection.execute(
            "INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (?1, ?1, ?2)",
            params![device.id.0, session.process_id],
        )?;
    }
    for context in passed.dictionary.contexts() {
        connection.execute(
            "INSERT INTO TARGET_INFO_CUDA_CONTEXT_INFO VALUES (?, 0, 1, ?, ?, ?, 0, 0)",
            params![context.null_stream.0, session.process_id, context.device.0, context.id.0],
        )?;
    }
    let names: BTreeMap<_, _> =
        passed.dictionary.thread_names().iter().map(|thread| (thread.thread, thread.name)).collect();
    for (thread, name) in names {
        connection.execute(
            "INSERT INTO ThreadNames VALUES (text_id(?), 0, ?)",
            params![passed.dictionary.name(name), global_tid(session, thread)],
        )?;
    }
    connection.execute_batch(
        "INSERT INTO TARGET_INFO_GPU_METRICS (typeId, sourceId, typeName, metricId, metricName)
             SELECT DISTINCT typeId, 0, 'gpuwhy: hardware counters', metricId, shown
             FROM GPU_METRICS JOIN temp.metrics ON id = metricId",
    )?;
    for (domain, number) in &*rows.domains.lock() {
        connection.execute(
            "INSERT INTO NVTX_EVENTS (start, eventType, textId, globalTid, domainId) VALUES (0, 75, text_id(?), ?, ?)",
            params![domain, global_pid(session), number],
        )?;
    }
    for (text, number) in &*rows.texts.lock() {
        connection.execute("INSERT INTO StringIds VALUES (?, ?)", params![number, text])?;
    }
    for (name, value) in [
        ("EXPORT_PRODUCT_NAME", "gpuwhy"),
        ("EXPORT_PRODUCT_VERSION", env!("CARGO_PKG_VERSION")),
        ("EXPORT_SCHEMA_VERSION", "3.20.3"),
        ("EXPORT_SCHEMA_VERSION_MAJOR", "3"),
        ("EXPORT_SCHEMA_VERSION_MINOR", "20"),
        ("EXPORT_SCHEMA_VERSION_MICRO", "3"),
        ("EXPORT_HOST", &session.host),
        // The gpuwhy version that recorded it, which determines the overhead of tracing; empty for records of
        // another profiler.
        ("GPUWHY_VERSION", &session.gpuwhy_version),
    ] {
        connection.execute("INSERT INTO META_DATA_EXPORT VALUES (?, ?)", params![name, value])?;
    }
    Ok(())
}

fn uuid(bytes: &[u8; 16]) -> String {
    let hex = |part: &[u8]| part.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    [&bytes[..4], &bytes[4..6], &bytes[6..8], &bytes[8..10], &bytes[10..]].map(hex).join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_packed_as_nsys_packs_them() {
        // A process and its first thread in a file written by nsys 2025.3.
        let session = ProcessInfo { process_id: 643, ..ProcessInfo::default() };
        assert_eq!(global_pid(&session), 281_485_764_460_544);
        assert_eq!(global_tid(&session, ThreadId(643)), 281_485_764_461_187);
    }

    #[test]
    fn uuids_have_their_dashes() {
        let bytes = std::array::from_fn(|number| number as u8);
        assert_eq!(uuid(&bytes), "00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
