//! PC samples in a trace: they survive a round trip, also in a compacted trace and in a golden file, and
//! reach the report.

use std::fs::{self, File};
use std::io::Write as _;
use std::sync::Arc;

use gpuwhy_report::capture::Captures;
use gpuwhy_report::kernels::source::{SourceLine, SourceMap, SourceReport};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::compact::compact;
use gpuwhy_trace::format::{TraceReader, TraceWriter};
use gpuwhy_trace::kernels::{Outcome, PcCount, PcFunction, PcWindow};
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::*;

/// Never rewritten: a format change that breaks this file needs a new major version.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/golden/program-counters-1.5.bin");

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn windows() -> [PcWindow; 2] {
    let count = |function, offset, reason, samples| PcCount { function, offset, reason, samples };
    let name = |name: &str| format!("smsp__pcsamp_warps_issue_stalled_{name}");
    [
        PcWindow {
            device: DeviceId(1),
            outcome: Outcome::Measured,
            opened: at(1_000_000),
            begin: at(1_300_000),
            end: at(2_300_000),
            closed: at(2_400_000),
            period_cycles: 1 << 18,
            reasons: vec![name("selected"), name("long_scoreboard"), name("long_scoreboard_not_issued")],
            functions: vec![
                PcFunction { module: 0xfeed_0000_0000_0001, symbol: "_Z6gatherPKfPfi".to_owned() },
                PcFunction { module: 2, symbol: "copy".to_owned() },
            ],
            counts: vec![count(0, 0x10, 0, 7), count(0, 0xc0, 1, 900), count(0, 0xc0, 2, 880), count(1, 0, 1, 93)],
            samples: 1_020,
            dropped: 11,
            foreign: 9,
            overflow: 3,
            full: 1,
            modules_lost: 1,
        },
        PcWindow { outcome: Outcome::Refused(999), opened: at(5), closed: at(9), ..PcWindow::default() },
    ]
}

fn trace() -> Vec<u8> {
    let dictionary = Dictionary::new();
    let mut writer = TraceWriter::new(Vec::new(), &ProcessInfo::default()).unwrap();
    for window in windows() {
        writer.event(&Event::ProgramCounters(Arc::new(window)), &dictionary).unwrap();
    }
    writer.finish(End::Clean, at(3_000_000), &Loss::default(), &dictionary).unwrap()
}

fn assert_read(bytes: &[u8]) {
    let mut reader = TraceReader::new(bytes).unwrap();
    let window = |event| if let Event::ProgramCounters(window) = event { Some((*window).clone()) } else { None };
    let read: Vec<_> = reader.by_ref().map(Result::unwrap).filter_map(window).collect();
    assert_eq!(read, windows());
    assert!(reader.damage().is_none());
}

#[test]
fn windows_come_back_from_a_trace_and_from_a_compacted_one() {
    let trace = trace();
    assert_read(&trace);
    assert_read(&compact(&trace[..], Vec::new()).unwrap().1);
}

#[test]
fn a_file_that_was_written_once_stays_readable() {
    assert_read(&fs::read(GOLDEN).unwrap());
}

#[test]
#[ignore = "writes the golden file; refuses when it is there"]
fn write_golden_program_counters() {
    File::create_new(GOLDEN).unwrap().write_all(&trace()).unwrap();
}

/// A map with one line.
struct Map;

impl SourceMap for Map {
    fn place(&self, module: u64, _: &str, offset: u64) -> Option<SourceLine> {
        (module == 0xfeed_0000_0000_0001 && offset == 0xc0)
            .then(|| SourceLine { file: "gather.cu".to_owned(), line: 4 })
    }

    fn instruction(&self, _: u64, _: &str, _: u64) -> Option<String> {
        None
    }

    fn text(&self, _: &SourceLine) -> Option<String> {
        None
    }
}

#[test]
fn a_report_has_the_windows_and_steps_beside_them_are_no_typical_ones() {
    let (session, dictionary) = (ProcessInfo::default(), Dictionary::new());
    let mut captures = Captures::new(None);
    let kernel = Kernel { start: at(100), end: at(2_000_000), correlation: CorrelationId(1), ..Kernel::default() };
    captures.event(&Event::Record(Record::Kernel(kernel)), &session, &dictionary);
    for window in windows() {
        captures.event(&Event::ProgramCounters(Arc::new(window)), &session, &dictionary);
    }
    captures.finish(at(3_000_000), &session, &dictionary);
    let report = captures.report(&session, &dictionary, End::Clean, Vec::new());
    let source = SourceReport::of(report.kernels.windows.iter().map(AsRef::as_ref), &Map);
    assert_eq!((source.samples, source.lost, source.foreign, source.full), (1_000, 14, 9, 1));
    assert_eq!(source.outcomes, [Outcome::Measured, Outcome::Refused(999)]);
    let gather = &source.functions[0];
    assert_eq!((gather.name.as_str(), gather.share.samples), ("gather", 907));
    assert_eq!(gather.hot_line().map(|line| (line.place.line, line.waiting.samples)), Some((4, 900)));
}
