//! Monitor mode against recorded device work: a GPT training with hardware counter samples (H100, 2.4 ms per
//! sample) and samples of its first thread, divided once with its activity records, and once by the samples
//! alone.

use std::fs::File;
use std::io::BufReader;

use gpuwhy_report::capture::Captures;
use gpuwhy_trace::counters::{CounterEvent, Metric, MetricList, MetricSet, Sample};
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceReader;
use gpuwhy_trace::process_info::ProcessInfo;
use gpuwhy_trace::record::{HostSample, Record, Timestamp};
use profiler_core::attribution::Attributor;
use profiler_core::attribution::segments::Segment;
use profiler_core::leaf::{Cause, Leaf};
use profiler_core::monitoring::{MonitoredTime, Monitoring};

/// The last part of the run, nanoseconds: training, after start-up.
const TRAINING: u64 = 1_500_000_000;

/// The recorded session, split by kind.
struct Recorded {
    /// Provides the names.
    reader: TraceReader<BufReader<File>>,
    set: MetricSet,
    samples: Vec<Sample>,
    host: Vec<HostSample>,
    /// Intervals in which a kernel ran, disjoint and in order.
    busy: Vec<(u64, u64)>,
    /// Intervals by cause, from the activity records.
    segments: Vec<(Leaf, u64, u64, f64)>,
}

fn read() -> Recorded {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../testing/fixtures/gpt_counters.gpuwhy");
    let mut reader = TraceReader::new(BufReader::new(File::open(path).unwrap())).unwrap();
    let (mut host, mut samples, mut kernels) = (Vec::new(), Vec::new(), Vec::new());
    let mut set = None;
    let (mut captures, session) = (Captures::new(None), ProcessInfo::default());
    captures.options.segments = true;
    let mut last = Timestamp::ZERO;
    while let Some(item) = reader.next_event().unwrap() {
        let dictionary = reader.dictionary();
        match &item {
            Event::Record(record) => {
                match record {
                    Record::Sample(sample) => host.push(*sample),
                    Record::Kernel(kernel) => kernels.push((kernel.start.nanos(), kernel.end.nanos())),
                    _ => {}
                }
                captures.event(&item, &session, dictionary);
            }
            Event::Flush(at) | Event::End(_, at) => {
                captures.event(&Event::Flush(*at), &session, dictionary);
                last = last.max(*at);
            }
            Event::Capture(_) => captures.event(&item, &session, dictionary),
            Event::Counters(event) => match **event {
                CounterEvent::Set(newer) => set = Some(newer),
                CounterEvent::Sample(sample) => samples.push(sample),
                CounterEvent::Gauges(_) | CounterEvent::Process(_) | CounterEvent::Loss(_) => {}
            },
            _ => {}
        }
    }
    captures.finish(last, &session, reader.dictionary());
    let (mut busy, mut reported): (Vec<(u64, u64)>, Vec<_>) = (Vec::new(), Vec::new());
    for (_, _, segments) in captures.take(Attributor::take_segments) {
        for segment in segments {
            match segment {
                Segment::Time(time) => reported.push((time.leaf, time.from.nanos(), time.to.nanos(), 1.0)),
                Segment::Moved { was, leaf, from, to } => {
                    reported.push((was, from.nanos(), to.nanos(), -1.0));
                    reported.push((leaf, from.nanos(), to.nanos(), 1.0));
                }
                Segment::Gap(_) => {}
            }
        }
    }
    kernels.sort_unstable();
    for (start, end) in kernels {
        match busy.last_mut() {
            Some(last) if last.1 >= start => last.1 = last.1.max(end),
            _ => busy.push((start, end)),
        }
    }
    Recorded { reader, set: set.unwrap(), samples, host, busy, segments: reported }
}

fn overlap(one: (u64, u64), other: (u64, u64)) -> u64 {
    one.1.min(other.1).saturating_sub(one.0.max(other.0))
}

impl Recorded {
    /// Fraction of an interval in which a kernel ran.
    fn busy(&self, from: u64, to: u64) -> f64 {
        let first = self.busy.partition_point(|kernel| kernel.1 <= from);
        let inside = self.busy[first..].iter().take_while(|kernel| kernel.0 < to);
        inside.map(|&kernel| overlap(kernel, (from, to))).sum::<u64>() as f64 / (to - from) as f64
    }

    /// Share of a cause according to the activity records.
    fn truth(&self, cause: Cause, (from, to): (u64, u64)) -> f64 {
        let its = self.segments.iter().filter(|segment| segment.0.cause() == cause);
        let nanos: f64 = its.map(|&(_, begin, end, sign)| overlap((begin, end), (from, to)) as f64 * sign).sum();
        nanos / (to - from) as f64
    }

    /// The training, by samples alone; with `engine`, each also has the fraction in which kernels ran, as if
    /// from a counter.
    fn monitored(&self, engine: bool) -> (MonitoredTime, (u64, u64)) {
        let end = self.busy.last().unwrap().1;
        let inside = |sample: &&Sample| sample.begin.nanos() >= end - TRAINING && sample.end.nanos() <= end;
        let samples: Vec<Sample> = self.samples.iter().filter(inside).copied().collect();
        let mut set = self.set;
        let mut monitoring = Monitoring::default();
        if engine {
            set.metrics = MetricList::new(&[Metric::EngineActive, Metric::Dram, Metric::PcieRead, Metric::PcieWrite]);
        }
        monitoring.counters(&CounterEvent::Set(set));
        for sample in &samples {
            let (from, to) = (sample.begin.nanos(), sample.end.nanos());
            let memory = sample.value(&self.set, Metric::Dram).unwrap();
            let values = [self.busy(from, to) as f32 * 100.0, memory, 3e7, 3e7];
            let reported = Sample::new(sample.device, sample.begin, sample.end, &values);
            monitoring.counters(&CounterEvent::Sample(if engine { reported } else { *sample }));
        }
        let window = (samples[0].begin.nanos(), samples.last().unwrap().end.nanos());
        for sample in self.host.iter().filter(|sample| sample.at.nanos() >= window.0) {
            monitoring.host(sample, self.reader.dictionary());
        }
        (monitoring.whole_time().unwrap(), window)
    }
}

#[test]
fn shares_without_activity_records_are_those_with_them() {
    let recorded = read();
    assert!(recorded.samples.len() > 5_000 && recorded.host.len() > 800 && recorded.busy.len() > 10_000);
    for engine in [true, false] {
        let (time, window) = recorded.monitored(engine);
        let mut table =
            format!("engine {engine}, not told {:.1} %", time.unresolved_ns as f64 / time.window_ns as f64 * 1e2);
        let mut outside = 0;
        for part in &time.parts {
            let truth = recorded.truth(part.cause, window);
            table += &format!(
                "\n  {:13} {:5.1} % recorded, {:5.1} to {:5.1} % monitored",
                part.cause.name(),
                truth * 100.0,
                part.low * 100.0,
                part.high * 100.0
            );
            outside += usize::from(truth < part.low || truth > part.high);
        }
        println!("{table}\n  {:?}, samples {:?}, covered {:.2}", time.bottleneck, time.samples, time.covered);
        assert_eq!(outside, 0, "{table}");
        assert!(time.covered > 0.8, "{table}");
        let compute = time.part(Cause::GpuCompute).unwrap();
        if engine {
            assert!(compute.high - compute.low < 0.03 && compute.low > 0.85, "{table}");
        }
        assert!([Cause::GpuCompute, Cause::CannotTell].contains(&time.bottleneck), "{table}");
    }
}
