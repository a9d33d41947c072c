//! What nsys calls things in its tables.

use profiler_core::record::{CopyKind, ManagedKind, MemoryKind};

/// `[CUDA memcpy Host-to-Device]`
pub fn copy(kind: CopyKind) -> &'static str {
    match kind {
        CopyKind::Unknown => "[CUDA memcpy Unknown]",
        CopyKind::HostToDevice => "[CUDA memcpy Host-to-Device]",
        CopyKind::DeviceToHost => "[CUDA memcpy Device-to-Host]",
        CopyKind::DeviceToDevice => "[CUDA memcpy Device-to-Device]",
        CopyKind::HostToHost => "[CUDA memcpy Host-to-Host]",
        CopyKind::PeerToPeer => "[CUDA memcpy Peer-to-Peer]",
    }
}

/// `[CUDA memcpy Unified Host-to-Device]`: pages of managed memory that moved.
pub fn migration(kind: ManagedKind) -> &'static str {
    match kind {
        ManagedKind::HostToDevice => "[CUDA memcpy Unified Host-to-Device]",
        ManagedKind::DeviceToHost => "[CUDA memcpy Unified Device-to-Host]",
        ManagedKind::DeviceToDevice => "[CUDA memcpy Unified Device-to-Device]",
        ManagedKind::HostFault | ManagedKind::DeviceFault | ManagedKind::Unknown => "[CUDA memcpy Unknown]",
    }
}

/// A memset.
pub const MEMSET: &str = "[CUDA memset]";

/// One end of a copy.
pub fn memory(kind: MemoryKind) -> &'static str {
    match kind {
        MemoryKind::Unknown => "Unknown",
        MemoryKind::Pageable => "Pageable",
        MemoryKind::Pinned => "Pinned",
        MemoryKind::Device => "Device",
        MemoryKind::Array => "Array",
        MemoryKind::Managed => "Managed",
    }
}

/// A function without its version suffix, if that has four digits: `cudaLaunchKernel_v7000` becomes
/// `cudaLaunchKernel`, and `cudaLaunchKernelExC_v11060` stays.
pub fn function(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((stem, version)) if version.len() == 4 && version.bytes().all(|byte| byte.is_ascii_digit()) => stem,
        _ => name,
    }
}

/// The shape of a grid or block, `%4d %4d %4d`.
pub fn extent([x, y, z]: [u32; 3]) -> String {
    format!("{x:4} {y:4} {z:4}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_versions_are_cut_off() {
        for (name, wanted) in [
            ("cudaLaunchKernel_v7000", "cudaLaunchKernel"),
            ("cudaLaunchKernelExC_v11060", "cudaLaunchKernelExC_v11060"),
            ("cuMemFree_v2", "cuMemFree_v2"),
            ("cuLaunchKernel", "cuLaunchKernel"),
        ] {
            assert_eq!(function(name), wanted);
        }
        assert_eq!(extent([148, 1, 65_535]), " 148    1 65535");
    }
}
