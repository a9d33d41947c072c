//! Nodes of CUDA graphs in a trace: they survive a round trip, also in a compacted trace, in a part of a trace and
//! in a golden file, and precede the records that name them.

use std::fs::{self, File};
use std::io::Write as _;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::compact::compact;
use gpuwhy_trace::format::{TraceReader, TraceWriter};
use gpuwhy_trace::graph_node::GraphNode;
use gpuwhy_trace::process_info::End;
use gpuwhy_trace::record::*;

use crate::trace_sample::{at, read, session};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/graph-nodes-1.5.bin");

/// Two nodes that the program added, their copies, and a replay.
fn program() -> (Vec<Event>, Dictionary) {
    let mut dictionary = Dictionary::new();
    let (function, file) = (dictionary.intern_name("Block.forward"), dictionary.intern_name("/home/u/model.py"));
    let stack = dictionary.intern_frame(Frame { caller: StackId::NONE, function, file, line: 31 });
    let added =
        |node, stack| GraphNode { node, stack, at: at(10 + node), thread: ThreadId(300), ..GraphNode::default() };
    let copied =
        |node, original| GraphNode { node, original, at: at(40), thread: ThreadId(301), ..GraphNode::default() };
    let nodes = [added(1, stack), added(2, StackId::NONE), copied(7, 2), copied(6, 1)];
    let kernel = |node: u64| {
        let (start, end) = (at(50_000 + 10 * node), at(50_005 + 10 * node));
        Event::Record(Record::Kernel(Kernel { start, end, graph_id: 3, graph_node_id: node, ..Kernel::default() }))
    };
    let events = nodes.map(Event::GraphNode).into_iter().chain([6, 7].map(kernel));
    (events.chain([Event::Flush(at(60_000))]).collect(), dictionary)
}

fn write(events: &[Event], dictionary: &Dictionary) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), &session()).unwrap();
    events.iter().for_each(|event| writer.event(event, dictionary).unwrap());
    writer.finish(End::Clean, at(70_000), &Loss::default(), dictionary).unwrap()
}

#[test]
fn nodes_precede_the_records_that_name_them() {
    let (events, dictionary) = program();
    let mut mixed = events.clone();
    // As if the node had been added while the records of an earlier replay were arriving.
    mixed.swap(3, 4);
    let bytes = write(&mixed, &dictionary);
    let compacted = compact(&bytes[..], Vec::new()).unwrap().1;
    for bytes in [bytes, compacted] {
        let back = read(&bytes).unwrap();
        assert!(back.damage.is_none(), "{:?}", back.damage);
        assert_eq!(back.items[..events.len()], events);
        assert_eq!(back.dictionary.stack(StackId(0)).count(), 1);
    }
}

#[test]
fn a_part_of_a_trace_has_all_nodes() {
    let (events, dictionary) = program();
    let bytes = write(&events, &dictionary);
    let mut reader = TraceReader::new(&bytes[..]).unwrap();
    reader.only(at(500_000), at(600_000));
    let mut items = Vec::new();
    while let Some(item) = reader.next_event().unwrap() {
        items.push(item);
    }
    assert_eq!(items[..4], events[..4]);
    assert!(!items.iter().any(|item| matches!(item, Event::Record(_))));
}

#[test]
fn many_nodes_are_written_before_a_flush() {
    let dictionary = Dictionary::new();
    let node = |node| Event::GraphNode(GraphNode { node, at: at(node), ..GraphNode::default() });
    let events: Vec<_> = (1..=10_000).map(node).collect();
    let mut writer = TraceWriter::new(Vec::new(), &session()).unwrap();
    let before = writer.bytes_written();
    events.iter().for_each(|event| writer.event(event, &dictionary).unwrap());
    assert!(writer.bytes_written() > before);
    let bytes = writer.finish(End::Clean, at(20_000), &Loss::default(), &dictionary).unwrap();
    assert_eq!(read(&bytes).unwrap().items[..10_000], events);
}

#[test]
fn the_golden_file_is_read_as_it_was_written() {
    let golden = fs::read(GOLDEN).unwrap();
    let (events, dictionary) = program();
    let back = read(&golden).unwrap();
    assert!(back.damage.is_none(), "{:?}", back.damage);
    assert_eq!(back.items[..events.len()], events);
    crate::trace_sample::assert_same_dictionary(&back.dictionary, &dictionary);
}

#[test]
#[ignore = "writes the golden file; fails if the file exists"]
fn write_graph_nodes_golden_file() {
    let (events, dictionary) = program();
    File::create_new(GOLDEN).unwrap().write_all(&write(&events, &dictionary)).unwrap();
}
