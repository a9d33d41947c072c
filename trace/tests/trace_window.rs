//! Reading part of a trace, and reading from sources that are slow or interrupted.

use std::io::{self, Read};

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::{TraceReader, TraceWriter};
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::*;

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

/// One record of each kind that has times, from `start` to `end`; those with one time have `end`.
fn timed(start: u64, end: u64) -> Vec<(&'static str, Record)> {
    let (start, end) = (at(start), at(end));
    vec![
        ("kernel", Record::Kernel(Kernel { start, end, ..Kernel::default() })),
        ("copy", Record::Copy(Copy { start, end, ..Copy::default() })),
        ("memset", Record::Memset(Memset { start, end, ..Memset::default() })),
        ("call", Record::Api(ApiCall { start, end, ..ApiCall::default() })),
        ("sync", Record::Sync(Sync { start, end, ..Sync::default() })),
        ("overhead", Record::Overhead(Overhead { start, end, ..Overhead::default() })),
        ("range", Record::Range(RangeEvent { at: end, ..RangeEvent::default() })),
        ("sample", Record::Sample(HostSample { since: start, at: end, ..HostSample::default() })),
        ("memory", Record::Memory(MemoryEvent { at: end, ..MemoryEvent::default() })),
        ("managed", Record::Managed(ManagedEvent { start, end, ..ManagedEvent::default() })),
    ]
}

fn trace(records: &[Record]) -> Vec<u8> {
    let dictionary = Dictionary::new();
    let mut writer = TraceWriter::new(Vec::new(), &ProcessInfo::default()).unwrap();
    for record in records {
        writer.event(&Event::Record(*record), &dictionary).unwrap();
    }
    writer.finish(End::Clean, at(5_000), &Loss::default(), &dictionary).unwrap()
}

/// Records read for the times from `from` to `to`.
fn read(trace: &[u8], (from, to): (u64, u64)) -> Vec<Record> {
    let mut reader = TraceReader::new(trace).unwrap();
    reader.only(at(from), at(to));
    records(reader)
}

fn records(mut reader: TraceReader<impl Read>) -> Vec<Record> {
    let mut records = Vec::new();
    while let Some(item) = reader.next_event().unwrap() {
        if let Event::Record(record) = item {
            records.push(record);
        }
    }
    assert!(reader.damage().is_none());
    records
}

#[test]
fn blocks_wholly_outside_are_passed_over_whatever_they_hold() {
    for (name, record) in timed(1_000, 2_000) {
        let trace = trace(&[record]);
        let whole = [record];
        let seen = |window| read(&trace, window);
        assert_eq!(seen((2_000, 3_000)), whole, "{name}: its end is the begin of the window");
        assert_eq!(seen((2_001, 3_000)), [], "{name}");
        assert_eq!(seen((0, 2_500)), whole, "{name}");
        assert_eq!(seen((0, 999)), [], "{name}");
        assert_eq!(records(TraceReader::new(&trace[..]).unwrap()), whole, "{name}");
        if matches!(name, "range" | "memory") {
            continue;
        }
        assert_eq!(seen((0, 1_000)), whole, "{name}: its begin is the end of the window");
        assert_eq!(seen((1_400, 1_600)), whole, "{name}: it lasts all of the window");
    }
}

#[test]
fn a_block_reaches_from_its_earliest_to_its_latest_time() {
    let together: Vec<Record> = timed(1_000, 2_000).into_iter().chain(timed(3_000, 4_000)).map(|(_, r)| r).collect();
    let trace = trace(&together);
    for (window, seen) in [((0, 999), false), ((0, 1_000), true), ((2_400, 2_600), true), ((4_000, 9_000), true)] {
        assert_eq!(read(&trace, window).len(), if seen { together.len() } else { 0 }, "{window:?}");
    }
    assert!(read(&trace, (4_001, 9_000)).is_empty());
}

#[test]
fn records_without_times_are_in_every_part() {
    let event = Record::Event(CudaEvent { event_sync_id: 7, ..CudaEvent::default() });
    assert_eq!(read(&trace(&[event]), (1_000, 2_000)), [event]);
    let untimed = Record::Kernel(Kernel { correlation: CorrelationId(3), ..Kernel::default() });
    assert_eq!(read(&trace(&[untimed]), (1_000, 2_000)), [untimed]);
}

/// Returns at most `most` bytes at a time, and is interrupted before each read.
struct Slow<'a> {
    rest: &'a [u8],
    most: usize,
    interrupt: bool,
}

impl Read for Slow<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.interrupt = !self.interrupt;
        if self.interrupt {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let most = self.most.min(buffer.len());
        self.rest.read(&mut buffer[..most])
    }
}

#[test]
fn a_source_may_be_slow_and_interrupted() {
    let all: Vec<Record> = timed(1_000, 2_000).into_iter().map(|(_, record)| record).collect();
    let trace = trace(&all);
    for most in [1, 7, 4_096] {
        let slow = Slow { rest: &trace, most, interrupt: false };
        let mut seen = records(TraceReader::new(slow).unwrap());
        let mut expected = all.clone();
        seen.sort_by_key(|record| format!("{record:?}"));
        expected.sort_by_key(|record| format!("{record:?}"));
        assert_eq!(seen, expected, "{most}");
    }
}

#[test]
fn what_fails_to_be_read_is_an_error() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("gone"))
        }
    }
    let trace = trace(&[Record::Kernel(Kernel { start: at(1), end: at(2), ..Kernel::default() })]);
    let mut reader = TraceReader::new(trace[..trace.len() - 5].chain(Failing)).unwrap();
    let error =
        std::iter::from_fn(|| reader.next_event().transpose()).find_map(Result::err).expect("the end is missing");
    assert!(error.to_string().contains("gone"), "{error}");
    let source = std::error::Error::source(&error).expect("the error of the source");
    assert_eq!(source.to_string(), "gone");
    assert!(TraceReader::new(Failing).is_err());
}

#[test]
fn what_compresses_is_compressed_and_the_rest_is_kept_as_it_is() {
    let written = |name: &dyn Fn(u64) -> String| {
        let mut dictionary = Dictionary::new();
        (0..1_000).for_each(|index| _ = dictionary.intern_name(&name(index)));
        let mut writer = TraceWriter::new(Vec::new(), &ProcessInfo::default()).unwrap();
        writer.event(&Event::Flush(at(1)), &dictionary).unwrap();
        let trace = writer.finish(End::Clean, at(2), &Loss::default(), &dictionary).unwrap();
        let mut reader = TraceReader::new(&trace[..]).unwrap();
        while reader.next_event().unwrap().is_some() {}
        assert_eq!(reader.dictionary().names().len(), dictionary.names().len());
        trace.len()
    };
    let alike = written(&|index| format!("{}{index}", "void at::native::vectorized_elementwise_kernel".repeat(3)));
    assert!(alike < 1_000 * 135 / 5, "{alike} bytes of 135,000");
    // Noise that uses five bits of each byte.
    let mut state = 1u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'A' + (state >> 59) as u8)
    };
    let noise: Vec<String> = (0..1_000).map(|_| (0..100).map(|_| noise()).collect()).collect();
    let random = written(&|index| noise[index as usize].clone());
    assert!((62_500..105_000).contains(&random), "{random} bytes of 100,000 that hold 62,500");
}

#[test]
fn what_describes_the_machine_comes_back() {
    let mut dictionary = Dictionary::new();
    dictionary.add_device(Device { id: DeviceId(3), multiprocessors: 132, ..Device::default() });
    dictionary.add_context(Context { id: ContextId(7), device: DeviceId(3), ..Context::default() });
    dictionary.add_link(PcieLink { device: DeviceId(3), generation: 5, megatransfers: 32_000, lanes: 16 });
    for thread in 0..3 {
        let name = dictionary.intern_name(&format!("worker {thread}"));
        dictionary.add_thread_name(ThreadName { thread: ThreadId(40 + thread), name });
    }
    let mut writer = TraceWriter::new(Vec::new(), &ProcessInfo::default()).unwrap();
    writer.event(&Event::Flush(at(1)), &dictionary).unwrap();
    let trace = writer.finish(End::Clean, at(2), &Loss::default(), &dictionary).unwrap();
    let mut reader = TraceReader::new(&trace[..]).unwrap();
    while reader.next_event().unwrap().is_some() {}
    assert!(reader.damage().is_none());
    let read = reader.dictionary();
    assert_eq!(read.device(DeviceId(3)).unwrap().multiprocessors, 132);
    assert_eq!(read.context(ContextId(7)).unwrap().device, DeviceId(3));
    assert_eq!(read.link(DeviceId(3)).unwrap().lanes, 16);
    assert_eq!(
        [40, 41, 42, 43].map(|id| read.thread_name(ThreadId(id))),
        [Some("worker 0"), Some("worker 1"), Some("worker 2"), None]
    );
}

#[test]
fn more_links_than_can_be_are_damage() {
    let read = |links: u32| {
        let mut dictionary = Dictionary::new();
        (0..links).for_each(|lanes| dictionary.add_link(PcieLink { lanes, ..PcieLink::default() }));
        let mut writer = TraceWriter::new(Vec::new(), &ProcessInfo::default()).unwrap();
        writer.event(&Event::Flush(at(1)), &dictionary).unwrap();
        let trace = writer.finish(End::Clean, at(2), &Loss::default(), &dictionary).unwrap();
        let mut reader = TraceReader::new(&trace[..]).unwrap();
        while reader.next_event().unwrap().is_some() {}
        reader.damage().is_none()
    };
    assert!(read(4_096) && !read(4_097));
}
