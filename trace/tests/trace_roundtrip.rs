//! Everything written is read back: every field, any value, any order, across chunks and flushes.

use std::io::{self, Write};

use crate::trace_sample::{assert_same_dictionary, at, blocks, read, sample, session};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::format::compact::{Form, compact, sizes};
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::*;
use proptest::prelude::*;

/// Numbers of every length class, with edge values more frequent than by chance.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(u64::MAX),
        Just(1 << 63),
        Just(u64::from(u32::MAX)),
        0..200u64,
        1_790_000_000_000_000_000..1_790_000_001_000_000_000u64,
        any::<u64>(),
    ]
}

fn pick<T: std::marker::Copy>(choices: &[T], number: u64) -> T {
    choices[(number % choices.len() as u64) as usize]
}

#[expect(clippy::too_many_lines, reason = "one record of each kind")]
fn record_of(kind: u8, n: &[u64]) -> Record {
    let time = |index: usize| Timestamp::from_nanos(n[index]);
    let memory = [
        MemoryKind::Unknown,
        MemoryKind::Pageable,
        MemoryKind::Pinned,
        MemoryKind::Device,
        MemoryKind::Array,
        MemoryKind::Managed,
    ];
    let (start, end) = (time(0), time(1));
    let (device, context, stream) = (DeviceId(n[2] as u32), ContextId(n[3] as u32), StreamId(n[4] as u32));
    let correlation = CorrelationId(n[5] as u32);
    let (graph_id, graph_node_id) = (n[6] as u32, n[7]);
    match kind {
        0 => {
            let config = LaunchConfigId(n[8] as u32);
            Record::Kernel(Kernel { start, end, device, context, stream, correlation, config, graph_id, graph_node_id })
        }
        1 => Record::Copy(Copy {
            start,
            end,
            device,
            context,
            stream,
            correlation,
            kind: pick(
                &[
                    CopyKind::Unknown,
                    CopyKind::HostToDevice,
                    CopyKind::DeviceToHost,
                    CopyKind::DeviceToDevice,
                    CopyKind::HostToHost,
                    CopyKind::PeerToPeer,
                ],
                n[8],
            ),
            source: pick(&memory, n[9]),
            destination: pick(&memory, n[10]),
            is_async: n[11] & 1 == 1,
            bytes: n[12],
            peers: [DeviceId(n[13] as u32), DeviceId(n[14] as u32)],
            graph_id,
            graph_node_id,
        }),
        2 => Record::Memset(Memset {
            start,
            end,
            device,
            context,
            stream,
            correlation,
            memory: pick(&memory, n[9]),
            is_async: n[11] & 1 == 1,
            value: n[8] as u32,
            bytes: n[12],
            graph_id,
            graph_node_id,
        }),
        3 => Record::Api(ApiCall {
            start,
            end,
            thread: ThreadId(n[2] as u32),
            correlation,
            function: ApiFunctionId(n[3] as u32),
            return_value: n[4] as u32,
        }),
        4 => Record::Sync(Sync {
            start,
            end,
            kind: pick(
                &[SyncKind::Unknown, SyncKind::Event, SyncKind::StreamWaitEvent, SyncKind::Stream, SyncKind::Context],
                n[8],
            ),
            context,
            stream,
            correlation,
            event_id: n[6] as u32,
            event_sync_id: n[7],
        }),
        5 => Record::Event(CudaEvent { correlation, context, stream, event_id: n[6] as u32, event_sync_id: n[7] }),
        6 => Record::Range(RangeEvent {
            at: start,
            thread: ThreadId(n[2] as u32),
            kind: pick(
                &[
                    RangeEventKind::Unknown,
                    RangeEventKind::Push,
                    RangeEventKind::Pop,
                    RangeEventKind::Start,
                    RangeEventKind::End,
                    RangeEventKind::Mark,
                ],
                n[8],
            ),
            domain: NameId(n[3] as u32),
            message: NameId(n[4] as u32),
            category: NameId(n[6] as u32),
            color: n[9] as u32,
            range_id: n[7],
            payload: pick(
                &[
                    Payload::None,
                    Payload::Unsigned(n[10]),
                    Payload::Signed(n[10] as i64),
                    // Not NaN, because this test compares for equality.
                    Payload::Float(n[10] as f64 / -3.0),
                ],
                n[12],
            ),
        }),
        8 => Record::Memory(MemoryEvent {
            at: start,
            operation: pick(
                &[
                    MemoryOperation::Unknown,
                    MemoryOperation::Allocation,
                    MemoryOperation::Release,
                    MemoryOperation::PoolCreated,
                    MemoryOperation::PoolDestroyed,
                    MemoryOperation::PoolTrimmed,
                ],
                n[11],
            ),
            kind: pick(&memory, n[12]),
            device: DeviceId(n[2] as u32),
            context: ContextId(n[3] as u32),
            stream: StreamId(n[4] as u32),
            correlation: CorrelationId(n[5] as u32),
            address: n[6],
            bytes: n[7],
            name: NameId(n[8] as u32),
            pool: n[9],
            pool_bytes: n[10],
            pool_used: n[1],
            pool_threshold: n[0],
        }),
        9 => Record::Managed(ManagedEvent {
            start,
            end,
            kind: pick(
                &[
                    ManagedKind::Unknown,
                    ManagedKind::HostToDevice,
                    ManagedKind::DeviceToHost,
                    ManagedKind::DeviceToDevice,
                    ManagedKind::HostFault,
                    ManagedKind::DeviceFault,
                ],
                n[11],
            ),
            source: DeviceId(n[2] as u32),
            destination: DeviceId(n[3] as u32),
            address: n[6],
            value: n[7],
            cause: n[8] as u32,
        }),
        7 => Record::Sample(HostSample {
            earlier: n[8].is_multiple_of(3).then_some(StackId(n[8] as u32 >> 1)),
            read_within: n[11] as u32,
            since: start,
            at: end,
            thread: ThreadId(n[2] as u32),
            state: pick(
                &[
                    ThreadState::Unknown,
                    ThreadState::Running,
                    ThreadState::Futex,
                    ThreadState::Poll,
                    ThreadState::Io,
                    ThreadState::Disk,
                    ThreadState::Sleep,
                    ThreadState::Child,
                    ThreadState::Memory,
                    ThreadState::Driver,
                    ThreadState::Other,
                ],
                n[8],
            ),
            on_cpu: n[9],
            runnable: n[10],
            stack: StackId(n[3] as u32),
            interpreter_lock: pick(
                &[
                    InterpreterLock::Unknown,
                    InterpreterLock::ThisThread,
                    InterpreterLock::OtherThread,
                    InterpreterLock::Free,
                ],
                n[12],
            ),
            collecting_garbage: n[11] & 1 == 1,
            children: n[4] as u32,
            children_running: n[6] as u32,
            children_in_io: n[13] as u32,
        }),
        _ => Record::Overhead(Overhead {
            start,
            end,
            kind: pick(
                &[
                    OverheadKind::Unknown,
                    OverheadKind::DriverCompiler,
                    OverheadKind::BufferFlush,
                    OverheadKind::Instrumentation,
                    OverheadKind::Resource,
                    OverheadKind::RuntimeModuleLoading,
                    OverheadKind::LazyFunctionLoading,
                    OverheadKind::CommandBufferFull,
                    OverheadKind::ActivityBufferRequest,
                    OverheadKind::UnifiedMemoryInit,
                ],
                n[8],
            ),
            thread: ThreadId(n[2] as u32),
            correlation,
        }),
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push(Record),
    Name(String),
    Flush(u64, u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0..11u8, prop::collection::vec(number(), 15)).prop_map(|(kind, n)| Step::Push(record_of(kind, &n))),
        2 => ".{0,20}".prop_map(Step::Name),
        1 => (number(), 0..3u64).prop_map(|(at, lost)| Step::Flush(at, lost)),
    ]
}

/// Items by kind in order, which the format guarantees to preserve.
fn by_kind(items: &[Event]) -> Vec<Vec<Event>> {
    let mut kinds = vec![Vec::new(); 16];
    for item in items {
        kinds[match item {
            Event::Record(Record::Kernel(_)) => 0,
            Event::Record(Record::Copy(_)) => 1,
            Event::Record(Record::Memset(_)) => 2,
            Event::Record(Record::Api(_)) => 3,
            Event::Record(Record::Sync(_)) => 4,
            Event::Record(Record::Event(_)) => 5,
            Event::Record(Record::Overhead(_)) => 6,
            Event::Record(Record::Range(_)) => 7,
            Event::Record(Record::Sample(_)) => 8,
            Event::Flush(_) => 9,
            Event::Loss(_) => 10,
            Event::Capture(_) => 11,
            Event::Cost { .. } => 14,
            Event::End(..) => 12,
            Event::Record(Record::Memory(_)) => 13,
            _ => 15,
        }]
        .push(item.clone());
    }
    kinds
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn arbitrary_traces_come_back(steps in prop::collection::vec(step(), 0..120)) {
        let mut dictionary = Dictionary::new();
        let mut writer = TraceWriter::new(Vec::new(), &session()).unwrap();
        let (mut intervals, mut interval, mut loss) = (Vec::new(), Vec::new(), Loss::default());
        for step in steps {
            match step {
                Step::Push(record) => {
                    writer.event(&Event::Record(record), &dictionary).unwrap();
                    interval.push(Event::Record(record));
                }
                Step::Name(text) => {
                    let name = dictionary.intern_name(&text);
                    dictionary.intern_launch_config(LaunchConfig { name, grid: [7, 0, u32::MAX], ..LaunchConfig::default() });
                    let caller = StackId(name.0.wrapping_sub(1));
                    dictionary.intern_frame(Frame { caller, function: name, file: name, line: name.0 });
                    dictionary.add_link(PcieLink { device: DeviceId(name.0), lanes: 16, ..PcieLink::default() });
                    dictionary.add_context(Context { id: ContextId(name.0), ..Context::default() });
                }
                Step::Flush(at, lost) => {
                    if lost > 0 {
                        loss.unknown_kinds += lost;
                        interval.push(Event::from(loss));
                    }
                    let at = Timestamp::from_nanos(at);
                    writer.event(&Event::from(loss), &dictionary).and_then(|()| writer.event(&Event::Flush(at), &dictionary)).unwrap();
                    interval.push(Event::Flush(at));
                    intervals.push(std::mem::take(&mut interval));
                }
            }
        }
        let at = Timestamp::from_nanos(9);
        interval.push(Event::End(End::Clean, at));
        intervals.push(interval);
        let bytes = writer.finish(End::Clean, at, &loss, &dictionary).unwrap();

        let compacted = compact(&bytes[..], Vec::new()).unwrap().1;
        for bytes in [bytes, compacted] {
            let back = read(&bytes).unwrap();
            prop_assert!(back.damage.is_none(), "{:?}", back.damage);
            prop_assert_eq!(&back.session, &session());
            assert_same_dictionary(&back.dictionary, &dictionary);
            let mut rest = back.items.as_slice();
            for interval in &intervals {
                let (here, later) = rest.split_at_checked(interval.len()).expect("items are missing");
                prop_assert_eq!(by_kind(here), by_kind(interval));
                rest = later;
            }
            prop_assert!(rest.is_empty());
        }
    }
}

#[test]
fn a_compacted_trace_is_smaller_and_has_fewer_blocks() {
    let dictionary = Dictionary::new();
    let mut writer = TraceWriter::new(Vec::new(), &session()).unwrap();
    for index in 0..20_000u64 {
        let start = at(index * 7_000 + index * index % 977);
        let call = ApiCall {
            start,
            end: Timestamp::from_nanos(start.nanos() + 3_000 + index * 31 % 1_009),
            ..ApiCall::default()
        };
        writer.event(&Event::Record(Record::Api(call)), &dictionary).unwrap();
        if index % 500 == 499 {
            writer.event(&Event::Flush(start), &dictionary).unwrap();
        }
    }
    // A killed process: the trace has no end.
    let (bytes, live) = writer.close(&dictionary).unwrap();
    assert_eq!(bytes, live.len() as u64);
    let (compacted, copy) = compact(&live[..], Vec::new()).unwrap();
    assert_eq!((compacted.records, compacted.bytes), (20_000, copy.len() as u64));
    assert!(copy.len() * 10 < live.len() * 9, "{} and {} bytes", copy.len(), live.len());
    assert_eq!(blocks(&copy).len(), 2, "the session and all records with their marks");
    let (before, after) = (read(&live).unwrap(), read(&copy).unwrap());
    assert_eq!(before.items, after.items);
    assert_eq!(compact(&copy[..], Vec::new()).unwrap().1, copy, "again changes nothing");
}

#[test]
fn a_damaged_trace_is_not_compacted() {
    let (_, mut bytes) = sample();
    let place = blocks(&bytes)[2].end - 3;
    bytes[place] ^= 1;
    let error = compact(&bytes[..], Vec::new()).unwrap_err().to_string();
    assert!(error.contains("not compacted"), "{error}");
}

#[test]
fn sizes_add_up_to_about_the_trace() {
    let (_, bytes) = sample();
    let sizes = sizes(&bytes[..], Form::Live).unwrap();
    let records: u64 = sizes.kinds.iter().map(|kind| kind.records).sum();
    assert_eq!(records, 2 * (3 * 3 + 4));
    let total = sizes.rest + sizes.kinds.iter().map(|kind| kind.bytes).sum::<u64>();
    let whole = bytes.len() as u64;
    assert!((whole * 4 / 5..whole * 2).contains(&total), "{total} of {whole} bytes: {sizes:?}");
}

#[test]
fn full_chunks_are_written_without_a_flush_and_keep_their_order() {
    let dictionary = Dictionary::new();
    let mut writer = TraceWriter::new(Vec::new(), &ProcessInfo::default()).unwrap();
    let before = writer.bytes_written();
    let kernel = |index: u64| Record::Kernel(Kernel { graph_node_id: index * 3, ..Kernel::default() });
    for index in 0..50_000 {
        writer.event(&Event::Record(kernel(index)), &dictionary).unwrap();
    }
    assert!(writer.bytes_written() > before, "three chunks are full");
    let bytes = writer.finish(End::Clean, Timestamp::ZERO, &Loss::default(), &dictionary).unwrap();
    let back = read(&bytes).unwrap();
    assert_eq!(back.items.len(), 50_001);
    assert!((0..50_000).all(|index| back.items[index as usize] == Event::Record(kernel(index))));
}

#[test]
fn a_dictionary_larger_than_a_block_is_split_and_comes_back() {
    let mut dictionary = Dictionary::new();
    for index in 0..3_000 {
        dictionary.intern_name(&format!("{index:x<2000}"));
    }
    let long = "é".repeat(1 << 20);
    dictionary.intern_name(&long);
    let name = dictionary.intern_name("last");
    dictionary.intern_launch_config(LaunchConfig { name, ..LaunchConfig::default() });
    let writer = TraceWriter::new(Vec::new(), &ProcessInfo::default()).unwrap();
    let bytes = writer.finish(End::Clean, Timestamp::ZERO, &Loss::default(), &dictionary).unwrap();
    let back = read(&bytes).unwrap();
    assert!(back.damage.is_none(), "{:?}", back.damage);
    assert_eq!(back.dictionary.names().len(), 3_002);
    assert_eq!(back.dictionary.names()[..3_000], dictionary.names()[..3_000]);
    assert_eq!(*back.dictionary.names()[3_000], long[..1 << 20], "cut to 1 MiB");
    assert_eq!(back.dictionary.launch_configs(), dictionary.launch_configs());
}

/// Accepts some bytes, then returns an error once, then works again.
struct Hiccup {
    bytes: Vec<u8>,
    fail_at: usize,
}

impl Write for Hiccup {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.fail_at.saturating_sub(self.bytes.len());
        if room == 0 {
            self.fail_at = usize::MAX;
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        let taken = bytes.len().min(room);
        self.bytes.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_failed_write_loses_its_rows_and_nothing_else() {
    let mut dictionary = Dictionary::new();
    dictionary.intern_name("first");
    let plain = TraceWriter::new(Vec::new(), &session()).unwrap().bytes_written() as usize;
    let mut writer = TraceWriter::new(Hiccup { bytes: Vec::new(), fail_at: plain + 30 }, &session()).unwrap();
    let record = |index| Record::Event(CudaEvent { event_id: index, ..CudaEvent::default() });
    let loss = Loss { broken_buffers: 1, ..Loss::default() };
    writer.event(&Event::Record(record(1)), &dictionary).unwrap();
    let error = writer
        .event(&Event::from(loss), &dictionary)
        .and_then(|()| writer.event(&Event::Flush(Timestamp::from_nanos(1)), &dictionary))
        .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(writer.rows_lost(), 1);
    writer.event(&Event::Record(record(2)), &dictionary).unwrap();
    let sink = writer.finish(End::Clean, Timestamp::from_nanos(2), &loss, &dictionary).unwrap();

    let back = read(&sink.bytes).unwrap();
    let end = Event::End(End::Clean, Timestamp::from_nanos(2));
    assert_eq!(back.items, [Event::Record(record(2)), Event::from(loss), end]);
    assert_same_dictionary(&back.dictionary, &dictionary);
    assert!(back.damage.missing_blocks > 0 && back.damage.skipped_bytes == 30, "{:?}", back.damage);
}

#[test]
fn a_flush_of_little_stays_little() {
    let (_, bytes) = sample();
    let quiet = |flushes: u64| {
        let dictionary = Dictionary::new();
        let mut writer = TraceWriter::new(Vec::new(), &ProcessInfo::default()).unwrap();
        for at in 0..flushes {
            writer.event(&Event::Flush(Timestamp::from_nanos(at)), &dictionary).unwrap();
        }
        writer.bytes_written()
    };
    assert_eq!(quiet(11) - quiet(10), 40, "an idle process writes one bare mark");
    // 13 rows of seven kinds: 40 bytes of header and about 20 bytes per row, mostly first values of columns.
    let second = &blocks(&bytes)[5];
    assert!(second.len() < 320, "{}", second.len());
}
