//! Kernels of replayed CUDA graphs by the place that captured them: a hand-made recording of nodes, copies and
//! replays, through libprof.so into a trace, and from the trace into the engine.

use std::collections::BTreeMap;
use std::path::Path;

use cupti_sys::recording::{GraphNode, Meta, RecordingWriter};
use cupti_sys::{CompletedBuffer, Domain, Kind, RecordSizes};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceReader;
use gpuwhy_trace::record::{Loss, Timestamp};
use profiler_core::attribution::{Attributor, GraphWork, LaunchPlace};

use super::python;
use crate::support::record::record;
use crate::support::{Stage, stderr};

const START: u64 = 1_790_000_000_000_000_000;
const MILLISECOND: u64 = 1_000_000;
const LAUNCH: u32 = 311;
const SIZES: [(Kind, u32); 2] = [(Kind::RUNTIME, 40), (Kind::CONCURRENT_KERNEL, 224)];
/// Addresses of the kernels' names.
const NAMES: [(u64, &str); 2] = [(0x1000, "gemm"), (0x2000, "add")];
/// Ids of nodes contain a number of their graph.
const GRAPH: u64 = 5 << 32;
/// Nodes of the first line.
const GEMMS: u64 = 200;
const REPLAYS: u64 = 3;

/// A kernel of a replay.
fn kernel(correlation: u32, at: u64, name: u64, node: u64) -> Vec<u8> {
    let zero = [40, 56, 60, 64, 68, 72, 76, 80, 84, 140, 148].map(|at| (at, 0));
    let narrow = [&zero[..], &[(44, 1), (48, 7), (52, 1), (92, correlation)]].concat();
    let wide = [(16, at), (24, at + 1_000), (32, 0), (104, name), (120, 0), (128, 0)];
    let mut kernel = record(Kind::CONCURRENT_KERNEL, 224, &wide, &narrow);
    kernel[136..140].fill(0);
    kernel[152..].fill(0);
    kernel[144..152].copy_from_slice(&node.to_le_bytes());
    kernel[156..160].copy_from_slice(&9_u32.to_le_bytes());
    kernel
}

/// From the start the nodes of one line are added, from 0.1 s on those of another one; then they are copied, and
/// the graph is replayed. One kernel of a replay has a node that is a copy of an unknown one: its id was that of
/// another node before.
fn recording(path: &Path) {
    let meta = Meta { cupti_version: 130_001, start: START, sizes: SIZES.to_vec(), ..Meta::default() };
    let mut writer = RecordingWriter::new(Vec::new(), &meta).unwrap();
    writer.api_name(Domain::RUNTIME, LAUNCH, "cudaGraphLaunch_v10000").unwrap();
    for (address, name) in NAMES {
        writer.string(address, name.as_bytes()).unwrap();
    }
    let added = |node| GraphNode { at: START, thread: 1, node, ..GraphNode::default() };
    (1..=GEMMS).for_each(|node| writer.graph_node(&added(GRAPH + node)).unwrap());
    writer.flush(START + 100 * MILLISECOND).unwrap();
    writer.graph_node(&added(GRAPH + GEMMS + 1)).unwrap();
    for node in 1..=GEMMS + 1 {
        let copy = GraphNode { is_copy: true, original: GRAPH + node, ..added(2 * GRAPH + node) };
        writer.graph_node(&copy).unwrap();
    }
    writer.graph_node(&added(3 * GRAPH)).unwrap();
    writer.graph_node(&GraphNode { is_copy: true, ..added(3 * GRAPH) }).unwrap();
    for replay in 0..REPLAYS {
        let (at, correlation) = (START + (200 + 10 * replay) * MILLISECOND, 1 + replay as u32);
        let narrow = [(4, LAUNCH), (24, 1), (28, 1), (32, correlation), (36, 0)];
        let mut records = record(Kind::RUNTIME, 40, &[(8, at), (16, at + 5_000)], &narrow);
        for node in 1..=GEMMS + 1 {
            let name = NAMES[usize::from(node > GEMMS)].0;
            records.extend(kernel(correlation, at + 10_000 + 2_000 * node, name, 2 * GRAPH + node));
        }
        records.extend(kernel(correlation, at + 5 * MILLISECOND, NAMES[1].0, 3 * GRAPH));
        let buffer = CompletedBuffer::from_bytes(&records, 0, 0).unwrap();
        writer.buffer(&buffer, &RecordSizes::from_pairs(&SIZES), at + 9 * MILLISECOND).unwrap();
    }
    std::fs::write(path, writer.finish().unwrap()).unwrap();
}

/// What a trace says about nodes of graphs.
struct Origins {
    attributor: Attributor,
    dictionary: Dictionary,
    loss: Loss,
    process: u32,
    /// Times between consecutive nodes that were added, nanoseconds, in order of size.
    between: Vec<u64>,
}

fn origins(trace: &Path) -> Origins {
    let bytes = std::fs::read(trace).unwrap();
    let mut reader = TraceReader::new(&bytes[..]).unwrap();
    let (mut attributor, mut loss, mut added) = (Attributor::new(), Loss::default(), Vec::new());
    let mut last = Timestamp::ZERO;
    while let Some(event) = reader.next_event().unwrap() {
        let dictionary = reader.dictionary();
        match event {
            Event::GraphNode(node) => {
                attributor.push_graph_node(&node, dictionary);
                added.extend(Some(node.at.nanos()).filter(|_| node.original == 0));
            }
            Event::Record(record) => attributor.push(&record, dictionary),
            Event::Flush(at) => (last, _) = (at, attributor.flushed(at, dictionary)),
            Event::Loss(newer) => loss = *newer,
            _ => {}
        }
    }
    let (session, dictionary, damage) = reader.into_parts();
    assert!(damage.is_none(), "{damage:?}");
    attributor.finish(last, &dictionary);
    let mut between: Vec<_> = added.windows(2).map(|pair| pair[1] - pair[0]).collect();
    between.sort_unstable();
    Origins { attributor, dictionary, loss, process: session.process_id, between }
}

fn work(count: u64) -> GraphWork {
    GraphWork { count, total_ns: 1_000 * count }
}

#[test]
fn nodes_precede_the_kernels_that_name_them_and_come_back_from_a_recording() {
    let stage = Stage::new();
    recording(&stage.path("session.cupti"));
    let mut host = stage.host("sync_item");
    host.env("GPUWHY_REPLAY", stage.path("session.cupti")).env("GPUWHY_RAW_RECORDING", "again.cupti");
    let output = host.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let again = Stage::new();
    let output = again.host("sync_item").env("GPUWHY_REPLAY", stage.path("again.cupti")).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    for trace in [stage.path("trace.gpuwhy"), again.path("trace.gpuwhy")] {
        let Origins { attributor, dictionary, loss, process, .. } = origins(&trace);
        let counts = attributor.graph_origin_counts(&dictionary);
        assert_eq!((counts.nodes, counts.overflow), (2 * (GEMMS + 1) + 2, 0), "{counts:?}");
        assert_eq!(counts.with_place, work(0), "no interpreter");
        assert_eq!(counts.without_place, work(REPLAYS * (GEMMS + 1)));
        assert_eq!(counts.unknown, work(REPLAYS));
        let threads: Vec<_> = attributor.graph_threads().map(|(thread, count, _)| (thread.0, count)).collect();
        assert_eq!(threads, [(process, REPLAYS * (GEMMS + 1))], "the thread that captures");
        assert_eq!((loss.unplaced_graph_nodes, loss.dropped_graph_nodes), (0, 0));
    }
}

/// A training step that was captured on an H200 and replayed twelve times. The player has no interpreter.
#[test]
fn operations_of_a_recorded_graph_are_all_joined() {
    let stage = Stage::new();
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures/graphs/training.cupti.zst");
    assert!(stage.host("sync_item").env("GPUWHY_REPLAY", recording).status().unwrap().success());
    let report = stage.report();
    let count = |of: &str| report["graph_origins"][of]["count"].as_u64();
    assert_eq!([count("with_place"), count("unknown")], [Some(0); 2]);
    assert_eq!(count("without_place"), Some(12 * 243));
}

#[test]
fn a_kernel_of_a_replay_leads_to_the_line_that_captured_it() {
    let Some(python) = python() else { return };
    for sampling in ["on", "off"] {
        let stage = Stage::new();
        recording(&stage.path("session.cupti"));
        let mut program = stage.program("sync_item", python);
        program.arg("-S").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sampling/graph_nodes.py"));
        program.env("GPUWHY_REPLAY", stage.path("session.cupti")).env("GPUWHY_SAMPLING", sampling);
        let output = program.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));

        let Origins { attributor, dictionary, loss, between, .. } = origins(&stage.path("trace.gpuwhy"));
        println!("sampling {sampling}: {} ns from node to node (median)", between[between.len() / 2]);
        let counts = attributor.graph_origin_counts(&dictionary);
        assert_eq!((loss.unplaced_graph_nodes, loss.dropped_graph_nodes), (0, 0));
        let (with_place, without) = (counts.with_place.count, counts.without_place.count);
        if sampling == "off" {
            assert_eq!((with_place, without), (0, REPLAYS * (GEMMS + 1)), "stacks are not read");
            continue;
        }
        assert_eq!((with_place, without), (REPLAYS * (GEMMS + 1), 0));
        let row = |(kernel, place, count, _): (Option<_>, &LaunchPlace, u64, u64)| {
            let name = dictionary.name(kernel.unwrap()).to_owned();
            assert!(dictionary.name(place.file).ends_with("graph_nodes.py"), "{name}");
            (name, (dictionary.name(place.function).to_owned(), place.line, count))
        };
        let rows: BTreeMap<_, _> = attributor.graph_origins().map(row).collect();
        println!("{rows:?}");
        assert_eq!((rows["gemm"].2, rows["add"].2), (REPLAYS * GEMMS, REPLAYS));
        // Qualified names exist since CPython 3.11.
        assert!(rows["gemm"].0.ends_with("forward") && rows["add"].0 == "<module>", "{rows:?}");
        assert!(rows["gemm"].1 > 0 && rows["add"].1 > rows["gemm"].1, "{rows:?}");
    }
}
