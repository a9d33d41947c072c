//! A recording of this program's own actions, which libraries must recognize in CUPTI's records.

use std::time::{SystemTime, UNIX_EPOCH};

use cupti_sys::recording::{Meta, RecordingWriter};
use cupti_sys::{CompletedBuffer, Domain, Kind, RecordSizes};

/// CUDA 13.0.
const SIZES: [(Kind, u32); 2] = [(Kind::DRIVER, 40), (Kind::CONCURRENT_KERNEL, 216)];
const VERSION: u32 = 130_001;
/// Callback id of `cuLaunchKernelEx` here.
const LAUNCH: u32 = 652;
/// Time from a launch to the start of its kernel, duration of a kernel, and time to the end of the recording,
/// in nanoseconds.
const DELAY: u64 = 5_000_000;
const LENGTH: u64 = 10_000;
const REST: u64 = 8_000_000_000;

/// The recording to play.
#[derive(Debug)]
pub struct Recording {
    start: u64,
    names: Vec<String>,
    records: Vec<Vec<u8>>,
    last: u64,
    correlation: u32,
}

impl Recording {
    /// An empty recording that begins now.
    pub fn new() -> Self {
        let start = nanos_now().unwrap_or(0);
        Self { start, names: Vec::new(), records: Vec::new(), last: start, correlation: 0 }
    }

    /// Adds a kernel launched by this call. It starts a little later, and not before the previous kernel has ended.
    pub fn launch(&mut self, thread: u32, begin: u64, end: u64, kernel: &str) {
        self.correlation += 1;
        let known = self.names.iter().position(|name| name == kernel).unwrap_or_else(|| {
            self.names.push(kernel.to_owned());
            self.names.len() - 1
        });
        let started = self.last.max(begin + DELAY);
        self.last = started + LENGTH;
        let numbers = [(4, LAUNCH), (28, thread), (32, self.correlation), (36, 0)];
        self.records.push(record(Kind::DRIVER, &[(8, begin), (16, end)], &numbers));
        let times = [(16, started), (24, self.last), (104, address(known))];
        self.records.push(record(Kind::CONCURRENT_KERNEL, &times, &[(44, 1), (48, 7), (92, self.correlation)]));
    }

    /// Contents of the file.
    pub fn bytes(self) -> Vec<u8> {
        let meta = Meta { cupti_version: VERSION, start: self.start, sizes: SIZES.to_vec(), ..Meta::default() };
        let written = (|| {
            let mut writer = RecordingWriter::new(Vec::new(), &meta)?;
            writer.api_name(Domain::DRIVER, LAUNCH, "cuLaunchKernelEx")?;
            for (place, name) in self.names.iter().enumerate() {
                writer.string(address(place), name.as_bytes())?;
            }
            let sizes = RecordSizes::from_pairs(&SIZES);
            for records in self.records.chunks(64) {
                if let Some(buffer) = CompletedBuffer::from_bytes(&records.concat(), 0, 0) {
                    writer.buffer(&buffer, &sizes, self.last)?;
                }
            }
            writer.flush(self.last + REST)?;
            writer.finish()
        })();
        written.unwrap_or_default()
    }
}

fn address(place: usize) -> u64 {
    0x1000 + place as u64 * 0x100
}

fn record(kind: Kind, wide: &[(usize, u64)], narrow: &[(usize, u32)]) -> Vec<u8> {
    let size = SIZES.iter().find(|(known, _)| *known == kind).map_or(0, |(_, size)| *size as usize);
    let mut bytes = vec![0; size];
    bytes[..4].copy_from_slice(&kind.0.to_le_bytes());
    wide.iter().for_each(|&(at, value)| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes()));
    narrow.iter().for_each(|&(at, value)| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes()));
    bytes
}

/// Nanoseconds since the Unix epoch.
pub fn nanos_now() -> Result<u64, String> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|error| error.to_string())?;
    u64::try_from(since.as_nanos()).map_err(|error| error.to_string())
}

/// The system's id of this thread; 0 if it is unavailable.
pub fn thread_id() -> u32 {
    let place = std::fs::read_link("/proc/thread-self").ok();
    place.and_then(|place| place.file_name()?.to_str()?.parse().ok()).unwrap_or(0)
}
