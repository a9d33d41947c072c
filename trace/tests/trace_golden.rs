//! Old files stay readable, and the specification stays correct.
//!
//! The files in `golden` are never rewritten: a change of the format that breaks one requires a new major
//! version.

use std::fs::{self, File};
use std::io::Write as _;

use crate::trace_sample::{assert_same_dictionary, read, sample, session};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::*;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/trace-1.0.bin");
const GOLDEN_1_2: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/trace-1.2.bin");
const GOLDEN_1_3: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/trace-1.3.bin");
const GOLDEN_1_4: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/trace-1.4.bin");
const GOLDEN_1_5: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/trace-1.5.bin");
/// Written by a build of 1.5 with PC sampling: a session, two blocks of kind 25, and the end.
const GOLDEN_PC_SAMPLING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/program-counters-1.5.bin");
const SPECIFICATION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/trace-format.md");

#[test]
fn version_1_0_is_read_as_it_was_written() {
    let golden = fs::read(GOLDEN).unwrap();
    let (dictionary, now) = sample();
    let (old, new) = (read(&golden).unwrap(), read(&now).unwrap());
    assert!(old.damage.is_none(), "{:?}", old.damage);
    assert_eq!(old.session, session());
    assert_eq!(old.items, new.items);
    // Two intervals, each with 3 calls, 3 kernels, 3 copies, 4 other records and a flush mark; two losses; the
    // end.
    assert_eq!(old.items.len(), 2 * (3 * 3 + 4 + 1) + 2 + 1);
    assert_same_dictionary(&old.dictionary, &dictionary);
}

#[test]
fn version_1_2_is_read_as_it_was_written() {
    let golden = fs::read(GOLDEN_1_2).unwrap();
    let (dictionary, now) = crate::trace_sample::since_1_0::sample();
    let (old, new) = (read(&golden).unwrap(), read(&now).unwrap());
    assert!(old.damage.is_none(), "{:?}", old.damage);
    assert_eq!(old.items, new.items);
    // 7 range events, 11 samples, 5 capture marks, a loss, a flush and the end.
    assert_eq!(old.items.len(), 7 + 11 + 5 + 3);
    assert_same_dictionary(&old.dictionary, &dictionary);
}

#[test]
fn version_1_3_is_read_as_it_was_written() {
    let golden = fs::read(GOLDEN_1_3).unwrap();
    let (dictionary, now) = crate::trace_sample::since_1_2::sample();
    let (old, new) = (read(&golden).unwrap(), read(&now).unwrap());
    assert!(old.damage.is_none(), "{:?}", old.damage);
    assert_eq!(old.items, new.items);
    // 8 events, a loss, a flush and the end.
    assert_eq!(old.items.len(), 8 + 2);
    assert_same_dictionary(&old.dictionary, &dictionary);
}

#[test]
fn version_1_4_is_read_as_it_was_written() {
    let golden = fs::read(GOLDEN_1_4).unwrap();
    let (dictionary, now) = crate::trace_sample::since_1_3::sample();
    let (old, new) = (read(&golden).unwrap(), read(&now).unwrap());
    assert!(old.damage.is_none(), "{:?}", old.damage);
    assert_eq!(old.items, new.items);
    // 6 events, a loss, a flush and the end.
    assert_eq!(old.items.len(), 6 + 2);
    assert_same_dictionary(&old.dictionary, &dictionary);
}

#[test]
fn version_1_5_is_read_as_it_was_written() {
    let golden = fs::read(GOLDEN_1_5).unwrap();
    let (dictionary, now) = crate::trace_sample::since_1_4::sample();
    let (old, new) = (read(&golden).unwrap(), read(&now).unwrap());
    assert!(old.damage.is_none(), "{:?}", old.damage);
    // A missing value (NaN) does not compare equal to itself.
    assert_eq!(format!("{:?}", old.items), format!("{:?}", new.items));
    // 8 counter events, 2 kernels, a flush and the end.
    assert_eq!(old.items.len(), 8 + 2 + 2);
    assert_same_dictionary(&old.dictionary, &dictionary);
}

#[test]
fn blocks_of_pc_sampling_are_skipped_and_counted() {
    let old = read(&fs::read(GOLDEN_PC_SAMPLING).unwrap()).unwrap();
    assert_eq!((old.damage.unknown_blocks, old.damage.first_offset), (2, None), "{:?}", old.damage);
    assert_eq!(old.damage.sentences(), ["2 blocks of a kind that this version of gpuwhy does not read"]);
    assert!(matches!(old.items[..], [.., Event::End(End::Clean, _)]), "{:?}", old.items);
}

#[test]
#[ignore = "writes the golden file of a new version; fails if the file exists"]
fn write_golden_file() {
    File::create_new(GOLDEN_1_5).unwrap().write_all(&crate::trace_sample::since_1_4::sample().1).unwrap();
}

/// The example trace of the specification.
fn example() -> Vec<u8> {
    let mut dictionary = Dictionary::new();
    let name = dictionary.intern_name("cuInit");
    let function = dictionary.intern_api_function(ApiFunction { domain: ApiDomain::Driver, callback_id: 1, name });
    let session = ProcessInfo { process_id: 300, host: "n7".into(), ..ProcessInfo::default() };
    let mut writer = TraceWriter::new(Vec::new(), &session).unwrap();
    for (start, end, correlation) in [(1000, 1500, 1), (1600, 1900, 2)] {
        let call = ApiCall {
            start: Timestamp::from_nanos(start),
            end: Timestamp::from_nanos(end),
            thread: ThreadId(300),
            correlation: CorrelationId(correlation),
            function,
            return_value: 0,
        };
        writer.event(&Event::Record(Record::Api(call)), &dictionary).unwrap();
    }
    writer.finish(End::Clean, Timestamp::from_nanos(2000), &Loss::default(), &dictionary).unwrap()
}

/// Bytes of the block that starts with "```hex". A byte has two digits; annotations start with `|`.
fn hex_of(specification: &str) -> Vec<u8> {
    let (_, rest) = specification.split_once("```hex\n").expect("the specification has an example");
    let (block, _) = rest.split_once("```").expect("the example ends");
    let digits = block.lines().flat_map(|line| line.split('|').next().unwrap_or_default().split_whitespace());
    digits.map(|digit| u8::from_str_radix(digit, 16).expect("two hexadecimal digits")).collect()
}

#[test]
fn the_example_of_the_specification_is_what_the_writer_writes() {
    let specification = fs::read_to_string(SPECIFICATION).unwrap();
    let bytes = hex_of(&specification);
    assert_eq!(bytes, example(), "docs/reference/trace-format.md must contain: {:02x?}", example());
    assert!(read(&bytes).unwrap().damage.is_none());
}
