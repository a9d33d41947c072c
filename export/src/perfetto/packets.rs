//! Packets: descriptions of tracks, slices on them, values of counters; names are written once.

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

/// Where a process stands in a file that may hold several.
#[derive(Clone, Copy, Debug)]
pub struct TrackOrigin<'a> {
    /// Counts from 0 in the file.
    pub number: u64,
    /// Its process id, or another number if that is taken.
    pub process: u32,
    /// What is added to its times, nanoseconds.
    pub shift: i64,
    /// What stands in front of its name and those of its devices.
    pub name: &'a str,
}

impl TrackOrigin<'_> {
    /// Packets of a process are of one sequence, which begins without anything that was interned before.
    fn sequence(&self) -> u64 {
        self.number + 1
    }

    /// The number of a track in the file. Those of one process differ; the multiple of the golden ratio that is put
    /// over them is far from small numbers, which keeps processes apart.
    fn uuid(&self, track: Track) -> u64 {
        track.0 ^ self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// A track by its number, which is unique in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Track(pub u64);

/// What a slice leads to or comes from.
#[derive(Clone, Copy, Debug)]
pub enum Arrow {
    None,
    /// An arrow begins here.
    From(u64),
    /// An arrow ends here.
    To(u64),
}

/// Something beside the name of a slice.
#[derive(Clone, Copy, Debug)]
pub enum Note<'a> {
    Number(&'static str, u64),
    Text(&'static str, &'a str),
}

/// Texts that were written, by kind.
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

    /// Describes a track below `parent`; `fill` says what it is.
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

    /// Something that lasts.
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

    /// The begin of something; its end must come.
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

    /// The end of what began last on the track.
    pub fn end(&mut self, track: Track, at: Timestamp) -> io::Result<()> {
        let mut event = Message::default();
        event.number(field::event::TYPE, SLICE_END).number(field::event::TRACK_UUID, self.place.uuid(track));
        self.event(at, &event, &Message::default())
    }

    /// A point in time.
    pub fn instant(&mut self, track: Track, at: Timestamp, name: (&str, &str)) -> io::Result<()> {
        self.named(INSTANT, track, at, name, Arrow::None, &[])
    }

    /// What a counter is from `at` on.
    pub fn counter(&mut self, track: Track, at: Timestamp, value: i64) -> io::Result<()> {
        let mut event = Message::default();
        event
            .number(field::event::TYPE, COUNTER)
            .number(field::event::TRACK_UUID, self.place.uuid(track))
            .number(field::event::COUNTER_VALUE, value as u64);
        self.event(at, &event, &Message::default())
    }

    /// As [`counter`](Self::counter), for a value that is not whole.
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
    /// The id of a text; a new one is described in `new`.
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
