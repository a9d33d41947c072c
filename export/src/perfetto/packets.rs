//! Packets: track descriptors, slices, and counter values; names are interned.

use std::io::{self, Write};

use gpuwhy_trace::record::Timestamp;
use rustc_hash::FxHashMap;

use super::wire::{Message, field};

const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;
const STATE_CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;

/// A process in a file that may contain several.
#[derive(Clone, Copy, Debug)]
pub struct TrackOrigin<'a> {
    /// Index in the file, starting at 0.
    pub number: u64,
    /// Process id, or another number if that is taken.
    pub process: u32,
    /// Offset added to its times, nanoseconds.
    pub shift: i64,
    /// Prefix of its name and those of its devices.
    pub name: &'a str,
}

impl TrackOrigin<'_> {
    /// Packets of one process form a sequence, which starts without interned data.
    fn sequence(&self) -> u64 {
        self.number + 1
    }

    /// Number of a track in the file. Track numbers are unique within a process; XOR with a multiple of the
    /// golden ratio, which is far from small numbers, separates the processes.
    fn uuid(&self, track: Track) -> u64 {
        track.0 ^ self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Track number, unique within the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Track(pub u64);

/// Start or end of an arrow at a slice.
#[derive(Clone, Copy, Debug)]
pub enum Arrow {
    None,
    /// An arrow starts here.
    From(u64),
    /// An arrow ends here.
    To(u64),
}

/// An annotation of a slice.
#[derive(Clone, Copy, Debug)]
pub enum Note<'a> {
    Number(&'static str, u64),
    Text(&'static str, &'a str),
}

/// Texts already written, by kind.
#[derive(Debug, Default)]
struct Interned {
    ids: FxHashMap<(u32, String), u64>,
}

#[derive(Debug)]
pub struct Packets<'a, W> {
    output: W,
    place: TrackOrigin<'a>,
    interned: Interned,
    has_begun: bool,
}

impl<'a, W: Write> Packets<'a, W> {
    pub fn new(output: W, place: TrackOrigin<'a>) -> Self {
        Self { output, place, interned: Interned::default(), has_begun: false }
    }

    /// Describes a track below `parent`; `fill` adds its properties.
    pub fn track(&mut self, track: Track, parent: Option<Track>, fill: impl FnOnce(&mut Message)) -> io::Result<()> {
        let mut descriptor = Message::default();
        descriptor.number(field::track::UUID, self.place.uuid(track));
        if let Some(parent) = parent {
            descriptor.number(field::track::PARENT, self.place.uuid(parent));
        }
        fill(&mut descriptor);
        let mut packet = Message::default();
        packet
            .number(field::packet::SEQUENCE_ID, self.place.sequence())
            .message(field::packet::TRACK_DESCRIPTOR, &descriptor);
        self.packet(&packet)
    }

    /// Writes a slice with a start and an end.
    pub fn slice(
        &mut self,
        track: Track,
        (start, end): (Timestamp, Timestamp),
        (category, name): (&str, &str),
        arrow: Arrow,
        notes: &[Note<'_>],
    ) -> io::Result<()> {
        self.begin(track, start, (category, name), arrow, notes)?;
        self.end(track, end)
    }

    /// Writes the start of a slice; its end must follow.
    pub fn begin(
        &mut self,
        track: Track,
        at: Timestamp,
        name: (&str, &str),
        arrow: Arrow,
        notes: &[Note<'_>],
    ) -> io::Result<()> {
        self.named(SLICE_BEGIN, track, at, name, arrow, notes)
    }

    /// Writes the end of the slice that started last on the track.
    pub fn end(&mut self, track: Track, at: Timestamp) -> io::Result<()> {
        let mut event = Message::default();
        event.number(field::event::TYPE, SLICE_END).number(field::event::TRACK_UUID, self.place.uuid(track));
        self.event(at, &event, &Message::default())
    }

    /// Writes an instant event.
    pub fn instant(&mut self, track: Track, at: Timestamp, name: (&str, &str)) -> io::Result<()> {
        self.named(INSTANT, track, at, name, Arrow::None, &[])
    }

    /// Sets a counter from `at` on.
    pub fn counter(&mut self, track: Track, at: Timestamp, value: i64) -> io::Result<()> {
        let mut event = Message::default();
        event
            .number(field::event::TYPE, COUNTER)
            .number(field::event::TRACK_UUID, self.place.uuid(track))
            .number(field::event::COUNTER_VALUE, value as u64);
        self.event(at, &event, &Message::default())
    }

    /// Like [`counter`](Self::counter), for a floating-point value.
    pub fn real_counter(&mut self, track: Track, at: Timestamp, value: f64) -> io::Result<()> {
        let mut event = Message::default();
        event
            .number(field::event::TYPE, COUNTER)
            .number(field::event::TRACK_UUID, self.place.uuid(track))
            .fixed64(field::event::DOUBLE_COUNTER_VALUE, value.to_bits());
        self.event(at, &event, &Message::default())
    }

    fn named(
        &mut self,
        kind: u64,
        track: Track,
        at: Timestamp,
        (category, name): (&str, &str),
        arrow: Arrow,
        notes: &[Note<'_>],
    ) -> io::Result<()> {
        let mut new = Message::default();
        let mut event = Message::default();
        event.number(field::event::TYPE, kind).number(field::event::TRACK_UUID, self.place.uuid(track));
        event.number(field::event::CATEGORY_IIDS, self.interned.id(field::interned::CATEGORIES, category, &mut new));
        event.number(field::event::NAME_IID, self.interned.id(field::interned::NAMES, name, &mut new));
        match arrow {
            Arrow::None => &mut event,
            Arrow::From(id) => event.fixed64(field::event::FLOW_IDS, id),
            Arrow::To(id) => event.fixed64(field::event::TERMINATING_FLOW_IDS, id),
        };
        for note in notes {
            let mut annotation = Message::default();
            let (Note::Number(key, _) | Note::Text(key, _)) = note;
            let key = self.interned.id(field::interned::ANNOTATION_NAMES, key, &mut new);
            annotation.number(field::annotation::NAME_IID, key);
            match note {
                Note::Number(_, value) => annotation.number(field::annotation::UINT_VALUE, *value),
                Note::Text(_, value) => annotation.text(field::annotation::STRING_VALUE, value),
            };
            event.message(field::event::DEBUG_ANNOTATIONS, &annotation);
        }
        self.event(at, &event, &new)
    }

    fn event(&mut self, at: Timestamp, event: &Message, new: &Message) -> io::Result<()> {
        let mut packet = Message::default();
        let flags =
            if std::mem::replace(&mut self.has_begun, true) { NEEDS_STATE } else { STATE_CLEARED | NEEDS_STATE };
        packet
            .number(field::packet::TIMESTAMP, at.nanos().saturating_add_signed(self.place.shift))
            .number(field::packet::SEQUENCE_ID, self.place.sequence())
            .number(field::packet::SEQUENCE_FLAGS, flags);
        if !new.as_bytes().is_empty() {
            packet.message(field::packet::INTERNED_DATA, new);
        }
        packet.message(field::packet::TRACK_EVENT, event);
        self.packet(&packet)
    }

    fn packet(&mut self, packet: &Message) -> io::Result<()> {
        let mut framed = Message::default();
        framed.message(field::TRACE_PACKET, packet);
        self.output.write_all(framed.as_bytes())
    }
}

impl Interned {
    /// Id of a text; a new text is added to `new`.
    fn id(&mut self, kind: u32, text: &str, new: &mut Message) -> u64 {
        let next = self.ids.len() as u64 + 1;
        let key = (kind, text.to_owned());
        if let Some(&id) = self.ids.get(&key) {
            return id;
        }
        self.ids.insert(key, next);
        let mut entry = Message::default();
        entry.number(field::interned::IID, next).text(field::interned::TEXT, text);
        new.message(kind, &entry);
        next
    }
}
