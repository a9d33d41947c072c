//! Collectives in a trace: they survive a round trip, also in a compacted trace and in a golden file, and the
//! report of the trace equals that of the live run.

use std::fs::{self, File};
use std::io::Write as _;

use gpuwhy_report::capture::Captures;
use gpuwhy_report::run::Report;
use gpuwhy_trace::collective::{
    Algorithm, CollectiveEvent, Communicator, DataType, Execution, Function, Protocol, QueuedOperation,
};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::compact::compact;
use gpuwhy_trace::format::{TraceReader, TraceWriter};
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::*;

/// Never rewritten: a format change that breaks this file needs a new major version.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/golden/collectives-1.5.bin");
/// The same for operations that come from NVTX ranges.
const GOLDEN_RANGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/golden/collectives-ranges-1.5.bin");
const START: u64 = 1_790_000_000_000_000_000;
const STEPS: u64 = 40;
const STEP: u64 = 10_000_000;

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(START + nanos)
}

/// A program that computes and reduces in each step; the reduction starts during the computation and ends
/// alone.
fn program() -> (Vec<Event>, Dictionary) {
    let mut dictionary = Dictionary::new();
    let launch = dictionary.intern_name("cuLaunchKernelEx");
    let launch =
        dictionary.intern_api_function(ApiFunction { domain: ApiDomain::Driver, callback_id: 652, name: launch });
    let mut config = |name: &str| {
        let name = dictionary.intern_name(name);
        dictionary.intern_launch_config(LaunchConfig { name, grid: [8, 1, 1], ..LaunchConfig::default() })
    };
    let (gemm, reduce) = (config("gemm"), config("ncclDevKernel_AllReduce_Sum_bf16_RING_LL"));
    let name = dictionary.intern_name("dp");
    let communicator = Communicator { number: 1, id: 0xfeed_0000_0000_0001, name, nodes: 2, ranks: 16, rank: 3 };
    let mut items = vec![Event::Collective(CollectiveEvent::Communicator(communicator))];
    for step in 0..STEPS {
        let begin = step * STEP;
        let (first, second) = (2 * step as u32 + 1, 2 * step as u32 + 2);
        for (correlation, launched) in [(first, begin), (second, begin + 20_000)] {
            items.push(Event::Record(Record::Api(ApiCall {
                start: at(launched),
                end: at(launched + 5_000),
                thread: ThreadId(71),
                correlation: CorrelationId(correlation),
                function: launch,
                return_value: 0,
            })));
        }
        items.push(Event::Collective(CollectiveEvent::Operation(QueuedOperation {
            communicator: 1,
            thread: ThreadId(71),
            at: at(begin + 30_000),
            launch_begin: at(begin + 19_000),
            launch_end: at(begin + 26_000),
            function: Function::AllReduce,
            data_type: DataType::Bfloat16,
            algorithm: Algorithm::Ring,
            protocol: Protocol::Simple,
            channels: 16,
            count: 1 << 24,
            sequence: Some(step),
            root_or_peer: 0,
            way: Execution::Kernel,
            by_range: false,
        })));
        for (config, correlation, stream, span) in
            [(gemm, first, 7, (50_000, 4_000_000)), (reduce, second, 9, (3_000_000, 5_000_000))]
        {
            items.push(Event::Record(Record::Kernel(Kernel {
                start: at(begin + span.0),
                end: at(begin + span.1),
                stream: StreamId(stream),
                correlation: CorrelationId(correlation),
                config,
                ..Kernel::default()
            })));
        }
        items.push(Event::Flush(at(begin + STEP)));
    }
    (items, dictionary)
}

/// The same program without the plugin.
fn program_with_ranges() -> (Vec<Event>, Dictionary) {
    let (mut items, dictionary) = program();
    for item in &mut items {
        match item {
            Event::Collective(CollectiveEvent::Communicator(known)) => {
                *known = Communicator { number: 1, id: known.id, ..Communicator::default() };
            }
            Event::Collective(CollectiveEvent::Operation(reported)) => {
                let QueuedOperation { communicator, thread, launch_begin, launch_end, function, .. } = *reported;
                let (at, count, by_range) = (launch_end, 32 << 20, true);
                let ranged = QueuedOperation {
                    communicator,
                    thread,
                    at,
                    launch_begin,
                    launch_end,
                    function,
                    count,
                    by_range,
                    ..Default::default()
                };
                *reported = ranged;
            }
            _ => {}
        }
    }
    (items, dictionary)
}

fn report(items: &[Event], dictionary: &Dictionary) -> Report {
    let session = ProcessInfo::default();
    let mut captures = Captures::new(None);
    for item in items {
        captures.event(item, &session, dictionary);
    }
    captures.finish(at(STEPS * STEP), &session, dictionary);
    captures.report(&session, dictionary, End::Clean, Vec::new())
}

fn written((items, dictionary): &(Vec<Event>, Dictionary)) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), &ProcessInfo::default()).unwrap();
    for item in items {
        writer.event(item, dictionary).unwrap();
    }
    writer.finish(End::Clean, at(STEPS * STEP), &Loss::default(), dictionary).unwrap()
}

fn read(bytes: &[u8]) -> (Vec<Event>, Dictionary) {
    let mut reader = TraceReader::new(bytes).unwrap();
    let items: Vec<Event> = reader.by_ref().map(Result::unwrap).collect();
    assert!(reader.damage().is_none(), "{:?}", reader.damage());
    (items, reader.into_parts().1)
}

fn events(items: &[Event]) -> Vec<CollectiveEvent> {
    items.iter().filter_map(|item| if let Event::Collective(event) = item { Some(*event) } else { None }).collect()
}

#[test]
fn the_trace_says_what_the_live_run_said() {
    let program = program();
    let live = report(&program.0, &program.1).collectives.unwrap();
    let [named] = &live.rows[..] else { panic!("{live:?}") };
    assert_eq!((named.name.as_str(), named.row.kernels, named.row.bases), ("dp", STEPS, [STEPS, 0, 0, 0]));
    assert_eq!((named.row.time_ns, named.row.exposed_ns), (STEPS * 2_000_000, STEPS * 1_000_000));
    // 32 MiB in 2 ms.
    assert_eq!((named.row.bytes, named.row.sized_ns), (STEPS * (32 << 20), STEPS * 2_000_000));
    assert_eq!(live.unjoined, Default::default());

    let bytes = written(&program);
    let compacted = compact(&bytes[..], Vec::new()).unwrap().1;
    assert!(compacted.len() < bytes.len());
    for bytes in [&bytes, &compacted] {
        let (items, dictionary) = read(bytes);
        assert_eq!(events(&items), events(&program.0));
        assert_eq!(report(&items, &dictionary).collectives.as_ref(), Some(&live));
    }
}

#[test]
fn an_operation_takes_few_bytes() {
    let with = program();
    let mut without = program();
    without.0.retain(|item| !matches!(item, Event::Collective(_)));
    let sizes = [&with, &without].map(|program| compact(&written(program)[..], Vec::new()).unwrap().1.len());
    let per_operation = (sizes[0] - sizes[1]) as f64 / STEPS as f64;
    // The study assumes 8 to 11 bytes in a lake; a block of 40 operations has a header as well.
    assert!(per_operation < 12.0, "{per_operation} bytes");
}

#[test]
fn each_capture_has_the_operations_that_were_queued_in_it() {
    let (mut items, dictionary) = program();
    let mark = |number, from: u64, to: u64| {
        [
            CaptureMark::Begin { number, at: at(from * STEP), trigger: Trigger::ProfilerApi },
            CaptureMark::End { number, at: at(to * STEP) },
        ]
        .map(Event::Capture)
    };
    let [begin, end] = mark(1, 10, 20);
    let place = |items: &[Event], flush: u64| {
        items.iter().position(|item| *item == Event::Flush(at(flush * STEP))).unwrap() + 1
    };
    let from = place(&items, 10);
    items.insert(from, begin);
    let to = place(&items, 20);
    items.insert(to, end);
    // Records outside of a capture belong to none.
    let outside = |index: usize, item: &Event| matches!(item, Event::Record(_)) && !(from..=to).contains(&index);
    let mut index = 0;
    items.retain(|item| {
        index += 1;
        !outside(index - 1, item)
    });
    let report = report(&items, &dictionary).collectives.unwrap();
    assert_eq!(report.rows[0].row.bases, [10, 0, 0, 0]);
    assert_eq!(report.unjoined, Default::default(), "operations outside are not missed");
}

#[test]
fn communicators_are_known_however_many_operations_came_before_the_first_capture() {
    let (items, dictionary) = program();
    let early = QueuedOperation { communicator: 1, at: at(1), ..QueuedOperation::default() };
    let begin = CaptureMark::Begin { number: 1, at: at(0), trigger: Trigger::Command };
    let all: Vec<_> = std::iter::repeat_n(Event::Collective(CollectiveEvent::Operation(early)), 1 << 15)
        .chain([items[0].clone(), Event::Capture(begin)])
        .chain(items[1..].iter().cloned())
        .collect();
    let report = report(&all, &dictionary).collectives.unwrap();
    assert_eq!((report.communicators, report.rows[0].name.as_str()), (1, "dp"));
    assert_eq!(report.unjoined.dropped, 1 << 14, "operations that found no room");
}

#[test]
fn ranges_tell_less_and_the_trace_says_what_the_live_run_said() {
    let program = program_with_ranges();
    let live = report(&program.0, &program.1).collectives.unwrap();
    let [named] = &live.rows[..] else { panic!("{live:?}") };
    let row = &named.row;
    assert_eq!((named.name.as_str(), row.communicator, row.ranks), ("", 0xfeed_0000_0000_0001, 0));
    assert_eq!((row.kernels, row.bases, row.bytes), (STEPS, [0, 0, STEPS, 0], STEPS * (32 << 20)));
    assert_eq!(live.unjoined, Default::default());
    let bytes = written(&program);
    for bytes in [&compact(&bytes[..], Vec::new()).unwrap().1, &bytes] {
        let (items, dictionary) = read(bytes);
        assert_eq!(events(&items), events(&program.0));
        assert_eq!(report(&items, &dictionary).collectives.as_ref(), Some(&live));
    }
}

#[test]
fn files_that_were_written_once_are_read() {
    for (golden, program) in [(GOLDEN, program()), (GOLDEN_RANGES, program_with_ranges())] {
        let (items, dictionary) = read(&fs::read(golden).unwrap());
        assert_eq!(events(&items), events(&program.0));
        assert_eq!(report(&items, &dictionary).collectives, report(&program.0, &program.1).collectives);
    }
}

#[test]
#[ignore = "writes the golden files that are not there"]
fn write_golden_files() {
    for (golden, program) in [(GOLDEN, program()), (GOLDEN_RANGES, program_with_ranges())] {
        if let Ok(mut file) = File::create_new(golden) {
            file.write_all(&written(&program)).unwrap();
        }
    }
}
