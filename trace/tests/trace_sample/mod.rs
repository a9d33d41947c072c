//! A small trace with every kind of block, record and table of version 1.0, and helpers for taking it apart.
//!
//! The golden file of version 1.0 is exactly this trace: any change here changes the expected contents of
//! that file. Additions of later versions are in the `since_*` modules.

pub mod since_1_0;
pub mod since_1_2;
pub mod since_1_3;
pub mod since_1_4;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::{Damage, TraceError, TraceReader, TraceWriter};
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::*;

/// Bytes of the file header.
pub const FILE_HEADER: usize = 16;
/// Bytes of a block header.
pub const BLOCK_HEADER: usize = 40;

/// Data read from a trace.
pub struct Read {
    pub session: ProcessInfo,
    pub dictionary: Dictionary,
    pub items: Vec<Event>,
    pub damage: Damage,
}

/// Reads to the end.
pub fn read(bytes: &[u8]) -> Result<Read, TraceError> {
    let mut reader = TraceReader::new(bytes)?;
    let mut items = Vec::new();
    while let Some(item) = reader.next_event()? {
        items.push(item);
    }
    let (session, dictionary, damage) = reader.into_parts();
    Ok(Read { session, dictionary, items, damage })
}

/// Start and end of every block of an undamaged trace.
pub fn blocks(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut at = FILE_HEADER;
    let mut blocks = Vec::new();
    while at < bytes.len() {
        let body = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
        blocks.push(at..at + BLOCK_HEADER + body);
        at += BLOCK_HEADER + body;
    }
    blocks
}

/// Builds a block with this body. If `flags` says that the block is compressed, `body` must be compressed.
pub fn block(kind: u16, version: u8, flags: u8, sequence: u32, t_min: u64, body: &[u8]) -> Vec<u8> {
    let mut out = vec![0xf5, b'G', 0xb6, 0xc3];
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[version, flags]);
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&sequence.to_le_bytes());
    out.extend_from_slice(&t_min.to_le_bytes());
    out.extend_from_slice(&t_min.to_le_bytes());
    out.extend_from_slice(&crc32fast::hash(body).to_le_bytes());
    out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
    out.extend_from_slice(body);
    out
}

const START: u64 = 1_790_000_000_000_000_000;

pub fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(START + nanos)
}

pub fn session() -> ProcessInfo {
    let text = str::to_owned;
    ProcessInfo {
        process_id: 4242,
        parent_process_id: 4200,
        command: vec![text("python"), text("train.py"), text("--name=größe")],
        host: text("node-7"),
        start: at(0),
        driver_cuda_version: 13000,
        driver_version: text("580.159.04"),
        cupti_version: 130_000,
        cupti_path: text("/usr/local/cuda/lib64/libcupti.so.13"),
        gpuwhy_version: text("0.1.0"),
        rank_variables: vec![(text("RANK"), text("3")), (text("WORLD_SIZE"), text("8"))],
        notes: vec![text("no external correlation")],
        calibrations: Vec::new(),
    }
}

/// Two flush intervals. The second one adds rows to the dictionary and reports lost records.
#[expect(clippy::too_many_lines, reason = "one event of each kind")]
pub fn sample() -> (Dictionary, Vec<u8>) {
    let mut dictionary = Dictionary::new();
    let mut writer = TraceWriter::new(Vec::new(), &session()).unwrap();
    dictionary.add_device(Device {
        id: DeviceId(0),
        name: "NVIDIA H200".into(),
        compute_capability: [9, 0],
        multiprocessors: 132,
        threads_per_multiprocessor: 2048,
        blocks_per_multiprocessor: 32,
        registers_per_multiprocessor: 65536,
        shared_bytes_per_multiprocessor: 233_472,
        core_clock_khz: 1_980_000,
        memory_bytes: 150_000_000_000,
        memory_bandwidth_kbps: 4_800_000_000,
        uuid: *b"0123456789abcdef",
    });
    dictionary.add_context(Context { id: ContextId(1), device: DeviceId(0), null_stream: StreamId(7) });
    let name = dictionary.intern_name("cudaLaunchKernel_v7000");
    let launch = dictionary.intern_api_function(ApiFunction { domain: ApiDomain::Runtime, callback_id: 211, name });
    for step in 0..2u64 {
        let name = dictionary.intern_name(["_Z4gemmPfS_S_", "_Z7softmaxPf"][step as usize]);
        let config = dictionary.intern_launch_config(LaunchConfig {
            name,
            grid: [64, 2, 1],
            block: [256, 1, 1],
            cluster: [2, 1, 1],
            registers_per_thread: 96,
            static_shared_bytes: 1024,
            dynamic_shared_bytes: 65536,
            shared_executed_bytes: 102_400,
            local_bytes_per_thread: 16,
            launch_type: 1,
        });
        for index in 0..3 {
            let time = step * 100_000 + index * 10_000;
            let correlation = CorrelationId((100 * step + index) as u32 + 1);
            let (start, end) = (at(time + 4_000), at(time + 9_000 + index * 32));
            let (device, context, stream) = (DeviceId(0), ContextId(1), StreamId(7));
            let records = [
                Record::Api(ApiCall {
                    start: at(time),
                    end: at(time + 3_100),
                    thread: ThreadId(4242),
                    correlation,
                    function: launch,
                    return_value: 0,
                }),
                Record::Kernel(Kernel {
                    start,
                    end,
                    device,
                    context,
                    stream,
                    correlation,
                    config,
                    graph_id: 5,
                    graph_node_id: 5 << 32 | index,
                }),
                Record::Copy(Copy {
                    start,
                    end,
                    device,
                    context,
                    stream: StreamId(13),
                    correlation,
                    kind: CopyKind::HostToDevice,
                    source: MemoryKind::Pinned,
                    destination: MemoryKind::Device,
                    is_async: true,
                    bytes: 1 << 20,
                    peers: [DeviceId(0), DeviceId(1)],
                    graph_id: 0,
                    graph_node_id: 0,
                }),
            ];
            for record in &records {
                writer.event(&Event::Record(*record), &dictionary).unwrap();
            }
        }
        let (start, end, correlation) = (at(step * 100_000 + 40_000), at(step * 100_000 + 50_000), CorrelationId(50));
        let others = [
            Record::Memset(Memset {
                start,
                end,
                bytes: 4096,
                value: 255,
                memory: MemoryKind::Device,
                ..Memset::default()
            }),
            Record::Sync(Sync {
                start,
                end,
                kind: SyncKind::Stream,
                context: ContextId(1),
                stream: StreamId(7),
                correlation,
                event_id: u32::MAX,
                event_sync_id: 0,
            }),
            Record::Event(CudaEvent { correlation, event_id: 9, event_sync_id: 77, ..CudaEvent::default() }),
            Record::Overhead(Overhead {
                start,
                end,
                kind: OverheadKind::BufferFlush,
                thread: ThreadId(1),
                correlation,
            }),
        ];
        for record in &others {
            writer.event(&Event::Record(*record), &dictionary).unwrap();
        }
        let loss = Loss { dropped_by_cupti: step, broken_bytes: step * 100, ..Loss::default() };
        writer
            .event(&Event::from(loss), &dictionary)
            .and_then(|()| writer.event(&Event::Flush(at(step * 100_000 + 99_000)), &dictionary))
            .unwrap();
    }
    let loss = Loss { dropped_by_cupti: 1, broken_bytes: 100, undelivered_buffers: 1, ..Loss::default() };
    let bytes = writer.finish(End::TimedOut, at(250_000), &loss, &dictionary).unwrap();
    (dictionary, bytes)
}

/// Fails unless every table of `read` equals the written one.
pub fn assert_same_dictionary(read: &Dictionary, written: &Dictionary) {
    assert_eq!(read.names(), written.names());
    assert_eq!(read.launch_configs(), written.launch_configs());
    assert_eq!(read.api_functions(), written.api_functions());
    assert_eq!(read.frames(), written.frames());
    assert_eq!(read.devices(), written.devices());
    assert_eq!(read.contexts(), written.contexts());
    assert_eq!(read.links(), written.links());
}
