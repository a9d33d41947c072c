//! How long launches and operations wait for each other, and the counters for unmatched ones.

use crate::support::{Scenario, ZERO, assert_leaves, gpu};
use gpuwhy_trace::completeness::Completeness;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::graph_node::GraphNode;
use gpuwhy_trace::record::*;
use profiler_core::attribution::Attributor;
use profiler_core::leaf::Leaf;

const KERNEL: &str = "cudaLaunchKernel_v7000";
const GRAPH: &str = "cudaGraphLaunch_v10000";
const BLOCKING: &str = "cudaMemcpy_v3020";
const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;

fn time(micros: u64) -> Timestamp {
    Timestamp::from_nanos(ZERO + micros * 1_000)
}

/// A program fed step by step: records, with flushes in between. Times are microseconds.
#[derive(Default)]
struct Feed {
    attributor: Attributor,
    dictionary: Dictionary,
    calls: u32,
}

impl Feed {
    /// Adds a call and returns its correlation id.
    fn call(&mut self, thread: u32, function: &str, start: u64, end: u64) -> u32 {
        self.calls += 1;
        let name = self.dictionary.intern_name(function);
        let function =
            self.dictionary.intern_api_function(ApiFunction { domain: ApiDomain::Runtime, callback_id: name.0, name });
        let (start, end, correlation) = (time(start), time(end), CorrelationId(self.calls));
        let call = ApiCall { start, end, thread: ThreadId(thread), correlation, function, return_value: 0 };
        self.attributor.push(&Record::Api(call), &self.dictionary);
        self.calls
    }

    fn ran(&mut self, stream: u32, start: u64, end: u64, launch: u32) {
        let kernel = Kernel {
            start: time(start),
            end: time(end),
            stream: StreamId(stream),
            correlation: CorrelationId(launch),
            ..Kernel::default()
        };
        self.attributor.push(&Record::Kernel(kernel), &self.dictionary);
    }

    /// Adds a call with this correlation id.
    fn call_with(&mut self, correlation: u32, thread: u32, function: &str, start: u64, end: u64) {
        let counted = std::mem::replace(&mut self.calls, correlation - 1);
        self.call(thread, function, start, end);
        self.calls = counted;
    }

    fn copied(&mut self, stream: u32, start: u64, end: u64, launch: u32) {
        let copy = Copy {
            start: time(start),
            end: time(end),
            stream: StreamId(stream),
            correlation: CorrelationId(launch),
            bytes: 4_096,
            ..Copy::default()
        };
        self.attributor.push(&Record::Copy(copy), &self.dictionary);
    }

    /// A thread adds a node to a graph.
    fn added_node(&mut self, thread: u32, at: u64) {
        let node = GraphNode { node: at, thread: ThreadId(thread), at: time(at), ..GraphNode::default() };
        self.attributor.push_graph_node(&node, &self.dictionary);
    }

    /// True if work is awaited after a flush at `at`.
    fn awaits_at(&mut self, at: u64) -> bool {
        self.attributor.flushed(time(at), &self.dictionary);
        self.attributor.awaits_work()
    }

    /// Launches without operation, and operations without launch.
    fn unmatched(&self) -> (u64, u64) {
        let counted = self.attributor.completeness();
        (counted.launches_without_activity, counted.activities_without_launch)
    }
}

/// For each of the flushes at `times`: true if a call of `function` that lasted until 10 us is still awaited.
fn waited_for(function: &str, times: &[u64]) -> (Vec<bool>, u64) {
    let mut feed = Feed::default();
    feed.call(1, function, 0, 10);
    (times.iter().map(|&at| feed.awaits_at(at)).collect(), feed.unmatched().0)
}

/// Launches of thread 2 while thread 1 captures, as in PyTorch's backward pass.
#[test]
fn a_launch_that_only_added_a_node_is_no_loss_whichever_is_known_first() {
    for (before, after) in [(true, false), (false, true), (true, true), (false, false)] {
        let mut feed = Feed::default();
        let captured = [100, 200, 300];
        if before {
            captured.iter().for_each(|at| feed.added_node(2, at + 5));
        }
        captured.iter().for_each(|&at| _ = feed.call(2, KERNEL, at, at + 10));
        // Neither this launch nor the one of another thread added a node.
        let launch = feed.call(2, KERNEL, 400, 410);
        feed.call(3, KERNEL, 200, 210);
        feed.ran(7, 420, 430, launch);
        feed.attributor.flushed(time(SECOND), &feed.dictionary);
        if after {
            captured.iter().for_each(|at| feed.added_node(2, at + 5));
        }
        [2, 3, 4].into_iter().for_each(|second| _ = feed.awaits_at(second * SECOND));
        let lost = if before || after { 1 } else { 4 };
        assert_eq!(feed.unmatched(), (lost, 0), "{before} {after}");
    }
}

#[test]
fn a_launch_is_given_up_after_two_seconds_and_three_flushes() {
    let exactly = [SECOND, SECOND + 1, 2 * SECOND, 2 * SECOND + 1];
    assert_eq!(waited_for(KERNEL, &exactly), (vec![true, true, true, false], 1));
    let late = [5 * SECOND, 6 * SECOND, 7 * SECOND];
    assert_eq!(waited_for(KERNEL, &late), (vec![true, true, false], 1));
    // A graph need not leave a record, and an empty copy leaves none.
    assert_eq!(waited_for(GRAPH, &exactly), (vec![true, true, true, false], 0));
    assert_eq!(waited_for("cudaMemcpyAsync_v3020", &exactly), (vec![true, true, true, false], 0));
}

#[test]
fn a_blocking_copy_is_given_up_after_100_ms_and_two_flushes() {
    // Counted from its return at 10 us.
    let exactly = [50 * MILLI, 100 * MILLI + 10, 100 * MILLI + 11];
    assert_eq!(waited_for(BLOCKING, &exactly), (vec![true, true, false], 0));
    assert_eq!(waited_for(BLOCKING, &[200 * MILLI, 300 * MILLI]), (vec![true, false], 0));
}

#[test]
fn a_graph_is_complete_after_200_ms_and_two_flushes_without_a_node() {
    let after_first_node = |times: &[u64], again_before: usize| -> Vec<bool> {
        let mut feed = Feed::default();
        let graph = feed.call(1, GRAPH, 0, 10);
        let awaits = |(index, &at): (usize, &u64)| {
            if index == 0 || index == again_before {
                let begin = if index == 0 { 20 } else { at - 1_000 };
                feed.ran(7, begin, begin + 5, graph);
            }
            feed.awaits_at(at)
        };
        times.iter().enumerate().map(awaits).collect()
    };
    let exactly = [50 * MILLI, 100 * MILLI, 200 * MILLI, 200 * MILLI + 1];
    assert_eq!(after_first_node(&exactly, 0), [true, true, true, false]);
    let seldom = [300 * MILLI, 400 * MILLI, 500 * MILLI];
    assert_eq!(after_first_node(&seldom, 0), [true, true, false]);
    // Each node restarts the wait.
    let longer = [300 * MILLI, 400 * MILLI, 500 * MILLI, 600 * MILLI];
    assert_eq!(after_first_node(&longer, 1), [true, true, true, false]);
}

#[test]
fn a_graph_is_complete_when_its_stream_has_gone_on() {
    let followed = |stream: u32, launched: (u64, u64)| {
        let mut feed = Feed::default();
        let graph = feed.call(1, GRAPH, 100, 110);
        let kernel = feed.call(1, KERNEL, launched.0, launched.1);
        feed.ran(7, 150, 160, graph);
        feed.ran(stream, 170, 180, kernel);
        feed.awaits_at(500)
    };
    assert!(!followed(7, (120, 125)));
    assert!(followed(8, (120, 125)), "another stream says nothing of it");
    assert!(followed(7, (50, 55)), "it was launched before the graph");
}

#[test]
fn graphs_on_one_stream_follow_each_other() {
    let mut feed = Feed::default();
    let first = feed.call(1, GRAPH, 100, 110);
    let second = feed.call(1, GRAPH, 120, 130);
    for (graph, begin) in [(first, 150), (first, 160), (second, 170), (second, 180)] {
        feed.ran(7, begin, begin + 5, graph);
    }
    assert!(feed.awaits_at(500), "the second one may have more nodes");
    let kernel = feed.call(1, KERNEL, 600, 610);
    feed.ran(7, 620, 630, kernel);
    assert!(!feed.awaits_at(1_000));
    assert_eq!(feed.unmatched(), (0, 0));
}

#[test]
fn a_kernel_that_comes_after_its_launch_was_given_up_is_joined_all_the_same() {
    let mut feed = Feed::default();
    let lost = feed.call(1, KERNEL, 0, 5);
    let flushes = [3 * SECOND, 4 * SECOND, 5 * SECOND];
    assert_eq!(flushes.map(|at| feed.awaits_at(at)), [true, true, false]);
    assert_eq!(feed.unmatched(), (1, 0));
    feed.ran(7, 100, 5 * SECOND, lost);
    feed.awaits_at(6 * SECOND);
    assert_eq!(feed.unmatched(), (0, 0));
    // It came once.
    feed.ran(7, 6 * SECOND, 6 * SECOND + 5, lost);
    feed.attributor.finish(time(7 * SECOND), &feed.dictionary);
    assert_eq!(feed.unmatched(), (0, 1));
}

#[test]
fn an_operation_waits_for_its_call_for_two_seconds_and_three_flushes() {
    let mut feed = Feed::default();
    feed.ran(7, 10, 20, 1);
    for at in [SECOND, 2 * SECOND, 2 * SECOND + 20] {
        feed.awaits_at(at);
        assert_eq!(feed.unmatched(), (0, 0), "{at}");
    }
    feed.awaits_at(2 * SECOND + 21);
    assert_eq!(feed.unmatched(), (0, 1));
    // With few flushes it waits longer, and its call may arrive.
    let mut feed = Feed::default();
    feed.ran(7, 10, 20, 1);
    feed.awaits_at(5 * SECOND);
    feed.awaits_at(6 * SECOND);
    assert_eq!(feed.unmatched(), (0, 0));
    feed.call(1, KERNEL, 0, 5);
    feed.awaits_at(7 * SECOND);
    assert_eq!(feed.unmatched(), (0, 0));
}

#[test]
fn a_lost_kernel_counts_in_the_gap_in_which_its_launch_returned() {
    let unobserved = |lost: (u64, u64), next: u64| {
        let mut scenario = Scenario::new();
        gpu(0).kernel("first").at(100).lasting(100).launched(&mut scenario, 1, 90, 5);
        scenario.call(1, KERNEL, lost.0, lost.1 - lost.0);
        gpu(0).kernel("next").at(next + 10).lasting(10).launched(&mut scenario, 1, next, 5);
        scenario.leaves()[Leaf::Unobserved as usize] / 1_000
    };
    assert_eq!(unobserved((220, 225), 226), 1, "from its return to the next launch");
    assert_eq!(unobserved((220, 225), 225), 0, "the next launch was made at once");
    assert_eq!(unobserved((196, 201), 226), 25);
    assert_eq!(unobserved((195, 200), 226), 0, "it returned while the device was busy");
    // The earliest of two.
    let mut scenario = Scenario::new();
    gpu(0).kernel("first").at(100).lasting(100).launched(&mut scenario, 1, 90, 5);
    scenario.call(1, KERNEL, 210, 5);
    scenario.call(1, KERNEL, 220, 5);
    gpu(0).kernel("next").at(240).lasting(10).launched(&mut scenario, 1, 230, 5);
    assert_eq!(scenario.leaves()[Leaf::Unobserved as usize], 15_000);
    // An event of another thread does not count.
    let mut scenario = Scenario::new();
    gpu(0).kernel("first").at(100).lasting(100).launched(&mut scenario, 1, 90, 5);
    scenario.call(2, KERNEL, 210, 5);
    gpu(0).kernel("next").at(240).lasting(10).launched(&mut scenario, 1, 230, 5);
    assert_eq!(scenario.leaves()[Leaf::Unobserved as usize], 0);
}

#[test]
fn copies_and_memsets_of_a_graph_wait_as_such() {
    let mut scenario = Scenario::new();
    let graph = scenario.call(1, GRAPH, 90, 5);
    scenario.add(gpu(0).kernel("node").at(100).lasting(10).of_graph(5).by(graph));
    scenario.add(gpu(0).memset(64).at(130).lasting(10).of_graph(5).by(graph));
    scenario.add(gpu(0).d2h(MemoryKind::Pinned, 64).at(160).lasting(10).of_graph(5).by(graph));
    let attributor = scenario.run();
    assert_leaves(
        &crate::support::only_leaves(&attributor),
        &[(Leaf::Compute, 10), (Leaf::Memset, 10), (Leaf::CopyD2hPinned, 10), (Leaf::GraphWait, 40)],
    );
    let account = attributor.devices().next().unwrap();
    assert_eq!((account.operations(), account.graph_operations(), account.graph_ns()), (3, 3, 30_000));
}

/// One of the counters.
type Counter = fn(&mut Completeness) -> &mut u64;

#[test]
fn each_record_is_counted_once() {
    let at = time(10);
    let one_each: [(Record, Counter); 11] = [
        (Record::Kernel(Kernel { start: at, end: at, ..Kernel::default() }), |counted| &mut counted.kernels),
        (Record::Copy(Copy { start: at, end: at, ..Copy::default() }), |counted| &mut counted.copies),
        (Record::Memset(Memset { start: at, end: at, ..Memset::default() }), |counted| &mut counted.memsets),
        (Record::Api(ApiCall { start: at, end: at, ..ApiCall::default() }), |counted| &mut counted.api_calls),
        (Record::Sync(Sync { start: at, end: at, ..Sync::default() }), |counted| &mut counted.syncs),
        (Record::Event(CudaEvent::default()), |counted| &mut counted.events),
        (Record::Overhead(Overhead { start: at, end: at, ..Overhead::default() }), |counted| &mut counted.overheads),
        (Record::Range(RangeEvent { at, ..RangeEvent::default() }), |counted| &mut counted.ranges),
        (Record::Sample(HostSample { since: at, at, ..HostSample::default() }), |counted| &mut counted.samples),
        (Record::Memory(MemoryEvent { at, ..MemoryEvent::default() }), |counted| &mut counted.memory_events),
        (Record::Managed(ManagedEvent { start: at, end: at, ..ManagedEvent::default() }), |counted| {
            &mut counted.managed_events
        }),
    ];
    for (record, counter) in one_each {
        let (mut attributor, dictionary) = (Attributor::new(), Dictionary::new());
        for _ in 0..3 {
            attributor.push(&record, &dictionary);
        }
        let mut expected = Completeness::default();
        *counter(&mut expected) = 3;
        assert_eq!(attributor.completeness(), expected, "{record:?}");
        assert_eq!(expected.records(), 3, "{record:?}");
    }
}

#[test]
fn times_that_cannot_be_are_counted_as_damage() {
    const NOW: u64 = 1_790_000_000_000_000_000;
    let bad = |start: u64, end: u64| {
        let (mut attributor, dictionary) = (Attributor::new(), Dictionary::new());
        let (start, end) = (Timestamp::from_nanos(start), Timestamp::from_nanos(end));
        attributor.push(&Record::Kernel(Kernel { start, end, ..Kernel::default() }), &dictionary);
        attributor.push(&Record::Api(ApiCall { start, end, ..ApiCall::default() }), &dictionary);
        attributor.finish(Timestamp::from_nanos(NOW), &dictionary);
        assert_eq!(attributor.devices().map(|account| account.operations()).sum::<u64>() == 0, {
            attributor.completeness().bad_timestamps > 0
        });
        attributor.completeness().bad_timestamps
    };
    assert_eq!(bad(NOW - 10, NOW), 0);
    // Ten seconds after the flush that delivered them, and 208 days before it.
    assert_eq!(bad(NOW - 10, NOW + 10_000_000_000), 0);
    assert_eq!(bad(NOW - 10, NOW + 10_000_000_001), 2);
    assert_eq!(bad(NOW - (1 << 54), NOW - (1 << 53)), 0);
    assert_eq!(bad(NOW - (1 << 54) - 1, NOW - (1 << 53)), 2);
    assert_eq!(bad(0, NOW), 2);
}

#[test]
fn what_is_observed_reaches_from_the_first_begin_to_the_last_end() {
    let mut scenario = Scenario::new();
    gpu(0).kernel("a").at(100).lasting(100).launched(&mut scenario, 1, 90, 5);
    scenario.call(2, "cudaEventRecord_v3020", 40, 5);
    scenario.call(2, "cudaEventRecord_v3020", 900, 50);
    assert_eq!(scenario.run().observed_ns(), 910_000);
    assert_eq!(Attributor::new().observed_ns(), 0);
}

#[test]
fn copies_over_a_known_link_need_it_for_their_bytes() {
    let needed = |link: bool, copies: &[crate::support::Work]| {
        let mut scenario = Scenario::new();
        if link {
            let link = PcieLink { generation: 4, megatransfers: 16_000, lanes: 16, ..PcieLink::default() };
            scenario.dictionary.add_link(link);
        }
        for (index, copy) in (0..).zip(copies) {
            copy.clone().at(1_000 * index + 10).launched(&mut scenario, 1, 1_000 * index, 5);
        }
        scenario.run().devices().next().unwrap().steady_link_ns()
    };
    let pinned = MemoryKind::Pinned;
    let link = PcieLink { generation: 4, megatransfers: 16_000, lanes: 16, ..PcieLink::default() };
    let one = link.shortest_copy_nanos(1_000_000).unwrap();
    let (h2d, d2h) = (gpu(0).h2d(pinned, 1_000_000).lasting(100), gpu(0).d2h(pinned, 1_000_000).lasting(100));
    assert_eq!(needed(true, std::slice::from_ref(&h2d)), one);
    assert_eq!(needed(true, &[h2d.clone(), d2h.clone(), d2h.clone()]), 2 * one, "both directions at once");
    assert_eq!(needed(false, std::slice::from_ref(&h2d)), 0);
    // Never longer than its duration; and an operation that takes no time by its bytes is known all the same.
    assert_eq!(needed(true, &[h2d.lasting(10)]), 10_000);
    assert_eq!(needed(true, &[gpu(0).h2d(pinned, 0).lasting(10)]), 1);
}

#[test]
fn operations_of_a_graph_are_its_own_without_their_launch_too() {
    let mut scenario = Scenario::new();
    scenario.add(gpu(0).memset(64).at(100).lasting(10).of_graph(5));
    scenario.add(gpu(0).d2h(MemoryKind::Pinned, 64).at(120).lasting(10).of_graph(5));
    scenario.add(gpu(0).kernel("node").at(140).lasting(10).of_graph(5));
    scenario.add(gpu(0).kernel("other").at(160).lasting(10));
    let attributor = scenario.run();
    let account = attributor.devices().next().unwrap();
    assert_eq!((account.operations(), account.graph_operations()), (4, 3));
}

#[test]
fn the_peak_of_memory_is_of_the_call_that_took_it() {
    let mut scenario = Scenario::new();
    // Another, already known thread makes a call around the same time.
    scenario.call(2, "cudaEventRecord_v3020", 10, 5);
    scenario.memory(1, 100, MemoryOperation::Allocation, 0x1000, 4_096);
    scenario.call(2, "cudaFree_v3020", 98, 10);
    let attributor = scenario.run();
    let callers: Vec<_> = attributor.memory().filter_map(|(_, _, caller)| caller).map(|caller| caller.thread).collect();
    assert_eq!(callers, [ThreadId(1)]);
}

#[test]
fn ranges_have_the_deviation_of_a_sample() {
    let deviation = |durations: &[u64]| {
        let mut scenario = Scenario::new();
        for (index, &duration) in (0..).zip(durations) {
            let at = 1_000 * index;
            gpu(0).kernel("k").at(at + 10).lasting(5).launched(&mut scenario, 1, at, 5);
            scenario.pushed(1, at + 100, at + 100 + duration, "range");
        }
        scenario.run().ranges()[0].0.host.deviation()
    };
    assert_eq!(deviation(&[50]), 0.0);
    assert_eq!(deviation(&[50, 50, 50]), 0.0);
    // 10, 20 and 60 us: 30 us on average, squares of 400, 100 and 900 us, halved.
    assert!((deviation(&[10, 20, 60]) - 1e3 * 700f64.sqrt()).abs() < 1e-3, "{}", deviation(&[10, 20, 60]));
}

const COPY: &str = "cudaMemcpyAsync_v3020";
const WAIT: &str = "cudaStreamSynchronize_v3020";

/// Rounds of two kernels and a copy, by threads that each have a stream and one id for all their calls, and a wait each
/// tenth round. `lost`: this kernel of thread 1 has no record.
fn launched_with_one_id(threads: u32, rounds: u64, lost: Option<u64>) -> Feed {
    let mut feed = Feed::default();
    let mut kernels = 0;
    for round in 0..rounds {
        for thread in 1..=threads {
            let begin = round * 1_000 + u64::from(thread) * 100;
            for (place, function) in (0..).zip([KERNEL, KERNEL, COPY]) {
                let (at, begun) = (begin + 20 * place, begin + 20 * place + 8);
                feed.call_with(9_000 + thread, thread, function, at, at + 5);
                if function == COPY {
                    feed.copied(thread, begun, begun + 4, 9_000 + thread);
                } else {
                    if thread != 1 || lost != Some(kernels) {
                        feed.ran(thread, begun, begun + 4, 9_000 + thread);
                    }
                    kernels += u64::from(thread == 1);
                }
            }
            if round % 10 == 9 {
                feed.call_with(9_000 + thread, thread, WAIT, begin + 70, begin + 80);
            }
        }
        if round % 100 == 99 {
            feed.attributor.flushed(time(round * 1_000 + 990), &feed.dictionary);
        }
    }
    feed.attributor.finish(time(rounds * 1_000), &feed.dictionary);
    feed
}

/// Idle time whose cause is unknown, nanoseconds.
fn unobserved(feed: &Feed) -> u64 {
    feed.attributor.devices().map(|account| account.leaves()[Leaf::Unobserved as usize]).sum()
}

/// As CUPTI records threads that were in a call when recording was switched off.
#[test]
fn launches_of_a_thread_with_one_id_are_joined_in_order() {
    let feed = launched_with_one_id(4, 300, None);
    let counted = feed.attributor.completeness();
    assert_eq!((counted.shared_ids, counted.ordered_launches), (0, 4 * (3 * 300 - 1)));
    assert_eq!((feed.unmatched(), unobserved(&feed), counted.clamped_clocks), ((0, 0), 0, 0));
}

#[test]
fn a_lost_record_shifts_only_the_operations_up_to_the_next_wait() {
    let feed = launched_with_one_id(4, 300, Some(203));
    assert_eq!((feed.unmatched(), unobserved(&feed)), ((1, 0), 0));
    let simple = |rounds| launched_with_one_id(1, rounds, Some(3)).unmatched();
    assert_eq!(simple(9), (1, 0), "without a wait after it, its launch is that of the next operation");
}

#[test]
fn an_operation_from_before_the_first_call_takes_no_launch() {
    let mut feed = Feed::default();
    for launch in 0..20u64 {
        let at = 1_000 + 50 * launch;
        feed.call_with(7, 1, KERNEL, at, at + 5);
        feed.ran(3, at + 10, at + 20, 7);
    }
    feed.ran(3, 900, 990, 7);
    feed.attributor.finish(time(SECOND), &feed.dictionary);
    assert_eq!(feed.unmatched(), (0, 1));
}

#[test]
fn launches_of_several_threads_with_one_id_are_not_told_apart() {
    let mut feed = Feed::default();
    for launch in 0..20u64 {
        let at = 1_000 + 50 * launch;
        feed.call_with(7, 1 + launch as u32 % 2, KERNEL, at, at + 5);
        feed.ran(3, at + 10, at + 20, 7);
    }
    feed.attributor.finish(time(SECOND), &feed.dictionary);
    // Those of one of the two.
    assert_eq!(feed.attributor.completeness().shared_ids, 10);
}
