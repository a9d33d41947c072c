//! Memory for a program that launches large graphs far ahead of the device: the engine's memory must not grow
//! with it.
//!
//! A graph launch does not announce the number of its records, so everything after the oldest unfinished
//! launch waits. Graphs of 1,000 kernels of one microsecond, 400 of them launched at once, queue a million
//! operations per second after it. An allocator counts; it counts for the complete binary, so this is its
//! only test.

use std::sync::atomic::Ordering::Relaxed;

use crate::counting::{LIVE, PEAK};
use gpuwhy_report::run::Report;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::*;
use profiler_core::attribution::Attributor;

/// MiB. At the start, before any launch is known, the operations of two flushes wait. Keeping everything
/// after the oldest unfinished graph took 210.
const MAX_MIB: f64 = 100.0;
const NODES: u64 = 1_000;
const GRAPHS: u64 = 1_600;
/// Number of graphs that the host launches before it waits.
const AHEAD: u64 = 400;
/// From the start of one node to that of the next, nanoseconds.
const NODE: u64 = 916;
const FLUSH: u64 = 100_000_000;
const START: u64 = 1_790_000_000_000_000_000;

#[test]
fn graphs_launched_far_ahead_do_not_pile_up() {
    let _alone = crate::counting::alone();
    let mut dictionary = Dictionary::new();
    let name = dictionary.intern_name("cudaGraphLaunch_v10000");
    let function = dictionary.intern_api_function(ApiFunction { domain: ApiDomain::Runtime, callback_id: 311, name });
    let name = dictionary.intern_name("empty");
    let config = dictionary.intern_launch_config(LaunchConfig { name, grid: [1; 3], ..LaunchConfig::default() });
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);

    let mut attributor = Attributor::new();
    let (mut device, mut next_flush) = (START, START + FLUSH);
    let mut delivered = 0;
    for graph in 0..GRAPHS {
        let batch = START + graph / AHEAD * AHEAD * NODES * NODE;
        let called = batch + graph % AHEAD * 20_000;
        let call = ApiCall {
            start: Timestamp::from_nanos(called),
            end: Timestamp::from_nanos(called + 15_000),
            thread: ThreadId(1),
            correlation: CorrelationId(graph as u32 + 1),
            function,
            return_value: 0,
        };
        attributor.push(&Record::Api(call), &dictionary);
        device = device.max(called + 30_000);
        for node in 0..NODES {
            let kernel = Kernel {
                start: Timestamp::from_nanos(device),
                end: Timestamp::from_nanos(device + 700),
                stream: StreamId(7),
                correlation: CorrelationId(graph as u32 + 1),
                config,
                graph_id: 1,
                graph_node_id: node,
                ..Kernel::default()
            };
            device += NODE;
            attributor.push(&Record::Kernel(kernel), &dictionary);
            delivered += 1;
            if device > next_flush {
                // Records that were complete one flush ago have arrived.
                attributor.flushed(Timestamp::from_nanos(next_flush - FLUSH), &dictionary);
                next_flush += FLUSH;
            }
        }
    }
    attributor.finish(Timestamp::from_nanos(device + FLUSH), &dictionary);
    let peak = (PEAK.load(Relaxed) - before) as f64 / f64::from(1 << 20);
    println!("{delivered} operations, at most {peak:.1} MiB held");

    let report =
        Report::new(&ProcessInfo::default(), &attributor, &dictionary, &Loss::default(), End::Clean, Vec::new());
    assert_eq!(report.completeness.kernels, GRAPHS * NODES);
    assert_eq!(report.completeness.late_ns, 0);
    assert_eq!(report.completeness.activities_without_launch, 0);
    assert!(peak < MAX_MIB, "{peak:.1} MiB");
}
