//! Work of CUDA graphs by the place that added its nodes.

use crate::support::{Scenario, gpu};
use gpuwhy_report::run::Report;
use gpuwhy_trace::record::{MemoryKind, ThreadId, ThreadName};

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

#[test]
fn without_reported_nodes_nothing_is_said() {
    let mut scenario = Scenario::new();
    let call = scenario.call(7, "cudaGraphLaunch_v10000", 1_000, 9);
    scenario.add(gpu(0).kernel("gemm").at(1_020).lasting(100).of_node(3, 101).by(call));
    let report = scenario.report();
    assert_eq!(report.graph_origins, None);
    assert!(!report.full().contains("by module"));
}
