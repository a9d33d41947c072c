//! Operations of CUDA graphs in a page: what captured each.

use std::path::Path;

use gpuwhy_import::{TraceFile, unwatched};
use gpuwhy_page::write_report;
use gpuwhy_page_reader as read;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::graph_node::GraphNode;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{
    CorrelationId, Frame, Kernel, LaunchConfig, Loss, Record, StackId, StreamId, ThreadId, ThreadName,
};
use serde_json::Value;

use crate::page::{Stage, at, launches, options};

/// A replay of kernels with these nodes, one each 10 us for 4 us. Node 11 is a copy of one that `Attention` added, 12
/// of one that a thread without an interpreter added; others are not reported.
fn replay(nodes: &[u64]) -> Vec<u8> {
    let mut dictionary = Dictionary::new();
    let name = dictionary.intern_name("gemm");
    let config = dictionary.intern_launch_config(LaunchConfig { name, ..LaunchConfig::default() });
    let mut frame = |caller, function: &str, file: &str, line| {
        let (function, file) = (dictionary.intern_name(function), dictionary.intern_name(file));
        dictionary.intern_frame(Frame { caller, function, file, line })
    };
    let outer = frame(StackId::NONE, "Attention.forward", "/home/u/model.py", 31);
    let stack = frame(outer, "Linear.forward", "/v/site-packages/torch/nn/modules/linear.py", 125);
    let name = dictionary.intern_name("pt_autograd_0");
    dictionary.add_thread_name(ThreadName { thread: ThreadId(8), name });
    let session = ProcessInfo { command: vec!["train".into()], start: at(0), ..ProcessInfo::default() };
    let mut writer = TraceWriter::new(Vec::new(), &session).unwrap();
    let mut write = |event: Event| writer.event(&event, &dictionary).unwrap();
    for (node, original, stack) in
        [(1, 0, stack), (2, 0, StackId::NONE), (11, 1, StackId::NONE), (12, 2, StackId::NONE)]
    {
        let at = at(1 + node);
        write(Event::GraphNode(GraphNode { node, original, at, thread: ThreadId(8), stack }));
    }
    for (number, &graph_node_id) in nodes.iter().enumerate() {
        let begin = 100 + number as u64 * 10;
        write(Event::Record(Record::Kernel(Kernel {
            start: at(begin),
            end: at(begin + 4),
            stream: StreamId(7),
            correlation: CorrelationId(3),
            config,
            graph_id: u32::from(graph_node_id > 0),
            graph_node_id,
            ..Kernel::default()
        })));
    }
    writer.finish(End::Clean, at(1_000), &Loss::default(), &dictionary).unwrap()
}

#[test]
fn an_operation_of_a_graph_has_what_captured_it() {
    let stage = Stage::of(&replay(&[11, 11, 12, 77, 0]));
    let page = stage.page(&options());
    let manifest = page.manifest();
    let lane = manifest["timeline"]["lanes"].as_array().unwrap().iter().find(|lane| lane["kind"] == "stream").unwrap();
    assert_eq!((&lane["nodes"], &lane["columns"][3]), (&4.into(), &"origin".into()));
    let names: Value = serde_json::from_slice(&page.block("names")).unwrap();
    let origin = |index: i64| &names["origins"][index as usize];
    let name = |index: i64, field: &str| names["names"][origin(index)[field].as_u64().unwrap() as usize][0].clone();
    let origins: Vec<i64> = page.events(lane).iter().map(|event| event.values[3]).collect();
    assert!(origins[0] == origins[1] && origins[4] == 0, "{origins:?}");
    let told: Vec<_> = [0, 2, 3].map(|at| (name(origins[at], "at"), name(origins[at], "label"))).into();
    let thread = "thread pt_autograd_0 (backward pass)";
    let line = "model.py:31 (Attention.forward), Linear";
    let wanted = [(line, "Attention > Linear"), (&format!("{thread}, without a line"), thread)];
    assert_eq!(told[..2], wanted.map(|(at, label)| (at.into(), label.into())));
    assert_eq!(told[2].0, "origin unknown");
    assert_eq!(name(origins[0], "module"), "Attention > Linear");
    assert_eq!(origin(origins[2])["module"], 0);

    // As in the report.
    let report = stage.file().report(None, &mut unwatched).unwrap();
    let counts = report.graph_origins.as_ref().unwrap().counts;
    let found = [0, 2, 3].map(|at| [&origin(origins[at])["count"], &origin(origins[at])["total_ns"]]);
    let counted = [counts.with_place, counts.without_place, counts.unknown].map(|of| [of.count, of.total_ns]);
    assert_eq!(found.map(|of| of.map(|value| value.as_u64().unwrap())), counted);
    let wanted = serde_json::json!([
        ["Attention > Linear", 2, 8_000],
        [format!("{thread}, without a line"), 1, 4_000],
        ["unknown: their nodes were not reported", 1, 4_000]
    ]);
    assert_eq!(manifest["graph_work"], wanted);
    let table = page.text.split("Work of CUDA graphs by module").nth(1).unwrap();
    assert!(table.contains("<td class=\"name\">Attention &gt; Linear</td><td class=\"n\">2</td>"), "{table}");
}

#[test]
fn a_page_without_origins_has_no_data_for_them() {
    for trace in [launches(300, "my_kernel", "train"), replay(&[0, 0])] {
        let page = Stage::of(&trace).page(&options());
        let manifest = page.manifest();
        let lane =
            manifest["timeline"]["lanes"].as_array().unwrap().iter().find(|lane| lane["kind"] == "stream").unwrap();
        assert_eq!(lane["columns"].as_array().unwrap().len(), 3);
        assert!(manifest["graph_work"].is_null() && lane["nodes"].is_null());
        let names: Value = serde_json::from_slice(&page.block("names")).unwrap();
        assert!(names["origins"].is_null());
    }
}

#[test]
fn with_placeholders_a_module_is_found_by_the_real_names() {
    let page = Stage::of(&replay(&[11])).page(&gpuwhy_page::Options { redact: true, ..options() });
    let names = String::from_utf8(page.block("names")).unwrap();
    assert!(names.contains("Attention > Linear") && !names.contains("/home/u"), "{names}");
}

#[test]
fn steps_are_shown_where_a_launch_is_many_operations() {
    for name in ["graph_compiled", "graph_inference", "compiled_whole_graphs"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../testing/fixtures/traces/{name}.gpuwhy"));
        let mut out = Vec::new();
        write_report(&TraceFile::open(&path).unwrap(), &options(), &mut out, &mut unwatched).unwrap();
        let manifest: Value =
            serde_json::from_slice(&read::block(str::from_utf8(&out).unwrap(), "doc").unwrap()).unwrap();
        let found = manifest["report"]["devices"][0]["steps"]["seen"].as_u64().unwrap();
        let shown = manifest["timeline"]["steps"][0]["rows"].as_array().unwrap().len() as u64;
        // A step that began before the timeline does has no place in it.
        assert!(found > 10 && (found - 1..=found).contains(&shown), "{name}: {shown} of {found}");
    }
}
