//! Reads the data of a page back, as its script does: for tests, and for tools that check pages.

use std::io::{self, Read as _};

use flate2::read::DeflateDecoder;

/// The bytes of the block `name` of a page.
///
/// # Errors
/// When the page has no such block, or it is damaged.
pub fn block(page: &str, name: &str) -> io::Result<Vec<u8>> {
    let text = text(page, name).ok_or_else(|| io::Error::other(format!("the page has no block {name}")))?;
    let packed = from_text(text).ok_or_else(|| io::Error::other(format!("block {name} has a letter of no meaning")))?;
    let mut bytes = Vec::new();
    DeflateDecoder::new(&packed[..]).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of the block `name` as it is in the page.
#[must_use]
pub fn text<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    let begin = format!("<script type=\"application/vnd.gpuwhy\" id=\"gpuwhy-{name}\">");
    let start = page.find(&begin)? + begin.len();
    page[start..].split('<').next()
}

/// Two letters are thirteen bits, the lowest first; `None` where a letter has no meaning.
#[must_use]
pub fn from_text(text: &str) -> Option<Vec<u8>> {
    let value = |letter: u8| match letter {
        b'!'..=b'%' => Some(u32::from(letter - b'!')),
        b'\''..=b';' => Some(u32::from(letter - b'!') - 1),
        b'=' => Some(u32::from(letter - b'!') - 2),
        b'?'..=b'~' => Some(u32::from(letter - b'!') - 3),
        _ => None,
    };
    let (mut bytes, mut word, mut bits) = (Vec::with_capacity(text.len() * 13 / 16), 0_u32, 0);
    for pair in text.as_bytes().chunks(2) {
        let high = pair.get(1).map_or(Some(0), |&letter| value(letter))?;
        word |= (value(pair[0])? + 91 * high) << bits;
        bits += if pair.len() == 2 { 13 } else { 6 };
        while bits >= 8 {
            bytes.push(word as u8);
            word >>= 8;
            bits -= 8;
        }
    }
    Some(bytes)
}

/// Reads numbers of seven bits a byte, the lowest first. Panics where the bytes end early: a page is checked, not
/// mended.
#[derive(Debug)]
pub struct Numbers<'a>(pub &'a [u8]);

impl Numbers<'_> {
    fn byte(&mut self) -> u8 {
        let (&byte, rest) = self.0.split_first().expect("the block is whole");
        self.0 = rest;
        byte
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return value;
            }
        }
    }

    /// The next number that may be negative.
    pub fn signed(&mut self) -> i64 {
        unzigzag(self.number())
    }

    /// A column of `count` numbers: all first bytes, then the second ones of those that have them, and so on.
    pub fn column(&mut self, count: usize) -> Vec<u64> {
        let mut values = vec![0; count];
        let (mut with_more, mut shift): (Vec<usize>, u32) = ((0..count).collect(), 0);
        while !with_more.is_empty() {
            with_more.retain(|&index| {
                let byte = self.byte();
                values[index] |= u64::from(byte & 0x7f) << shift;
                byte & 0x80 != 0
            });
            shift += 7;
        }
        values
    }
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Something that took time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// Nanoseconds after the origin of the timeline.
    pub begin: u64,
    /// Nanoseconds.
    pub duration: u64,
    /// One for each column of the lane.
    pub values: Vec<i64>,
}

/// The events of a chunk of a lane that has so many `columns`. Panics where it is damaged.
#[must_use]
pub fn events(bytes: &[u8], count: usize, columns: usize) -> Vec<Event> {
    let mut numbers = Numbers(bytes);
    let pauses = numbers.column(count);
    let durations = numbers.column(count);
    let mut end = 0_u64;
    let times = pauses.into_iter().zip(durations).map(|(pause, duration)| {
        let begin = end.wrapping_add_signed(unzigzag(pause));
        end = begin + duration;
        Event { begin, duration, values: Vec::with_capacity(columns) }
    });
    let mut events: Vec<Event> = times.collect();
    for _ in 0..columns {
        let mut value = 0_i64;
        for (event, change) in events.iter_mut().zip(numbers.column(count)) {
            value = value.wrapping_add(unzigzag(change));
            event.values.push(value);
        }
    }
    assert!(numbers.0.is_empty(), "nothing is left over");
    events
}
