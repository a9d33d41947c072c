//! nsys's numbers of enumeration values.

use gpuwhy_trace::record::{CopyKind, MemoryKind, OverheadKind, SyncKind};

pub const fn copy(kind: CopyKind) -> u32 {
    match kind {
        CopyKind::Unknown => 0,
        CopyKind::HostToDevice => 1,
        CopyKind::DeviceToHost => 2,
        CopyKind::DeviceToDevice => 8,
        CopyKind::HostToHost => 9,
        CopyKind::PeerToPeer => 10,
    }
}

pub const fn memory(kind: MemoryKind) -> u32 {
    match kind {
        MemoryKind::Pageable => 0,
        MemoryKind::Pinned => 1,
        MemoryKind::Device => 2,
        MemoryKind::Array => 3,
        MemoryKind::Managed => 4,
        MemoryKind::Unknown => 7,
    }
}

/// nsys's numbers, plus two for kinds that nsys lacks.
pub const fn overhead(kind: OverheadKind) -> u32 {
    match kind {
        OverheadKind::Unknown => 1,
        OverheadKind::DriverCompiler => 2,
        OverheadKind::BufferFlush => 3,
        OverheadKind::Instrumentation => 4,
        OverheadKind::Resource => 5,
        OverheadKind::RuntimeModuleLoading => 6,
        OverheadKind::LazyFunctionLoading => 7,
        OverheadKind::CommandBufferFull => 8,
        OverheadKind::ActivityBufferRequest => 9,
        OverheadKind::UnifiedMemoryInit => 10,
    }
}

pub const fn sync(kind: SyncKind) -> u32 {
    match kind {
        SyncKind::Unknown => 0,
        SyncKind::Event => 1,
        SyncKind::StreamWaitEvent => 2,
        SyncKind::Stream => 3,
        SyncKind::Context => 4,
    }
}
