//! The source lines of a trace, parsed when a remedy asks for them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::run::SourceLines;
use crate::run::code::{Code, CodeReader};

/// Parsed lines by file and number; `None` where nothing could be parsed.
type Known = BTreeMap<(String, u32), Option<Rc<Code>>>;

/// The lines of a trace, parsed when they are asked for.
#[derive(Debug)]
pub(in crate::run) struct ParsedLines<'a> {
    lines: &'a SourceLines,
    reader: CodeReader,
    known: RefCell<Known>,
}

impl<'a> ParsedLines<'a> {
    /// `None` without lines or without a parser.
    pub(in crate::run) fn new(lines: &'a SourceLines, reader: Option<CodeReader>) -> Option<Self> {
        let reader = reader.filter(|_| !lines.is_empty())?;
        Some(Self { lines, reader, known: RefCell::default() })
    }

    /// The line at a place such as `train.py:42 (main)`.
    pub(super) fn at(&self, place: &str) -> Option<Rc<Code>> {
        let (file, line) = self.lines.find(place)?;
        let parse = || self.lines.file(file).and_then(|rows| (self.reader)(rows, line)).map(Rc::new);
        self.known.borrow_mut().entry((file.to_owned(), line)).or_insert_with(parse).clone()
    }
}
