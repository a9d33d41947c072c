//! Names used by Kineto, the library of the PyTorch profiler. Tools find rows by these names.

use gpuwhy_trace::record::{Copy, CopyKind, MemoryKind, Memset};

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
