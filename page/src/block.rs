//! Blocks of data within the page: packed bytes as text, each in an element that no browser runs.
//!
//! Deflate, because every browser since 2023 unpacks it by itself; Base64, because a page is text.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::DeflateEncoder;

/// Level of deflate: higher ones make the blocks 4 % smaller and take several times as long.
const LEVEL: u32 = 5;

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Number of a block within its page.
pub(crate) type BlockId = u32;

/// Packs `bytes`: deflate, then Base64.
pub(crate) fn packed(bytes: &[u8]) -> io::Result<String> {
    let mut encoder = DeflateEncoder::new(Vec::with_capacity(bytes.len() / 2), Compression::new(LEVEL));
    encoder.write_all(bytes)?;
    Ok(base64(&encoder.finish()?))
}

fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word = group.iter().fold(0u32, |word, &byte| word << 8 | u32::from(byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * place)) as usize & 63];
            text.push(if place > group.len() { '=' } else { letter.into() });
        }
    }
    text
}

/// Writes blocks into a page and counts their bytes.
pub(crate) struct Blocks<'a> {
    out: &'a mut (dyn Write + Send),
    next: BlockId,
    written: u64,
}

impl<'a> Blocks<'a> {
    pub(crate) fn new(out: &'a mut (dyn Write + Send)) -> Self {
        Self { out, next: 0, written: 0 }
    }

    /// Bytes of text so far.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Writes a block that nobody else refers to by number.
    pub(crate) fn named(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let text = packed(bytes)?;
        self.written += text.len() as u64;
        writeln!(self.out, "<script type=\"application/vnd.gpuwhy\" id=\"gpuwhy-{name}\">{text}</script>")
    }

    /// Writes a block if its text takes at most `most` bytes; gives its number.
    pub(crate) fn numbered(&mut self, bytes: &[u8], most: u64) -> io::Result<Option<BlockId>> {
        let text = packed(bytes)?;
        if text.len() as u64 > most {
            return Ok(None);
        }
        let id = self.next;
        self.next += 1;
        self.written += text.len() as u64;
        writeln!(self.out, "<script type=\"application/vnd.gpuwhy\" id=\"gpuwhy-{id}\">{text}</script>")?;
        Ok(Some(id))
    }
}

/// Numbers as bytes, seven bits each, the lowest first.
#[derive(Debug, Default)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Bytes {
    pub(crate) fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A number that may be negative: small ones of either sign are short.
    pub(crate) fn signed(&mut self, value: i64) {
        self.number(((value << 1) ^ (value >> 63)) as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::DeflateDecoder;

    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        let pairs = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (plain, coded) in pairs {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        assert_eq!(base64(&[0xfb, 0xff]), "+/8=");
    }

    #[test]
    fn a_block_is_refused_when_it_is_too_large_and_counted_when_not() {
        let mut out = Vec::new();
        let mut blocks = Blocks::new(&mut out);
        assert_eq!(blocks.numbered(&[1; 100], 3).unwrap(), None);
        assert_eq!(blocks.numbered(&[1; 100], 300).unwrap(), Some(0));
        assert_eq!(blocks.numbered(&[2; 100], 300).unwrap(), Some(1));
        let written = blocks.written();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("id=\"gpuwhy-0\">") && text.contains("id=\"gpuwhy-1\">"));
        assert_eq!(written, text.lines().map(|line| line.split(['>', '<']).nth(2).unwrap().len() as u64).sum::<u64>());
    }

    #[test]
    fn numbers_take_one_byte_for_seven_bits() {
        let mut bytes = Bytes::default();
        for value in [0, 127, 128, u64::MAX] {
            bytes.number(value);
        }
        bytes.signed(-1);
        bytes.signed(1);
        let max = [0xff; 9].into_iter().chain([1]);
        assert_eq!(bytes.0, [0, 127, 0x80, 1].into_iter().chain(max).chain([1, 2]).collect::<Vec<_>>());
        let mut unpacked = Vec::new();
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(LEVEL));
        encoder.write_all(&bytes.0).unwrap();
        DeflateDecoder::new(&encoder.finish().unwrap()[..]).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, bytes.0);
    }
}
