//! The walk next to a page that must not be touched: one byte too far is a segmentation fault, in any build.

use super::*;
use crate::record::Activity;

/// A multiple of every page size, up to the 64 KiB of Arm.
const PAGE: usize = 64 << 10;

/// Two pages; the second has no access rights.
struct Guarded(*mut u8);

impl Guarded {
    fn new() -> Self {
        // SAFETY: a fresh anonymous mapping of two pages.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                2 * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: the second page of the mapping above, which is not otherwise used.
        assert_eq!(unsafe { libc::mprotect(start.byte_add(PAGE), PAGE, libc::PROT_NONE) }, 0);
        Self(start.cast())
    }

    /// The last `bytes.len()` bytes before the protected page, filled with `bytes`.
    fn last(&mut self, bytes: &[u8]) -> &[u8] {
        assert!(bytes.len() <= PAGE);
        // SAFETY: they lie within the first page, which is ours and writable; the borrow excludes other
        // accesses.
        unsafe {
            let start = self.0.add(PAGE - bytes.len());
            start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            std::slice::from_raw_parts(start, bytes.len())
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`; no borrow is left.
        unsafe { libc::munmap(self.0.cast(), 2 * PAGE) };
    }
}

/// Reads the first and last fields of a record and returns its size.
fn read(record: &Record<'_>) -> usize {
    match record.activity() {
        Activity::Kernel(kernel) => {
            assert!(kernel.name().is_none());
            std::hint::black_box((
                kernel.start(),
                kernel.cluster(),
                kernel.graph_node_id(),
                kernel.local_memory_per_thread(),
            ));
        }
        Activity::Memcpy(copy) => drop(std::hint::black_box((copy.start(), copy.graph_id(), copy.byte_count()))),
        Activity::Api(call) => drop(std::hint::black_box((call.end(), call.return_value(), call.thread_id()))),
        Activity::Device(device) => drop(std::hint::black_box((device.global_memory_size(), device.uuid()))),
        _ => {}
    }
    record.bytes().len()
}

#[test]
fn no_cut_of_a_buffer_is_read_beyond_its_end() {
    let kernel = KernelRecord::LEAST_BYTES as u32;
    let sizes = RecordSizes::from_pairs(&[
        (Kind::CONCURRENT_KERNEL, kernel),
        (Kind::RUNTIME, 40),
        (Kind::MEMCPY, 64),
        (Kind::DEVICE, 152),
    ]);
    let mut bytes = Vec::new();
    for kind in [Kind::RUNTIME, Kind::CONCURRENT_KERNEL, Kind::MEMCPY, Kind::DEVICE, Kind::CONCURRENT_KERNEL] {
        let mut record = vec![0xff; sizes.get(kind).unwrap() as usize];
        record[..4].copy_from_slice(&kind.0.to_ne_bytes());
        bytes.extend(record);
    }
    let mut guarded = Guarded::new();
    for length in 0..=bytes.len() {
        // Cut at the end and also at the start, so that a record's head touches the page.
        for part in [&bytes[..length], &bytes[length..]] {
            let valid = guarded.last(part);
            let mut records = Records::new(valid, Strings::Foreign, &sizes);
            let walked: usize = records.by_ref().map(|record| read(&record)).sum();
            let left = records.remainder().map_or(0, |broken| broken.bytes);
            assert_eq!(walked + left, part.len());
        }
    }
}

#[test]
fn a_table_leaves_out_what_cannot_be() {
    let sizes =
        RecordSizes::from_pairs(&[(Kind::MEMCPY, 96), (Kind::MEMSET, 0), (Kind::DRIVER, 41), (Kind(4_000_000), 40)]);
    assert_eq!(sizes.get(Kind::MEMCPY), Some(96));
    assert_eq!(sizes.iter().collect::<Vec<_>>(), [(Kind::MEMCPY, 96)]);
    assert_eq!(sizes.get(Kind(u32::MAX)), None);
    assert_eq!(sizes.ask(&[0; 64], 0), None);
}
