//! Upper bound of the engine's memory if it can never finish a record, because flush marks are absent or do
//! not advance. Such a trace is tiny, since constant columns are not stored.
//!
//! An allocator counts the live bytes. It counts for the entire process, so this binary has a single test.

use std::sync::atomic::Ordering::Relaxed;

use crate::counting::{LIVE, PEAK};
use gpuwhy_report::capture::Captures;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::process_info::ProcessInfo;
use gpuwhy_trace::record::*;
use gpuwhy_trace::record::{CaptureMark, Trigger};
use profiler_core::attribution::Attributor;

const START: u64 = 1_790_000_000_000_000_000;

fn time(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

struct Names {
    launch: ApiFunctionId,
    config: LaunchConfigId,
    domain: NameId,
}

impl Names {
    fn new(dictionary: &mut Dictionary) -> Self {
        let name = dictionary.intern_name("cudaLaunchKernel_v7000");
        let function = ApiFunction { domain: ApiDomain::Runtime, callback_id: 211, name };
        let kernel = dictionary.intern_name("gemm");
        Self {
            launch: dictionary.intern_api_function(function),
            config: dictionary.intern_launch_config(LaunchConfig { name: kernel, ..LaunchConfig::default() }),
            domain: dictionary.intern_name("domain"),
        }
    }

    fn call(&self, thread: u64, id: u64, start: u64, end: u64) -> Record {
        Record::Api(ApiCall {
            start: time(start),
            end: time(end),
            thread: ThreadId(thread as u32),
            correlation: CorrelationId(id as u32),
            function: self.launch,
            return_value: 0,
        })
    }

    fn kernel(&self, id: u64, start: u64, end: u64) -> Record {
        Record::Kernel(Kernel {
            start: time(start),
            end: time(end),
            correlation: CorrelationId(id as u32),
            config: self.config,
            ..Kernel::default()
        })
    }

    fn range(&self, id: u64, at: u64) -> Record {
        let kind = RangeEventKind::Push;
        let (thread, domain) = (ThreadId(1 + id as u32 % 3), self.domain);
        Record::Range(RangeEvent { kind, at: time(at), thread, domain, message: domain, ..RangeEvent::default() })
    }
}

/// Records in time order need no mark to be complete.
const IN_ORDER: &str = "calls and their kernels";

/// A stream of records whose times no flush mark reaches.
struct Stream {
    what: &'static str,
    /// Returns record number `n`.
    record: fn(&Names, u64) -> Record,
    /// Time of the mark after every thousandth record.
    mark: Option<fn(u64) -> u64>,
    records: u64,
    /// MiB.
    limit_mib: usize,
}

const STREAMS: [Stream; 6] = [
    Stream {
        what: "calls at one moment",
        record: |names, n| names.call(1, n, START, START),
        mark: None,
        records: 2_000_000,
        limit_mib: 250,
    },
    Stream {
        what: "kernels without a call",
        record: |names, n| names.kernel(n, START, START + 1),
        mark: None,
        records: 2_000_000,
        limit_mib: 160,
    },
    Stream {
        what: "kernels at the end of time",
        record: |names, n| names.kernel(n, u64::MAX - n % 2, u64::MAX - n % 2),
        mark: None,
        records: 2_000_000,
        limit_mib: 160,
    },
    Stream {
        what: "ranges that are never popped",
        record: |names, n| names.range(n, START + n),
        mark: None,
        records: 2_000_000,
        limit_mib: 60,
    },
    Stream {
        what: "a call around everything",
        record: |names, n| names.call(1, n, START + n, START + if n == 0 { 9_000_000_000 } else { n + 1 }),
        mark: Some(|n| START + n),
        records: 2_000_000,
        limit_mib: 110,
    },
    Stream {
        what: IN_ORDER,
        record: |names, n| match n % 2 {
            0 => names.call(1, n / 2, START + n * 1_000, START + n * 1_000 + 300),
            _ => names.kernel(n / 2, START + n * 1_000, START + n * 1_000 + 900),
        },
        mark: None,
        records: 1_000_000,
        limit_mib: 100,
    },
];

fn mib(bytes: usize) -> usize {
    bytes >> 20
}

#[test]
fn records_that_nothing_passes_take_bounded_memory() {
    let _alone = crate::counting::alone();
    let mut dictionary = Dictionary::new();
    let names = Names::new(&mut dictionary);
    for Stream { what, record, mark, records, limit_mib } in STREAMS {
        let before = LIVE.load(Relaxed);
        PEAK.store(before, Relaxed);
        let mut attributor = Attributor::new();
        for n in 0..records {
            attributor.push(&record(&names, n), &dictionary);
            if let Some(mark) = mark.filter(|_| n % 1_000 == 999) {
                attributor.flushed(time(mark(n)), &dictionary);
            }
        }
        attributor.finish(time(START + records * 1_000), &dictionary);
        let held = PEAK.load(Relaxed) - before;
        println!("{what}: {} MiB", mib(held));
        assert!(mib(held) < limit_mib, "{what}: {} MiB", mib(held));
        let completeness = attributor.completeness();
        assert_eq!(completeness.records(), records, "{what}");
        if what == IN_ORDER {
            assert_eq!((completeness.late_ns, completeness.activities_without_launch), (0, 0), "nothing is lost");
        }
        for account in attributor.devices() {
            assert_eq!(account.leaves().iter().sum::<u64>(), account.window_ns(), "{what}");
        }
    }
    captures_share_it(&names, &dictionary);
}

/// Concurrently open captures have an engine each.
fn captures_share_it(names: &Names, dictionary: &Dictionary) {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let session = ProcessInfo::default();
    let mut captures = Captures::new(None);
    for number in 1..=40 {
        let begin = CaptureMark::Begin { number, at: time(START), trigger: Trigger::Range };
        captures.event(&Event::Capture(begin), &session, dictionary);
        for n in 0..50_000 {
            captures.event(&Event::Record(names.call(1, n, START, START)), &session, dictionary);
        }
    }
    let held = PEAK.load(Relaxed) - before;
    println!("open captures: {} MiB", mib(held));
    assert!(mib(held) < 100, "open captures: {} MiB", mib(held));
}
