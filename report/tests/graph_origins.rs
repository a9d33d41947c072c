//! Work of CUDA graphs by the place that added its nodes.

use crate::support::{Scenario, gpu};
use gpuwhy_report::run::Report;
use gpuwhy_trace::record::{Device, Loss, MemoryKind, RangeEventKind, ThreadId, ThreadName};
use profiler_core::attribution::GraphWork;

const LINEAR: (&str, &str, u32) = ("/lib/python3.12/site-packages/torch/nn/modules/linear.py", "Linear.forward", 125);
const STACK: (&str, &str, u32) =
    ("/lib/python3.12/site-packages/torch/nn/modules/container.py", "Sequential.forward", 250);
const ATTENTION: (&str, &str, u32) = ("/home/u/model.py", "Attention.forward", 31);
const MLP: (&str, &str, u32) = ("/home/u/model.py", "Mlp.forward", 52);
const STEP: (&str, &str, u32) = ("/home/u/train.py", "step", 42);

/// A graph is captured once and replayed by another line: 100 us in Attention's layer, 200 in that of Mlp, 50 outside
/// of modules, a copy of 10, 300 by the backward thread, and 40 by a node that was not reported.
fn replays() -> Report {
    let mut scenario = Scenario::new();
    scenario.node(1, 7, &[LINEAR, STACK, ATTENTION, STEP]);
    scenario.node(2, 7, &[LINEAR, MLP, STEP]);
    scenario.node(3, 7, &[STEP]);
    scenario.node(4, 7, &[MLP, STEP]);
    scenario.node(5, 8, &[]);
    // Instantiating copies the nodes, here twice.
    for node in 1..=5 {
        scenario.copy_node(10 + node, node);
        scenario.copy_node(100 + node, 10 + node);
    }
    let name = scenario.dictionary.intern_name("pt_autograd_0");
    scenario.dictionary.add_thread_name(ThreadName { thread: ThreadId(8), name });
    for replay in 0..20 {
        let at = 1_000 + replay * 1_000;
        let call = scenario.call(7, "cudaGraphLaunch_v10000", at, 9);
        let mut start = at + 20;
        for (node, name, lasting) in
            [(101, "gemm", 100), (102, "gemm", 200), (103, "add", 50), (105, "gemm", 300), (999, "add", 40)]
        {
            scenario.add(gpu(0).kernel(name).at(start).lasting(lasting).of_node(3, node).by(call));
            start += lasting;
        }
        scenario.add(gpu(0).h2d(MemoryKind::Pinned, 64).at(start).lasting(10).of_node(3, 104).by(call));
    }
    scenario.report()
}

#[test]
fn each_operation_leads_to_the_place_that_captured_it() {
    let report = replays();
    let origins = report.graph_origins.as_ref().unwrap();
    let counts = origins.counts;
    assert_eq!((counts.with_place.count, counts.without_place.count, counts.unknown.count), (80, 20, 20));
    assert_eq!((origins.all().count, origins.all().total_ns), (120, 14_000_000));
    let modules: Vec<_> = origins
        .modules
        .iter()
        .map(|row| (row.parent.as_deref(), row.module.as_deref(), row.work.total_ns / 1_000))
        .collect();
    assert_eq!(
        modules,
        [
            (Some("Mlp"), Some("Linear"), 4_000),
            (Some("Attention"), Some("Linear"), 2_000),
            (None, None, 1_000),
            (None, Some("Mlp"), 200)
        ]
    );
    let [first, ..] = &origins.rows[..] else { panic!("{origins:?}") };
    assert_eq!((first.kernel.as_deref(), first.place.file.as_str(), first.place.line), (Some("gemm"), MLP.0, 52));
    let copies = origins.rows.iter().find(|row| row.kernel.is_none()).unwrap();
    assert_eq!((copies.work.count, copies.place.line), (20, 52));
    assert_eq!((origins.threads[0].name.as_deref(), origins.threads[0].work.count), (Some("pt_autograd_0"), 20));
}

#[test]
fn the_report_says_which_modules_take_the_time_of_graphs() {
    let report = replays();
    let text = report.summary().split_whitespace().collect::<Vec<_>>().join(" ");
    let wanted = "Work of CUDA graphs by where it was captured: thread pt_autograd_0 (backward pass) 43 %, Mlp > Linear 29 %, \
                  Attention > Linear 14 %.";
    assert!(text.contains(wanted), "{text}");
    let full = report.full();
    assert!(full.contains("work of CUDA graphs by module (exact; 80 of 120 operations have a line)"), "{full}");
    assert!(full.contains("unknown: their nodes were not reported"), "{full}");
}

/// Modules with their replays and the mean of one in microseconds, and the number of graphs left out of some.
fn per_replay(report: &Report) -> (Vec<(&str, u64, u64)>, u64) {
    let origins = report.graph_origins.as_ref().unwrap();
    let rows = origins.per_replay.iter().map(|row| (row.module.as_str(), row.replays, row.mean_ns / 1_000));
    (rows.collect(), origins.partial_graphs)
}

#[test]
fn a_module_has_the_time_of_the_modules_that_it_calls() {
    let report = replays();
    let rows = vec![("Linear", 20, 300), ("Mlp", 20, 210), ("Attention", 20, 100), ("Sequential", 20, 100)];
    assert_eq!(per_replay(&report), (rows, 0));
    let full = report.full().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(full.contains("time replays module 300.0 us 20 Linear 210.0 us 20 Mlp"), "{full}");
}

/// Captures graph 1 in Mlp, of two kernels of 100 us, and graph 2, of two of 300 us in Linear, both within Mlp.
fn two_graphs(scenario: &mut Scenario) {
    for (graph, stack) in [(1, &[MLP, STEP][..]), (2, &[LINEAR, MLP, STEP])] {
        for node in [1, 2] {
            scenario.node((graph << 32) + node, 7, stack);
            scenario.copy_node(((10 + graph) << 32) + node, (graph << 32) + node);
        }
    }
}

/// Replays graph 1 or 2 at this time, from its first or second kernel on.
fn replay_of(scenario: &mut Scenario, graph: u64, first: u64, at: u64) {
    let call = scenario.call(7, "cudaGraphLaunch_v10000", at, 9);
    for node in first..=2 {
        let (lasting, id) = (200 * graph - 100, ((10 + graph) << 32) + node);
        let work = gpu(0).kernel("gemm").at(at + 20 + node * lasting).lasting(lasting);
        scenario.add(work.of_node(10 + graph as u32, id).by(call));
    }
}

#[test]
fn the_time_of_a_replay_is_a_mean_of_the_replays_of_all_graphs_and_of_no_part_of_one() {
    let mut scenario = Scenario::new();
    two_graphs(&mut scenario);
    // A burst begins within a replay: its first kernel was not recorded.
    let replays = [(1, 2), (1, 1), (1, 1), (2, 1)];
    for (number, (graph, first)) in replays.into_iter().enumerate() {
        replay_of(&mut scenario, graph, first, 1_000 + 1_000 * number as u64);
    }
    // Three replays of 200 us and one of 600.
    assert_eq!(per_replay(&scenario.report()), (vec![("Linear", 1, 600), ("Mlp", 4, 300)], 0));
}

#[test]
fn graphs_of_which_only_a_part_is_known_are_left_out() {
    let report = |change: &dyn Fn(&mut Scenario), loss: Loss| {
        let mut scenario = Scenario::new();
        two_graphs(&mut scenario);
        change(&mut scenario);
        [1, 2].into_iter().for_each(|graph| replay_of(&mut scenario, graph, 1, 1_000 * graph));
        scenario.report_with(&scenario.run(), &loss)
    };
    let without_stack = |thread| {
        move |scenario: &mut Scenario| {
            scenario.node((1 << 32) + 2, thread, &[]);
            scenario.copy_node((11 << 32) + 2, (1 << 32) + 2);
        }
    };
    let unread = Loss { unplaced_graph_nodes: 1, ..Loss::default() };
    // The second node of graph 1 is of a thread without Python, and then of the one whose stacks were read.
    assert_eq!(per_replay(&report(&without_stack(8), unread)), (vec![("Linear", 1, 600), ("Mlp", 2, 350)], 0));
    assert_eq!(per_replay(&report(&without_stack(7), unread)), (vec![("Linear", 1, 600), ("Mlp", 1, 600)], 1));
    let lost = Loss { dropped_graph_nodes: 1, ..Loss::default() };
    assert_eq!(per_replay(&report(&|_| {}, lost)), (vec![], 2));
    // Of the nodes of an embedded graph only the line is known, which they share.
    let embedding = |scenario: &mut Scenario| {
        for node in [1, 2] {
            scenario.node((5 << 32) + node, 7, &[LINEAR, STEP]);
            scenario.copy_node((16 << 32) + node, (5 << 32) + node);
        }
        scenario.copy_node((12 << 32) + 3, (2 << 32) + 2);
        let call = scenario.call(7, "cudaGraphLaunch_v10000", 4_000, 9);
        scenario.add(gpu(0).kernel("gemm").at(4_020).lasting(10).of_node(12, (12 << 32) + 4).by(call));
    };
    let embedded = report(&embedding, Loss::default());
    assert_eq!(embedded.graph_origins.as_ref().unwrap().counts.unknown.count, 0);
    assert_eq!(per_replay(&embedded), (vec![], 2));
    // 64 frames were read, of which Mlp is none.
    let deep = |scenario: &mut Scenario| {
        let frames: Vec<_> = (1..=64).map(|line| (LINEAR.0, "Linear.forward", line)).collect();
        scenario.node((2 << 32) + 2, 7, &frames);
        scenario.copy_node((12 << 32) + 2, (2 << 32) + 2);
    };
    assert_eq!(per_replay(&report(&deep, Loss::default())), (vec![("Linear", 1, 600), ("Mlp", 1, 200)], 1));
    assert_eq!(per_replay(&report(&|_| {}, Loss::default())), (vec![("Linear", 1, 600), ("Mlp", 2, 400)], 0));
}

/// Ranges of the threads that capture; those of the replay do not matter.
#[test]
fn operations_belong_to_the_ranges_in_which_their_nodes_were_added() {
    let mut scenario = Scenario::new();
    for (node, thread, at) in [(1, 7, 150), (2, 7, 250), (3, 7, 350), (4, 7, 600), (5, 8, 150), (6, 7, 0)] {
        scenario.node(node, thread, &[STEP]);
        if at > 0 {
            scenario.node_at(at);
        }
        scenario.copy_node(10 + node, node);
    }
    scenario.pushed(7, 100, 500, "forward 1");
    scenario.pushed(7, 200, 300, "layer = 3");
    scenario.pushed(8, 120, 180, "MmBackward0");
    scenario.range(7, 330, RangeEventKind::Start, "library", 9);
    scenario.range(7, 360, RangeEventKind::End, "", 9);
    scenario.pushed(7, 900, 4_000, "replay");
    for replay in 0..2 {
        let at = 1_000 + replay * 1_000;
        let call = scenario.call(7, "cudaGraphLaunch_v10000", at, 9);
        for node in 1..=7 {
            scenario.add(gpu(0).kernel("gemm").at(at + 100 * node).lasting(10 * node).of_node(3, 10 + node).by(call));
        }
    }
    for (period, seed) in [(10_000, 0), (100, 3), (700, 5)] {
        let report = scenario.report_of(&scenario.run_with(period, seed));
        let ranges = report.graph_origins.as_ref().unwrap().ranges.as_ref().unwrap();
        let work = |work: GraphWork| (work.count, work.total_ns / 1_000);
        let rows: Vec<_> = ranges.rows.iter().map(|row| (row.path.join("/"), work(row.work))).collect();
        let row = |path: &str, count, micros| (path.to_owned(), (count, micros));
        assert_eq!(
            rows,
            [
                row("MmBackward0", 2, 100),
                row("forward 1", 4, 80),
                row("library", 2, 60),
                row("forward 1/layer = *", 2, 40)
            ]
        );
        assert_eq!((work(ranges.outside), work(ranges.unknown)), ((2, 80), (4, 260)), "no time, no node");
        let full = report.full();
        assert!(full.contains("work of CUDA graphs by range (exact; ranges open at capture)"), "{full}");
        assert!(full.contains("forward 1 > layer = *"), "{full}");
    }
    assert_eq!(replays().graph_origins.unwrap().ranges, None);
}

/// Graph 3 of the H200's recordings: the upper half of its nodes' ids.
#[test]
fn a_graph_that_is_one_record_has_the_places_of_its_nodes_by_number() {
    const GRAPH: u64 = 3 << 32;
    let mut scenario = Scenario::new();
    scenario.node(1, 7, &[LINEAR, STACK, ATTENTION, (STEP.0, STEP.1, 41)]);
    scenario.node(2, 7, &[LINEAR, MLP, STEP]);
    scenario.node(3, 7, &[STEP]);
    scenario.node(4, 7, &[LINEAR, MLP, STEP]);
    scenario.node(5, 8, &[]);
    for node in 1..=5 {
        scenario.copy_node(GRAPH + node, node);
    }
    scenario.copy_node(GRAPH + 6, 999);
    let replay = |scenario: &mut Scenario, graph: u32| {
        for at in [1_000, 2_000] {
            let call = scenario.call(7, "cudaGraphLaunch_v10000", at, 9);
            scenario.add(gpu(0).kernel("").at(at + 20).lasting(100).of_graph(graph).by(call));
        }
    };
    replay(&mut scenario, 4);
    assert_eq!(scenario.report().graph_origins, None, "the nodes of graph 4 were not reported");
    replay(&mut scenario, 3);
    let report = scenario.report();
    let origins = report.graph_origins.as_ref().unwrap();
    assert_eq!((origins.all().count, origins.distinct_whole), (0, 1));
    let [row] = &origins.whole[..] else { panic!("{origins:?}") };
    assert_eq!((row.graph, row.work, row.place.as_ref()), (3, GraphWork { count: 2, total_ns: 200_000 }, None));
    let parts: Vec<_> = row.parts.iter().map(|part| (part.captured_in.as_str(), part.nodes)).collect();
    assert_eq!(
        parts,
        [("Mlp > Linear", 2), ("Attention > Linear", 1), ("thread 8, without a line", 1), ("train.py:42 (step)", 1)]
    );
    assert_eq!((row.nodes, row.unknown_nodes, row.distinct_parts), (6, 1, 4));
    let full = report.full().split_whitespace().collect::<Vec<_>>().join(" ");
    let wanted = "200.0 us 2 6 unknown line: Mlp > Linear 33 %, Attention > Linear 17 %, thread 8, without a line 17 %, \
                  unknown 17 %";
    assert!(full.contains(wanted), "{full}");
    assert!(!full.contains("work of CUDA graphs by module"), "{full}");
}

#[test]
fn the_place_of_a_whole_graph_is_the_innermost_common_frame() {
    let mut scenario = Scenario::new();
    let main = ("/home/u/train.py", "<module>", 70);
    for (node, stack) in [(1, [LINEAR, MLP, STEP]), (2, [LINEAR, ATTENTION, STEP]), (3, [LINEAR, MLP, STEP])] {
        scenario.node(node, 7, &[&stack[..], &[main]].concat());
        scenario.copy_node((3 << 32) + node, node);
    }
    let call = scenario.call(7, "cudaGraphLaunch_v10000", 1_000, 9);
    scenario.add(gpu(0).kernel("").at(1_020).lasting(100).of_graph(3).by(call));
    let report = scenario.report();
    let place = report.graph_origins.as_ref().unwrap().whole[0].place.as_ref().unwrap();
    assert_eq!((place.file.as_str(), place.line, place.module.as_deref()), (STEP.0, 42, None));
}

#[test]
fn without_reported_nodes_nothing_is_said() {
    let mut scenario = Scenario::new();
    let call = scenario.call(7, "cudaGraphLaunch_v10000", 1_000, 9);
    scenario.add(gpu(0).kernel("gemm").at(1_020).lasting(100).of_node(3, 101).by(call));
    let report = scenario.report();
    assert_eq!(report.graph_origins, None);
    assert!(!report.full().contains("by module"));
}

const FP32_PRODUCT: &str = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x128x8_stage3_warpsize2x4x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas";

/// Replays of a product that Attention captured, and of one of `unknown` microseconds whose node has no place.
fn products(unknown: u64) -> Report {
    let mut scenario = Scenario::new();
    scenario.node(1, 7, &[LINEAR, STACK, ATTENTION, STEP]);
    scenario.node(2, 8, &[]);
    let whole = 400 + unknown + 20;
    for replay in 0..400 {
        let at = 1_000 + replay * whole;
        let call = scenario.call(7, "cudaGraphLaunch_v10000", at - 700, 9);
        scenario.add(gpu(0).kernel(FP32_PRODUCT).at(at).lasting(400).of_node(3, 1).by(call));
        if unknown > 0 {
            scenario.add(gpu(0).kernel(FP32_PRODUCT).at(at + 410).lasting(unknown).of_node(3, 2).by(call));
        }
    }
    let name = "NVIDIA H200".to_owned();
    scenario.dictionary.add_device(Device { name, compute_capability: [9, 0], ..Device::default() });
    scenario.report()
}

#[test]
fn remedies_name_the_line_that_captured_the_kernels() {
    let at = |report: &Report| {
        let remedy = report.bottleneck.remedies.iter().find(|remedy| remedy.id == "tf32_matmul");
        remedy.unwrap_or_else(|| panic!("{}", report.summary())).at.clone()
    };
    assert_eq!(at(&products(0)).as_deref(), Some("model.py:31 (Attention.forward)"));
    // Most of the time is where nobody knows the line.
    assert_eq!(at(&products(1_600)), None);
}

#[test]
fn idle_time_within_a_replay_belongs_to_the_module_after_it() {
    let mut scenario = Scenario::new();
    scenario.node(1, 7, &[LINEAR, STACK, ATTENTION, STEP]);
    scenario.node(2, 7, &[LINEAR, MLP, STEP]);
    scenario.node(3, 8, &[]);
    for replay in 0..20 {
        let at = 1_000 + replay * 1_000;
        let call = scenario.call(7, "cudaGraphLaunch_v10000", at, 9);
        // 4 us before Mlp, none before the second kernel of Attention, 30 before the node without a place, and 2
        // before a node after an operation outside.
        for (node, start, lasting) in [(1, 20, 100), (2, 124, 100), (1, 224, 10), (3, 264, 10)] {
            scenario.add(gpu(0).kernel("gemm").at(at + start).lasting(lasting).of_node(3, node).by(call));
        }
        gpu(0).stream(9).kernel("relu").at(at + 274).lasting(6).launched(&mut scenario, 8, at + 10, 2);
        scenario.add(gpu(0).kernel("gemm").at(at + 282).lasting(5).of_node(3, 1).by(call));
    }
    let report = scenario.report();
    let origins = report.graph_origins.as_ref().unwrap();
    let mut idle: Vec<_> = origins
        .modules
        .iter()
        .map(|row| (row.parent.as_deref(), row.idle_before_count, row.idle_before_ns / 1_000))
        .collect();
    idle.sort_unstable();
    assert_eq!(idle, [(Some("Attention"), 0, 0), (Some("Mlp"), 20, 80)]);
    assert_eq!(origins.unplaced_idle_before_ns, 600_000);
    assert!(report.full().contains("600.0 us were idle before operations without a line"), "{}", report.full());
}
