//! Size and speed of the trace format on one core: `cargo bench -p gpuwhy-trace --bench trace`.
//!
//! The load resembles training a language model: 60 launch configurations, each with a typical duration and
//! some jitter, three streams, device times in steps of 32 ns (the resolution of the hardware clock), and
//! host times with timer noise. Random numbers are seeded, so sizes repeat exactly; speeds are the best of
//! several runs.
//!
//! `--once [KIND]` writes and reads one flush size a single time, for `benches/instructions.py`, which counts
//! instructions.
//!
//! The benchmark writes into memory and does not measure the file system. It does not replace real traces,
//! whose gaps are less regular.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "measures time, prints"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::{TraceReader, TraceWriter};
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::*;

const ROWS: u64 = 500_000;
const RUNS: u32 = 5;
const START: u64 = 1_790_000_000_000_000_000;

/// splitmix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

fn kernels() -> Vec<Record> {
    let mut random = Random(1);
    let mut ends = [START; 3];
    let layer: Vec<u32> = (0..48).map(|_| random.below(60) as u32).collect();
    let lengths: Vec<u64> = (0..60).map(|_| 2_000 + random.below(200_000)).collect();
    (0..ROWS)
        .map(|index| {
            let lane = if random.below(12) == 0 { 1 + random.below(2) as usize } else { 0 };
            let config = layer[index as usize % layer.len()];
            let gap = 900 + random.below(10) * 32 + if random.below(20) == 0 { random.below(100_000) } else { 0 };
            let length = lengths[config as usize];
            let jitter = random.below(length / 50 + 32);
            let start = (ends[lane] + gap) / 32 * 32;
            let end = start + (length + jitter) / 32 * 32;
            ends[lane] = end;
            Record::Kernel(Kernel {
                start: Timestamp::from_nanos(start),
                end: Timestamp::from_nanos(end),
                device: DeviceId(0),
                context: ContextId(1),
                stream: StreamId(7 + 6 * lane as u32),
                correlation: CorrelationId((index * 3) as u32 + random.below(8).saturating_sub(6) as u32),
                config: LaunchConfigId(config),
                graph_id: 0,
                graph_node_id: 0,
            })
        })
        .collect()
}

fn api_calls() -> Vec<Record> {
    let mut random = Random(2);
    let mut ends = [START; 2];
    (0..ROWS)
        .map(|index| {
            let lane = usize::from(random.below(4) == 0);
            let rare = if random.below(30) == 0 { random.below(60_000) } else { 0 };
            let start = ends[lane] + 800 + random.below(6_000) + rare;
            let end = start + 2_400 + random.below(1_600) + rare / 2;
            ends[lane] = end;
            Record::Api(ApiCall {
                start: Timestamp::from_nanos(start),
                end: Timestamp::from_nanos(end),
                thread: ThreadId(4242 + 70 * lane as u32),
                correlation: CorrelationId(index as u32),
                function: ApiFunctionId([0, 0, 0, 0, 1, 2, 0, 3][index as usize % 8]),
                return_value: 0,
            })
        })
        .collect()
}

fn copies() -> Vec<Record> {
    let mut random = Random(3);
    let mut end = START;
    (0..ROWS)
        .map(|index| {
            let start = end + 1_000 + random.below(3_000) / 32 * 32;
            let bytes = 4096 << random.below(4);
            end = start + (bytes / 20 + random.below(400)) / 32 * 32;
            Record::Copy(Copy {
                start: Timestamp::from_nanos(start),
                end: Timestamp::from_nanos(end),
                context: ContextId(1),
                stream: StreamId(7),
                correlation: CorrelationId(index as u32 * 4),
                kind: if index % 5 == 0 { CopyKind::DeviceToHost } else { CopyKind::HostToDevice },
                source: MemoryKind::Pinned,
                destination: MemoryKind::Device,
                is_async: true,
                bytes,
                ..Copy::default()
            })
        })
        .collect()
}

/// Three host calls per kernel and an occasional copy, in the order in which a collector delivers them.
fn mixed() -> Vec<Record> {
    let (kernels, calls, copies) = (kernels(), api_calls(), copies());
    let mut out = Vec::with_capacity(calls.len() * 2);
    for (index, &call) in calls.iter().enumerate() {
        out.push(call);
        if index % 3 == 0 {
            out.push(kernels[index / 3]);
        }
        if index % 40 == 0 {
            out.push(copies[index / 40]);
        }
    }
    out
}

/// Writes `rows` with a flush every `interval` rows.
#[inline(never)]
fn write(rows: &[Event], interval: usize) -> Vec<u8> {
    let dictionary = Dictionary::new();
    let sink = Vec::with_capacity(rows.len() * 8);
    let mut writer = TraceWriter::new(sink, &ProcessInfo::default()).expect("memory does not fail");
    for chunk in rows.chunks(interval) {
        for event in chunk {
            writer.event(event, &dictionary).expect("memory does not fail");
        }
        writer.event(&Event::Flush(Timestamp::from_nanos(START)), &dictionary).expect("memory does not fail");
    }
    writer.finish(End::Clean, Timestamp::ZERO, &Loss::default(), &dictionary).expect("memory does not fail")
}

/// Reads all events and returns their number.
#[inline(never)]
fn read(bytes: &[u8]) -> usize {
    TraceReader::new(bytes).expect("just written").count()
}

/// Shortest of `runs` runs, which was disturbed least.
fn best<T>(runs: u32, mut run: impl FnMut() -> T) -> (Duration, T) {
    let mut timed = || {
        let begin = Instant::now();
        let result = black_box(run());
        (begin.elapsed(), result)
    };
    let first = timed();
    (1..runs).fold(first, |best, _| {
        let next = timed();
        if next.0 < best.0 { next } else { best }
    })
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench").peekable();
    let once = arguments.next_if(|argument| argument == "--once").is_some();
    let wanted = arguments.next().unwrap_or_default();
    let (runs, intervals) = if once { (1, &[4096][..]) } else { (RUNS, &[usize::MAX, 4096, 1024, 100, 10][..]) };
    let columns = ["rows, flushed every", "rows", "B/event", "encode M/s", "decode M/s"];
    println!("{:<28} {:>9} {:>9} {:>12} {:>12}", columns[0], columns[1], columns[2], columns[3], columns[4]);
    let kinds: [(&str, Vec<Record>); 4] =
        [("kernels", kernels()), ("API calls", api_calls()), ("copies", copies()), ("all kinds", mixed())];
    let kinds = kinds.map(|(name, rows)| (name, rows.into_iter().map(Event::Record).collect::<Vec<_>>()));
    for (name, rows) in kinds.iter().filter(|(name, _)| name.contains(&wanted)) {
        for &interval in intervals {
            let (encode, bytes) = best(runs, || write(rows, interval));
            let (decode, items) = best(runs, || read(&bytes));
            assert!(items > rows.len(), "a row is missing");
            let events = rows.len() as f64;
            let per_second = |time: Duration| events / time.as_secs_f64() / 1e6;
            let every = if interval == usize::MAX { "never".to_owned() } else { interval.to_string() };
            println!(
                "{:<28} {:>9} {:>9.2} {:>12.1} {:>12.1}",
                format!("{name}, {every}"),
                rows.len(),
                bytes.len() as f64 / events,
                per_second(encode),
                per_second(decode)
            );
        }
    }
}
