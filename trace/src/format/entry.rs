//! The body of a DICTIONARY block: new rows of the append-only tables.
//!
//! The writer only remembers how long each table was when it last wrote; a block holds the rows behind that, with
//! the id of the first. So a reader can tell that rows before it were lost, keeps their ids free, and every later
//! record still means what it meant. Every row carries its length: later versions may append fields.

use super::varint::{self, Cursor, Malformed};
use crate::dictionary::Dictionary;
use crate::record::{
    ApiDomain, ApiFunction, Context, ContextId, Device, DeviceId, Frame, LaunchConfig, NameId, PcieLink, StackId,
    StreamId, ThreadId, ThreadName,
};

/// A block is closed behind the row that makes it longer than this, bytes; the next rows go into another one.
const FULL: usize = 1 << 20;
/// Longer names are cut, bytes. Mangled template names reach some 10 KB; 1 MiB keeps a row far below the largest body.
const MAX_NAME: usize = 1 << 20;
/// Rows of a table that a reader accepts, be they announced only: launch configurations take some 90 MB in memory then.
/// Twice what a writer has at most.
const MAX_ROWS: u64 = 1 << 19;
/// Devices, and contexts, that a reader accepts; each is compared with all others.
const MAX_PLACES: usize = 4096;
/// Body bytes of all dictionary blocks of a trace that a reader accepts.
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
}

/// Rows of each table that have been written.
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
}

impl Written {
    /// Appends rows that have not been written to `body`, names first. What does not fit waits for the next call;
    /// nothing was left when `body` stays empty.
    pub(super) fn encode_tail(&mut self, dictionary: &Dictionary, body: &mut Vec<u8>) {
        encode_table(table::NAMES, dictionary.names(), &mut self.names, body, |name, row| {
            row.extend_from_slice(cut(name));
        });
        encode_table(table::LAUNCH_CONFIGS, dictionary.launch_configs(), &mut self.launch_configs, body, encode_config);
        encode_table(table::API_FUNCTIONS, dictionary.api_functions(), &mut self.api_functions, body, encode_function);
        encode_table(table::FRAMES, dictionary.frames(), &mut self.frames, body, encode_frame);
        encode_table(table::DEVICES, dictionary.devices(), &mut self.devices, body, encode_device);
        encode_table(table::CONTEXTS, dictionary.contexts(), &mut self.contexts, body, encode_context);
        encode_table(table::LINKS, dictionary.links(), &mut self.links, body, encode_link);
        encode_table(table::THREADS, dictionary.thread_names(), &mut self.threads, body, encode_thread);
    }
}

/// Table number, first id, number of rows, then each row behind its length.
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

/// The first [`MAX_NAME`] bytes, or a few less so that no character is cut in two.
fn cut(name: &str) -> &[u8] {
    let boundary = (0..=name.len().min(MAX_NAME)).rev().find(|&at| name.is_char_boundary(at));
    &name.as_bytes()[..boundary.unwrap_or(0)]
}

fn encode_config(config: &LaunchConfig, row: &mut Vec<u8>) {
    varint::put(row, config.name.0.into());
    for size in [config.grid, config.block, config.cluster].as_flattened() {
        varint::put(row, (*size).into());
    }
    varint::put(row, config.registers_per_thread.into());
    for bytes in [
        config.static_shared_bytes,
        config.dynamic_shared_bytes,
        config.shared_executed_bytes,
        config.local_bytes_per_thread,
    ] {
        varint::put(row, bytes.into());
    }
    varint::put(row, config.launch_type.into());
}

fn decode_config(row: &mut Cursor<'_>) -> Result<LaunchConfig, Malformed> {
    let name = NameId(row.varint32()?);
    let mut sizes = || Ok([row.varint32()?, row.varint32()?, row.varint32()?]);
    let (grid, block, cluster) = (sizes()?, sizes()?, sizes()?);
    Ok(LaunchConfig {
        name,
        grid,
        block,
        cluster,
        registers_per_thread: row.varint()?.try_into().map_err(|_| Malformed)?,
        static_shared_bytes: row.varint32()?,
        dynamic_shared_bytes: row.varint32()?,
        shared_executed_bytes: row.varint32()?,
        local_bytes_per_thread: row.varint32()?,
        launch_type: row.varint()?.try_into().map_err(|_| Malformed)?,
    })
}

fn encode_function(function: &ApiFunction, row: &mut Vec<u8>) {
    row.push(match function.domain {
        ApiDomain::Driver => 0,
        ApiDomain::Runtime => 1,
    });
    varint::put(row, function.callback_id.into());
    varint::put(row, function.name.0.into());
}

fn decode_function(row: &mut Cursor<'_>) -> Result<ApiFunction, Malformed> {
    let domain = match row.byte()? {
        0 => ApiDomain::Driver,
        1 => ApiDomain::Runtime,
        _ => return Err(Malformed),
    };
    Ok(ApiFunction { domain, callback_id: row.varint32()?, name: NameId(row.varint32()?) })
}

fn encode_frame(frame: &Frame, row: &mut Vec<u8>) {
    for number in [frame.caller.0, frame.function.0, frame.file.0, frame.line] {
        varint::put(row, number.into());
    }
}

fn decode_frame(row: &mut Cursor<'_>) -> Result<Frame, Malformed> {
    Ok(Frame {
        caller: StackId(row.varint32()?),
        function: NameId(row.varint32()?),
        file: NameId(row.varint32()?),
        line: row.varint32()?,
    })
}

fn encode_device(device: &Device, row: &mut Vec<u8>) {
    varint::put(row, device.id.0.into());
    varint::put_bytes(row, cut(&device.name));
    for number in [
        device.compute_capability[0],
        device.compute_capability[1],
        device.multiprocessors,
        device.threads_per_multiprocessor,
        device.blocks_per_multiprocessor,
        device.registers_per_multiprocessor,
        device.shared_bytes_per_multiprocessor,
        device.core_clock_khz,
    ] {
        varint::put(row, number.into());
    }
    varint::put(row, device.memory_bytes);
    varint::put(row, device.memory_bandwidth_kbps);
    row.extend_from_slice(&device.uuid);
}

fn decode_device(row: &mut Cursor<'_>) -> Result<Device, Malformed> {
    Ok(Device {
        id: DeviceId(row.varint32()?),
        name: row.string()?,
        compute_capability: [row.varint32()?, row.varint32()?],
        multiprocessors: row.varint32()?,
        threads_per_multiprocessor: row.varint32()?,
        blocks_per_multiprocessor: row.varint32()?,
        registers_per_multiprocessor: row.varint32()?,
        shared_bytes_per_multiprocessor: row.varint32()?,
        core_clock_khz: row.varint32()?,
        memory_bytes: row.varint()?,
        memory_bandwidth_kbps: row.varint()?,
        uuid: row.take(16)?.try_into().map_err(|_| Malformed)?,
    })
}

fn encode_context(context: &Context, row: &mut Vec<u8>) {
    varint::put(row, context.id.0.into());
    varint::put(row, context.device.0.into());
    varint::put(row, context.null_stream.0.into());
}

fn decode_context(row: &mut Cursor<'_>) -> Result<Context, Malformed> {
    Ok(Context {
        id: ContextId(row.varint32()?),
        device: DeviceId(row.varint32()?),
        null_stream: StreamId(row.varint32()?),
    })
}

fn encode_thread(thread: &ThreadName, row: &mut Vec<u8>) {
    varint::put(row, thread.thread.0.into());
    varint::put(row, thread.name.0.into());
}

fn decode_thread(row: &mut Cursor<'_>) -> Result<ThreadName, Malformed> {
    Ok(ThreadName { thread: ThreadId(row.varint32()?), name: NameId(row.varint32()?) })
}

fn encode_link(link: &PcieLink, row: &mut Vec<u8>) {
    for number in [link.device.0, link.generation, link.megatransfers, link.lanes] {
        varint::put(row, number.into());
    }
}

fn decode_link(row: &mut Cursor<'_>) -> Result<PcieLink, Malformed> {
    Ok(PcieLink {
        device: DeviceId(row.varint32()?),
        generation: row.varint32()?,
        megatransfers: row.varint32()?,
        lanes: row.varint32()?,
    })
}

/// Rebuilds a dictionary from the blocks that are left of it.
#[derive(Default)]
pub(super) struct Rebuilt {
    pub(super) dictionary: Dictionary,
    bytes: u64,
}

impl Rebuilt {
    /// Applies a body. Rows that are already known are stepped over, ids whose rows were lost get a placeholder.
    /// Tables of newer versions are stepped over row by row.
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

    /// Fills a table up to `first` ids: the rows are lost, their ids must stay taken.
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
                // Names are only shown, so bytes that are no UTF-8 are replaced rather than refused.
                self.dictionary.append_name(&String::from_utf8_lossy(row));
            }
            table::LAUNCH_CONFIGS => {
                self.dictionary.append_launch_config(decode_config(&mut cursor)?);
            }
            table::API_FUNCTIONS => {
                self.dictionary.append_api_function(decode_function(&mut cursor)?);
            }
            table::FRAMES => {
                self.dictionary.append_frame(decode_frame(&mut cursor)?);
            }
            table::DEVICES if self.dictionary.devices().len() < MAX_PLACES => {
                self.dictionary.add_device(decode_device(&mut cursor)?);
            }
            table::CONTEXTS if self.dictionary.contexts().len() < MAX_PLACES => {
                self.dictionary.add_context(decode_context(&mut cursor)?);
            }
            table::LINKS if self.dictionary.links().len() < MAX_PLACES => {
                self.dictionary.add_link(decode_link(&mut cursor)?);
            }
            table::THREADS if self.dictionary.thread_names().len() < MAX_PLACES => {
                self.dictionary.add_thread_name(decode_thread(&mut cursor)?);
            }
            table::DEVICES | table::CONTEXTS | table::LINKS | table::THREADS => return Err(Malformed),
            // A table of a newer version.
            _ => {}
        }
        Ok(())
    }
}
