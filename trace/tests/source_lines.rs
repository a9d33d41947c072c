//! Lines of source code: written last, read back, in a golden file, and limited.

use std::fs::{self, File};
use std::io::Write as _;

use crate::trace_sample::{read, sample};
use gpuwhy_trace::dictionary::{Dictionary, SOURCE_LINE_LIMIT};
use gpuwhy_trace::format::compact::with_source_lines;
use gpuwhy_trace::source_line::{SourceLine, TEXT_LIMIT};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/source-lines-1.5.bin");

const LINES: [(u32, &str); 3] = [(1, "import torch"), (40, "\tfor i in range(64):"), (41, "\t\tn(x[i:i + 1])  # ü")];

fn program() -> Vec<u8> {
    let add = |dictionary: &mut Dictionary| {
        let file = dictionary.intern_name("/home/u/train.py");
        for (line, text) in LINES {
            dictionary.add_source_line(SourceLine { file, line, text: text.to_owned() });
        }
    };
    with_source_lines(&sample().1[..], Vec::new(), add).unwrap()
}

fn lines(dictionary: &Dictionary) -> Vec<(&str, u32, &str)> {
    dictionary.source_lines().iter().map(|row| (dictionary.name(row.file), row.line, row.text.as_str())).collect()
}

#[test]
fn lines_are_added_to_a_trace_that_is_otherwise_the_same() {
    let (before, after) = (read(&sample().1).unwrap(), read(&program()).unwrap());
    assert!(after.damage.is_none(), "{:?}", after.damage);
    assert_eq!(after.items, before.items);
    assert_eq!(lines(&after.dictionary), LINES.map(|(line, text)| ("/home/u/train.py", line, text)));
    assert!(lines(&before.dictionary).is_empty());
}

#[test]
fn the_golden_file_is_read_as_it_was_written() {
    let back = read(&fs::read(GOLDEN).unwrap()).unwrap();
    assert!(back.damage.is_none(), "{:?}", back.damage);
    assert_eq!(lines(&back.dictionary), LINES.map(|(line, text)| ("/home/u/train.py", line, text)));
}

#[test]
fn more_lines_than_a_writer_adds_are_counted() {
    let mut dictionary = Dictionary::new();
    let file = dictionary.intern_name("x.py");
    for line in 1..=SOURCE_LINE_LIMIT as u32 + 5 {
        dictionary.add_source_line(SourceLine { file, line, text: String::new() });
    }
    assert_eq!((dictionary.source_lines().len(), dictionary.beyond()), (SOURCE_LINE_LIMIT, 5));
}

#[test]
fn a_trace_with_more_text_than_a_writer_adds_is_read_in_part() {
    let add = |dictionary: &mut Dictionary| {
        let file = dictionary.intern_name("x.py");
        for line in 1..=1_000 {
            let text = format!("x = {}\ny", "(".repeat(1_000));
            dictionary.add_source_line(SourceLine { file, line, text });
        }
    };
    let back = read(&with_source_lines(&sample().1[..], Vec::new(), add).unwrap()).unwrap();
    let lines = back.dictionary.source_lines();
    assert_eq!(lines.len(), TEXT_LIMIT / 400);
    assert!(lines.iter().all(|row| row.text.len() == 400 && !row.text.contains('\n')));
}

#[test]
#[ignore = "writes the golden file; fails if the file exists"]
fn write_source_lines_golden_file() {
    File::create_new(GOLDEN).unwrap().write_all(&program()).unwrap();
}
