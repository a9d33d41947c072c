//! Segments of recorded time, which a client needs to draw a timeline.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::*;
use profiler_core::attribution::segments::{Segment, TimeSegment};
use profiler_core::attribution::{Attributor, EngineOptions, Subject};
use profiler_core::leaf::{LEAF_COUNT, Leaf, Leaves};
use profiler_core::whatif::ScenarioKind;

const ZERO: u64 = 1_000_000_000_000;

fn time(micros: u64) -> Timestamp {
    Timestamp::from_nanos(ZERO + micros * 1_000)
}

/// A synthetic program; times are microseconds.
struct Feed {
    attributor: Attributor,
    dictionary: Dictionary,
    calls: u32,
}

impl Feed {
    fn new() -> Self {
        Self::with(EngineOptions { segments: true, ..EngineOptions::default() })
    }

    fn with(options: EngineOptions) -> Self {
        Self { attributor: Attributor::with(options), dictionary: Dictionary::new(), calls: 0 }
    }

    fn push(&mut self, record: Record) {
        self.attributor.push(&record, &self.dictionary);
    }

    /// A launch by thread 4, and its kernel.
    fn launch(&mut self, call: (u64, u64), kernel: (u64, u64)) {
        self.calls += 1;
        let name = self.dictionary.intern_name("cudaLaunchKernel");
        let function =
            self.dictionary.intern_api_function(ApiFunction { domain: ApiDomain::Runtime, callback_id: 211, name });
        let (correlation, thread) = (CorrelationId(self.calls), ThreadId(4));
        let (start, end) = (time(call.0), time(call.1));
        self.push(Record::Api(ApiCall { start, end, thread, correlation, function, return_value: 0 }));
        self.kernel(kernel, correlation);
    }

    fn kernel(&mut self, (start, end): (u64, u64), correlation: CorrelationId) {
        let (start, end, stream) = (time(start), time(end), StreamId(7));
        self.push(Record::Kernel(Kernel { start, end, stream, correlation, ..Kernel::default() }));
    }

    fn segments(&mut self) -> Vec<Segment> {
        self.attributor.take_segments().into_iter().flat_map(|(_, segments)| segments).collect()
    }

    fn leaves(&self) -> Leaves {
        *self.attributor.devices().next().unwrap().leaves()
    }
}

fn times(segments: &[Segment]) -> Vec<TimeSegment> {
    segments.iter().filter_map(|segment| if let Segment::Time(time) = segment { Some(*time) } else { None }).collect()
}

#[test]
fn segments_are_contiguous_and_sum_to_the_leaves_and_gaps_name_the_launch_that_ended_them() {
    let mut feed = Feed::new();
    let file = feed.dictionary.intern_name("train.py");
    let function = feed.dictionary.intern_name("augment");
    let stack = feed.dictionary.intern_frame(Frame { caller: StackId::NONE, function, file, line: 88 });
    feed.launch((0, 5), (10, 20));
    feed.launch((1_000, 1_005), (1_010, 1_030));
    feed.push(Record::Sample(HostSample {
        since: time(100),
        at: time(900),
        thread: ThreadId(4),
        state: ThreadState::Running,
        on_cpu: 800_000,
        stack,
        ..HostSample::default()
    }));
    feed.attributor.finish(time(2_000), &feed.dictionary);
    let segments = feed.segments();
    let all = times(&segments);
    assert!(all.windows(2).all(|pair| pair[0].to == pair[1].from), "{all:?}");
    assert_eq!((all[0].from, all.last().unwrap().to), (time(10), time(1_030)));
    let mut sums = [0; LEAF_COUNT];
    all.iter().for_each(|segment| sums[segment.leaf as usize] += segment.to.since(segment.from));
    assert_eq!(sums, feed.leaves());
    let sampled: Vec<_> = all.iter().filter(|segment| matches!(segment.subject, Subject::Host(..))).collect();
    assert!(!sampled.is_empty() && sampled.iter().all(|segment| segment.stack == stack), "{all:?}");
    assert!(all.iter().filter(|segment| segment.leaf.is_busy()).all(|segment| segment.stack == StackId::NONE));
    let gaps: Vec<_> =
        segments.iter().filter_map(|segment| if let Segment::Gap(gap) = segment { Some(*gap) } else { None }).collect();
    let launch = gaps[0].launch.unwrap();
    assert_eq!((gaps.len(), gaps[0].from, gaps[0].to, gaps[0].stream), (1, time(20), time(1_010), StreamId(7)));
    assert_eq!((launch.thread, launch.start, launch.end), (ThreadId(4), time(1_000), time(1_005)));
    assert_eq!(gaps[0].correlation, CorrelationId(2));
    assert!(feed.segments().is_empty(), "segments are returned once");
}

#[test]
fn a_late_operation_corrects_earlier_segments() {
    let mut feed = Feed::new();
    feed.launch((0, 5), (10, 20));
    feed.launch((1_000, 1_005), (1_010, 1_030));
    feed.attributor.flushed(time(3_000), &feed.dictionary);
    assert_eq!(feed.segments().iter().filter(|segment| matches!(segment, Segment::Moved { .. })).count(), 0);
    feed.kernel((100, 300), CorrelationId(77));
    for at in [4_000, 900_000, 9_000_000] {
        feed.attributor.flushed(time(at), &feed.dictionary);
    }
    feed.attributor.finish(time(10_000_000), &feed.dictionary);
    let moved: u64 = feed
        .segments()
        .iter()
        .map(|segment| match *segment {
            Segment::Moved { was, leaf, from, to } => {
                assert!(!was.is_busy() && leaf == Leaf::Compute);
                to.since(from)
            }
            _ => 0,
        })
        .sum();
    assert_eq!(moved, 200_000);
}

#[test]
fn nothing_is_logged_without_a_request() {
    let mut feed = Feed::with(EngineOptions::default());
    feed.launch((0, 5), (10, 20));
    feed.attributor.finish(time(2_000), &feed.dictionary);
    assert!(feed.segments().is_empty() && feed.attributor.take_simulated().is_empty());
}

#[test]
fn the_simulation_places_operations_in_each_scenario() {
    let simulated_parts = vec![(time(500).nanos(), time(2_500).nanos())];
    let mut feed = Feed::with(EngineOptions { simulated_parts, ..EngineOptions::default() });
    for number in 0..4 {
        feed.launch((number * 1_000, number * 1_000 + 5), (number * 1_000 + 10, number * 1_000 + 30));
    }
    feed.attributor.finish(time(5_000), &feed.dictionary);
    let rows = feed.attributor.take_simulated();
    assert_eq!(rows.iter().map(|row| row.start).collect::<Vec<_>>(), [time(1_010), time(2_010)], "in the part");
    let at = |row: usize, kind: ScenarioKind| rows[row].simulated[kind as usize];
    for (row, of) in rows.iter().enumerate() {
        let (begin, end) = at(row, ScenarioKind::Base);
        assert_eq!(end - begin, of.end.since(of.start) as f64);
    }
    let apart = |kind| at(1, kind).0 - at(0, kind).0;
    assert_eq!(apart(ScenarioKind::Base), 1_000_000.0);
    assert!(apart(ScenarioKind::DeviceOnly) < 30_000.0, "{}", apart(ScenarioKind::DeviceOnly));
    assert!(feed.attributor.take_simulated().is_empty(), "rows are returned once");
}
