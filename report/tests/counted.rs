// A synthetic program with hardware counter samples: kernels with known counters.

use gpuwhy_report::capture::Captures;
use gpuwhy_report::run::Report;
use gpuwhy_trace::counters::{ChipName, CounterEvent, Metric, MetricList, MetricSet, Sample};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::*;

pub const START: u64 = 1_790_000_000_000_000_000;
pub const HIGHEST: f64 = 1.98e9;
pub const METRICS: [Metric; 10] = [
    Metric::Clock,
    Metric::MultiprocessorsActive,
    Metric::Issue,
    Metric::Tensor,
    Metric::Dram,
    Metric::L2,
    Metric::L1,
    Metric::WarpsActive,
    Metric::DramRead,
    Metric::DramWrite,
];

/// True values of [`METRICS`] while a kernel runs.
#[derive(Clone, Copy, Debug)]
pub struct Truth {
    pub name: &'static str,
    pub micros: u64,
    pub values: [f64; 10],
}

/// Clock in GHz, then percent of multiprocessors, issue, tensor, DRAM, L2, L1, warps.
fn truth(name: &'static str, micros: u64, of: [f64; 8]) -> Truth {
    let [clock, sm, issue, tensor, dram, l2, l1, warps] = of;
    let traffic = dram / 100.0 * 4.8e12;
    Truth { name, micros, values: [clock * 1e9, sm, issue, tensor, dram, l2, l1, warps, traffic * 0.6, traffic * 0.4] }
}

/// Kernels of a layer, as measured in a training on an H200 (docs/design/counters.md).
pub fn kernels() -> Vec<Truth> {
    vec![
        truth("flash_backward", 282, [1.77, 97.0, 46.3, 31.1, 11.6, 20.0, 30.0, 18.0]),
        truth("flash_forward", 202, [1.73, 95.0, 46.4, 18.0, 7.3, 15.0, 28.0, 18.0]),
        truth("gemm_ntn", 80, [1.67, 98.0, 10.9, 88.8, 24.6, 35.0, 20.0, 14.0]),
        truth("gemm_tnt", 70, [1.67, 96.0, 11.8, 77.5, 24.3, 33.0, 20.0, 14.0]),
        truth("layer_norm_backward", 39, [1.98, 22.0, 11.3, 0.0, 17.3, 8.0, 6.0, 11.0]),
        truth("add", 24, [1.95, 99.0, 22.0, 0.0, 93.0, 60.0, 25.0, 80.0]),
        truth("gelu", 31, [1.90, 99.0, 55.0, 0.0, 80.0, 50.0, 30.0, 85.0]),
        truth("adam", 420, [1.92, 99.0, 20.0, 0.0, 88.0, 45.0, 20.0, 90.0]),
    ]
}

/// Uniformly distributed from -1 to 1.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// Kernels of a layer's forward pass, then of its backward pass.
const PASSES: [&[usize]; 2] = [&[1, 2, 6, 5], &[3, 0, 4]];
const LAYERS: u64 = 10;

/// Number of executions of each kernel per step.
pub fn times(kernel: &Truth) -> f64 {
    if kernel.name == "adam" { 1.0 } else { LAYERS as f64 }
}

/// A training: steps of layers, forward and then backward, with some idle time, on one stream or two.
pub struct Program {
    dictionary: Dictionary,
    pub items: Vec<(u64, Event)>,
    runs: Vec<(u64, u64, [f64; 10])>,
    end: u64,
}

impl Program {
    pub fn new(steps: u64, two_streams: bool) -> Self {
        let mut dictionary = Dictionary::new();
        dictionary.add_device(Device {
            id: DeviceId(0),
            name: "NVIDIA H200".into(),
            compute_capability: [9, 0],
            multiprocessors: 132,
            ..Device::default()
        });
        let name = dictionary.intern_name("cudaLaunchKernel_v7000");
        let function =
            dictionary.intern_api_function(ApiFunction { domain: ApiDomain::Runtime, callback_id: 211, name });
        let name = dictionary.intern_name("cudaStreamSynchronize_v3020");
        let waits = dictionary.intern_api_function(ApiFunction { domain: ApiDomain::Runtime, callback_id: 131, name });
        let kernels = kernels();
        let configs: Vec<_> = kernels
            .iter()
            .map(|kernel| {
                let name = dictionary.intern_name(kernel.name);
                let (grid, block) = ([if kernel.micros == 39 { 29 } else { 1_320 }, 1, 1], [256, 1, 1]);
                dictionary.intern_launch_config(LaunchConfig { name, grid, block, ..LaunchConfig::default() })
            })
            .collect();
        let mut program = Self { dictionary, items: Vec::new(), runs: Vec::new(), end: 0 };
        let mut noise = Noise(7);
        let (mut at, mut host, mut correlation) = (START + 1_000_000, START, 0);
        for _ in 0..steps {
            let layers = PASSES.into_iter().flat_map(|pass| (0..LAYERS).map(move |_| pass));
            for pass in layers.chain([&[7usize][..]]) {
                for (index, kernel) in pass.iter().map(|&index| (index, &kernels[index])) {
                    correlation += 1;
                    let (thread, correlation) = (ThreadId(1), CorrelationId(correlation));
                    let call = ApiCall {
                        start: Timestamp::from_nanos(host),
                        end: Timestamp::from_nanos(host + 3_000),
                        thread,
                        correlation,
                        function,
                        return_value: 0,
                    };
                    program.items.push((host + 3_000, Event::Record(Record::Api(call))));
                    host += 5_000;
                    let start = at.max(host);
                    let micros = kernel.micros as f64 * (1.0 + 0.02 * noise.next());
                    let end = start + (micros * 1e3) as u64;
                    let record = Kernel {
                        start: Timestamp::from_nanos(start),
                        end: Timestamp::from_nanos(end),
                        context: ContextId(1),
                        stream: StreamId(if two_streams && index % 2 == 1 { 8 } else { 7 }),
                        correlation,
                        config: configs[index],
                        ..Kernel::default()
                    };
                    program.items.push((end, Event::Record(Record::Kernel(record))));
                    program.runs.push((start, end, kernel.values));
                    // The next kernel of the other stream starts when this one is half done.
                    at = if two_streams && index % 2 == 0 { (start + end) / 2 } else { end + 1_500 };
                    program.end = program.end.max(end);
                }
            }
            correlation += 1;
            let wait = ApiCall {
                start: Timestamp::from_nanos(host),
                end: Timestamp::from_nanos(program.end + 8_000),
                thread: ThreadId(1),
                correlation: CorrelationId(correlation),
                function: waits,
                return_value: 0,
            };
            program.items.push((program.end + 8_000, Event::Record(Record::Api(wait))));
            host = program.end + 160_000;
            at = host;
        }
        program
    }

    /// Means over the time from `begin` to `end`, as the hardware would count them.
    fn counted(&self, begin: u64, end: u64) -> [f64; 10] {
        let mut sums = [0.0; 10];
        let first = self.runs.partition_point(|run| run.0 + 2_000_000 < begin);
        let (mut clock, mut running) = (0.0, 0.0);
        for &(start, stop, values) in self.runs[first..].iter().take_while(|run| run.0 < end) {
            let part = stop.min(end).saturating_sub(start.max(begin)) as f64 / (end - begin) as f64;
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += part * value);
            (clock, running) = (clock + part * values[0], running + part);
        }
        // Concurrent kernels share one clock.
        sums[0] = if running > 1.0 { clock / running } else { clock + (1.0 - running) * HIGHEST };
        sums
    }

    pub fn sample(mut self, interval: u64, noise_points: f64) -> Self {
        let set = set(interval);
        self.items.push((START, Event::from(CounterEvent::Set(set))));
        let mut noise = Noise(99);
        for begin in (START..self.end).step_by(interval as usize) {
            let counted = self.counted(begin, begin + interval);
            let values: Vec<f32> = counted
                .iter()
                .enumerate()
                .map(|(metric, value)| match METRICS[metric].unit() {
                    gpuwhy_trace::counters::Unit::Percent => (value + noise_points * noise.next()).max(0.0) as f32,
                    _ => (value * (1.0 + noise_points / 500.0 * noise.next())) as f32,
                })
                .collect();
            let (from, to) = (Timestamp::from_nanos(begin), Timestamp::from_nanos(begin + interval));
            // A sample arrives some milliseconds after its end.
            let sample = Sample::new(DeviceId(0), from, to, &values);
            self.items.push((begin + interval + 6_000_000, Event::from(CounterEvent::Sample(sample))));
        }
        self
    }

    /// Events in order of delivery, with a flush each `period`.
    pub fn delivered(mut self, period: u64) -> (Vec<Event>, Dictionary) {
        let last = self.items.iter().map(|(at, _)| *at).max().unwrap_or(0);
        for at in (START + period..last + 2 * period).step_by(period as usize) {
            self.items.push((at, Event::Flush(Timestamp::from_nanos(at))));
        }
        self.items.sort_by_key(|(at, item)| (*at, matches!(item, Event::Flush(_))));
        (self.items.into_iter().map(|(_, item)| item).collect(), self.dictionary)
    }
}

/// A metric set of [`METRICS`].
pub fn set(interval_ns: u64) -> MetricSet {
    MetricSet {
        device: DeviceId(0),
        chip: ChipName::new("GH100"),
        metrics: MetricList::new(&METRICS),
        interval_ns,
        highest_clock_hz: HIGHEST as u64,
        multiprocessors: 132,
    }
}

pub fn report((items, dictionary): &(Vec<Event>, Dictionary)) -> Report {
    let session = ProcessInfo::default();
    let mut captures = Captures::new(None);
    let mut last = Timestamp::ZERO;
    for item in items {
        captures.event(item, &session, dictionary);
        if let Event::Flush(at) = item {
            last = *at;
        }
    }
    captures.finish(last, &session, dictionary);
    captures.report(&session, dictionary, End::Clean, Vec::new())
}
