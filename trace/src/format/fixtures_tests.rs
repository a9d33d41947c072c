//! Checks that the recorded traces of this repository contain every kind of block and record. Readers and
//! outputs are only tested with real GPU data for kinds that occur in a recorded trace.
#![expect(clippy::disallowed_methods, reason = "a test reads files")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::TraceReader;
use super::block::kind;
use super::source::ByteSource;
use crate::collective::CollectiveEvent;
use crate::counters::CounterEvent;
use crate::event::Event;
use crate::record::Record;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../testing/fixtures");

/// Kinds without a recorded trace, and the reasons.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("CALL_RECORDING", "only earlier versions wrote it"),
    ("synchronizations", "takes GPUWHY_DEPENDENCIES=on; the recordings of CUPTI have them"),
    ("events", "takes GPUWHY_DEPENDENCIES=on; the recordings of CUPTI have them"),
];

const COUNTERS: [&str; 5] =
    ["sets of counters", "samples of counters", "NVML readings", "losses of counters", "readings of other processes"];
const COLLECTIVES: [&str; 2] = ["communicators", "queued operations"];

/// All kinds.
fn all() -> BTreeSet<&'static str> {
    let blocks = kind::ALL.iter().map(|&(_, name)| name);
    blocks.chain(Record::KINDS).chain(COUNTERS).chain(COLLECTIVES).collect()
}

/// The kinds of one trace.
fn of(path: &Path) -> BTreeSet<&'static str> {
    let bytes = fs::read(path).unwrap();
    let mut found = BTreeSet::new();
    let mut source = ByteSource::new(&bytes[..]).unwrap();
    while let Some(header) = source.next_block().unwrap() {
        found.extend(kind::ALL.iter().find(|&&(kind, _)| kind == header.kind).map(|&(_, name)| name));
    }
    let mut reader = TraceReader::new(&bytes[..]).unwrap();
    while let Some(event) = reader.next_event().unwrap() {
        found.extend(match event {
            Event::Record(record) => Some(Record::KINDS[record.kind()]),
            Event::Counters(event) => Some(match *event {
                CounterEvent::Set(_) => COUNTERS[0],
                CounterEvent::Sample(_) => COUNTERS[1],
                CounterEvent::Gauges(_) => COUNTERS[2],
                CounterEvent::Loss(_) => COUNTERS[3],
                CounterEvent::Process(_) => COUNTERS[4],
            }),
            Event::Collective(event) => Some(match event {
                CollectiveEvent::Communicator(_) => COLLECTIVES[0],
                CollectiveEvent::Operation(_) => COLLECTIVES[1],
            }),
            // Kinds of blocks.
            Event::Flush(_)
            | Event::Loss(_)
            | Event::Capture(_)
            | Event::Cost { .. }
            | Event::GraphNode(_)
            | Event::MemoryCall(_)
            | Event::Utilization { .. }
            | Event::KernelProfile(_)
            | Event::End(..) => None,
        });
    }
    found
}

/// Kinds in all traces of a folder.
fn within(folder: &Path) -> BTreeSet<&'static str> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    let traces = files.iter().filter(|path| path.extension().is_some_and(|found| found == "gpuwhy"));
    traces.flat_map(|path| of(path)).chain(folders.iter().flat_map(|folder| within(folder))).collect()
}

#[test]
fn a_recorded_trace_has_every_kind_of_block_and_record() {
    let recorded = within(Path::new(FIXTURES));
    let excepted: BTreeSet<&str> = EXCEPTIONS.iter().map(|&(kind, _)| kind).collect();
    let missing: Vec<_> =
        all().into_iter().filter(|kind| !recorded.contains(kind) && !excepted.contains(kind)).collect();
    assert!(missing.is_empty(), "record a trace with {missing:?}, or say in EXCEPTIONS why there is none");
    let needless: Vec<_> = excepted.iter().filter(|kind| recorded.contains(*kind) || !all().contains(*kind)).collect();
    assert!(
        needless.is_empty(),
        "a recorded trace has {needless:?}, or there is no such kind: remove it from EXCEPTIONS"
    );
}
