//! Calls that take or give device memory in a trace: they survive a round trip, also in a compacted trace, in a part of
//! a trace and in a golden file; a reader that does not know their kind of block skips it.

use std::fs::{self, File};
use std::io::Write as _;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::compact::compact;
use gpuwhy_trace::format::{TraceReader, TraceWriter};
use gpuwhy_trace::memory_call::{MemoryCall, MemoryFunction};
use gpuwhy_trace::process_info::End;
use gpuwhy_trace::record::*;

use crate::trace_sample::{at, read, session};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/memory-calls-1.6.bin");
/// Sync, kind, and the place of the header's CRC.
const MEMORY_CALLS: [u8; 6] = [0xf5, b'G', 0xb6, 0xc3, 29, 0];
const CRC_AT: usize = 36;

/// One call of each function, the last of which failed, and a kernel.
fn program() -> (Vec<Event>, Dictionary) {
    let mut dictionary = Dictionary::new();
    let (function, file) = (dictionary.intern_name("Model.__init__"), dictionary.intern_name("/home/u/model.py"));
    let library = dictionary.intern_name("torch/lib/libc10_cuda.so");
    let stack = dictionary.intern_frame(Frame { caller: StackId::NONE, function, file, line: 12 });
    let calls = MemoryFunction::ALL.into_iter().enumerate().map(|(index, function)| {
        let number = index as u64;
        Event::MemoryCall(Box::new(MemoryCall {
            function,
            start: at(1_000 * number),
            end: at(1_000 * number + 700),
            thread: ThreadId(300),
            device: (index % 2 == 0).then_some(DeviceId(0)),
            context: ContextId(1),
            address: 0x7f00_0000_0000 + (number << 21),
            handle: number,
            bytes: (2 << 20) * number,
            result: if index + 1 == MemoryFunction::ALL.len() { 2 } else { 0 },
            captures: index == 5,
            stack: if index < 3 { stack } else { StackId::NONE },
            library: (index < 4).then_some(library),
        }))
    });
    let kernel = Kernel { start: at(50_000), end: at(50_005), ..Kernel::default() };
    let kernel = Event::Record(Record::Kernel(kernel));
    (calls.chain([kernel, Event::Flush(at(60_000))]).collect(), dictionary)
}

fn write(events: &[Event], dictionary: &Dictionary) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), &session()).unwrap();
    events.iter().for_each(|event| writer.event(event, dictionary).unwrap());
    writer.finish(End::Clean, at(70_000), &Loss::default(), dictionary).unwrap()
}

#[test]
fn calls_survive_a_round_trip_and_a_compaction() {
    let (events, dictionary) = program();
    let bytes = write(&events, &dictionary);
    let compacted = compact(&bytes[..], Vec::new()).unwrap().1;
    for bytes in [bytes, compacted] {
        let back = read(&bytes).unwrap();
        assert!(back.damage.is_none(), "{:?}", back.damage);
        assert_eq!(back.items[..events.len()], events);
    }
}

#[test]
fn a_part_of_a_trace_has_all_calls() {
    let (events, dictionary) = program();
    let bytes = write(&events, &dictionary);
    let mut reader = TraceReader::new(&bytes[..]).unwrap();
    reader.only(at(500_000), at(600_000));
    let mut items = Vec::new();
    while let Some(item) = reader.next_event().unwrap() {
        items.push(item);
    }
    let calls = MemoryFunction::ALL.len();
    assert_eq!(items[..calls], events[..calls]);
    assert!(!items.iter().any(|item| matches!(item, Event::Record(_))));
}

#[test]
fn many_calls_are_written_before_a_flush() {
    let (events, dictionary) = program();
    let mut writer = TraceWriter::new(Vec::new(), &session()).unwrap();
    let before = writer.bytes_written();
    (0..10_000).for_each(|_| writer.event(&events[0], &dictionary).unwrap());
    assert!(writer.bytes_written() > before);
    let bytes = writer.finish(End::Clean, at(20_000), &Loss::default(), &dictionary).unwrap();
    assert!(read(&bytes).unwrap().items[..10_000].iter().all(|event| *event == events[0]));
}

#[test]
fn a_reader_that_does_not_know_the_block_skips_it() {
    let (events, dictionary) = program();
    let mut bytes = write(&events, &dictionary);
    let start = bytes.windows(6).position(|window| window == MEMORY_CALLS).unwrap();
    // As a kind that this version does not know.
    bytes[start + 4] = 250;
    let crc = crc32fast::hash(&bytes[start..start + CRC_AT]).to_le_bytes();
    bytes[start + CRC_AT..start + CRC_AT + 4].copy_from_slice(&crc);
    let back = read(&bytes).unwrap();
    assert_eq!((back.damage.unknown_blocks, back.damage.first_offset), (1, None), "{:?}", back.damage);
    assert_eq!(back.items[..2], events[MemoryFunction::ALL.len()..]);
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
fn write_memory_calls_golden_file() {
    let (events, dictionary) = program();
    File::create_new(GOLDEN).unwrap().write_all(&write(&events, &dictionary)).unwrap();
}
