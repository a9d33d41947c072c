//! API calls in stretches (`GPUWHY_API_CALLS=stretches`): what is estimated where none are recorded is what the records
//! would have said, over all recorded programs; and the whole way through libprof.so.

use std::collections::HashSet;
use std::fs;
use std::io::Cursor;

use profiler_core::attribution::leaf::{Leaf, Leaves};
use profiler_core::capture::Captures;
use profiler_core::capture::stretches::Stretches;
use profiler_core::process_info::End;
use profiler_core::record::{CallRecording, CorrelationId, Loss, Record, Timestamp};
use profiler_core::report::{DeviceReport, Report};
use profiler_core::trace::{Item, TraceReader};

use crate::support::{Stage, fixtures, stderr};

/// Each recording goes on for so long: its part behind start-up is repeated.
const LASTS: u64 = 8_000_000_000;
const FLUSH: u64 = 100_000_000;
/// Causes whose shares must be those of the records, within one point.
const CAUSES: [Leaf; 3] = [Leaf::Dispatch, Leaf::LaunchApi, Leaf::SyncDrain];
const POINT: f64 = 0.01;

/// A recorded program.
struct Recorded {
    records: Vec<Record>,
    /// With its dictionary and what is known of the process.
    reader: TraceReader<Cursor<Vec<u8>>>,
}

impl Recorded {
    fn of(fixture: &str) -> Self {
        let stage = Stage::new();
        let played = stage.host(fixture).output().unwrap();
        assert!(played.status.success(), "{fixture}: {}", stderr(&played));
        let bytes = fs::read(stage.path("trace.gpuwhy")).unwrap();
        let mut reader = TraceReader::new(Cursor::new(bytes)).unwrap();
        let mut records = Vec::new();
        while let Some(item) = reader.next_item().unwrap() {
            if let Item::Record(record) = item {
                records.push(record);
            }
        }
        Self { records, reader }
    }

    /// The part behind start-up again and again, in the order in which records end.
    fn lasting(&self) -> Vec<(u64, Record)> {
        let of_interest = |record: &&Record| ends(record).is_some();
        let last = self.records.iter().filter_map(ends).max().unwrap();
        let whole: Vec<_> =
            self.records.iter().filter(of_interest).map(|record| (ends(record).unwrap(), *record)).collect();
        let report = self.report(&whole, None).0;
        let longest = report.devices.iter().max_by_key(|device| device.window_ns).unwrap();
        let from = last - longest.steady_leaves.iter().sum::<u64>();
        let period = last - from + 1_000;
        let part: Vec<_> = whole.into_iter().filter(|(_, record)| begins(record) >= from).collect();
        let calls = part.iter().filter(|(_, record)| matches!(record, Record::Api(_)));
        let called: HashSet<u32> = calls.map(|(_, record)| id(record)).collect();
        // Work that was launched before the part would have no call in any copy.
        let part: Vec<_> = part.into_iter().filter(|(_, record)| called.contains(&id(record))).collect();
        let ids = part.iter().map(|(_, record)| id(record)).max().unwrap() + 1;
        let copies = u32::try_from(LASTS / period + 1).unwrap();
        let mut all = Vec::new();
        for copy in 0..copies {
            let later = u64::from(copy) * period;
            all.extend(part.iter().map(|&(end, mut record)| {
                shift(&mut record, later);
                if let Some(id) = correlation(&mut record) {
                    id.0 += copy * ids;
                }
                (end + later, record)
            }));
        }
        all.sort_by_key(|&(end, _)| end);
        all
    }

    /// The report of these records; in stretches, if any, with the calls that are left in.
    fn report(&self, records: &[(u64, Record)], mut stretches: Option<Stretches>) -> (Report, u64) {
        let (loss, dictionary, session) = (Loss::default(), self.reader.dictionary(), self.reader.session());
        let mut captures = Captures::new(None);
        captures.set_calibrations(session);
        let mut flush = records[0].0;
        if stretches.is_some() {
            captures.call_recording(CallRecording { at: Timestamp::from_nanos(1), on: true });
        }
        // Between two flushes recording goes on or not; so what happens then is known at its begin.
        let (mut on, mut since, mut left_in) = (true, 0, 0);
        let mut waiting = records.iter().peekable();
        while waiting.peek().is_some() {
            flush += FLUSH;
            if let Some(stretches) = &mut stretches {
                let at = Timestamp::from_nanos(flush - FLUSH);
                let wanted = stretches.wants(at, true, false);
                if wanted != on {
                    (on, since) = (wanted, at.nanos());
                    captures.call_recording(CallRecording { at, on });
                }
            }
            while let Some((_, record)) = waiting.next_if(|(end, _)| *end < flush) {
                let is_call = matches!(record, Record::Api(_));
                // A call that lies on both sides of a switch has no record here.
                if is_call && stretches.is_some() && (!on || begins(record) < since) {
                    continue;
                }
                left_in += u64::from(is_call);
                captures.push(record, dictionary);
            }
            captures.flushed(Timestamp::from_nanos(flush), dictionary);
        }
        let end = Timestamp::from_nanos(flush);
        captures.finish(end, session, &loss, dictionary);
        (captures.report(session, dictionary, &loss, End::Clean, Vec::new()), left_in)
    }
}

fn begins(record: &Record) -> u64 {
    record.span().map_or(0, |(begin, _)| begin.nanos())
}

/// The end of a call or of device work.
fn ends(record: &Record) -> Option<u64> {
    let wanted = matches!(record, Record::Api(_) | Record::Kernel(_) | Record::Copy(_) | Record::Memset(_));
    record.span().filter(|_| wanted).map(|(_, end)| end.nanos())
}

fn id(record: &Record) -> u32 {
    correlation(&mut record.clone()).unwrap().0
}

fn correlation(record: &mut Record) -> Option<&mut CorrelationId> {
    match record {
        Record::Api(call) => Some(&mut call.correlation),
        Record::Kernel(kernel) => Some(&mut kernel.correlation),
        Record::Copy(copy) => Some(&mut copy.correlation),
        Record::Memset(memset) => Some(&mut memset.correlation),
        _ => None,
    }
}

fn shift(record: &mut Record, later: u64) {
    let (begin, end) = match record {
        Record::Api(call) => (&mut call.start, &mut call.end),
        Record::Kernel(kernel) => (&mut kernel.start, &mut kernel.end),
        Record::Copy(copy) => (&mut copy.start, &mut copy.end),
        Record::Memset(memset) => (&mut memset.start, &mut memset.end),
        _ => return,
    };
    for time in [begin, end] {
        *time = Timestamp::from_nanos(time.nanos() + later);
    }
}

fn share(leaves: &Leaves, leaf: Leaf) -> f64 {
    leaves[leaf as usize] as f64 / leaves.iter().sum::<u64>() as f64
}

#[test]
fn shares_of_stretches_are_those_of_full_recordings() {
    let (mut inside, mut shares) = (0, 0);
    for fixture in fixtures() {
        let recorded = Recorded::of(&fixture);
        let records = recorded.lasting();
        let (full, calls) = recorded.report(&records, None);
        let (thin, left_in) = recorded.report(&records, Some(Stretches::default()));
        assert!(left_in * 2 < calls, "{fixture}: {left_in} of {calls} calls are left in");
        assert_eq!(full.verdict.group, thin.verdict.group, "{fixture}");
        assert_eq!(full.completeness.kernels, thin.completeness.kernels, "{fixture}");
        assert!(thin.completeness.calls_left_out > 0, "{fixture}");
        assert_eq!(thin.completeness.activities_without_launch, 0, "{fixture}: they were left out");
        for (by_records, by_stretches) in full.devices.iter().zip(&thin.devices) {
            assert_eq!(by_records.window_ns, by_stretches.window_ns, "{fixture}");
            assert_eq!(by_stretches.leaves.iter().sum::<u64>(), by_stretches.window_ns, "{fixture}");
            for leaf in Leaf::ALL {
                let [exact, estimate] = [by_records, by_stretches].map(|device| share(&device.leaves, leaf));
                let known = leaf.is_busy() || CAUSES.contains(&leaf);
                assert!(!known || (exact - estimate).abs() <= POINT, "{fixture}: {leaf:?} {estimate:.4}, {exact:.4}");
                // The others are told as well as that, too, but for what was in no stretch.
                assert!((exact - estimate).abs() <= 2.0 * POINT, "{fixture}: {leaf:?} {estimate:.4}, {exact:.4}");
                if !leaf.is_busy() {
                    shares += 1;
                    inside += u32::from(is_inside(by_records, by_stretches, leaf));
                }
            }
        }
    }
    assert!(inside * 10 >= shares * 9, "{inside} of {shares} shares are in their intervals");
}

/// Whether the share by records is in the interval of the estimate, to a twentieth of a point.
fn is_inside(by_records: &DeviceReport, by_stretches: &DeviceReport, leaf: Leaf) -> bool {
    let estimated = by_stretches.estimated.as_ref().unwrap();
    let (low, high) = estimated.interval(leaf).expect("enough stretches were compared");
    let window = by_stretches.window_ns as f64;
    let recorded = by_stretches.leaves[leaf as usize] - estimated.leaves[leaf as usize];
    let exact = by_records.leaves[leaf as usize] as f64;
    let slack = POINT / 20.0 * window;
    (recorded + low) as f64 - slack <= exact && exact <= (recorded + high) as f64 + slack
}

#[test]
fn libprof_leaves_calls_out_between_stretches_and_says_so() {
    let stage = Stage::new();
    // Seven seconds: the first second of kernels, and what comes of the stretches behind it.
    let mut host = stage.host("mlp");
    host.env("GPUWHY_API_CALLS", "stretches").env("GPUWHY_REPLAY_SPEED", "0.5");
    let output = host.arg("--counts").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let report = stage.report();
    let estimated = &report["devices"][0]["estimated"];
    assert_eq!(estimated["from"], "stretches", "{report:#}");
    assert!(estimated["stretches"].as_u64().unwrap() >= 1);
    assert!(report["completeness"]["calls_left_out"].as_u64().unwrap() > 0);
    assert_eq!(report["completeness"]["activities_without_launch"], 0);
    let printed = stderr(&output);
    assert!(printed.contains("estimated from stretches"), "{printed}");
    let notes = report["process"]["notes"].to_string();
    assert!(notes.contains("GPUWHY_API_CALLS=stretches: API calls are recorded an eighth of the time"), "{notes}");
}

#[test]
fn stretches_need_a_run_that_is_measured_as_a_whole() {
    let stage = Stage::new();
    let mut host = stage.host("multi_stream");
    host.env("GPUWHY_API_CALLS", "stretches").env("GPUWHY_MODE", "full");
    assert!(host.status().unwrap().success());
    let report = stage.report();
    assert!(report["devices"][0]["estimated"].is_null(), "{report:#}");
    let notes = report["process"]["notes"].to_string();
    assert!(notes.contains("GPUWHY_API_CALLS=stretches has no effect"), "{notes}");
}
