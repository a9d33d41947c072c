//! A range event as words of a ring: the head, the parts that it has, and the text.
//!
//! ```text
//! head: kind 4 bits | payload type 4 | parts 8 | domain 16 | length of the text in bytes 32
//! time | category, color | range | registered string | payload | text
//! ```
//! The payload is one word, or four for a struct of the payload extension: number and size of its schema, its
//! first bytes. A pop takes two words, a push with a name of 24 characters five.

use gpuwhy_trace::record::{RangeEventKind, Timestamp};
use nvtx_sys::{Attributes, EXTENDED_WORDS, Extended, Message, Payload, Text};

use crate::rings::ring::{Fill, Ring};

/// Optional parts after the time.
const CATEGORY: u64 = 1;
const RANGE: u64 = 2;
const REGISTERED: u64 = 4;

/// Payload type of a struct.
const EXTENDED: u64 = 4;

/// In place of a kind: the next events are of another thread, whose id is in place of the time.
const THREAD: u64 = 15;

/// In place of a kind: an event of NCCL ([`nccl_ring`](crate::rings::nccl)).
pub const NCCL: u64 = 14;

/// An event without its text.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Packed {
    pub kind: RangeEventKind,
    pub at: Timestamp,
    pub domain: u32,
    /// Number of the category; 0 if none.
    pub category: u32,
    /// Color; 0 if none.
    pub color: u32,
    /// Number of the range; 0 if none.
    pub range: u64,
    /// Number of the registered string with the text; 0 if the text itself follows.
    pub registered: u32,
    /// Numeric payload.
    pub payload: Payload,
}

/// Next item in a ring.
#[derive(Debug, PartialEq)]
pub enum Next {
    /// Thread of the next events.
    Thread(u32),
    /// An event. Its text is in the buffer.
    Event(Packed),
    /// An event of NCCL, whose words are still to be read.
    Nccl,
}

/// Writes the thread of the next events. `false` if there is no room.
pub fn write_thread(ring: &Ring, thread: u32) -> bool {
    ring.write(&[THREAD, thread.into()], &[]).is_written()
}

impl Packed {
    /// Packs an event of the program.
    pub fn new(kind: RangeEventKind, at: Timestamp, domain: u32, range: u64, event: &Attributes<'_>) -> Self {
        let registered = if let Message::Registered(string) = event.message { string.0 } else { 0 };
        let &Attributes { category, color, payload, .. } = event;
        Self { kind, at, domain, category, color, range, registered, payload }
    }

    /// Writes the complete event with its text, if there is room.
    pub fn write(&self, ring: &Ring, text: Text<'_>) -> Fill {
        let wide;
        let text = match text {
            Text::Narrow(bytes) => bytes,
            Text::Wide(_) => {
                wide = text.to_string_lossy();
                wide.as_bytes()
            }
        };
        let mut extended = [0; EXTENDED_WORDS];
        let (payload_type, payload) = match self.payload {
            Payload::None => (0, 0),
            Payload::Extended(Extended { schema, size, words }) => {
                extended = words;
                (EXTENDED, u64::from(size) << 32 | u64::from(schema))
            }
            Payload::Unsigned(value) => (1, value),
            Payload::Signed(value) => (2, value.cast_unsigned()),
            Payload::Float(value) => (3, value.to_bits()),
        };
        let mut words = [0; 6 + EXTENDED_WORDS];
        let mut length = 2;
        let mut parts = 0;
        let mut add = |present: bool, part: u64, word: u64| {
            if present {
                parts |= part;
                words[length] = word;
                length += 1;
            }
        };
        add(self.category != 0 || self.color != 0, CATEGORY, u64::from(self.category) << 32 | u64::from(self.color));
        add(self.range != 0, RANGE, self.range);
        add(self.registered != 0, REGISTERED, self.registered.into());
        add(payload_type != 0, 0, payload);
        extended.iter().for_each(|&word| add(payload_type == EXTENDED, 0, word));
        words[0] = kind_number(self.kind)
            | payload_type << 4
            | parts << 8
            | u64::from(self.domain & 0xffff) << 16
            | (text.len() as u64) << 32;
        words[1] = self.at.nanos();
        ring.write(&words[..length], text)
    }
}

/// Time of the event at a readable index; `None` for other items.
pub fn time(ring: &Ring, at: u64) -> Option<Timestamp> {
    (ring.word(at) & 15 != THREAD).then(|| Timestamp::from_nanos(ring.word(at + 1)))
}

/// Reads the item at a readable index, with its text into `text`, and advances the index.
pub fn read(ring: &Ring, at: &mut u64, text: &mut Vec<u8>) -> Next {
    if ring.word(*at) & 15 == NCCL {
        return Next::Nccl;
    }
    let mut word = || {
        let word = ring.word(*at);
        *at += 1;
        word
    };
    let head = word();
    let time = word();
    #[expect(clippy::cast_possible_truncation, reason = "each is a part of a word that was made from 32 bits or fewer")]
    let low = |word: u64| word as u32;
    if head & 15 == THREAD {
        return Next::Thread(low(time));
    }
    let parts = head >> 8 & 0xff;
    let mut part = |part: u64| if parts & part == 0 { 0 } else { word() };
    let (category_color, range, registered) = (part(CATEGORY), part(RANGE), part(REGISTERED));
    let payload = match head >> 4 & 15 {
        0 => Payload::None,
        1 => Payload::Unsigned(word()),
        2 => Payload::Signed(word().cast_signed()),
        EXTENDED => {
            let head = word();
            let (schema, size) = (low(head & 0xffff_ffff), low(head >> 32));
            Payload::Extended(Extended { schema, size, words: std::array::from_fn(|_| word()) })
        }
        _ => Payload::Float(f64::from_bits(word())),
    };
    let length = low(head >> 32) as usize;
    text.clear();
    while text.len() < length {
        text.extend_from_slice(&word().to_le_bytes());
    }
    text.truncate(length);
    Next::Event(Packed {
        kind: kind(head & 15),
        at: Timestamp::from_nanos(time),
        domain: low(head >> 16 & 0xffff),
        category: low(category_color >> 32),
        color: low(category_color & 0xffff_ffff),
        range,
        registered: low(registered),
        payload,
    })
}

fn kind_number(kind: RangeEventKind) -> u64 {
    match kind {
        RangeEventKind::Unknown => 0,
        RangeEventKind::Push => 1,
        RangeEventKind::Pop => 2,
        RangeEventKind::Start => 3,
        RangeEventKind::End => 4,
        RangeEventKind::Mark => 5,
    }
}

fn kind(number: u64) -> RangeEventKind {
    match number {
        1 => RangeEventKind::Push,
        2 => RangeEventKind::Pop,
        3 => RangeEventKind::Start,
        4 => RangeEventKind::End,
        5 => RangeEventKind::Mark,
        _ => RangeEventKind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_as_they_were_written() {
        let ring = Ring::new();
        let plain = Packed { kind: RangeEventKind::Pop, at: Timestamp::from_nanos(7), ..Packed::default() };
        let full = Packed {
            kind: RangeEventKind::Start,
            at: Timestamp::from_nanos(u64::MAX),
            domain: 1023,
            category: u32::MAX,
            color: 0xff00_8800,
            range: 1 << 40,
            registered: 9,
            payload: Payload::Signed(-3),
        };
        let extended = Extended { schema: 5, size: u32::MAX, words: [u64::MAX, 0, 7] };
        let extended = Packed { payload: Payload::Extended(extended), category: 1, range: 2, registered: 3, ..full };
        let float = Packed { kind: RangeEventKind::Mark, payload: Payload::Float(0.5), color: 1, ..plain };
        let written = [
            (plain, Text::Narrow(b""), ""),
            (full, Text::Narrow("größe".as_bytes()), "größe"),
            (extended, Text::Narrow(b"x"), "x"),
            (float, Text::Wide(&[0x41, 0x1f600]), "A\u{1f600}"),
        ];
        assert!(write_thread(&ring, 4711));
        for (packed, text, _) in &written {
            assert_eq!(packed.write(&ring, *text), Fill::Written);
        }
        let readable = ring.readable();
        let (mut at, mut text) = (readable.start, Vec::new());
        assert_eq!(time(&ring, at), None);
        assert_eq!(read(&ring, &mut at, &mut text), Next::Thread(4711));
        for (packed, _, expected) in written {
            assert_eq!(time(&ring, at), Some(packed.at));
            assert_eq!(read(&ring, &mut at, &mut text), Next::Event(packed));
            assert_eq!(std::str::from_utf8(&text), Ok(expected));
        }
        assert_eq!(at, readable.end);
    }
}
