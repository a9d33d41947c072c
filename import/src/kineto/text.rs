//! Splits the text of a document into members and rows, without trust in the text.
//!
//! Writers of such files leave out escapes: a name with quotes or control characters breaks the rest of a JSON
//! text, although every other row is whole. So a row is cut out of the text by its brackets and read on its
//! own. If the brackets do not fit, the next row is where an object begins with the same key as all rows. In
//! a valid text that sequence is never within a text, where its quotes would be escaped.

use std::io::{self, BufRead};

/// Maximum size of a row or of a member that is read, bytes. Rows with stacks and shapes are some ten kilobytes.
pub(super) const LONGEST: usize = 16 << 20;
/// Maximum nesting depth: that of the JSON reader.
const DEPTH: usize = 128;
/// Bytes that are remembered of a part that is passed over: more than the longest sequence searched for.
const TAIL: usize = 256;
/// Maximum length of the first key of rows.
const KEY: usize = 32;

/// Key of the array of rows, with its quotes.
const ROWS: &[u8] = b"\"traceEvents\"";

/// How the reading of a value ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueEnd {
    /// It is whole.
    Whole,
    /// What was searched for starts at this byte of the value, which is thus not whole.
    Next(usize),
    /// Its brackets do not fit, or it is too long.
    Broken,
    /// The text ends.
    Cut,
}

/// An element of the array of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    /// An object: [`Text::value`].
    Row,
    /// Another value.
    Other,
    /// A row that is not valid JSON. The next one may be whole.
    Lost,
    /// The end of the array.
    End,
    /// The end of the text, between rows. `closed`: after closing brackets that belong to a lost row.
    EndOfText { closed: bool },
    /// The end of the text, within a row.
    Cut,
}

/// Open brackets and texts.
#[derive(Debug, Default)]
struct Open {
    brackets: Vec<u8>,
    text: bool,
    escaped: bool,
}

impl Open {
    /// Takes a byte; `Some` at the end of the value.
    fn take(&mut self, byte: u8) -> Option<ValueEnd> {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.text => self.escaped = true,
            b'"' => {
                self.text = !self.text;
                return (!self.text && self.brackets.is_empty()).then_some(ValueEnd::Whole);
            }
            _ if self.text => {}
            b'{' | b'[' if self.brackets.len() == DEPTH => return Some(ValueEnd::Broken),
            b'{' | b'[' => self.brackets.push(byte),
            b'}' | b']' => {
                let opened = if byte == b'}' { b'{' } else { b'[' };
                if self.brackets.pop() != Some(opened) {
                    return Some(ValueEnd::Broken);
                }
                return self.brackets.is_empty().then_some(ValueEnd::Whole);
            }
            _ => {}
        }
        None
    }

    /// True if an object may begin here after a comma: as an element of an array.
    fn in_array(&self) -> bool {
        let around = self.brackets.len().checked_sub(2).and_then(|index| self.brackets.get(index));
        !self.text && around == Some(&b'[')
    }
}

/// A text that is read once, value by value.
#[derive(Debug)]
pub(super) struct Text<R> {
    source: R,
    position: u64,
    /// The newest value.
    pub(super) value: Vec<u8>,
    open: Open,
    /// First key of rows, with its quotes.
    row_key: Vec<u8>,
    /// True if `value` has the start of the next row.
    carried: bool,
    /// True after an element, which a comma or the end of the array must follow.
    separated: bool,
}

impl<R: BufRead> Text<R> {
    pub(super) fn new(source: R) -> Self {
        // Kineto starts each row with its phase.
        let row_key = b"\"ph\"".to_vec();
        Self { source, position: 0, value: Vec::new(), open: Open::default(), row_key, carried: false, separated: true }
    }

    /// Number of bytes read.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Next byte that is no white space, which stays unread; `None` at the end.
    pub(super) fn peek(&mut self) -> io::Result<Option<u8>> {
        loop {
            let bytes = self.source.fill_buf()?;
            if bytes.is_empty() {
                return Ok(None);
            }
            let blank = bytes.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            let found = bytes.get(blank).copied();
            self.consume(blank);
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// Passes over `count` bytes.
    pub(super) fn consume(&mut self, count: usize) {
        self.source.consume(count);
        self.position += count as u64;
    }

    /// Reads a value into [`value`](Self::value); with `keep` off, only its last bytes. [`ValueEnd::Next`] is the
    /// key of the rows, which no other value has.
    pub(super) fn read_value(&mut self, keep: bool) -> io::Result<ValueEnd> {
        if let Some(byte) = self.peek()?
            && !matches!(byte, b'"' | b'{' | b'[')
        {
            return self.read_token();
        }
        self.begin();
        self.read(keep, |value, _| rows_key(value))
    }

    /// Reads on to the key of the rows, wherever it is; false if there is none.
    pub(super) fn find_rows(&mut self) -> io::Result<bool> {
        Ok(self.search(rows_key)?.is_some())
    }

    /// Reads an element of the array of rows.
    pub(super) fn read_element(&mut self) -> io::Result<Element> {
        if !std::mem::take(&mut self.carried) {
            loop {
                match self.peek()? {
                    None => return Ok(Element::EndOfText { closed: false }),
                    Some(b',') => {
                        self.separated = true;
                        self.consume(1);
                    }
                    Some(b']') => {
                        self.consume(1);
                        return Ok(Element::End);
                    }
                    Some(b'{') => break,
                    Some(_) if !self.separated => return self.find_row(),
                    Some(b'"' | b'[') => {
                        self.begin();
                        let key = std::mem::take(&mut self.row_key);
                        let end = self.read(true, |value, open| row_start(value, &key).filter(|_| !open.in_array()));
                        self.row_key = key;
                        return self.element(end?, Element::Other);
                    }
                    Some(byte) if byte.is_ascii_alphanumeric() || byte == b'-' => {
                        self.read_token()?;
                        self.separated = false;
                        return Ok(Element::Other);
                    }
                    Some(_) => return self.find_row(),
                }
            }
            self.begin();
        }
        let key = std::mem::take(&mut self.row_key);
        let end = self.read(true, |value, open| row_start(value, &key).filter(|_| !open.in_array()));
        self.row_key = key;
        self.element(end?, Element::Row)
    }

    fn element(&mut self, end: ValueEnd, whole: Element) -> io::Result<Element> {
        match end {
            ValueEnd::Whole => {
                self.separated = false;
                Ok(whole)
            }
            ValueEnd::Next(at) => {
                self.carry(at);
                Ok(Element::Lost)
            }
            ValueEnd::Broken => self.find_row(),
            ValueEnd::Cut => Ok(Element::Cut),
        }
    }

    /// Takes the first key of a row that was read as the first key of all.
    pub(super) fn learn_row_key(&mut self) {
        let inside = self.value.get(1..).unwrap_or_default().trim_ascii_start();
        let key = inside.split_inclusive(|&byte| byte == b'"').take(2).map(<[u8]>::len).sum();
        if (3..=KEY).contains(&key) && inside[key - 1] == b'"' {
            self.row_key = inside[..key].to_vec();
        }
    }

    /// Passes over a part that is not valid JSON, up to the next row.
    pub(super) fn find_row(&mut self) -> io::Result<Element> {
        let key = std::mem::take(&mut self.row_key);
        let found = self.search(|value| row_start(value, &key));
        self.row_key = key;
        if let Some(at) = found? {
            self.carry(at);
            return Ok(Element::Lost);
        }
        Ok(Element::EndOfText { closed: matches!(self.value.trim_ascii_end().last(), Some(b'}' | b']')) })
    }

    /// The next row starts at this byte of the value.
    fn carry(&mut self, at: usize) {
        self.value.drain(..at);
        self.open = Open { brackets: vec![b'{'], ..Open::default() };
        self.carried = true;
    }

    fn begin(&mut self) {
        self.value.clear();
        self.open = Open::default();
    }

    /// Reads a number or a word, up to what may follow it.
    fn read_token(&mut self) -> io::Result<ValueEnd> {
        self.begin();
        loop {
            let bytes = self.source.fill_buf()?;
            let ends = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b',' | b'}' | b']' | b'"' | b':');
            let count = bytes.iter().position(ends).unwrap_or(bytes.len());
            let is_over = count < bytes.len() || bytes.is_empty();
            self.value.extend_from_slice(&bytes[..count]);
            self.consume(count);
            if self.value.len() > LONGEST {
                return Ok(ValueEnd::Broken);
            }
            if is_over {
                return Ok(if self.value.is_empty() { ValueEnd::Broken } else { ValueEnd::Whole });
            }
        }
    }

    /// Reads the value whose start is known. `is_next` sees the value at each colon outside of its own start.
    fn read(&mut self, keep: bool, is_next: impl Fn(&[u8], &Open) -> Option<usize>) -> io::Result<ValueEnd> {
        loop {
            let bytes = self.source.fill_buf()?;
            if bytes.is_empty() {
                return Ok(ValueEnd::Cut);
            }
            let (mut end, mut count) = (None, 0);
            for &byte in bytes {
                count += 1;
                self.value.push(byte);
                end = self.open.take(byte);
                if byte == b':' && end.is_none() {
                    end = is_next(&self.value, &self.open).filter(|&at| at > 0).map(ValueEnd::Next);
                }
                if end.is_some() {
                    break;
                }
            }
            self.consume(count);
            if let Some(end) = end {
                return Ok(end);
            }
            if keep && self.value.len() > LONGEST {
                return Ok(ValueEnd::Broken);
            }
            if !keep {
                self.forget();
            }
        }
    }

    /// Reads until `found` is true of the bytes up to a colon.
    fn search(&mut self, found: impl Fn(&[u8]) -> Option<usize>) -> io::Result<Option<usize>> {
        loop {
            let bytes = self.source.fill_buf()?;
            if bytes.is_empty() {
                return Ok(None);
            }
            let colon = bytes.iter().position(|&byte| byte == b':');
            let count = colon.map_or(bytes.len(), |colon| colon + 1);
            self.value.extend_from_slice(&bytes[..count]);
            self.consume(count);
            if let Some(at) = colon.and_then(|_| found(&self.value)) {
                return Ok(Some(at));
            }
            self.forget();
        }
    }

    /// Keeps only the last bytes of the value.
    fn forget(&mut self) {
        if self.value.len() > 2 * TAIL {
            self.value.drain(..self.value.len() - TAIL);
        }
    }
}

/// Index of the object whose first key is `key`, after a comma, if `value` ends with the colon behind that key.
fn row_start(value: &[u8], key: &[u8]) -> Option<usize> {
    let before = value.strip_suffix(b":")?.trim_ascii_end().strip_suffix(key)?.trim_ascii_end().strip_suffix(b"{")?;
    before.trim_ascii_end().ends_with(b",").then_some(before.len())
}

/// `Some` if `value` ends with the key of the rows and a colon.
fn rows_key(value: &[u8]) -> Option<usize> {
    let before = value.strip_suffix(b":")?.trim_ascii_end().strip_suffix(ROWS)?;
    Some(before.len())
}
