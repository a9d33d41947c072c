//! Rows as the profiler of XLA writes them (`jax.profiler`, TensorFlow): without categories. Rows of metadata
//! say which process is a device and which thread is a stream; they come first.

use rustc_hash::FxHashMap;

use super::row::{Category, KinetoRow};
use super::scalar::{Extent, Scalar};

/// Names of processes and threads, so far as they are devices and streams.
#[derive(Debug, Default)]
pub(super) struct Layout {
    devices: FxHashMap<i64, u32>,
    streams: FxHashMap<(i64, i64), u32>,
}

impl Layout {
    /// True if the file has rows of this layout.
    pub(super) fn is_used(&self) -> bool {
        !self.devices.is_empty()
    }

    /// Takes a row of metadata.
    pub(super) fn describe(&mut self, row: &KinetoRow) {
        let Some(process) = row.process.integer() else { return };
        let name = row.arguments.name.text();
        match row.name.as_str() {
            "process_name" => {
                if let Some(device) = name.strip_prefix("/device:GPU:").and_then(leading) {
                    self.devices.insert(process, device);
                }
            }
            "thread_name" => {
                let stream = name.strip_prefix("Stream #").and_then(leading);
                if let (Some(thread), Some(stream)) = (row.thread.integer(), stream) {
                    self.streams.insert((process, thread), stream);
                }
            }
            _ => {}
        }
    }

    /// Finds the category of a row without one, and what its details say.
    pub(super) fn categorize(&self, row: &mut KinetoRow) {
        let Some(process) = row.process.integer().filter(|_| self.is_used()) else { return };
        let Some(&device) = self.devices.get(&process) else {
            let is_call = |prefix: &str| {
                row.name
                    .strip_prefix(prefix)
                    .is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_uppercase()))
            };
            match (is_call("cuda"), is_call("cu")) {
                (true, _) => row.category = Category::Runtime,
                (_, true) => row.category = Category::Driver,
                _ => {}
            }
            return;
        };
        // Other lines of a device repeat its streams by operation, module or name.
        let Some(&stream) = row.thread.integer().and_then(|thread| self.streams.get(&(process, thread))) else {
            return;
        };
        row.arguments.device = Scalar::Integer(device.into());
        row.arguments.stream = Scalar::Integer(stream.into());
        let details = std::mem::take(&mut row.arguments.details).into_text();
        let detail = |key: &str| details.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix(':'));
        if let Some(kind) = row.name.strip_prefix("Memcpy") {
            let kind = kind.replace('2', "to");
            let (source, destination) =
                (detail("kind_src").unwrap_or("Unknown"), detail("kind_dst").unwrap_or("Unknown"));
            row.arguments.bytes = detail("size").map_or(Scalar::Absent, |size| Scalar::Text(size.to_owned()));
            row.category = Category::Copy;
            row.name = format!("Memcpy {kind} ({source} -> {destination})");
        } else if row.name.starts_with("Memset") {
            row.arguments.bytes = detail("size").map_or(Scalar::Absent, |size| Scalar::Text(size.to_owned()));
            row.category = Category::Memset;
        } else {
            let extent = |key: &str| {
                let mut sizes = detail(key).unwrap_or_default().split(',').map(|size| size.parse().unwrap_or(0));
                Extent(std::array::from_fn(|_| sizes.next().unwrap_or(0)))
            };
            (row.arguments.grid, row.arguments.block) = (extent("grid"), extent("block"));
            row.arguments.registers = detail("regs").map_or(Scalar::Absent, |count| Scalar::Text(count.to_owned()));
            row.category = Category::Kernel;
        }
    }
}

/// Number at the start of a text.
fn leading(text: &str) -> Option<u32> {
    text[..text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len())].parse().ok()
}
