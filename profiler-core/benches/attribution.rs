//! Speed of the attributor on one core: `cargo bench -p profiler-core --bench attribution`.
//!
//! Four loads, delivered in flushes of 100 ms of program time, with each flush shuffled in chunks as the
//! buffers of several threads would be: a launch-bound program (a gap before each kernel, the most expensive
//! case for the gap rule), a device-bound one (no gaps, many operations in flight), eight threads on eight
//! streams, and graphs of 1000 nodes. Each load runs with the simulation and without it (a collector's
//! fallback), and once with step detection alone, which is part of both. Numbers are the best of several
//! runs; creating the records is not measured.
//!
//! To count instructions instead of time, unaffected by other load: `valgrind --tool=callgrind
//! --toggle-collect='attribution::run' BINARY --once [LOAD]`, where BINARY is the path that `cargo bench
//! --no-run` prints.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "measures time, prints"
)]

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::{Duration, Instant};

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::*;
use profiler_core::attribution::Attributor;
use profiler_core::steps::{LaunchKind, StepDetector};

const OPERATIONS: u64 = 500_000;
const RUNS: u32 = 5;
const START: u64 = 1_790_000_000_000_000_000;
const FLUSH: u64 = 100_000_000;
/// Approximate number of records in a buffer of 256 KiB.
const BUFFER: usize = 2_048;
/// Launches that a stream queues before the host has to wait.
const QUEUE: usize = 1_024;
/// Kernels per step.
const KERNELS: u32 = 60;

struct Load {
    name: &'static str,
    threads: u64,
    /// Nanoseconds between launches of a thread.
    host_period: u64,
    kernel_length: u64,
    /// Kernels per launch: a graph if more than one.
    nodes: u64,
}

const LOADS: [Load; 4] = [
    Load { name: "launch-bound, 1 thread", threads: 1, host_period: 10_000, kernel_length: 3_000, nodes: 1 },
    Load { name: "device-bound, 1 thread", threads: 1, host_period: 5_000, kernel_length: 5_200, nodes: 1 },
    Load { name: "8 threads, 8 streams", threads: 8, host_period: 7_000, kernel_length: 5_000, nodes: 1 },
    Load { name: "graphs of 1000 kernels", threads: 1, host_period: 2_000_000, kernel_length: 1_100, nodes: 1_000 },
];

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench").peekable();
    let runs = if arguments.next_if(|argument| argument == "--once").is_some() { 1 } else { RUNS };
    let wanted = arguments.next().unwrap_or_default();
    println!("{:24} {:>9} {:>16} {:>16}", "", "records", "without simulation", "with simulation");
    for load in LOADS.iter().filter(|load| load.name.contains(&wanted)) {
        let mut dictionary = Dictionary::new();
        let flushes = flushes(load, &mut dictionary);
        let records: usize = flushes.iter().map(Vec::len).sum();
        let speeds = [false, true].map(|simulates| {
            let best = (0..runs).map(|_| run(&flushes, &dictionary, simulates)).min();
            speed(best, records)
        });
        println!("{:24} {records:>9} {:>16} {:>16}", load.name, speeds[0], speeds[1]);
    }
    if "steps".contains(&wanted) {
        let best = (0..runs).map(|_| detect()).min();
        println!("{:24} {OPERATIONS:>9} {:>16}", "steps alone", speed(best, OPERATIONS as usize));
    }
}

fn speed(best: Option<Duration>, records: usize) -> String {
    let nanos = best.unwrap_or(Duration::MAX).as_nanos() as f64 / records as f64;
    format!("{nanos:.0} ns {:.1} M/s", 1_000.0 / nanos)
}

#[inline(never)]
fn run(flushes: &[Vec<Record>], dictionary: &Dictionary, simulates: bool) -> Duration {
    let begin = Instant::now();
    let mut attributor = Attributor::new();
    if !simulates {
        attributor.stop_what_if();
    }
    let mut at = START;
    for flush in flushes {
        for record in flush {
            attributor.push(record, dictionary);
        }
        at += FLUSH;
        attributor.flushed(Timestamp::from_nanos(at), dictionary);
    }
    attributor.finish(Timestamp::from_nanos(at), dictionary);
    let elapsed = begin.elapsed();
    let completeness = black_box(&attributor).completeness();
    assert_eq!((completeness.late_ns, completeness.launches_without_activity), (0, 0));
    elapsed
}

#[inline(never)]
fn detect() -> Duration {
    let begin = Instant::now();
    let mut detector = StepDetector::default();
    let steps = (0..OPERATIONS as u32)
        .filter(|number| black_box(detector.push(number % KERNELS, 0, LaunchKind::Other)).is_some())
        .count();
    assert!(steps > 0);
    begin.elapsed()
}

fn flushes(load: &Load, dictionary: &mut Dictionary) -> Vec<Vec<Record>> {
    let (name, callback_id) =
        if load.nodes == 1 { ("cudaLaunchKernel_v7000", 211) } else { ("cudaGraphLaunch_v10000", 311) };
    let name = dictionary.intern_name(name);
    let function = dictionary.intern_api_function(ApiFunction { domain: ApiDomain::Runtime, callback_id, name });
    let configs: Vec<_> = (0..KERNELS)
        .map(|index| {
            let name = dictionary.intern_name(&format!("kernel_{index}"));
            dictionary.intern_launch_config(LaunchConfig { name, ..LaunchConfig::default() })
        })
        .collect();
    let mut records: Vec<(u64, Record)> = Vec::new();
    let mut busy_until = vec![0; load.threads as usize];
    let mut host = vec![START + 1_000; load.threads as usize];
    // End times of the operations in a stream's queue.
    let mut queues = vec![VecDeque::from([0; QUEUE]); load.threads as usize];
    for launch in 0..OPERATIONS / load.nodes {
        let thread = launch % load.threads;
        let queue = &mut queues[thread as usize];
        let host = &mut host[thread as usize];
        let call = (*host).max(queue.pop_front().unwrap_or_default()) + thread * 100;
        *host = call + load.host_period - thread * 100;
        let correlation = CorrelationId(launch as u32 + 1);
        let (start, end) = (Timestamp::from_nanos(call), Timestamp::from_nanos(call + 3_000));
        let thread_id = ThreadId(thread as u32 + 1);
        let api = ApiCall { start, end, thread: thread_id, correlation, function, return_value: 0 };
        records.push((end.nanos(), Record::Api(api)));
        let busy = &mut busy_until[thread as usize];
        for index in launch * load.nodes..(launch + 1) * load.nodes {
            let begin = (call + 5_000).max(*busy + 800);
            *busy = begin + load.kernel_length;
            let kernel = Kernel {
                start: Timestamp::from_nanos(begin),
                end: Timestamp::from_nanos(*busy),
                stream: StreamId(7 + thread as u32),
                correlation,
                config: configs[index as usize % configs.len()],
                graph_id: u32::from(load.nodes > 1),
                ..Kernel::default()
            };
            records.push((*busy, Record::Kernel(kernel)));
        }
        queue.push_back(*busy);
    }
    records.sort_by_key(|&(complete, _)| complete);
    let mut flushes = Vec::new();
    for (complete, record) in records {
        let index = ((complete - START) / FLUSH) as usize;
        flushes.resize_with(flushes.len().max(index + 1), Vec::new);
        flushes[index].push(record);
    }
    for flush in &mut flushes {
        // Kernels and calls come in separate buffers, newest buffer first.
        flush.sort_by_key(|record| matches!(record, Record::Api(_)));
        let mut buffers: Vec<_> = flush.chunks(BUFFER).map(<[Record]>::to_vec).collect();
        buffers.reverse();
        *flush = buffers.concat();
    }
    flushes
}
