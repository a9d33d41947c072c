//! Body of a DICTIONARY block: new rows of the append-only tables.
//!
//! The writer only remembers the length of each table at its last write; a block contains the rows after
//! that, with the id of the first one. A reader can therefore detect that earlier rows were lost and reserve
//! their ids, and all later records keep their meaning. Every row is preceded by its length because later
//! versions may append fields.

use super::varint::{self, Cursor, Malformed};
use super::wire::{Wire, wire};
use crate::dictionary::Dictionary;
use crate::record::{
    ApiDomain, ApiFunction, Context, Device, Frame, LaunchConfig, NameId, PcieLink, StackId, ThreadName,
};
use crate::short_text::cut;
use crate::source_line::SourceLine;

/// A block is closed after the row with which it exceeds this size, bytes; further rows go into another
/// block.
const FULL: usize = 1 << 20;
/// Maximum length of a name, bytes; longer ones are cut. Mangled template names reach some 10 KB. With 1 MiB,
/// a row stays far below the largest body.
const MAX_NAME: usize = 1 << 20;
/// Maximum number of rows of a table that a reader accepts, even if they are only announced: as many launch
/// configurations take some 90 MB of memory. Twice the maximum of a writer.
const MAX_ROWS: u64 = 1 << 19;
/// Maximum number of devices, and of contexts, that a reader accepts; each is compared with all others.
const MAX_PLACES: usize = 4096;
/// Maximum body bytes of all dictionary blocks of a trace that a reader accepts.
const MAX_BYTES: u64 = 256 << 20;

/// Table numbers of the format.
mod table {
    pub(super) const NAMES: u8 = 1;
    pub(super) const LAUNCH_CONFIGS: u8 = 2;
    pub(super) const API_FUNCTIONS: u8 = 3;
    pub(super) const DEVICES: u8 = 4;
    pub(super) const CONTEXTS: u8 = 5;
    pub(super) const FRAMES: u8 = 6;
    pub(super) const LINKS: u8 = 7;
    pub(super) const THREADS: u8 = 8;
    pub(super) const SOURCE_LINES: u8 = 9;
}

/// Number of rows already written, by table.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    names: usize,
    launch_configs: usize,
    api_functions: usize,
    frames: usize,
    devices: usize,
    contexts: usize,
    links: usize,
    threads: usize,
    source_lines: usize,
}

impl Written {
    /// Appends unwritten rows to `body`, names first. Rows that do not fit are left for the next call; an
    /// empty `body` means that none were left.
    pub(super) fn encode_tail(&mut self, dictionary: &Dictionary, body: &mut Vec<u8>) {
        encode_table(table::NAMES, dictionary.names(), &mut self.names, body, |name, row| {
            row.extend_from_slice(cut(name, MAX_NAME).as_bytes());
        });
        encode_table(table::LAUNCH_CONFIGS, dictionary.launch_configs(), &mut self.launch_configs, body, Wire::put);
        encode_table(table::API_FUNCTIONS, dictionary.api_functions(), &mut self.api_functions, body, Wire::put);
        encode_table(table::FRAMES, dictionary.frames(), &mut self.frames, body, Wire::put);
        encode_table(table::DEVICES, dictionary.devices(), &mut self.devices, body, Wire::put);
        encode_table(table::CONTEXTS, dictionary.contexts(), &mut self.contexts, body, Wire::put);
        encode_table(table::LINKS, dictionary.links(), &mut self.links, body, Wire::put);
        encode_table(table::THREADS, dictionary.thread_names(), &mut self.threads, body, Wire::put);
        encode_table(table::SOURCE_LINES, dictionary.source_lines(), &mut self.source_lines, body, Wire::put);
    }
}

/// Writes the table number, first id, number of rows, and then each row preceded by its length.
fn encode_table<T>(number: u8, rows: &[T], written: &mut usize, body: &mut Vec<u8>, encode: fn(&T, &mut Vec<u8>)) {
    let first = *written;
    let new = rows.get(first..).unwrap_or_default();
    if new.is_empty() || body.len() > FULL {
        return;
    }
    let (mut encoded, mut row, mut count) = (Vec::new(), Vec::new(), 0);
    for value in new {
        row.clear();
        encode(value, &mut row);
        varint::put_bytes(&mut encoded, &row);
        count += 1;
        if body.len() + encoded.len() > FULL {
            break;
        }
    }
    body.push(number);
    varint::put(body, first as u64);
    varint::put(body, count as u64);
    body.extend_from_slice(&encoded);
    *written = first + count;
}

impl Wire for ApiDomain {
    fn put(&self, row: &mut Vec<u8>) {
        row.push(match self {
            Self::Driver => 0,
            Self::Runtime => 1,
        });
    }

    fn get(row: &mut Cursor<'_>) -> Result<Self, Malformed> {
        match row.byte()? {
            0 => Ok(Self::Driver),
            1 => Ok(Self::Runtime),
            _ => Err(Malformed),
        }
    }
}

impl Wire for String {
    fn put(&self, row: &mut Vec<u8>) {
        varint::put_bytes(row, cut(self, MAX_NAME).as_bytes());
    }

    fn get(row: &mut Cursor<'_>) -> Result<Self, Malformed> {
        row.string()
    }
}

wire! {
    LaunchConfig {
        name, grid, block, cluster, registers_per_thread, static_shared_bytes, dynamic_shared_bytes,
        shared_executed_bytes, local_bytes_per_thread, launch_type
    }
    ApiFunction { domain, callback_id, name }
    Frame { caller, function, file, line }
    Device {
        id, name, compute_capability, multiprocessors, threads_per_multiprocessor, blocks_per_multiprocessor,
        registers_per_multiprocessor, shared_bytes_per_multiprocessor, core_clock_khz, memory_bytes,
        memory_bandwidth_kbps, uuid
    }
    Context { id, device, null_stream }
    ThreadName { thread, name }
    PcieLink { device, generation, megatransfers, lanes }
    SourceLine { file, line, text }
}

/// Dictionary rebuilt from the blocks that could be read.
#[derive(Default)]
pub(super) struct Rebuilt {
    pub(super) dictionary: Dictionary,
    bytes: u64,
}

impl Rebuilt {
    /// Applies a body. Rows that are already known are skipped; ids whose rows were lost get a placeholder.
    /// Tables of newer versions are skipped row by row.
    pub(super) fn apply(&mut self, body: &[u8]) -> Result<(), Malformed> {
        self.bytes += body.len() as u64;
        if self.bytes > MAX_BYTES {
            return Err(Malformed);
        }
        let mut cursor = Cursor::new(body);
        while !cursor.is_empty() {
            let table = cursor.byte()?;
            let first = cursor.varint()?;
            let count = cursor.varint()?;
            if first.checked_add(count).is_none_or(|end| end > MAX_ROWS) {
                return Err(Malformed);
            }
            if matches!(table, table::NAMES..=table::API_FUNCTIONS | table::FRAMES) {
                self.pad(table, first);
            }
            for id in first..first + count {
                let row = cursor.bytes()?;
                if id >= self.rows(table) {
                    self.add(table, row)?;
                }
            }
        }
        Ok(())
    }

    /// Rows of a table whose ids are indices. Devices and contexts carry their own ids and are compared instead.
    fn rows(&self, table: u8) -> u64 {
        let rows = match table {
            table::NAMES => self.dictionary.names().len(),
            table::LAUNCH_CONFIGS => self.dictionary.launch_configs().len(),
            table::API_FUNCTIONS => self.dictionary.api_functions().len(),
            table::FRAMES => self.dictionary.frames().len(),
            _ => 0,
        };
        rows as u64
    }

    /// Fills a table with placeholders up to `first` ids, because the ids of lost rows must stay reserved.
    fn pad(&mut self, table: u8, first: u64) {
        for _ in self.rows(table)..first {
            match table {
                table::NAMES => {
                    self.dictionary.append_name("?");
                }
                table::LAUNCH_CONFIGS => {
                    let lost = LaunchConfig { name: NameId::UNKNOWN, ..LaunchConfig::default() };
                    self.dictionary.append_launch_config(lost);
                }
                table::FRAMES => {
                    let unknown = NameId::UNKNOWN;
                    let lost = Frame { caller: StackId::NONE, function: unknown, file: unknown, line: 0 };
                    self.dictionary.append_frame(lost);
                }
                _ => {
                    let lost = ApiFunction { domain: ApiDomain::Driver, callback_id: u32::MAX, name: NameId::UNKNOWN };
                    self.dictionary.append_api_function(lost);
                }
            }
        }
    }

    fn add(&mut self, table: u8, row: &[u8]) -> Result<(), Malformed> {
        let mut cursor = Cursor::new(row);
        match table {
            table::NAMES => {
                // Names are only displayed, so invalid UTF-8 is replaced rather than rejected.
                self.dictionary.append_name(&String::from_utf8_lossy(row));
            }
            table::LAUNCH_CONFIGS => {
                self.dictionary.append_launch_config(Wire::get(&mut cursor)?);
            }
            table::API_FUNCTIONS => {
                self.dictionary.append_api_function(Wire::get(&mut cursor)?);
            }
            table::FRAMES => {
                self.dictionary.append_frame(Wire::get(&mut cursor)?);
            }
            table::DEVICES if self.dictionary.devices().len() < MAX_PLACES => {
                self.dictionary.add_device(Wire::get(&mut cursor)?);
            }
            table::CONTEXTS if self.dictionary.contexts().len() < MAX_PLACES => {
                self.dictionary.add_context(Wire::get(&mut cursor)?);
            }
            table::LINKS if self.dictionary.links().len() < MAX_PLACES => {
                self.dictionary.add_link(Wire::get(&mut cursor)?);
            }
            table::THREADS if self.dictionary.thread_names().len() < MAX_PLACES => {
                self.dictionary.add_thread_name(Wire::get(&mut cursor)?);
            }
            table::SOURCE_LINES if self.dictionary.source_lines().len() < MAX_PLACES => {
                self.dictionary.add_source_line(Wire::get(&mut cursor)?);
            }
            table::DEVICES | table::CONTEXTS | table::LINKS | table::THREADS | table::SOURCE_LINES => {
                return Err(Malformed);
            }
            // A table of a newer version.
            _ => {}
        }
        Ok(())
    }
}
