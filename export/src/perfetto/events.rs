//! Converts records to events on tracks.

use std::io::{self, Write};

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::process_info::ProcessInfo;
use gpuwhy_trace::record::{
    ApiDomain, CorrelationId, DeviceId, DeviceWork, MemoryEvent, NameId, RangeEvent, RangeEventKind, Record, StreamId,
    ThreadId, Timestamp,
};
use profiler_core::api::without_suffix;
use profiler_core::memory::Holdings;
use rustc_hash::{FxHashMap, FxHashSet};

use super::packets::{Arrow, Note, Packets, Track, TrackOrigin};
use super::wire::{Message, field};
use crate::captured::{Captured, CapturedPlaces};
use crate::correlations::Correlations;
use crate::counters::CounterValue;
use crate::names::{ReadableNames, demangled};
use crate::order::Order;
use crate::prescan::Prescan;
use crate::tracks::Tracks;
use crate::{collectives, kineto_names, process_names};

/// Kinds of tracks, in the upper byte of the track number.
pub(super) mod kind {
    pub const PROCESS: u64 = 1;
    pub const THREAD: u64 = 2;
    pub const DEVICE: u64 = 3;
    pub const STREAM: u64 = 4;
    pub const OVERHEAD: u64 = 5;
    pub const RANGES: u64 = 6;
    pub const STARTED: u64 = 7;
    pub const WAITING: u64 = 8;
    pub const COPIED: u64 = 9;
    pub const BOTTLENECK: u64 = 10;
    pub const MEMORY: u64 = 11;
    pub const STEPS: u64 = 12;
    pub const LEAF: u64 = 13;
    pub const SAMPLED: u64 = 14;
}

/// Track number from a kind and two numbers: 8, 24 and 32 bits.
pub(super) fn track(kind: u64, first: u32, second: u32) -> Track {
    Track(kind << 56 | (u64::from(first) & 0xff_ffff) << 32 | u64::from(second))
}

pub struct Events<'a, W> {
    pub(super) packets: Packets<'a, W>,
    place: TrackOrigin<'a>,
    prescan: &'a Prescan,
    session: &'a ProcessInfo,
    kernels: ReadableNames,
    calls: ReadableNames,
    pub captured: CapturedPlaces,
    stream_tracks: FxHashMap<(DeviceId, StreamId), Tracks>,
    ranges: FxHashSet<(ThreadId, NameId)>,
    arrows_from: Correlations,
    arrows_to: Correlations,
    counters: FxHashMap<Track, i64>,
    order: Order<(Timestamp, Track, i64)>,
    memory: Order<MemoryEvent>,
    holdings: Holdings,
    /// Device counters that have a track.
    sampled: FxHashSet<Track>,
}

impl<'a, W: Write> Events<'a, W> {
    pub fn new(output: W, prescan: &'a Prescan, session: &'a ProcessInfo, place: TrackOrigin<'a>) -> Self {
        Self {
            packets: Packets::new(output, place),
            place,
            prescan,
            session,
            kernels: ReadableNames::new(demangled),
            calls: ReadableNames::new(|name| without_suffix(name).to_owned()),
            captured: CapturedPlaces::default(),
            stream_tracks: FxHashMap::default(),
            ranges: FxHashSet::default(),
            arrows_from: Correlations::default(),
            arrows_to: Correlations::default(),
            counters: FxHashMap::default(),
            order: Order::default(),
            memory: Order::default(),
            holdings: Holdings::default(),
            sampled: FxHashSet::default(),
        }
    }

    /// Describes the tracks that are known in advance, and writes the bottleneck.
    pub fn tracks(&mut self, dictionary: &Dictionary, bottleneck: &str) -> io::Result<()> {
        let TrackOrigin { process: pid, name: front, .. } = self.place;
        let process = track(kind::PROCESS, 0, pid);
        self.packets.track(process, None, |message| {
            let mut inner = Message::default();
            inner.number(field::PID, pid.into());
            inner.text(field::PROCESS_NAME, &format!("{front}{}", process_names::program(self.session)));
            message.message(field::track::PROCESS, &inner);
        })?;
        for thread in &self.prescan.threads {
            self.packets.track(track(kind::THREAD, 0, thread.0), Some(process), |message| {
                let mut inner = Message::default();
                inner.number(field::PID, pid.into()).number(field::THREAD_TID, thread.0.into());
                inner.text(field::THREAD_NAME, &process_names::thread(*thread, dictionary));
                message.message(field::track::THREAD, &inner);
            })?;
        }
        self.child(process, track(kind::OVERHEAD, 0, 0), "overhead of tracing")?;
        self.counter(process, track(kind::WAITING, 0, 0), "launches whose work has not begun", "launches")?;
        for device in self.prescan.streams.keys() {
            let name = dictionary.device(*device).map_or("", |device| device.name.as_str());
            let parent = track(kind::DEVICE, 0, device.0);
            self.packets.track(parent, None, |message| {
                message.text(field::track::NAME, &format!("{front}GPU {device} {name}"));
            })?;
            self.counter(parent, track(kind::COPIED, 0, device.0), "copies", "MB/s")?;
        }
        for &(device, memory) in &self.prescan.memory {
            let parent = track(kind::DEVICE, 0, device.0);
            let name = format!("{} memory held", memory.name());
            self.counter(parent, track(kind::MEMORY, memory as u32, device.0), &name, "bytes")?;
        }
        let line = track(kind::BOTTLENECK, 0, 0);
        self.packets.track(line, None, |message| {
            message.text(field::track::NAME, &format!("{front}gpuwhy: bottleneck"));
        })?;
        self.packets.slice(line, (self.prescan.base, self.prescan.end), ("gpuwhy", bottleneck), Arrow::None, &[])
    }

    /// Writes a record. Returns false if it has no track.
    pub fn record(&mut self, record: &Record, dictionary: &Dictionary) -> io::Result<bool> {
        match record {
            Record::Kernel(row) => {
                let config = dictionary.launch_config(row.config);
                let name = self.kernels.get(config.name, dictionary).to_owned();
                let extent = |[x, y, z]: [u32; 3]| format!("{x} x {y} x {z}");
                let (grid, block) = (extent(config.grid), extent(config.block));
                let reported = self.prescan.collectives.notes(row);
                let mut notes = vec![
                    Note::Number("correlation", row.correlation.0.into()),
                    Note::Text("grid", &grid),
                    Note::Text("block", &block),
                    Note::Number("registers per thread", config.registers_per_thread.into()),
                    Note::Number("static shared bytes", config.static_shared_bytes.into()),
                    Note::Number("dynamic shared bytes", config.dynamic_shared_bytes.into()),
                    Note::Number("graph", row.graph_id.into()),
                ];
                notes.extend(reported.iter().map(|(name, note)| match note {
                    collectives::Note::Text(text) => Note::Text(name, text.as_str()),
                    collectives::Note::Number(number) => Note::Number(name, *number),
                }));
                self.operation(&row.into(), ("kernel", &name), notes, dictionary)?;
            }
            Record::Copy(row) => {
                self.transfer(&row.into(), ("copy", &kineto_names::copy(row)), dictionary)?;
                let rate = (row.bytes as f64 / row.end.since(row.start).max(1) as f64 * 1e3) as i64;
                let copied = track(kind::COPIED, 0, row.device.0);
                self.change(row.start, copied, rate)?;
                self.change(row.end, copied, -rate)?;
            }
            Record::Memset(row) => self.transfer(&row.into(), ("memset", &kineto_names::memset(row)), dictionary)?,
            Record::Api(row) => {
                let function = dictionary.api_function(row.function);
                let name = function.map_or("?", |function| self.calls.get(function.name, dictionary)).to_owned();
                let category = match function.map(|function| function.domain) {
                    Some(ApiDomain::Driver) => "cuda_driver",
                    _ => "cuda_runtime",
                };
                let launches = self.prescan.with_work.contains(row.correlation);
                let arrow = if launches && self.arrows_from.insert(row.correlation) {
                    self.change(row.start, track(kind::WAITING, 0, 0), 1)?;
                    Arrow::From(self.arrow(row.correlation))
                } else {
                    Arrow::None
                };
                let notes = [
                    Note::Number("correlation", row.correlation.0.into()),
                    Note::Number("result", row.return_value.into()),
                ];
                let place = track(kind::THREAD, 0, row.thread.0);
                self.packets.slice(place, (row.start, row.end), (category, &name), arrow, &notes)?;
            }
            Record::Overhead(row) => {
                let name = row.kind.name();
                let place = track(kind::OVERHEAD, row.kind as u32 + 1, row.thread.0);
                if self.ranges.insert((row.thread, NameId(u32::MAX - 1 - row.kind as u32))) {
                    self.child(track(kind::OVERHEAD, 0, 0), place, &format!("{name}, thread {}", row.thread))?;
                }
                self.packets.slice(place, (row.start, row.end), ("overhead", name), Arrow::None, &[])?;
            }
            Record::Range(row) => return self.range(row, dictionary),
            Record::Memory(row) => {
                if let Some(event) = self.memory.push(row.at, *row) {
                    self.held(&event)?;
                }
            }
            Record::Sync(_) | Record::Event(_) | Record::Sample(_) | Record::Managed(_) => return Ok(false),
        }
        Ok(true)
    }

    /// Writes a counter value of a device.
    pub fn sampled(&mut self, value: &CounterValue) -> io::Result<()> {
        let CounterValue { device, counter, begin, value, .. } = *value;
        let place = track(kind::SAMPLED, counter.number(), device.0);
        if self.sampled.insert(place) {
            self.counter(track(kind::DEVICE, 0, device.0), place, counter.name(), counter.unit())?;
        }
        self.packets.real_counter(place, begin, value)
    }

    /// Writes the remaining values. Returns the number of late ones.
    pub fn finish(mut self) -> io::Result<u64> {
        while let Some(change) = self.order.pop() {
            self.count(change)?;
        }
        while let Some(event) = self.memory.pop() {
            self.held(&event)?;
        }
        Ok(self.order.late() + self.memory.late())
    }

    fn transfer(&mut self, operation: &DeviceWork, name: (&str, &str), dictionary: &Dictionary) -> io::Result<()> {
        let correlation = Note::Number("correlation", operation.correlation.0.into());
        self.operation(operation, name, vec![correlation, Note::Number("bytes", operation.bytes)], dictionary)
    }

    fn operation(
        &mut self,
        operation: &DeviceWork,
        name: (&str, &str),
        notes: Vec<Note<'_>>,
        dictionary: &Dictionary,
    ) -> io::Result<()> {
        let &DeviceWork { device, stream, correlation, start, end, .. } = operation;
        let (number, is_new) = self.stream_tracks.entry((device, stream)).or_default().take(start, end);
        // Eight bits for the device leave sixteen for the number.
        let place = track(kind::STREAM, (device.0 & 0xff) << 16 | (number as u32 & 0xffff), stream.0);
        if is_new {
            self.child(track(kind::DEVICE, 0, device.0), place, &format!("stream {stream}"))?;
        }
        let is_first = self.prescan.with_call.contains(correlation) && self.arrows_to.insert(correlation);
        let arrow = if is_first { Arrow::To(self.arrow(correlation)) } else { Arrow::None };
        let (node, mut notes) = (operation.graph_node_id, notes);
        if node != 0 {
            notes.push(Note::Number("graph node", node));
        }
        let captured = self.captured.get(node, dictionary);
        notes.extend(captured.into_iter().flat_map(Captured::texts).map(|(name, text)| Note::Text(name, text)));
        self.packets.slice(place, (start, end), name, arrow, &notes)?;
        if is_first {
            self.change(start, track(kind::WAITING, 0, 0), -1)?;
        }
        Ok(())
    }

    /// Arrow numbers are unique across all processes that a viewer may show together.
    fn arrow(&self, correlation: CorrelationId) -> u64 {
        u64::from(self.place.process) << 32 | u64::from(correlation.0)
    }

    fn range(&mut self, row: &RangeEvent, dictionary: &Dictionary) -> io::Result<bool> {
        let (text, domain) = (dictionary.name(row.message), dictionary.name(row.domain));
        let thread = track(kind::THREAD, 0, row.thread.0);
        // Started ranges may overlap, so each has a separate track; those with the same name share a line.
        let (place, name) = match row.kind {
            RangeEventKind::Start | RangeEventKind::End => {
                (Track(kind::STARTED << 56 | row.range_id & 0xff_ffff_ffff_ffff), text)
            }
            _ => (track(kind::RANGES, row.domain.0, row.thread.0), if domain.is_empty() { "ranges" } else { domain }),
        };
        let is_new = match row.kind {
            RangeEventKind::Start => true,
            RangeEventKind::Push | RangeEventKind::Mark => self.ranges.insert((row.thread, row.domain)),
            _ => false,
        };
        if is_new {
            self.child(thread, place, name)?;
        }
        match row.kind {
            RangeEventKind::Push | RangeEventKind::Start => {
                self.packets.begin(place, row.at, ("nvtx", text), Arrow::None, &[])?;
            }
            RangeEventKind::Pop | RangeEventKind::End => self.packets.end(place, row.at)?,
            RangeEventKind::Mark => self.packets.instant(place, row.at, ("nvtx", text))?,
            RangeEventKind::Unknown => return Ok(false),
        }
        Ok(true)
    }

    pub(super) fn child(&mut self, parent: Track, track: Track, name: &str) -> io::Result<()> {
        self.packets.track(track, Some(parent), |message| {
            message.text(field::track::NAME, name);
        })
    }

    pub(super) fn counter(&mut self, parent: Track, track: Track, name: &str, unit: &str) -> io::Result<()> {
        self.packets.track(track, Some(parent), |message| {
            let mut inner = Message::default();
            inner.text(field::COUNTER_UNIT_NAME, unit);
            message.text(field::track::NAME, name).message(field::track::COUNTER, &inner);
        })
    }

    /// Writes the memory in use after an event as a counter value.
    fn held(&mut self, event: &MemoryEvent) -> io::Result<()> {
        match self.holdings.take(event) {
            Some(((device, memory), holding)) => {
                let place = track(kind::MEMORY, memory as u32, device.0);
                self.packets.counter(place, event.at, i64::try_from(holding.current).unwrap_or(i64::MAX))
            }
            None => Ok(()),
        }
    }

    /// Changes a counter at a time; values are written in time order.
    fn change(&mut self, at: Timestamp, track: Track, change: i64) -> io::Result<()> {
        self.order.push(at, (at, track, change)).map_or(Ok(()), |change| self.count(change))
    }

    fn count(&mut self, (at, track, change): (Timestamp, Track, i64)) -> io::Result<()> {
        let value = self.counters.entry(track).or_default();
        *value += change;
        let value = *value;
        self.packets.counter(track, at, value)
    }
}
