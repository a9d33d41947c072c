//! Speed of the attributor on one core: `cargo bench -p profiler-core --bench attribution`.
//!
//! Three loads, delivered in flushes of 100 ms of program time, each flush shuffled in chunks as buffers of several
//! threads would be: a launch-bound program (a gap before each kernel, the dearest case for the gap rule), a
//! device-bound one (no gaps, many operations in flight), and eight threads on eight streams. Records are half
//! calls and half kernels. Numbers are the best of several runs; making the records is not measured.

use std::hint::black_box;
use std::time::{Duration, Instant};

use profiler_core::attribution::Attributor;
use profiler_core::dictionary::Dictionary;
use profiler_core::record::*;

const LAUNCHES: u64 = 500_000;
const RUNS: u32 = 5;
const START: u64 = 1_790_000_000_000_000_000;
const FLUSH: u64 = 100_000_000;
/// Records in a buffer of 256 KiB, about.
const BUFFER: usize = 2_048;

struct Load {
    name: &'static str,
    threads: u64,
    /// Nanoseconds from one launch of a thread to the next.
    host_period: u64,
    kernel_length: u64,
}

const LOADS: [Load; 3] = [
    Load { name: "launch-bound, 1 thread", threads: 1, host_period: 10_000, kernel_length: 3_000 },
    Load { name: "device-bound, 1 thread", threads: 1, host_period: 5_000, kernel_length: 5_200 },
    Load { name: "8 threads, 8 streams", threads: 8, host_period: 7_000, kernel_length: 5_000 },
];

fn main() {
    for load in &LOADS {
        let mut dictionary = Dictionary::new();
        let flushes = flushes(load, &mut dictionary);
        let records: usize = flushes.iter().map(Vec::len).sum();
        let best = (0..RUNS).map(|_| run(&flushes, &dictionary)).min().unwrap_or(Duration::MAX);
        let nanos = best.as_nanos() as f64 / records as f64;
        println!("{:24} {records} records, {nanos:.0} ns each, {:.1} M/s", load.name, 1_000.0 / nanos);
    }
}

fn run(flushes: &[Vec<Record>], dictionary: &Dictionary) -> Duration {
    let begin = Instant::now();
    let mut attributor = Attributor::new();
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

fn flushes(load: &Load, dictionary: &mut Dictionary) -> Vec<Vec<Record>> {
    let name = dictionary.intern_name("cudaLaunchKernel_v7000");
    let function = dictionary.intern_api_function(ApiFunction { domain: ApiDomain::Runtime, callback_id: 211, name });
    let configs: Vec<_> = (0..60)
        .map(|index| {
            let name = dictionary.intern_name(&format!("kernel_{index}"));
            dictionary.intern_launch_config(LaunchConfig { name, ..LaunchConfig::default() })
        })
        .collect();
    let mut records: Vec<(u64, Record)> = Vec::new();
    let mut busy_until = vec![0; load.threads as usize];
    for index in 0..LAUNCHES {
        let thread = index % load.threads;
        let call = START + 1_000 + index / load.threads * load.host_period + thread * 100;
        let correlation = CorrelationId(index as u32 + 1);
        let (start, end) = (Timestamp::from_nanos(call), Timestamp::from_nanos(call + 3_000));
        let thread_id = ThreadId(thread as u32 + 1);
        let api = ApiCall { start, end, thread: thread_id, correlation, function, return_value: 0 };
        records.push((end.nanos(), Record::Api(api)));
        let busy = &mut busy_until[thread as usize];
        let begin = (call + 5_000).max(*busy + 800);
        *busy = begin + load.kernel_length;
        let kernel = Kernel {
            start: Timestamp::from_nanos(begin),
            end: Timestamp::from_nanos(*busy),
            stream: StreamId(7 + thread as u32),
            correlation,
            config: configs[index as usize % configs.len()],
            ..Kernel::default()
        };
        records.push((*busy, Record::Kernel(kernel)));
    }
    records.sort_by_key(|&(complete, _)| complete);
    let mut flushes = Vec::new();
    for (complete, record) in records {
        let index = ((complete - START) / FLUSH) as usize;
        flushes.resize_with(flushes.len().max(index + 1), Vec::new);
        flushes[index].push(record);
    }
    for flush in &mut flushes {
        // Kernels and calls come in buffers of their own, and the newest buffer first.
        flush.sort_by_key(|record| matches!(record, Record::Api(_)));
        let mut buffers: Vec<_> = flush.chunks(BUFFER).map(<[Record]>::to_vec).collect();
        buffers.reverse();
        *flush = buffers.concat();
    }
    flushes
}
