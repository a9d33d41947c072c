//! Blocks of data within the page: compressed bytes as text, each in an element that no browser executes.
//!
//! Deflate, because every browser since 2023 decompresses it natively. Thirteen bits are two of 91 printable
//! letters, because a page is text: 8 % less text than Base64. Blocks are compressed on separate threads, and
//! written in order, so that the same trace yields the same bytes.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use flate2::Compression;
use flate2::write::DeflateEncoder;

/// Deflate level: the next one makes the blocks 0.7 % smaller and takes 18 % longer.
const LEVEL: u32 = 3;
/// Maximum number of threads that compress blocks: reading the trace keeps about this many busy.
const THREADS: usize = 4;
/// Number of blocks per thread that wait or are being compressed. A block has at most 32,768 events of 72
/// bytes.
const WAITING: usize = 2;

/// Printable letters except those with a meaning in HTML.
const LETTERS: [u8; 91] = {
    let mut letters = [0; 91];
    let (mut letter, mut count) = (b'!', 0);
    while letter <= b'~' {
        if letter != b'<' && letter != b'>' && letter != b'&' {
            letters[count] = letter;
            count += 1;
        }
        letter += 1;
    }
    letters
};

/// Number of a block within its page.
pub(crate) type BlockId = u32;

/// Produces the parts of a block, which are compressed separately, because similar data compresses best
/// alone.
pub(crate) type Parts = Box<dyn FnOnce() -> Vec<Vec<u8>> + Send>;

/// Compresses `parts` into one block: deflate, then text.
fn packed(parts: &[Vec<u8>]) -> io::Result<String> {
    let size = parts.iter().map(Vec::len).sum::<usize>();
    let mut encoder = DeflateEncoder::new(Vec::with_capacity(size / 2), Compression::new(LEVEL));
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            // The next part starts with a separate Huffman code.
            encoder.flush()?;
        }
        encoder.write_all(part)?;
    }
    Ok(as_text(&encoder.finish()?))
}

/// Encodes thirteen bits as two letters, the lowest bits first; the rest at the end as one letter, if that is
/// enough.
pub(crate) fn as_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 16 / 13 + 2);
    let letter = |value: u32| char::from(LETTERS[(value % 91) as usize]);
    let (mut word, mut bits) = (0_u32, 0);
    for &byte in bytes {
        word |= u32::from(byte) << bits;
        bits += 8;
        if bits >= 13 {
            let value = word & 0x1fff;
            text.push(letter(value));
            text.push(letter(value / 91));
            word >>= 13;
            bits -= 13;
        }
    }
    if bits > 0 {
        text.push(letter(word));
    }
    if bits > 6 {
        text.push(letter(word / 91));
    }
    text
}

/// A thread that compresses blocks. Results are in the order of the work.
struct Packer {
    work: Sender<Parts>,
    done: Receiver<io::Result<String>>,
}

impl Packer {
    fn new() -> io::Result<Self> {
        let (work, waiting) = channel::<Parts>();
        let (sender, done) = channel();
        thread::Builder::new().name("gpuwhy-pack".to_owned()).spawn(move || {
            // Ends when the sender or the receiver is closed.
            for parts in waiting {
                if sender.send(packed(&parts())).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { work, done })
    }
}

/// Writes blocks into a page and counts their bytes.
pub(crate) struct Blocks<'a> {
    out: &'a mut (dyn Write + Send),
    next: BlockId,
    packers: Vec<Packer>,
    /// Blocks that are not written yet, each with the limit for the text bytes of all blocks.
    waiting: VecDeque<(BlockId, u64)>,
    written: u64,
    refused: BTreeSet<BlockId>,
}

impl<'a> Blocks<'a> {
    pub(crate) fn new(out: &'a mut (dyn Write + Send)) -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS);
        let packers = (0..threads).map_while(|_| Packer::new().ok()).collect();
        Self { out, next: 0, packers, waiting: VecDeque::new(), written: 0, refused: BTreeSet::new() }
    }

    /// Writes a block with a name, which has no number.
    pub(crate) fn named(&mut self, name: &str, bytes: Vec<u8>) -> io::Result<()> {
        self.finish()?;
        let text = packed(&[bytes])?;
        self.element(name, &text)
    }

    /// Writes a block of these bytes and returns its number.
    pub(crate) fn numbered(&mut self, bytes: Vec<u8>) -> io::Result<BlockId> {
        self.within(u64::MAX, Box::new(move || vec![bytes]))
    }

    /// Writes a block and returns its number. The block is refused if the text of all blocks would then
    /// exceed `most` bytes.
    pub(crate) fn within(&mut self, most: u64, parts: Parts) -> io::Result<BlockId> {
        while self.waiting.len() >= WAITING * self.packers.len().max(1) {
            self.write_oldest()?;
        }
        let id = self.next;
        self.next += 1;
        match self.packers.get(self.turn(id)) {
            Some(packer) => {
                packer.work.send(parts).map_err(|_| gone())?;
                self.waiting.push_back((id, most));
            }
            // No threads are available.
            None => self.write(id, most, &packed(&parts())?)?,
        }
        Ok(id)
    }

    /// Waits for all blocks, and returns the refused ones.
    pub(crate) fn finish(&mut self) -> io::Result<&BTreeSet<BlockId>> {
        while !self.waiting.is_empty() {
            self.write_oldest()?;
        }
        Ok(&self.refused)
    }

    /// Index of the thread that compresses a block.
    fn turn(&self, id: BlockId) -> usize {
        id as usize % self.packers.len().max(1)
    }

    fn write_oldest(&mut self) -> io::Result<()> {
        let Some((id, most)) = self.waiting.pop_front() else { return Ok(()) };
        let Some(packer) = self.packers.get(self.turn(id)) else { return Ok(()) };
        let text = packer.done.recv().map_err(|_| gone())??;
        self.write(id, most, &text)
    }

    fn write(&mut self, id: BlockId, most: u64, text: &str) -> io::Result<()> {
        if self.written + text.len() as u64 > most {
            self.refused.insert(id);
            return Ok(());
        }
        self.element(&id.to_string(), text)
    }

    fn element(&mut self, name: &str, text: &str) -> io::Result<()> {
        self.written += text.len() as u64;
        writeln!(self.out, "<script type=\"application/vnd.gpuwhy\" id=\"gpuwhy-{name}\">{text}</script>")
    }
}

/// A compression thread has ended because it panicked.
fn gone() -> io::Error {
    io::Error::other("a thread that packs data for the page ended early")
}

/// Encodes numbers as bytes, seven bits each, the lowest first.
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

    /// Appends a signed number: small ones of either sign are short.
    pub(crate) fn signed(&mut self, value: i64) {
        self.number(zigzag(value));
    }
}

/// Maps a signed number to an unsigned one: small ones of either sign are small.
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Encodes a column of numbers with seven bits per byte: all first bytes together, then the second bytes of
/// the numbers that have one, and so on. The low bits are noise, the high ones are not.
pub(crate) fn planes(values: impl Iterator<Item = u64>, into: &mut Vec<Vec<u8>>) {
    let first = into.len();
    for mut value in values {
        let mut plane = first;
        loop {
            if plane == into.len() {
                into.push(Vec::new());
            }
            let more = value >= 0x80;
            into[plane].push(value as u8 & 0x7f | if more { 0x80 } else { 0 });
            if !more {
                break;
            }
            value >>= 7;
            plane += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use gpuwhy_page_reader as read;

    use super::*;

    #[test]
    fn any_bytes_come_back_from_their_text() {
        assert_eq!(as_text(b""), "");
        // A test of the script uses the same text.
        assert_eq!(packed(&[b"gpuwhy page".to_vec()]).unwrap(), r#"#O$=b[5=*);3h_!!"#);
        for length in 0..300 {
            let bytes: Vec<u8> = (0..length).map(|index: u32| (index * index * 31 + length) as u8).collect();
            let text = as_text(&bytes);
            assert_eq!(read::from_text(&text).unwrap(), bytes, "{length}");
            assert!(text.len() <= bytes.len() * 16 / 13 + 2);
            assert!(!text.contains(['<', '>', '&', ' ', '\n']) && text.is_ascii());
        }
        assert_eq!(read::from_text("a b"), None);
    }

    #[test]
    fn a_block_is_refused_when_it_is_too_large_and_counted_when_not() {
        let mut out = Vec::new();
        let mut blocks = Blocks::new(&mut out);
        let noise = |seed: u8| move || vec![(0..100).map(|index: u8| index.wrapping_mul(index) ^ seed).collect()];
        let ids: Vec<BlockId> = (0..9)
            .map(|seed| blocks.within(if seed == 4 { 3 } else { 1000 }, Box::new(noise(seed))).unwrap())
            .collect();
        assert_eq!(ids, (0..9).collect::<Vec<_>>());
        let refused = blocks.finish().unwrap().clone();
        let written = blocks.written;
        let text = String::from_utf8(out).unwrap();
        assert!(refused.contains(&4) && refused.contains(&8) && !refused.contains(&0), "{refused:?}");
        for id in ids {
            let raw = read::block(&text, &id.to_string());
            assert_eq!(raw.is_err(), refused.contains(&id), "{id}");
            if let Ok(raw) = raw {
                assert_eq!(vec![raw], noise(id as u8)());
            }
        }
        assert_eq!(written, text.lines().map(|line| line.split(['>', '<']).nth(2).unwrap().len() as u64).sum::<u64>());
        assert!(written <= 1000);
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
    }

    #[test]
    fn a_column_has_its_bytes_by_place() {
        let mut all = Vec::new();
        planes([1, 300, 2, 70_000].into_iter(), &mut all);
        assert_eq!(all, [vec![1, 0x80 | 44, 2, 0x80 | 112], vec![2, 0x80 | 34], vec![4]]);
        let bytes = all.concat();
        let mut numbers = read::Numbers(&bytes);
        assert_eq!(numbers.column(4), [1, 300, 2, 70_000]);
        assert!(numbers.0.is_empty());
        planes(std::iter::empty(), &mut all);
        assert_eq!(all.len(), 3);
    }
}
