//! Data without a place in the timeline is counted, in the page and for the command.

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{Kernel, LaunchConfig, Loss, RangeEvent, RangeEventKind, Record, ThreadId};

use crate::page::{Stage, at, launches, options};

/// A trace of these range events, a microsecond apart, during a kernel: kind, thread, id of the range.
fn ranges(events: impl IntoIterator<Item = (RangeEventKind, u32, u64)>) -> Vec<u8> {
    let mut dictionary = Dictionary::new();
    let message = dictionary.intern_name("forward");
    let config = dictionary.intern_launch_config(LaunchConfig { name: message, ..LaunchConfig::default() });
    let session = ProcessInfo { process_id: 7, command: vec!["ranges".into()], start: at(0), ..ProcessInfo::default() };
    let mut writer = TraceWriter::new(Vec::new(), &session).unwrap();
    let mut now = 0;
    for (kind, thread, range_id) in events {
        now += 1;
        let event =
            RangeEvent { kind, at: at(now), thread: ThreadId(thread), range_id, message, ..RangeEvent::default() };
        writer.event(&Event::Record(Record::Range(event)), &dictionary).unwrap();
    }
    let kernel = Kernel { start: at(0), end: at(now + 1), config, ..Kernel::default() };
    writer.event(&Event::Record(Record::Kernel(kernel)), &dictionary).unwrap();
    writer.finish(End::Clean, at(now + 1), &Loss::default(), &dictionary).unwrap()
}

#[test]
fn a_whole_timeline_loses_nothing() {
    let page = Stage::of(&launches(500, "k", "c")).page(&options());
    let manifest = page.manifest();
    let lost = manifest["timeline"]["lost"].as_object().unwrap();
    assert!(lost.len() >= 7 && lost.values().all(|count| count == 0), "{lost:?}");
    assert!(page.outcome.left_out.is_empty(), "{:?}", page.outcome);
}

#[test]
fn ranges_without_a_place_are_counted() {
    use RangeEventKind::{End, Pop, Push, Start};
    let mut events = Vec::new();
    // Six threads more than rows, each with one range; the row of the first one is used again below.
    events.extend((1..=70).flat_map(|thread| [(Push, thread, 0), (Pop, thread, 0)]));
    // Ends without start, and a start that another one replaces.
    events.extend([(Pop, 1, 0), (Pop, 1, 0), (End, 1, 9), (Start, 1, 5), (Start, 1, 5)]);
    // Deeper than the limit; the ranges within the limit keep their ends.
    events.extend((0..4_100).map(|_| (Push, 1, 0)));
    events.extend((0..4_100).map(|_| (Pop, 1, 0)));
    let page = Stage::of(&ranges(events)).page(&options());
    let manifest = page.manifest();
    let lost = &manifest["timeline"]["lost"];
    assert_eq!(lost["ranges_too_many"], 4, "{lost}");
    // Two pops, one end, one start.
    assert_eq!(lost["ranges_unmatched"], 4, "{lost}");
    // Six threads, and the range by number, which needs a separate row.
    assert_eq!(lost["without_row"], 7, "{lost}");
    let lanes = manifest["timeline"]["lanes"].as_array().unwrap();
    let first = lanes.iter().find(|lane| lane["kind"] == "ranges" && lane["id"] == 1).unwrap();
    assert_eq!(first["events"], 1 + 4_096);
    let reported = page.outcome.left_out.iter().filter(|note| note.contains("In the timeline")).count();
    // The kernel has no launch.
    assert_eq!((reported, &lost["launches_unknown"]), (4, &1.into()), "{:?}", page.outcome.left_out);
}
