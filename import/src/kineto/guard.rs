//! Limits the size of a text or a row: the JSON reader holds it in memory until it is complete.

use std::io::{self, Read};

/// Maximum size of a text, or of the contents of an element of an array that is a member of the document,
/// bytes. Rows with stacks and shapes are some ten kilobytes.
const LONGEST: usize = 16 << 20;
/// Nesting depth between rows: the brackets of the document and of its array.
const ROWS: u32 = 2;

/// Fails if a row is too long.
#[derive(Debug)]
pub(super) struct Guard<R> {
    source: R,
    depth: u32,
    in_text: bool,
    escaped: bool,
    /// Bytes since the last byte between rows.
    run: usize,
}

impl<R> Guard<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, depth: 0, in_text: false, escaped: false, run: 0 }
    }

    fn take(&mut self, byte: u8) {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.in_text => self.escaped = true,
            b'"' => self.in_text = !self.in_text,
            _ if self.in_text => {}
            b'{' | b'[' => self.depth = self.depth.saturating_add(1),
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.run = if self.in_text || self.depth > ROWS { self.run + 1 } else { 0 };
    }
}

impl<R: Read> Read for Guard<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        for &byte in &buffer[..count] {
            self.take(byte);
            if self.run > LONGEST {
                let what = format!("a text or a row is longer than {} MB, as in no trace", LONGEST / 1_000_000);
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(parts: &[&[u8]]) -> bool {
        let text = parts.concat();
        io::copy(&mut Guard::new(&text[..]), &mut io::sink()).is_ok()
    }

    #[test]
    fn rows_may_be_many_but_not_long() {
        let long = vec![b'x'; LONGEST];
        let rows = br#"{"name": "a\"]}{[", "args": {}},"#.repeat(LONGEST / 20);
        assert!(passes(&[br#"{"traceEvents": ["#, &rows, b"{}]}"]));
        assert!(!passes(&[b"{\"host_name\": \"", &long, b"\"}"]));
        assert!(!passes(&[b"{\"traceEvents\": [{\"", &long, b"\": 1}]}"]));
        assert!(!passes(&[b"{\"other\": ", &b"[".repeat(LONGEST + 10)]));
    }
}
