//! Names used by Kineto, the library of the PyTorch profiler. Tools find rows by these names.

use gpuwhy_trace::record::{Copy, CopyKind, MemoryKind, Memset, OverheadKind, SyncKind};

/// `Memcpy HtoD (Pinned -> Device)`
pub fn copy(copy: &Copy) -> String {
    let direction = match copy.kind {
        CopyKind::HostToDevice => "HtoD",
        CopyKind::DeviceToHost => "DtoH",
        CopyKind::DeviceToDevice => "DtoD",
        CopyKind::HostToHost => "HtoH",
        CopyKind::PeerToPeer => "PtoP",
        CopyKind::Unknown => "Unknown",
    };
    format!("Memcpy {direction} ({} -> {})", memory(copy.source), memory(copy.destination))
}

/// `Memset (Device)`
pub fn memset(memset: &Memset) -> String {
    format!("Memset ({})", memory(memset.memory))
}

/// Kind of a synchronization in its row name and in `cuda_sync_kind`.
pub const fn sync(kind: SyncKind) -> &'static str {
    match kind {
        SyncKind::Unknown => "Unknown Sync",
        SyncKind::Event => "Event Sync",
        SyncKind::StreamWaitEvent => "Stream Wait Event",
        SyncKind::Stream => "Stream Sync",
        SyncKind::Context => "Context Sync",
    }
}

pub const fn overhead(kind: OverheadKind) -> &'static str {
    match kind {
        OverheadKind::Unknown => "Unknown Overhead",
        OverheadKind::DriverCompiler => "Driver Compiler",
        OverheadKind::BufferFlush => "Buffer Flush",
        OverheadKind::Instrumentation => "Instrumentation",
        OverheadKind::Resource => "Resource",
        OverheadKind::RuntimeModuleLoading => "Runtime Triggered Module Loading",
        OverheadKind::LazyFunctionLoading => "Lazy Function Loading",
        OverheadKind::CommandBufferFull => "Command Buffer Full",
        OverheadKind::ActivityBufferRequest => "Activity Buffer Request",
        OverheadKind::UnifiedMemoryInit => "UVM Activity Init",
    }
}

const fn memory(kind: MemoryKind) -> &'static str {
    match kind {
        MemoryKind::Unknown => "Unknown",
        MemoryKind::Pageable => "Pageable",
        MemoryKind::Pinned => "Pinned",
        MemoryKind::Device => "Device",
        MemoryKind::Array => "Array",
        MemoryKind::Managed => "Managed",
    }
}
