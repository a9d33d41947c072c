//! Direction and memory kinds from the name of a copy: `Memcpy HtoD (Pinned -> Device)`.
//!
//! Kineto writes them nowhere else.

use gpuwhy_trace::record::{CopyKind, MemoryKind};

/// Parses the name of a copy; parts that it lacks are unknown.
pub(super) fn path_of(name: &str) -> (CopyKind, MemoryKind, MemoryKind) {
    let direction = name.split_whitespace().nth(1).unwrap_or_default();
    let kind = match direction.to_ascii_lowercase().as_str() {
        "htod" | "htoa" => CopyKind::HostToDevice,
        "dtoh" | "atoh" => CopyKind::DeviceToHost,
        "dtod" | "atoa" | "atod" | "dtoa" => CopyKind::DeviceToDevice,
        "htoh" => CopyKind::HostToHost,
        "ptop" => CopyKind::PeerToPeer,
        _ => CopyKind::Unknown,
    };
    let (source, destination) = parenthesis(name).and_then(|inside| inside.split_once("->")).unwrap_or_default();
    (kind, memory_of(source), memory_of(destination))
}

/// Memory kind that a memset writes to: `Memset (Device)`.
pub(super) fn memset_memory(name: &str) -> MemoryKind {
    parenthesis(name).map_or(MemoryKind::Unknown, memory_of)
}

fn parenthesis(name: &str) -> Option<&str> {
    let (_, inside) = name.split_once('(')?;
    inside.split_once(')').map(|(inside, _)| inside)
}

fn memory_of(text: &str) -> MemoryKind {
    match text.trim().to_ascii_lowercase().as_str() {
        "pageable" => MemoryKind::Pageable,
        "pinned" => MemoryKind::Pinned,
        "device" | "device static" => MemoryKind::Device,
        "array" => MemoryKind::Array,
        "managed" | "managed static" => MemoryKind::Managed,
        _ => MemoryKind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_kineto_writes_them() {
        use CopyKind::{DeviceToDevice, DeviceToHost, HostToDevice, PeerToPeer};
        use MemoryKind::{Device, Managed, Pageable, Pinned};
        for (name, expected) in [
            ("Memcpy HtoD (Pinned -> Device)", (HostToDevice, Pinned, Device)),
            ("Memcpy HtoD (Pageable -> Device)", (HostToDevice, Pageable, Device)),
            ("Memcpy DtoH (Device -> Pageable)", (DeviceToHost, Device, Pageable)),
            ("Memcpy DtoD (Device -> Device)", (DeviceToDevice, Device, Device)),
            ("Memcpy PtoP (Device -> Device)", (PeerToPeer, Device, Device)),
            ("Memcpy HtoD (Managed -> Device)", (HostToDevice, Managed, Device)),
        ] {
            assert_eq!(path_of(name), expected, "{name}");
        }
        assert_eq!(memset_memory("Memset (Device)"), Device);
    }

    #[test]
    fn what_a_name_does_not_say_is_unknown() {
        for name in ["", "Memcpy", "Memcpy ???", "Memcpy HtoX (", "Memcpy ) -> ("] {
            assert_eq!(path_of(name), (CopyKind::Unknown, MemoryKind::Unknown, MemoryKind::Unknown), "{name}");
        }
        assert_eq!(memset_memory("Memset"), MemoryKind::Unknown);
    }
}
