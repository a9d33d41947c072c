//! Reader for the data of a page, equivalent to its script: for the tests of `gpuwhy-page` and of the command.

use std::io::{self, Read as _};

use flate2::read::DeflateDecoder;

/// Returns the bytes of the block `name` of a page.
///
/// # Errors
/// If the page has no such block, or it is damaged.
pub fn block(page: &str, name: &str) -> io::Result<Vec<u8>> {
    let text = text(page, name).ok_or_else(|| io::Error::other(format!("the page has no block {name}")))?;
    let packed = from_text(text).ok_or_else(|| io::Error::other(format!("block {name} has a letter of no meaning")))?;
    let mut bytes = Vec::new();
    DeflateDecoder::new(&packed[..]).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the encoded text of the block `name` of the page.
#[must_use]
pub fn text<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    let begin = format!("<script type=\"application/vnd.gpuwhy\" id=\"gpuwhy-{name}\">");
    let start = page.find(&begin)? + begin.len();
    page[start..].split('<').next()
}

/// Decodes thirteen bits from two letters, the lowest first; `None` for an invalid letter.
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

/// Reads numbers of seven bits per byte, the lowest first. Panics if the bytes end early: a page is checked,
/// not repaired.
#[derive(Debug)]
pub struct Numbers<'a>(pub &'a [u8]);

impl Numbers<'_> {
    fn byte(&mut self) -> u8 {
        let (&byte, rest) = self.0.split_first().expect("the block is whole");
        self.0 = rest;
        byte
    }

    /// Reads the next number.
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

    /// Reads the next signed number.
    pub fn signed(&mut self) -> i64 {
        unzigzag(self.number())
    }

    /// Reads a column of `count` numbers: all first bytes, then the second bytes of the numbers that have
    /// one, and so on.
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

/// An event with a duration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageEvent {
    /// Nanoseconds after the origin of the timeline.
    pub begin: u64,
    /// Duration, nanoseconds.
    pub duration: u64,
    /// One value per column of the lane.
    pub values: Vec<i64>,
}

/// Reads the `count` events of a chunk of a lane with this many `columns`. Panics if it is damaged.
#[must_use]
pub fn events(bytes: &[u8], count: usize, columns: usize) -> Vec<PageEvent> {
    let mut numbers = Numbers(bytes);
    let pauses = numbers.column(count);
    let durations = numbers.column(count);
    let mut end = 0_u64;
    let times = pauses.into_iter().zip(durations).map(|(pause, duration)| {
        let begin = end.wrapping_add_signed(unzigzag(pause));
        end = begin + duration;
        PageEvent { begin, duration, values: Vec::with_capacity(columns) }
    });
    let mut events: Vec<PageEvent> = times.collect();
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
