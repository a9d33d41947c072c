//! Cut, corrupted, incomplete, foreign and hostile files: no wrong data is read, no loss is silent, and
//! nothing panics.

use std::io::{self, Read as _};

use crate::trace_sample::{BLOCK_HEADER, FILE_HEADER, assert_same_dictionary, block, blocks, read, sample};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::{TraceError, TraceReader};
use gpuwhy_trace::process_info::ProcessInfo;
use gpuwhy_trace::record::{LaunchConfigId, NameId, Record};

/// Fails unless `part` is a subsequence of `whole`.
fn assert_subsequence(part: &[Event], whole: &[Event], context: &str) {
    let mut rest = whole.iter();
    for item in part {
        assert!(rest.any(|other| other == item), "{context}: {item:?} is not in the file or out of order");
    }
}

/// Fails unless every row in `part` is correct or known to be lost.
fn assert_never_wrong(part: &Dictionary, whole: &Dictionary, context: &str) {
    for (id, name) in part.names().iter().enumerate() {
        assert!(&**name == "?" || *name == whole.names()[id], "{context}: name {id} is {name}");
    }
    for id in 0..whole.launch_configs().len() as u32 + 1 {
        let config = part.launch_config(LaunchConfigId(id));
        assert!(
            config.name == NameId::UNKNOWN || config == whole.launch_config(LaunchConfigId(id)),
            "{context}: launch configuration {id} is {config:?}"
        );
    }
}

#[test]
fn every_truncation_gives_a_prefix() {
    let (dictionary, bytes) = sample();
    let whole = read(&bytes).unwrap();
    assert!(whole.damage.is_none() && !whole.items.is_empty());
    assert_same_dictionary(&whole.dictionary, &dictionary);
    let ends: Vec<usize> = blocks(&bytes).iter().map(|block| block.end).collect();
    for length in 0..bytes.len() {
        let result = read(&bytes[..length]);
        if length == 0 {
            assert!(matches!(result, Err(TraceError::Empty)));
        } else if length < ends[0] {
            assert!(matches!(result, Err(TraceError::Truncated { .. })), "{length} bytes");
        } else {
            let part = result.unwrap();
            assert!(whole.items.starts_with(&part.items), "{length} bytes");
            assert_eq!(part.session, whole.session);
            let last = ends.iter().rfind(|&&end| end <= length).unwrap();
            assert_eq!(part.damage.torn_tail_bytes, (length - last) as u64, "{length} bytes");
            assert_eq!(part.damage.skipped_bytes, 0);
        }
    }
}

#[test]
fn no_flip_gives_a_wrong_row() {
    let (dictionary, bytes) = sample();
    let whole = read(&bytes).unwrap();
    for at in 0..bytes.len() {
        for bit in [at % 8, (at + 3) % 8] {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            let context = format!("bit {bit} of byte {at}");
            match read(&flipped) {
                Err(TraceError::NotATrace { .. }) => assert!(at < 8, "{context}"),
                Err(error) => panic!("{context}: {error}"),
                Ok(part) => {
                    assert!(!part.damage.is_none(), "{context} went unnoticed");
                    assert!(part.damage.first_offset.is_some(), "{context}: damage without a place");
                    assert_subsequence(&part.items, &whole.items, &context);
                    assert_never_wrong(&part.dictionary, &dictionary, &context);
                }
            }
        }
    }
}

#[test]
fn a_flip_costs_one_block() {
    let (_, bytes) = sample();
    let whole = read(&bytes).unwrap();
    let middle = blocks(&bytes).into_iter().skip(1).rev().skip(1);
    for block in middle {
        for at in [block.start, block.end - 1] {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            let damage = read(&flipped).unwrap().damage;
            assert_eq!(damage.missing_blocks + damage.skipped_blocks, 1, "byte {at}: {damage:?}");
            assert_eq!(damage.skipped_bytes, block.len() as u64, "byte {at}");
            assert_eq!(damage.first_offset, Some(block.start as u64), "byte {at}");
        }
    }
    assert!(matches!(whole.items.last(), Some(Event::End(..))));
}

#[test]
fn gaps_are_counted_and_the_rest_is_read() {
    let (dictionary, bytes) = sample();
    let whole = read(&bytes).unwrap();
    let first = blocks(&bytes)[0].end;
    for start in (first..bytes.len()).step_by(7) {
        for length in [1, 40, 333] {
            let end = (start + length).min(bytes.len());
            let holed = [&bytes[..start], &bytes[end..]].concat();
            let part = read(&holed).unwrap();
            let context = format!("gap {start}..{end}");
            assert_subsequence(&part.items, &whole.items, &context);
            assert_never_wrong(&part.dictionary, &dictionary, &context);
            // Removing exactly the last blocks is the same as a shorter file; the missing end mark reveals
            // it.
            let ended = matches!(part.items.last(), Some(Event::End(..)));
            assert!(!part.damage.is_none() || !ended || part.items == whole.items, "{context} went unnoticed");
        }
    }
}

#[test]
fn a_lost_dictionary_block_leaves_placeholders_and_the_other_ids() {
    let (dictionary, bytes) = sample();
    let blocks = blocks(&bytes);
    let is_dictionary = |block: &&std::ops::Range<usize>| bytes[block.start + 4] == 2;
    let first = blocks.iter().find(is_dictionary).unwrap();
    let holed = [&bytes[..first.start], &bytes[first.end..]].concat();
    let part = read(&holed).unwrap();
    assert_eq!(part.damage.missing_blocks, 1);
    assert_eq!(part.dictionary.names().len(), dictionary.names().len());
    assert_eq!(part.dictionary.name(NameId(0)), "?");
    let last = dictionary.launch_configs().len() as u32 - 1;
    assert_eq!(part.dictionary.launch_config(LaunchConfigId(last)), dictionary.launch_config(LaunchConfigId(last)));
    assert_eq!(part.dictionary.name(part.dictionary.launch_config(LaunchConfigId(0)).name), "?");
    assert_eq!(part.items, read(&bytes).unwrap().items, "no record is lost");
}

#[test]
fn a_repeated_piece_is_not_counted_twice() {
    let (_, bytes) = sample();
    let whole = read(&bytes).unwrap();
    let piece = blocks(&bytes)[2].clone();
    let doubled = [&bytes[..piece.end], &bytes[piece.clone()], &bytes[piece.end..]].concat();
    let part = read(&doubled).unwrap();
    assert_eq!(part.items, whole.items);
    assert_eq!((part.damage.skipped_blocks, part.damage.skipped_bytes), (1, piece.len() as u64));
}

#[test]
fn a_damaged_session_does_not_hide_the_records() {
    let (_, mut bytes) = sample();
    let whole = read(&bytes).unwrap();
    bytes[FILE_HEADER + BLOCK_HEADER + 5] ^= 1;
    let part = read(&bytes).unwrap();
    assert_eq!(part.session, ProcessInfo::default());
    assert_eq!(part.items, whole.items);
    assert_eq!(part.damage.skipped_blocks, 1);
}

#[test]
fn foreign_files_are_recognized() {
    for (bytes, what) in [
        (&b"\x1f\x8b\x08\x00abc"[..], "gzip"),
        (b"SQLite format 3\0....", "SQLite"),
        (b" {\"traceEvents\": []}", "JSON"),
        (b"\x7fELF\x02\x01", "ELF"),
        (b"\x89GPT\n\x1a\n\x01\x00", "binary mode"),
        (b"hello world\n", "text"),
    ] {
        let error = read(bytes).err().expect("not a trace");
        assert!(matches!(error, TraceError::NotATrace { .. }));
        assert!(error.to_string().contains(what), "{error}");
    }
    assert!(matches!(read(&[0, 1, 2, 3]), Err(TraceError::NotATrace { looks_like: None })));
    assert!(matches!(read(&[]), Err(TraceError::Empty)));
}

/// File header of a version.
fn header(major: u16, minor: u16) -> Vec<u8> {
    let mut out = b"\x89GPT\r\n\x1a\n".to_vec();
    out.extend_from_slice(&major.to_le_bytes());
    out.extend_from_slice(&minor.to_le_bytes());
    out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
    out
}

#[test]
fn a_newer_major_is_refused_and_a_newer_minor_is_not() {
    let (_, bytes) = sample();
    let newer = [&header(2, 5)[..], &bytes[FILE_HEADER..]].concat();
    assert!(matches!(read(&newer), Err(TraceError::TooNew { found: (2, 5), supported: (1, 6) })));
    let minor = [&header(1, 9)[..], &bytes[FILE_HEADER..]].concat();
    let part = read(&minor).unwrap();
    assert_eq!(part.items, read(&bytes).unwrap().items);
    assert!(part.damage.is_none());
}

#[test]
fn what_a_newer_minor_adds_is_stepped_over_and_counted() {
    let api = |columns: &[u8]| [&[4, 2][..], columns].concat();
    // One known column (thread 9 in both rows) and one of a later version in an unknown encoding.
    let extended = api(&[2, 0, 1, 1, 15, 200, 3, 9, b'x', b'y', b'z']);
    // A known column in an unknown encoding.
    let recoded = api(&[1, 0, 200, 1, 0]);
    // An unknown kind of record.
    let foreign = vec![99, 5, 1, 0, 1, 1, 7];
    let trace = [
        header(1, 1),
        block(1, 1, 1, 0, 0, &[77, 2, 0, 0]),
        block(900, 1, 0, 1, 0, b"a kind of later times"),
        block(3, 2, 0, 2, 0, b"a version of later times"),
        block(3, 1, 0, 3, 0, &[extended, foreign].concat()),
        block(3, 1, 0, 4, 0, &recoded),
        // An unknown dictionary table, and a context with an extra field.
        block(2, 1, 0, 5, 0, &[50, 0, 1, 2, 1, 1, 5, 0, 1, 4, 1, 0, 7, 99]),
        block(5, 1, 0, 6, 123, b""),
    ]
    .concat();
    let part = read(&trace).unwrap();
    assert_eq!((part.damage.unknown_blocks, part.damage.unknown_rows), (2, 7));
    assert_eq!(part.damage.first_offset, None, "nothing is damaged");
    let threads: Vec<u32> = part
        .items
        .iter()
        .filter_map(|item| match item {
            Event::Record(Record::Api(call)) => Some(call.thread.0),
            _ => None,
        })
        .collect();
    assert_eq!(threads, [9, 9]);
    assert_eq!(part.items.len(), 3);
    assert_eq!(part.dictionary.contexts()[0].null_stream.0, 7);
}

#[test]
fn a_trace_that_left_api_calls_out_says_that_causes_are_not_known_there() {
    let trace = |marks: &[u8]| {
        let mark = |(index, on): (usize, &u8)| block(27, 1, 0, index as u32 + 1, 100, &[*on]);
        let marks: Vec<u8> = marks.iter().enumerate().flat_map(mark).collect();
        read(&[header(1, 5), block(1, 1, 1, 0, 0, &[77, 2, 0, 0]), marks].concat()).unwrap()
    };
    assert!(trace(&[1]).damage.is_none(), "all were recorded");
    let part = trace(&[1, 0, 1, 0]);
    assert_eq!(part.items, []);
    assert_eq!(
        part.damage.sentences(),
        [
            "2 parts of the run without records of API calls, as earlier versions could record: causes of idle time there \
          are not known"
        ]
    );
}

#[test]
fn a_block_that_must_be_understood_stops_the_reader_with_its_place() {
    let (_, bytes) = sample();
    let trace = [&bytes[..], &block(900, 3, 1, blocks(&bytes).len() as u32, 0, b"")[..]].concat();
    match read(&trace) {
        Err(TraceError::MustUnderstand { kind: 900, version: 3, offset }) => assert_eq!(offset, bytes.len() as u64),
        other => panic!("{:?}", other.map(|read| read.damage)),
    }
}

#[test]
fn hostile_counts_and_lengths_cost_nothing() {
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let zeros = zstd::bulk::compress(&vec![0; 64 << 20], 1).unwrap();
    let bodies = [
        // 2^64 - 1 rows without a column, and a column of 2^64 - 1 bytes.
        (3, 0, [&[4][..], &huge, &[0]].concat()),
        (3, 0, [&[4, 1, 1, 0, 0][..], &huge].concat()),
        // A column with fewer rows than announced, and one with more.
        (3, 0, vec![4, 3, 1, 0, 0, 2, 1, 2]),
        (3, 0, vec![4, 1, 1, 0, 0, 2, 1, 2]),
        // A thread id beyond 32 bits.
        (3, 0, [&[4, 1, 1, 0, 1, 10][..], &huge].concat()),
        // A dictionary that starts at id 2^64 - 1, and one that skips 2^40 ids.
        (2, 0, [&[1][..], &huge, &[1, 0]].concat()),
        (2, 0, vec![1, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20, 1, 0]),
        // A frame of 64 MiB with the correct length, one with a smaller length, and invalid data.
        (3, 2, [&(64u32 << 20).to_le_bytes()[..], &zeros].concat()),
        (3, 2, [&8u32.to_le_bytes()[..], &zeros].concat()),
        (3, 2, vec![8, 0, 0, 0, 1, 2, 3]),
        (3, 2, vec![8, 0]),
        // An unknown API domain, and an end without a number.
        (2, 0, vec![3, 0, 1, 3, 7, 1, 1]),
        (6, 0, vec![]),
    ];
    for (index, (kind, flags, body)) in bodies.iter().enumerate() {
        let trace =
            [header(1, 0), block(1, 1, 1, 0, 0, b""), block(*kind, 1, *flags, 1, 0, body), block(5, 1, 0, 2, 0, b"")]
                .concat();
        let part = read(&trace).unwrap();
        assert_eq!(part.items.len(), 1, "body {index}: only the flush mark is good");
        assert_eq!(part.damage.skipped_blocks, 1, "body {index}");
        assert_eq!(part.damage.skipped_bytes, (BLOCK_HEADER + body.len()) as u64, "body {index}");
    }
}

/// `number` as a varint.
fn varint(number: usize) -> Vec<u8> {
    let last = (0..).find(|shift| number >> (7 * shift) < 0x80).unwrap();
    (0..=last).map(|shift| (number >> (7 * shift)) as u8 & 0x7f | if shift < last { 0x80 } else { 0 }).collect()
}

#[test]
fn a_block_with_more_events_than_a_writer_makes_is_damage() {
    let group = |what: u8, content: &[u8]| [&[what][..], &varint(content.len()), content].concat();
    let rows = |what: u8, row_bytes: usize| {
        move |count: usize| group(what, &[varint(count), vec![0; count * row_bytes]].concat())
    };
    let singles = |what: u8, content: &'static [u8]| move |count: usize| group(what, content).repeat(count);
    type Body<'a> = (&'a str, u16, Box<dyn Fn(usize) -> Vec<u8> + 'a>);
    let bodies: [Body<'_>; 9] = [
        ("nodes", 28, Box::new(rows(1, 4))),
        ("copied nodes", 28, Box::new(rows(2, 4))),
        ("groups of nodes", 28, Box::new(move |count| rows(1, 4)(1).repeat(count))),
        ("operations", 26, Box::new(rows(2, 11))),
        ("ranges of NCCL", 26, Box::new(rows(3, 11))),
        ("communicators", 26, Box::new(singles(1, &[0; 6]))),
        ("readings", 11, Box::new(singles(3, &[0; 3]))),
        ("processes", 11, Box::new(singles(5, &[0; 6]))),
        ("groups of samples", 11, Box::new(singles(2, &[0, 1, 0, 0, 0]))),
    ];
    for (name, kind, body) in &bodies {
        for (count, is_read) in [(1 << 17, true), ((1 << 17) + 1, false)] {
            let body = block(*kind, 1, 0, 1, 0, &body(count));
            let part = read(&[header(1, 5), block(1, 1, 1, 0, 0, b""), body].concat()).unwrap();
            assert_eq!(part.items.len(), if is_read { count } else { 0 }, "{count} {name}");
            assert_eq!(part.damage.skipped_blocks, u64::from(!is_read), "{count} {name}");
        }
    }
}

#[test]
fn an_announced_length_alone_allocates_nothing() {
    let mut trace = [header(1, 0), block(1, 1, 1, 0, 0, b""), block(3, 1, 0, 1, 0, b"")].concat();
    let at = trace.len() - BLOCK_HEADER;
    trace[at + 8..at + 12].copy_from_slice(&u32::MAX.to_le_bytes());
    let crc = crc32fast::hash(&trace[at..at + 36]);
    trace[at + 36..].copy_from_slice(&crc.to_le_bytes());
    let part = read(&trace).unwrap();
    assert_eq!(part.damage.torn_tail_bytes, BLOCK_HEADER as u64);
}

#[test]
fn a_read_error_is_passed_on_once_with_its_offset() {
    struct Broken;
    impl io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::from(io::ErrorKind::ConnectionReset))
        }
    }
    let (_, bytes) = sample();
    let cut = blocks(&bytes)[3].end;
    let mut reader = TraceReader::new(bytes[..cut].chain(Broken)).unwrap();
    let results: Vec<_> = reader.by_ref().collect();
    match results.last() {
        Some(Err(TraceError::Io { offset, .. })) => assert_eq!(*offset, cut as u64),
        other => panic!("{other:?}"),
    }
    assert!(results.len() > 1 && reader.next().is_none());
}

/// A valid block header that announces the largest body, with a wrong body checksum.
fn promise() -> Vec<u8> {
    let mut header = block(3, 1, 0, u32::MAX, 0, &[])[..BLOCK_HEADER - 4].to_vec();
    header[8..12].copy_from_slice(&(16u32 << 20).to_le_bytes());
    header[32..36].copy_from_slice(&[1, 2, 3, 4]);
    let checksum = crc32fast::hash(&header).to_le_bytes();
    header.extend_from_slice(&checksum);
    header
}

/// The block that would follow the sample.
fn behind_sample(bytes: &[u8]) -> Vec<u8> {
    block(5, 1, 0, blocks(bytes).len() as u32, 77, b"")
}

#[test]
fn headers_that_announce_more_than_there_is_do_not_cost_the_square_of_the_file() {
    let (_, bytes) = sample();
    let hostile = promise().repeat(50_000);
    // Bodies that exist, each of 16 MiB: checking all of them would read 800 GB.
    let padded = [&bytes[..], &hostile, &vec![0; 17 << 20], &behind_sample(&bytes)].concat();
    let part = read(&padded).unwrap();
    assert!(matches!(part.items.last(), Some(Event::Flush(at)) if at.nanos() == 77), "what is behind them is found");
    assert_eq!(part.damage.skipped_bytes, hostile.len() as u64 + (17 << 20));
    assert!((16..1_000).contains(&part.damage.skipped_blocks), "{:?}", part.damage);
    // Bodies that are only partly in the file.
    let cut = [&bytes[..], &promise().repeat(200_000), &behind_sample(&bytes)].concat();
    let part = read(&cut).unwrap();
    assert!(matches!(part.items.last(), Some(Event::Flush(at)) if at.nanos() == 77));
}

/// Blocks of a manually assembled trace, renumbered consecutively.
fn renumbered(bytes: &[u8], order: &[usize]) -> Vec<u8> {
    let blocks = blocks(bytes);
    let mut out = bytes[..FILE_HEADER].to_vec();
    for (number, &place) in (0u32..).zip(order) {
        let mut header = bytes[blocks[place].start..][..BLOCK_HEADER - 4].to_vec();
        header[12..16].copy_from_slice(&number.to_le_bytes());
        let checksum = crc32fast::hash(&header).to_le_bytes();
        out.extend([&header[..], &checksum].concat());
        out.extend_from_slice(&bytes[blocks[place].start + BLOCK_HEADER..blocks[place].end]);
    }
    out
}

#[test]
fn blocks_out_of_their_place_are_damage() {
    let (_, bytes) = sample();
    let whole = read(&bytes).unwrap();
    let order: Vec<usize> = (0..blocks(&bytes).len()).collect();
    let (middle, end) = (&order[1..order.len() - 1], order.len() - 1);
    let misplaced = |order: &[usize]| {
        let part = read(&renumbered(&bytes, order)).unwrap();
        assert_eq!(part.session, if order.contains(&0) { whole.session.clone() } else { ProcessInfo::default() });
        (part.damage.misplaced_blocks, part.damage.first_offset.is_some())
    };
    assert_eq!(misplaced(&order), (0, false));
    assert_eq!(misplaced(&[middle, &[0, end]].concat()), (2, true), "another block first, the session later");
    assert_eq!(misplaced(&[middle, &[end]].concat()), (1, true), "no session");
    assert_eq!(misplaced(&[&[0][..], middle, &[0, end]].concat()), (1, true), "two sessions");
    assert_eq!(misplaced(&[&[0, end][..], middle].concat()), (middle.len() as u64, true), "behind the end");
}

#[test]
fn two_groups_of_one_kind_make_a_block_malformed() {
    let (_, bytes) = sample();
    let number = blocks(&bytes).len() as u32;
    let group = [4, 2, 1, 2, 1, 1, 9];
    let of = |body: &[u8]| read(&[&bytes[..], &block(3, 1, 0, number, 0, body)].concat()).unwrap();
    assert_eq!(of(&group).damage.skipped_blocks, 0);
    assert_eq!(of(&[group, group].concat()).damage.skipped_blocks, 1);
}
