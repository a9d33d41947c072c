//! Makes small recordings.

use std::path::PathBuf;

use cupti_sys::recording::{Meta, RecordingWriter};
use cupti_sys::{CompletedBuffer, Domain, Kind, RecordSizes};

/// CUDA 13.0.
pub const SIZES: [(Kind, u32); 6] = [
    (Kind::MEMCPY, 96),
    (Kind::DRIVER, 40),
    (Kind::RUNTIME, 40),
    (Kind::CONTEXT, 32),
    (Kind::CONCURRENT_KERNEL, 216),
    (Kind::CUDA_EVENT, 56),
];
/// Version of CUDA 13.0 update 1.
pub const VERSION: u32 = 130_001;
/// Start of every recording in nanoseconds.
pub const START: u64 = 1_000_000;

fn record(kind: Kind, fields: &[(usize, u64)], narrow: &[(usize, u32)]) -> Vec<u8> {
    let size = SIZES.iter().find(|(known, _)| *known == kind).unwrap().1 as usize;
    let mut bytes = vec![0; size];
    bytes[..4].copy_from_slice(&kind.0.to_le_bytes());
    for &(at, value) in fields {
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    for &(at, value) in narrow {
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// A kernel in context 1 with this correlation id; its name is at `name`.
pub fn kernel(correlation: u32, start: u64, end: u64, name: u64) -> Vec<u8> {
    record(
        Kind::CONCURRENT_KERNEL,
        &[(16, start), (24, end), (104, name), (160, 0xdead)],
        &[(44, 1), (92, correlation)],
    )
}

/// A runtime call.
pub fn runtime(function: u32, start: u64, end: u64) -> Vec<u8> {
    record(Kind::RUNTIME, &[(8, start), (16, end)], &[(4, function)])
}

/// A runtime call that launched the kernel with this correlation id.
pub fn launch(correlation: u32, start: u64, end: u64) -> Vec<u8> {
    record(Kind::RUNTIME, &[(8, start), (16, end)], &[(4, 211), (32, correlation)])
}

/// A recorded event: a record without times.
pub fn event(correlation: u32) -> Vec<u8> {
    record(Kind::CUDA_EVENT, &[], &[(4, correlation)])
}

/// A recording in a separate folder.
pub struct Recording {
    writer: RecordingWriter<Vec<u8>>,
}

impl Recording {
    /// A recording of CUDA 13.0.
    pub fn new() -> Self {
        Self::of_version(VERSION)
    }

    /// A recording of another version, with the same sizes.
    pub fn of_version(cupti_version: u32) -> Self {
        let meta = Meta { cupti_version, start: START, sizes: SIZES.to_vec(), ..Meta::default() };
        let mut writer = RecordingWriter::new(Vec::new(), &meta).unwrap();
        writer.api_name(Domain::RUNTIME, 211, "cudaLaunchKernel_v7000").unwrap();
        Self { writer }
    }

    /// Adds an API function that the library knows.
    pub fn function(mut self, domain: u32, id: u32, name: &str) -> Self {
        self.writer.api_name(Domain(domain), id, name).unwrap();
        self
    }

    /// From here on `address` points to `text`.
    pub fn text(mut self, address: u64, text: &str) -> Self {
        self.writer.string(address, text.as_bytes()).unwrap();
        self
    }

    /// Adds a buffer delivered at `at`.
    pub fn buffer(mut self, at: u64, records: &[Vec<u8>]) -> Self {
        let buffer = CompletedBuffer::from_bytes(&records.concat(), 0, 0).unwrap();
        self.writer.buffer(&buffer, &RecordSizes::from_pairs(&SIZES), at).unwrap();
        self
    }

    /// Adds a number of dropped records.
    pub fn dropped(mut self, count: u64) -> Self {
        self.writer.dropped(count).unwrap();
        self
    }

    /// All bytes of the file.
    pub fn bytes(self) -> Vec<u8> {
        self.writer.finish().unwrap()
    }

    /// Writes the file into `folder`.
    pub fn save(self, folder: &std::path::Path) -> PathBuf {
        let path = folder.join("session.cupti");
        std::fs::write(&path, self.bytes()).unwrap();
        path
    }
}

/// `count` kernels of 1 microsecond, one every 2, with one buffer per `in_buffer` kernels.
pub fn kernels(count: u32, in_buffer: usize) -> Recording {
    let all: Vec<u32> = (0..count).collect();
    let begin = |index: u32| START + 2000 * u64::from(index);
    all.chunks(in_buffer).fold(Recording::new().text(0xbeef, "gemm"), |recording, chunk| {
        let records: Vec<_> = chunk.iter().map(|&i| kernel(i, begin(i), begin(i) + 1000, 0xbeef)).collect();
        recording.buffer(begin(chunk[chunk.len() - 1]) + 1500, &records)
    })
}
