//! Offsets of the fields that replaying needs: times, API function, context, and pointers.
//!
//! Offsets are in bytes from the start of a record and the same from CUDA 11.8 to 13.4 (records only ever
//! grew at the end). Pointers are here and not in `cupti-sys` because only a player has to replace them: the
//! recorded address is meaningless in this process. Kinds that are not listed have no times and are played
//! with the record before them.

use cupti_sys::Kind;

/// Offsets of start and end, for kinds that have both.
#[must_use]
pub const fn times(kind: u32) -> Option<(usize, usize)> {
    match Kind(kind) {
        Kind::KERNEL | Kind::CONCURRENT_KERNEL | Kind::MEMCPY | Kind::MEMCPY2 | Kind::MEMSET => Some((16, 24)),
        Kind::DRIVER | Kind::RUNTIME | Kind::INTERNAL_LAUNCH_API => Some((8, 16)),
        Kind::SYNCHRONIZATION | Kind::GRAPH_TRACE => Some((8, 16)),
        Kind::OVERHEAD => Some((24, 32)),
        // A mark has a single time.
        Kind::MARKER => Some((8, 8)),
        _ => None,
    }
}

/// True for device work, whose records a forced flush returns before it ends.
#[must_use]
pub const fn is_device_work(kind: u32) -> bool {
    matches!(
        Kind(kind),
        Kind::KERNEL | Kind::CONCURRENT_KERNEL | Kind::MEMCPY | Kind::MEMCPY2 | Kind::MEMSET | Kind::GRAPH_TRACE
    )
}

/// Offset of the id of the API function.
#[must_use]
pub const fn function(kind: u32) -> Option<usize> {
    match Kind(kind) {
        Kind::DRIVER | Kind::RUNTIME => Some(4),
        _ => None,
    }
}

/// Record of a call of a driver function: 40 bytes from CUDA 11.7 to 13.4, without a correlation id.
#[must_use]
pub fn driver_call(function: u32, at: u64, thread: u32) -> [u8; 40] {
    let mut record = [0; 40];
    let mut put = |offset: usize, bytes: &[u8]| record[offset..offset + bytes.len()].copy_from_slice(bytes);
    put(0, &Kind::DRIVER.0.to_le_bytes());
    put(4, &function.to_le_bytes());
    put(8, &at.to_le_bytes());
    put(16, &(at + 1).to_le_bytes());
    put(24, &std::process::id().to_le_bytes());
    put(28, &thread.to_le_bytes());
    record
}

/// Offset of the id that links a call to the device work it caused.
#[must_use]
pub const fn correlation(kind: u32) -> Option<usize> {
    match Kind(kind) {
        Kind::KERNEL | Kind::CONCURRENT_KERNEL => Some(92),
        Kind::MEMCPY | Kind::MEMSET => Some(44),
        Kind::MEMCPY2 => Some(60),
        Kind::DRIVER | Kind::RUNTIME => Some(32),
        _ => None,
    }
}

/// Offset of the id of the graph that launched it; the id is 0 for work launched alone.
#[must_use]
pub const fn graph(kind: u32) -> Option<usize> {
    match Kind(kind) {
        Kind::KERNEL | Kind::CONCURRENT_KERNEL => Some(156),
        Kind::MEMCPY | Kind::MEMSET => Some(72),
        Kind::MEMCPY2 => Some(80),
        _ => None,
    }
}

/// Record of the launch of a complete graph, `length` bytes long: from `start` to `end`, with the location
/// and graph of its first `node`. A node has its device, context and stream next to each other, the device
/// first.
#[must_use]
pub fn whole_graph(length: usize, start: u64, end: u64, node: &[u8], kind: u32) -> Vec<u8> {
    let mut record = vec![0; length];
    let field = |offset: Option<usize>| offset.and_then(|offset| u32_at(node, offset)).unwrap_or(0);
    let at = context(kind).unwrap_or(0);
    for (offset, value) in [
        (0, Kind::GRAPH_TRACE.0),
        (4, field(correlation(kind))),
        (24, field(at.checked_sub(4))),
        (28, field(graph(kind))),
        (32, field(Some(at))),
        (36, field(Some(at + 4))),
        (48, field(at.checked_sub(4))),
    ] {
        if let Some(bytes) = record.get_mut(offset..).and_then(<[u8]>::first_chunk_mut) {
            *bytes = value.to_le_bytes();
        }
    }
    put_u64(&mut record, 8, start);
    put_u64(&mut record, 16, end);
    record
}

/// Offset of the context id, for kinds in which an unannounced context may appear first.
#[must_use]
pub const fn context(kind: u32) -> Option<usize> {
    match Kind(kind) {
        Kind::CONTEXT => Some(4),
        Kind::KERNEL | Kind::CONCURRENT_KERNEL => Some(44),
        Kind::MEMCPY | Kind::MEMCPY2 | Kind::MEMSET => Some(36),
        _ => None,
    }
}

/// Offsets of pointers to text, of which the player owns a copy.
#[must_use]
pub const fn texts(kind: u32) -> &'static [usize] {
    match Kind(kind) {
        Kind::KERNEL | Kind::CONCURRENT_KERNEL => &[104],
        Kind::DEVICE => &[136],
        Kind::MARKER => &[40, 48],
        Kind::NAME => &[24],
        Kind::MEMORY2 => &[64, 120],
        Kind::JIT => &[56],
        _ => &[],
    }
}

/// Offsets of all other pointers. They are set to NULL, as for a feature that was not used.
#[must_use]
pub const fn others(kind: u32) -> &'static [usize] {
    match Kind(kind) {
        Kind::KERNEL | Kind::CONCURRENT_KERNEL => &[112, 160],
        Kind::MEMCPY | Kind::MEMSET => &[56],
        Kind::MEMCPY2 => &[64],
        Kind::CUDA_EVENT => &[32],
        Kind::OVERHEAD => &[48],
        Kind::GRAPH_TRACE => &[40],
        Kind::MODULE => &[16],
        _ => &[],
    }
}

/// The 4-byte number at `offset`, if it lies within the record.
#[must_use]
pub fn u32_at(record: &[u8], offset: usize) -> Option<u32> {
    record.get(offset..)?.first_chunk().copied().map(u32::from_le_bytes)
}

/// The 8-byte number at `offset`, if it lies within the record.
#[must_use]
pub fn u64_at(record: &[u8], offset: usize) -> Option<u64> {
    record.get(offset..)?.first_chunk().copied().map(u64::from_le_bytes)
}

/// Writes the 8-byte number at `offset`, if it lies within the record.
pub fn put_u64(record: &mut [u8], offset: usize, value: u64) {
    if let Some(field) = record.get_mut(offset..).and_then(<[u8]>::first_chunk_mut) {
        *field = value.to_le_bytes();
    }
}
