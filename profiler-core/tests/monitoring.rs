//! Division of a monitored time with known truth: synthetic programs whose device busy time and launching
//! thread are sampled, without records of device work.

use gpuwhy_trace::counters::{ChipName, CounterEvent, Metric, MetricList, MetricSet, Sample};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::*;
use profiler_core::leaf::Cause;
use profiler_core::monitoring::Monitoring;

const START: u64 = 1_790_000_000_000_000_000;
const MILLI: u64 = 1_000_000;
const PROGRAMS: u64 = 25;

/// Numbers of a xorshift generator.
struct Random(u64);

impl Random {
    /// Uniformly distributed from `low` to `high`.
    fn within(&mut self, low: f64, high: f64) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        low + (high - low) * (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn nanos(&mut self, low: u64, high: u64) -> u64 {
        self.within(low as f64, high as f64) as u64
    }
}

/// Activity of the thread.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Host {
    Loads,
    Sleeps,
    Launches,
    Synchronizes,
    Computes,
}

/// A time without changes. `cause`: of an idle device.
#[derive(Clone, Copy, Debug)]
struct Segment {
    end: u64,
    busy: bool,
    host: Host,
    cause: Cause,
}

/// A program with its truth.
#[derive(Debug, Default)]
struct Program {
    segments: Vec<Segment>,
}

impl Program {
    fn end(&self) -> u64 {
        self.segments.last().map_or(START, |segment| segment.end)
    }

    fn add(&mut self, nanos: u64, busy: bool, host: Host, cause: Cause) {
        let end = self.end() + nanos.max(1);
        self.segments.push(Segment { end, busy, host, cause });
    }

    /// `nanos` of small kernels, each launched by a call with code before it: slower than real ones, which
    /// changes no share.
    fn launch(&mut self, random: &mut Random, nanos: u64, busy: f64) {
        let until = self.end() + nanos;
        while self.end() < until {
            let (call, code) = (random.nanos(30_000, 60_000), random.nanos(50_000, 150_000));
            let kernel = (busy * (call + code) as f64) as u64;
            self.add(code.saturating_sub(kernel), false, Host::Computes, Cause::Launch);
            self.add(kernel.min(code), true, Host::Computes, Cause::GpuCompute);
            self.add(call, false, Host::Launches, Cause::Launch);
        }
    }

    /// The device computes while the thread waits for it.
    fn wait(&mut self, nanos: u64) {
        self.add(nanos, true, Host::Synchronizes, Cause::GpuCompute);
    }

    /// The thread is busy or asleep after a wait of `waited`: the wait caused that much of the time.
    fn late(&mut self, nanos: u64, host: Host, waited: u64) {
        self.add(nanos.min(waited), false, host, Cause::Sync);
        if nanos > waited {
            self.add(nanos - waited, false, host, Cause::HostCpu);
        }
    }

    /// Parts of the time from `from` to `to`.
    fn parts(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, Segment)> {
        let first = self.segments.partition_point(|segment| segment.end <= from);
        let mut begin = from;
        self.segments[first..].iter().copied().take_while(move |_| true).map_while(move |segment| {
            let end = segment.end.min(to);
            let nanos = end.saturating_sub(begin);
            begin = begin.max(end);
            (nanos > 0).then_some((nanos, segment))
        })
    }

    fn share(&self, cause: Cause) -> f64 {
        let is_its = |segment: &Segment| if segment.busy { cause == Cause::GpuCompute } else { segment.cause == cause };
        let nanos: u64 = self.parts(START, self.end()).filter(|(_, part)| is_its(part)).map(|part| part.0).sum();
        nanos as f64 / (self.end() - START) as f64
    }
}

/// A kind of program, and the bottleneck that its records would yield.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Loader,
    Launches,
    Sleeper,
    Computes,
    Mixed,
}

fn program(kind: Kind, seed: u64) -> Program {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (seed + 1).wrapping_mul(0x2545_f491_4f6c_dd1d));
    let mut program = Program::default();
    let loading = random.nanos(8 * MILLI, 40 * MILLI);
    let computing = random.nanos(6 * MILLI, 30 * MILLI);
    let busy = random.within(0.1, 0.5);
    while program.end() < START + 10_000 * MILLI {
        let scatter = random.within(0.7, 1.3);
        let scaled = |nanos: u64| (nanos as f64 * scatter) as u64;
        match kind {
            Kind::Loader => {
                program.add(scaled(loading), false, Host::Loads, Cause::DataLoading);
                program.launch(&mut random, 2 * MILLI, 0.7);
                program.wait(scaled(computing));
            }
            Kind::Launches => program.launch(&mut random, 20 * MILLI, busy),
            Kind::Sleeper => {
                program.wait(MILLI);
                program.late(scaled(loading), Host::Sleeps, MILLI);
                program.launch(&mut random, MILLI, 0.7);
            }
            Kind::Computes => {
                program.wait(scaled(computing * 8));
                program.late(scaled(MILLI), Host::Computes, scaled(computing * 8));
            }
            Kind::Mixed => {
                program.add(scaled(loading / 2), false, Host::Loads, Cause::DataLoading);
                program.launch(&mut random, scaled(computing / 2), busy);
                program.wait(scaled(computing));
                program.late(scaled(loading / 3), Host::Sleeps, scaled(computing));
            }
        }
    }
    program
}

fn stack(dictionary: &mut Dictionary, frames: &[(&str, &str, u32)]) -> StackId {
    frames.iter().rev().fold(StackId::NONE, |caller, &(file, function, line)| {
        let (function, file) = (dictionary.intern_name(function), dictionary.intern_name(file));
        dictionary.intern_frame(Frame { caller, function, file, line })
    })
}

/// Sampling settings.
#[derive(Clone, Copy, Debug)]
struct Sampling {
    interval: u64,
    /// True if stacks have native functions.
    native: bool,
    /// True if the engine counter is available; otherwise the mean of active multiprocessors, of which
    /// kernels fill this fraction.
    engine: bool,
}

fn monitored(program: &Program, sampling: Sampling, seed: u64) -> Monitoring {
    let mut random = Random(0x1234_5678_9abc_def1 ^ (seed + 7).wrapping_mul(0x9e37_79b9));
    let mut dictionary = Dictionary::new();
    let mut monitoring = Monitoring::default();
    let train = ("/home/u/train.py", "main", 42);
    let loader = ("/x/site-packages/torch/utils/data/dataloader.py", "_BaseDataLoaderIter.__next__", 700);
    let launch = ("libcuda.so.1", "cuLaunchKernel", 0);
    let wait = ("libcudart.so.12", "cudaStreamSynchronize", 0);
    let torch = ("libtorch_cpu.so", "at::add", 0);
    let stacks = [
        stack(&mut dictionary, &[loader, train]),
        stack(&mut dictionary, &[launch, torch, train]),
        stack(&mut dictionary, &[wait, torch, train]),
        stack(&mut dictionary, &[torch, train]),
        stack(&mut dictionary, &[train]),
    ];
    let metrics = if sampling.engine {
        MetricList::new(&[Metric::EngineActive, Metric::PcieRead, Metric::PcieWrite])
    } else {
        MetricList::new(&[Metric::MultiprocessorsActive, Metric::PcieRead, Metric::PcieWrite])
    };
    monitoring.counters(&CounterEvent::Set(MetricSet {
        device: DeviceId(0),
        chip: ChipName::new("GH100"),
        metrics,
        interval_ns: sampling.interval,
        highest_clock_hz: 0,
        multiprocessors: 132,
    }));
    let mut device_at = START;
    let device = |from: u64| {
        let to = from + sampling.interval;
        let busy: u64 = program.parts(from, to).filter(|(_, part)| part.busy).map(|part| part.0).sum();
        let filled = if sampling.engine { 1.0 } else { 0.9 };
        let percent = busy as f64 / sampling.interval as f64 * 100.0 * filled;
        let [begin, end] = [from, to].map(Timestamp::from_nanos);
        CounterEvent::Sample(Sample::new(DeviceId(0), begin, end, &[percent as f32, 1e6, 1e6]))
    };
    let mut since = START;
    while since < program.end() - 200 * MILLI {
        let at = since + random.nanos(2 * MILLI, 9 * MILLI);
        let here = program.parts(at, at + 1).next().expect("within the program").1;
        let on_cpu: u64 = program.parts(since, at).filter(|part| part.1.host != Host::Sleeps).map(|part| part.0).sum();
        let of_host = if sampling.native { here.host } else { Host::Computes };
        let stack = match of_host {
            _ if here.host == Host::Loads => stacks[0],
            Host::Launches => stacks[1],
            Host::Synchronizes => stacks[2],
            _ if sampling.native => stacks[3],
            _ => stacks[4],
        };
        let state = if here.host == Host::Sleeps { ThreadState::Sleep } else { ThreadState::Running };
        let sample = HostSample {
            since: Timestamp::from_nanos(since),
            at: Timestamp::from_nanos(at),
            thread: ThreadId(77),
            state,
            on_cpu,
            stack,
            ..HostSample::default()
        };
        monitoring.host(&sample, &dictionary);
        // Samples of the device come 300 ms later, many at once.
        while device_at + 300 * MILLI < at {
            monitoring.counters(&device(device_at));
            device_at += sampling.interval;
        }
        since = at;
    }
    while device_at + sampling.interval <= since {
        monitoring.counters(&device(device_at));
        device_at += sampling.interval;
    }
    monitoring
}

/// Fraction of the shares that lie in their interval, mean unresolved share, and the bottlenecks.
fn coverage(kind: Kind, sampling: Sampling) -> (f64, f64, Vec<Cause>) {
    let (mut within, mut all, mut not_reported, mut named) = (0.0, 0.0, 0.0, Vec::new());
    for seed in 0..PROGRAMS {
        let program = program(kind, seed);
        let time = monitored(&program, sampling, seed).whole_time().expect("device samples came");
        let sum: u64 = time.parts.iter().map(|part| part.nanos).sum();
        assert_eq!(sum + time.unresolved_ns, time.window_ns, "{time:?}");
        for part in &time.parts {
            let truth = program.share(part.cause);
            all += 1.0;
            if part.low <= truth && truth <= part.high {
                within += 1.0;
            } else {
                println!("{kind:?} {seed}: {:?} {truth:.4} is not in {:.4} to {:.4}", part.cause, part.low, part.high);
            }
        }
        not_reported += time.unresolved_ns as f64 / time.window_ns as f64 / PROGRAMS as f64;
        named.push(time.bottleneck);
    }
    println!("{kind:?} {sampling:?}: {:.3} within, not told {not_reported:.3}, {named:?}", within / all);
    (within / all, not_reported, named)
}

const USUAL: Sampling = Sampling { interval: 5 * MILLI, native: true, engine: true };

#[test]
fn intervals_hold_the_truth_and_a_bottleneck_is_the_right_one() {
    for (kind, right, at_least) in [
        (Kind::Loader, Cause::DataLoading, 15),
        (Kind::Launches, Cause::Launch, 20),
        (Kind::Sleeper, Cause::HostCpu, 15),
        (Kind::Computes, Cause::GpuCompute, 20),
    ] {
        let (within, _, named) = coverage(kind, USUAL);
        assert!(within >= 0.9, "{kind:?}: {within}");
        let rights = named.iter().filter(|&&cause| cause == right).count();
        assert!(named.iter().all(|&cause| cause == right || cause == Cause::CannotTell), "{kind:?}: {named:?}");
        assert!(rights >= at_least, "{kind:?}: {rights} of {}: {named:?}", named.len());
    }
    let (within, ..) = coverage(Kind::Mixed, USUAL);
    assert!(within >= 0.9, "{within}");
}

#[test]
fn faster_samples_tell_more_apart() {
    let slow = coverage(Kind::Loader, USUAL);
    let fast = coverage(Kind::Loader, Sampling { interval: MILLI, ..USUAL });
    assert!(fast.0 >= 0.9 && fast.1 < slow.1, "{} {} {}", fast.0, fast.1, slow.1);
}

#[test]
fn what_a_program_loads_and_its_end_do_not_count() {
    const SECOND: u64 = 1000 * MILLI;
    let mut started = Program::default();
    started.add(7 * SECOND, false, Host::Computes, Cause::HostCpu);
    for _ in 0..100 {
        started.wait(28 * MILLI);
        started.late(2 * MILLI, Host::Computes, 28 * MILLI);
    }
    // Samples continue until 200 ms before the program ends.
    started.add(SECOND + 200 * MILLI, false, Host::Computes, Cause::HostCpu);
    let time = monitored(&started, USUAL, 1).time().expect("device samples came");
    // Blocks are up to 400 ms long.
    let near = |nanos: u64, seconds: f64| (nanos as f64 / SECOND as f64 - seconds).abs() <= 0.5;
    assert!(near(time.start_up_ns, 7.0) && near(time.window_ns, 3.0), "{time:?}");
    assert_eq!(time.bottleneck, Cause::GpuCompute, "{time:?}");
    // Without any work yet, there is no end.
    let mut idle = Program::default();
    idle.add(SECOND + 700 * MILLI, false, Host::Computes, Cause::HostCpu);
    let time = monitored(&idle, USUAL, 1).time().expect("device samples came");
    assert!(near(time.window_ns, 1.5) && time.bottleneck == Cause::CannotTell, "{time:?}");
    // Of a longer idle time at the end, all but two seconds and a block count.
    started.add(2 * SECOND, false, Host::Computes, Cause::HostCpu);
    let time = monitored(&started, USUAL, 1).time().expect("device samples came");
    assert!(near(time.window_ns, 3.7) && time.bottleneck != Cause::GpuCompute, "{time:?}");
}

#[test]
fn less_evidence_widens_intervals_and_names_nothing_wrong() {
    for (kind, right) in
        [(Kind::Launches, Cause::Launch), (Kind::Sleeper, Cause::HostCpu), (Kind::Mixed, Cause::CannotTell)]
    {
        for sampling in [Sampling { native: false, ..USUAL }, Sampling { engine: false, ..USUAL }] {
            let (within, _, named) = coverage(kind, sampling);
            assert!(within >= 0.9, "{kind:?} {sampling:?}: {within}");
            let wrong = named.iter().filter(|&&cause| cause != right && cause != Cause::CannotTell).count();
            assert!(wrong == 0 || kind == Kind::Mixed, "{kind:?} {sampling:?}: {named:?}");
        }
    }
    let (_, _, named) = coverage(Kind::Launches, Sampling { native: false, ..USUAL });
    assert!(named.iter().all(|&cause| cause == Cause::CannotTell), "calls do not show without native functions");
}
