//! Communicators and their operations, received from NCCL as its profiler plugin.
//!
//! NCCL finds the symbols `ncclProfiler_v4` to `_v6` in this library (`entry`). Its events go into the rings
//! of [`crate::nvtx`], one per thread: no lock, no allocation once the ring has its memory, no CUDA call.
//! Handles are numbers, so they cannot be used after free. The collector turns the events into operations;
//! `profiler_core::collective` joins kernels to them.
//!
//! | file | what it does | runs on |
//! |---|---|---|
//! | `mod` | receives; keeps communicators | the program's threads, NCCL's |
//! | `variable` | which plugin NCCL takes | the thread that calls `cuInit` |
//! | `operations` | events of a ring become operations | `gpuwhy-collect` |
//! | `ranges` | NVTX ranges of NCCL become operations, where it has no plugin | `gpuwhy-collect` |
//!
//! Only calls and launches are enabled: never times on the device, nor the work of proxy threads.

mod operations;
pub mod ranges;
mod variable;

use std::sync::atomic::{AtomicU64, Ordering};

use gpuwhy_trace::collective::{Algorithm, DataType, Execution, Function, Protocol};
use nccl_sys::{Communicator, Handler, NcclOperation, OperationKind};

use crate::rings::nccl::{NcclEvent, OperationWords};
use crate::rings::table::RowTable;
use crate::rings::writer;

pub use operations::Operations;
pub use variable::other_plugin;

#[derive(Debug)]
pub struct CommunicatorRow {
    /// Properties from NCCL, except the name.
    pub known: gpuwhy_trace::collective::Communicator,
    /// Name that the program set.
    pub name: Box<str>,
}

/// Communicators of this process; the number of the first is 1. At most 16 Ki, including destroyed ones.
static COMMUNICATORS: RowTable<CommunicatorRow, 16> = RowTable::new();

/// Number of dropped events. `Relaxed`: a statistic.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Number of NCCL events dropped, on all threads.
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Communicators from this index on.
pub fn communicators(from: usize) -> impl Iterator<Item = &'static CommunicatorRow> {
    COMMUNICATORS.from(from)
}

/// True if NCCL has reported a communicator to the plugin: its NVTX ranges are then redundant.
pub fn is_reported() -> bool {
    COMMUNICATORS.from(0).next().is_some()
}

/// Handlers that NCCL calls.
#[derive(Debug)]
pub struct Plugin;

impl Handler for Plugin {
    fn begin(communicator: &Communicator<'_>) -> Option<u32> {
        let &Communicator { id, nodes, ranks, rank, .. } = communicator;
        let name = String::from_utf8_lossy(communicator.name).into();
        let known = gpuwhy_trace::collective::Communicator { id, nodes, ranks, rank, ..Default::default() };
        let number = COMMUNICATORS.add(CommunicatorRow { known, name }).and_then(|at| u32::try_from(at + 1).ok());
        if number.is_none() {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
        number
    }

    /// Its row stays: operations of this communicator may be waiting.
    fn end(_context: u32) {}

    fn operation(context: u32, operation: &NcclOperation<'_>) {
        let way = match operation.kind {
            OperationKind::Collective | OperationKind::PointToPoint => Execution::Kernel,
            OperationKind::CopyEngine => Execution::CopyEngine,
            OperationKind::Captured => Execution::Captured,
        };
        write(NcclEvent::Operation(
            context,
            OperationWords {
                way,
                function: Function::from_nccl(operation.function),
                data_type: DataType::from_nccl(operation.data_type),
                algorithm: Algorithm::from_nccl(operation.algorithm),
                protocol: Protocol::from_nccl(operation.protocol),
                channels: operation.channels,
                sequence: operation.sequence,
                count: operation.count,
                root_or_peer: operation.root_or_peer,
            },
        ));
    }

    fn launch_begin(context: u32) {
        write(NcclEvent::LaunchBegin(context));
    }

    fn launch_end(context: u32) {
        write(NcclEvent::LaunchEnd(context));
    }
}

fn write(event: NcclEvent) {
    if !writer::try_with(|writer| writer.nccl(event)).unwrap_or(false) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}
