//! Memory of the devices, and what the program holds of it.

use std::collections::BTreeMap;

use gpuwhy_trace::record::{DeviceId, MemoryKind, ThreadId, Timestamp};
use profiler_core::managed::ManagedTotals;
use profiler_core::memory::blocks::{BlockLooks, DeviceBlocks};
use profiler_core::memory::{Holding, Owner};

/// Memory of the devices, and what the program allocated during measurement.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryReport {
    /// Devices with readings of NVML or recorded allocations.
    pub devices: Vec<MemoryOfDevice>,
    /// Functions that allocate or release memory of a device, the one with the most time first.
    pub calls: Vec<MemoryCallRow>,
    /// Time in them, nanoseconds.
    pub calls_ns: u64,
    /// Recorded allocations by device and kind; the largest peak first.
    #[cfg_attr(feature = "serde", serde(rename = "places"))]
    pub rows: Vec<MemoryRow>,
    /// Releases of memory with an unknown allocation: it was held before measurement started.
    pub unknown_releases: u64,
    /// Allocations whose release cannot be recognized, or that have no owner, because a table was full.
    pub table_overflow: u64,
    /// Looks at the blocks of PyTorch's allocator, with `gpuwhy run --pytorch memory`.
    pub pytorch: Option<BlockLooks>,
}

/// Memory of one device. Readings are of all processes; what is unknown is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct MemoryOfDevice {
    /// The device.
    pub device: DeviceId,
    /// Its memory, bytes.
    pub total_bytes: Option<u64>,
    /// Number of readings.
    pub readings: u64,
    /// Most memory in use.
    pub peak_used_bytes: Option<u64>,
    /// First reading of it, or the recorded allocation that reached it since the reading before.
    pub peak_unix_ns: Option<Timestamp>,
    /// True if no later reading is lower.
    pub peak_until_end: Option<bool>,
    /// Number of the step in which it was read, from 1, if that step is remembered.
    pub peak_step: Option<u64>,
    /// `start_up` or `steady`.
    pub peak_in: Option<&'static str>,
    /// In use at the last reading.
    pub last_used_bytes: Option<u64>,
    /// Most memory in use without that of other processes.
    pub peak_own_bytes: Option<u64>,
    /// Memory of other processes at the peak.
    pub other_processes_bytes: Option<u64>,
    /// The largest increase between two readings.
    pub jump: Option<JumpOfMemory>,
    /// Allocations, releases, and allocations that failed for lack of memory; of these, those whose thread's next
    /// allocation succeeded. The first two count records if there are any. Else all count calls of the process, if it
    /// used only this device.
    pub allocations: Option<u64>,
    /// See [`allocations`](Self::allocations).
    pub releases: Option<u64>,
    /// See [`allocations`](Self::allocations).
    pub failed: Option<u64>,
    /// See [`allocations`](Self::allocations).
    pub retried: Option<u64>,
    /// Held by recorded allocations at the end; this and the next four are `None` without such records.
    pub held_bytes: Option<u64>,
    /// Most that they held.
    pub held_peak_bytes: Option<u64>,
    /// Their sum.
    pub allocated_bytes: Option<u64>,
    /// The largest one.
    pub largest_bytes: Option<u64>,
    /// Most memory in the process's pools, in use or not.
    pub pool_peak_bytes: Option<u64>,
    /// Recorded variables of modules, which no other number includes.
    pub module_variables: Option<u64>,
    /// In use beside recorded allocations: driver, contexts, code, other processes.
    pub remainder_bytes: Option<u64>,
    /// Since when it is the same to the byte.
    pub remainder_since_unix_ns: Option<Timestamp>,
    /// Growth after start-up.
    pub growth_per_step: Option<GrowthPerStep>,
    /// False if there are too few steps, readings or increases to judge growth, or other processes' memory may have
    /// changed.
    pub growth_judged: bool,
    /// Blocks of PyTorch's allocator, with `gpuwhy run --pytorch memory`.
    pub blocks: Option<DeviceBlocks>,
    /// Owners of what is in use, with recorded calls of the driver. Their bytes sum to the readings.
    pub owners: Vec<OwnerRow>,
}

/// Part of an owner. All rows sum to what is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct OwnerRow {
    /// The owner.
    pub owner: Owner,
    /// Bytes at the peak of the device; what is derived from readings may be below 0.
    pub peak_bytes: i64,
    /// Bytes at the last reading.
    pub bytes: i64,
    /// Least bytes at any reading; only of the unnamed.
    pub least: Option<i64>,
    /// Most bytes at any reading; only of the unnamed.
    pub most: Option<i64>,
    /// Line that took the most of what is held at the peak, if stacks were read.
    pub near: Option<LineNear>,
}

/// The largest increase between two readings of a device's memory.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct JumpOfMemory {
    /// Its size.
    pub bytes: u64,
    /// Time of the reading before it.
    pub from_unix_ns: Timestamp,
    /// Time of the reading after it.
    pub to_unix_ns: Timestamp,
    /// Number of allocating calls between them, by function.
    pub calls: BTreeMap<String, u64>,
    /// The call with more time than all others together, if there is one.
    pub longest: Option<LongestCall>,
    /// Line of the samples nearest to these calls, at most 25 ms away; of several the one near most of their time.
    pub near: Option<LineNear>,
}

/// A call that took more time than all others together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LongestCall {
    /// The function, without version suffix.
    pub function: String,
    /// Its end.
    pub unix_ns: Timestamp,
}

/// A line near a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LineNear {
    /// Qualified name of the function.
    pub function: String,
    /// File.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
}

/// Memory that each step takes and keeps, bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct GrowthPerStep {
    /// Median of the slopes between readings.
    pub bytes: f64,
    /// 5 % of the slopes are lower.
    pub low: f64,
    /// 5 % of them are higher.
    pub high: f64,
    /// Steps until the device is full.
    pub steps_until_full: Option<u64>,
}

/// Calls of a function that allocates or releases memory of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct MemoryCallRow {
    /// The function, without version suffix.
    pub function: String,
    /// Number of calls.
    pub calls: u64,
    /// Those that failed for lack of memory.
    pub failed: u64,
    /// Time in them, nanoseconds.
    pub total_ns: u64,
}

/// Memory of one kind on one device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemoryRow {
    /// The device; for host memory, the device of the allocating context.
    pub device: DeviceId,
    /// Kind.
    pub kind: MemoryKind,
    /// Amounts held.
    pub holding: Holding,
    /// The allocation that reached the peak, if the call is in the trace.
    pub peak_by: Option<PeakBy>,
}

/// The call that brought memory to its peak.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PeakBy {
    /// The thread.
    pub thread: ThreadId,
    /// Its name, if it has one.
    pub thread_name: Option<String>,
    /// The function, without version suffix.
    pub function: String,
    /// The innermost range of the program around the call.
    pub range: Option<String>,
}

/// Pages of managed memory that moved, and faults.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ManagedPages {
    /// Counts.
    pub totals: ManagedTotals,
    /// Share of the time in which kernels ran, 0 to 1, in which pages moved too; if no migrations were recorded, in
    /// which page faults were being resolved.
    pub share: f64,
}
