//! Actual and expected contents of captures.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, Output};

use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceReader;
use gpuwhy_trace::record::{CaptureMark, Record};

use crate::support::{Stage, stderr};

/// Contents of one capture in a trace; number 0 for a complete run.
#[derive(Default)]
pub struct Capture {
    /// Range of the capture, nanoseconds since the start of the session.
    pub begin: u64,
    pub end: u64,
    /// Correlation ids of device work, ascending.
    pub work: Vec<u32>,
}

/// Reads the captures of a trace, and the start of each call (nanoseconds since the start of the session).
pub fn read(trace: &Path) -> (BTreeMap<u32, Capture>, HashMap<u32, u64>) {
    let mut reader = TraceReader::new(BufReader::new(File::open(trace).unwrap())).unwrap();
    let start = reader.session().start;
    let (mut captures, mut calls, mut selected) = (BTreeMap::<u32, Capture>::new(), HashMap::new(), 0);
    while let Some(item) = reader.next_event().unwrap() {
        let id = match item {
            Event::Capture(mark) => {
                match mark {
                    CaptureMark::Begin { number, at, .. } => {
                        selected = number;
                        captures.entry(number).or_default().begin = at.since(start);
                    }
                    CaptureMark::Select { number } => selected = number,
                    CaptureMark::End { number, at } => captures.entry(number).or_default().end = at.since(start),
                }
                continue;
            }
            Event::Record(Record::Api(call)) => {
                let begin = calls.entry(call.correlation.0).or_insert(u64::MAX);
                *begin = call.start.since(start).min(*begin);
                continue;
            }
            Event::Record(Record::Kernel(kernel)) => kernel.correlation.0,
            Event::Record(Record::Copy(copy)) => copy.correlation.0,
            Event::Record(Record::Memset(memset)) => memset.correlation.0,
            _ => continue,
        };
        captures.entry(selected).or_default().work.push(id);
    }
    assert!(reader.damage().is_none(), "{:?}", reader.damage());
    captures.values_mut().for_each(|capture| capture.work.sort_unstable());
    (captures, calls)
}

/// Launches of the complete recording, with their times.
pub struct Truth {
    work: Vec<u32>,
    calls: HashMap<u32, u64>,
}

impl Truth {
    pub fn of(fixture: &str) -> Self {
        let stage = Stage::new();
        run(&mut stage.host(fixture));
        let (mut captures, calls) = read(&stage.path("trace.gpuwhy"));
        Self { work: captures.remove(&0).unwrap().work, calls }
    }

    /// Work launched between two times, nanoseconds.
    pub fn between(&self, from: u64, to: u64) -> Vec<u32> {
        let inside = |id: &&u32| (from..=to).contains(&self.calls[id]);
        self.work.iter().filter(inside).copied().collect()
    }

    /// Checks that a capture has exactly the work launched in its range, each once.
    #[track_caller]
    pub fn check(&self, capture: &Capture, context: &str) {
        let expected = self.between(capture.begin, capture.end);
        let times = |ids: &[u32], but: &[u32]| -> Vec<u64> {
            ids.iter().filter(|id| !but.contains(id)).map(|id| self.calls[id]).collect()
        };
        let (missing, foreign) = (times(&expected, &capture.work), times(&capture.work, &expected));
        assert!(
            capture.work == expected,
            "{context}, {} to {} ns: of {} missing those launched at {missing:?}, foreign {foreign:?}",
            capture.begin,
            capture.end,
            expected.len(),
        );
    }
}

/// Runs a program that must succeed.
pub fn run(host: &mut Command) -> Output {
    let output = host.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    output
}
