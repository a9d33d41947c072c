//! Managed memory: as in nsys, migrations are rows of `CUPTI_ACTIVITY_KIND_MEMCPY`, and page faults have two
//! tables.
//!
//! nsys's reports about managed memory require all three tables, so the fault tables are kept even if one is
//! empty, as soon as the trace has any event of managed memory. Program counters of the host are written as
//! numbers; the functions are not resolved.

use gpuwhy_trace::record::{ManagedEvent, ManagedKind};
use rusqlite::{CachedStatement, Connection, Result, params};

use super::facts::global_pid;
use super::insert::insert;
use gpuwhy_import::Scope;

/// nsys's number for the kind of memory in migrations.
const UNKNOWN: u32 = 7;

/// Tables of page faults.
pub const FAULTS: [&str; 2] = ["CUDA_UM_CPU_PAGE_FAULT_EVENTS", "CUDA_UM_GPU_PAGE_FAULT_EVENTS"];

/// Statements that fill the tables.
pub struct Inserts<'c> {
    migration: CachedStatement<'c>,
    host_fault: CachedStatement<'c>,
    device_fault: CachedStatement<'c>,
    /// True if there was an event.
    pub any: bool,
}

impl<'c> Inserts<'c> {
    pub fn new(connection: &'c Connection) -> Result<Self> {
        Ok(Self {
            migration: insert(
                connection,
                "CUPTI_ACTIVITY_KIND_MEMCPY",
                "start, end, deviceId, contextId, streamId, correlationId, globalPid, bytes, copyKind, srcKind, dstKind, \
                 srcDeviceId, dstDeviceId, migrationCause, virtualAddress",
            )?,
            host_fault: insert(
                connection,
                FAULTS[0],
                "start, globalPid, address, originalFaultPc, CpuInstruction, module, unresolvedFaultPc",
            )?,
            device_fault: insert(
                connection,
                FAULTS[1],
                "start, end, globalPid, deviceId, address, numberOfPageFaults, faultAccessType",
            )?,
            any: false,
        })
    }

    /// Inserts an event. Returns false if nsys has no row for it. `text` assigns ids to texts.
    pub fn event(&mut self, row: &ManagedEvent, scope: &Scope<'_>, mut text: impl FnMut(&str) -> u32) -> Result<bool> {
        self.any |= row.kind != ManagedKind::Unknown;
        let origin = scope.session.start;
        let (start, end) = (row.start.since(origin) as i64, row.end.since(origin) as i64);
        let pid = global_pid(scope.session);
        let device = row.device().map_or(0, |device| device.0);
        let kind = match row.kind {
            ManagedKind::HostToDevice => 11,
            ManagedKind::DeviceToHost => 12,
            ManagedKind::DeviceToDevice => 13,
            ManagedKind::HostFault => {
                let (instruction, module) = (text(&format!("{:#x}", row.value)), text(""));
                let (address, counter) = (row.address as i64, row.value as i64);
                self.host_fault.execute(params![start, pid, address, counter, instruction, module, 1])?;
                return Ok(true);
            }
            ManagedKind::DeviceFault => {
                let (address, faults) = (row.address as i64, row.value as i64);
                self.device_fault.execute(params![start, end, pid, device, address, faults, row.cause])?;
                return Ok(true);
            }
            ManagedKind::Unknown => return Ok(false),
        };
        // nsys fills in neither end of a migration; those between two devices would lose them.
        let ends = (row.kind == ManagedKind::DeviceToDevice).then_some((row.source.0, row.destination.0));
        let (source, destination) = ends.unzip();
        let (bytes, address) = (row.value as i64, row.address as i64);
        self.migration.execute(params![
            start,
            end,
            device,
            0,
            0,
            0,
            pid,
            bytes,
            kind,
            UNKNOWN,
            UNKNOWN,
            source,
            destination,
            row.cause,
            address,
        ])?;
        Ok(true)
    }
}
