//! Events of one timeline row, packed in chunks that can be read independently.
//!
//! A chunk holds its events by column, in order of their start: times relative to the previous event, other
//! values as differences. Chunks of a lane may overlap, since records are not strictly ordered; each has its
//! time span.

use std::collections::BTreeSet;
use std::io;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::ThreadId;
use serde::Serialize;

use crate::block::{BlockId, Blocks, planes, zigzag};
use crate::escape::shown;

/// Maximum number of events of a chunk: a browser decodes it within a frame or two.
pub(crate) const CHUNK: usize = 16_384;
/// Maximum number of values of an event in addition to its times.
const VALUES: usize = 7;

/// An event with a duration.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaneEvent {
    /// Nanoseconds after the origin of the page.
    pub(crate) begin: u64,
    pub(crate) duration: u64,
    /// One value per column of the lane.
    pub(crate) values: [u64; VALUES],
}

impl LaneEvent {
    /// Returns the same time with these values.
    pub(crate) fn with<const N: usize>(mut self, values: [u64; N]) -> Self {
        self.values[..N].copy_from_slice(&values);
        self
    }
}

/// Location and time span of a chunk.
#[derive(Debug, Serialize)]
pub(crate) struct Chunk {
    block: BlockId,
    count: usize,
    first: u64,
    last: u64,
}

/// One row of the timeline.
#[derive(Debug, Serialize, Default)]
pub(crate) struct Lane {
    kind: &'static str,
    device: Option<u32>,
    id: u64,
    label: String,
    /// Names of the values.
    columns: &'static [&'static str],
    chunks: Vec<Chunk>,
    pub(crate) sums: Option<BlockId>,
    /// Number of events, including those that are not in the page.
    pub(crate) events: u64,
    /// Number of events in the page.
    pub(crate) embedded: u64,
    /// Number of events that had no room.
    pub(crate) refused: u64,
    /// Number of events that are nodes of CUDA graphs, if such nodes have origins.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) nodes: u64,
    /// Depth of nested ranges.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) levels: u64,
    /// True if the newest event continues with the next one, which belongs into the same chunk.
    #[serde(skip)]
    pub(crate) continues: bool,
    /// Number of times that it did not fit there.
    #[serde(skip)]
    pub(crate) split: u64,
    #[serde(skip)]
    pending: Vec<LaneEvent>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Selection of the events in a page.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptEvents {
    /// Only events that overlap one of these, nanoseconds after the origin: disjoint, in order. `None`
    /// selects all.
    pub(crate) windows: Option<Vec<(u64, u64)>>,
    /// Maximum bytes of text of all blocks.
    pub(crate) most_bytes: u64,
}

impl KeptEvents {
    fn holds(&self, event: &LaneEvent) -> bool {
        let Some(windows) = &self.windows else { return true };
        let (begin, end) = (event.begin, event.begin + event.duration);
        let index = windows.partition_point(|&(_, to)| to <= begin);
        windows.get(index).is_some_and(|&(from, to)| from < end.max(begin + 1) && begin < to)
    }
}

impl Lane {
    pub(crate) fn new(kind: &'static str, device: Option<u32>, id: u64, columns: &'static [&'static str]) -> Self {
        Self { kind, device, id, columns, ..Self::default() }
    }

    pub(crate) fn named(mut self, label: String) -> Self {
        self.label = label;
        self
    }

    /// Names a row of a thread after it. A trace may have the name only after the first events.
    pub(crate) fn name_thread(&mut self, dictionary: &Dictionary) {
        let is_thread = matches!(self.kind, "thread" | "samples") || self.kind == "ranges" && self.id != 0;
        let Some(id) = u32::try_from(self.id).ok().filter(|_| is_thread) else { return };
        let name = dictionary.thread_name(ThreadId(id)).map(|name| format!("{} ({id})", shown(name)));
        self.label = name.unwrap_or_else(|| format!("thread {id}"));
    }

    /// Adds an event; a full chunk is written to `blocks`.
    pub(crate) fn push(&mut self, event: LaneEvent, kept: &KeptEvents, blocks: &mut Blocks<'_>) -> io::Result<()> {
        self.events += 1;
        if kept.holds(&event) {
            self.pending.push(event);
            if self.pending.len() >= if self.continues { 2 * CHUNK } else { CHUNK } {
                self.split += u64::from(self.continues);
                self.flush(kept, blocks)?;
            }
        }
        Ok(())
    }

    /// Writes the remaining events.
    pub(crate) fn flush(&mut self, kept: &KeptEvents, blocks: &mut Blocks<'_>) -> io::Result<()> {
        let mut events = std::mem::take(&mut self.pending);
        let (Some(first), Some(last)) = (
            events.iter().map(|event| event.begin).min(),
            events.iter().map(|event| event.begin + event.duration).max(),
        ) else {
            return Ok(());
        };
        let (count, columns) = (events.len(), self.columns.len());
        let block = blocks.within(
            kept.most_bytes,
            Box::new(move || {
                events.sort_by_key(|event| event.begin);
                packed(&events, columns)
            }),
        )?;
        self.chunks.push(Chunk { block, count, first, last });
        Ok(())
    }

    /// Removes the refused blocks after everything else is written, and updates the counts.
    pub(crate) fn written(&mut self, refused: &BTreeSet<BlockId>) {
        let count = |chunks: &[Chunk]| chunks.iter().map(|chunk| chunk.count as u64).sum::<u64>();
        let all = count(&self.chunks);
        self.chunks.retain(|chunk| !refused.contains(&chunk.block));
        self.embedded = count(&self.chunks);
        self.refused = all - self.embedded;
    }
}

/// The columns of the events, in order of their start.
fn packed(events: &[LaneEvent], columns: usize) -> Vec<Vec<u8>> {
    let mut parts = Vec::new();
    // Relative to the end of the previous event: events of a row are mostly adjacent, or have equal pauses.
    let mut position = 0_u64;
    let pauses = events.iter().map(|event| {
        let pause = event.begin.wrapping_sub(position) as i64;
        position = event.begin + event.duration;
        zigzag(pause)
    });
    planes(pauses, &mut parts);
    planes(events.iter().map(|event| event.duration), &mut parts);
    for column in 0..columns {
        // Most values are near or equal to the previous one.
        let mut before = 0_i64;
        let changes = events.iter().map(|event| {
            let value = event.values[column] as i64;
            let change = value.wrapping_sub(before);
            before = value;
            zigzag(change)
        });
        planes(changes, &mut parts);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_keeps_what_overlaps_it() {
        let kept = KeptEvents { windows: Some(vec![(10, 20), (40, 50)]), most_bytes: 0 };
        let holds = |begin, duration| kept.holds(&LaneEvent { begin, duration, ..LaneEvent::default() });
        assert!(holds(0, 11) && holds(19, 1) && holds(15, 0) && holds(20, 21) && holds(49, 100));
        assert!(!holds(0, 10) && !holds(20, 20) && !holds(20, 0) && !holds(50, 1));
    }

    #[test]
    fn what_does_not_fit_is_counted_and_not_written() {
        let mut out = Vec::new();
        let mut blocks = Blocks::new(&mut out);
        let mut lane = Lane::new("stream", Some(0), 7, &["name"]);
        let kept = KeptEvents { windows: None, most_bytes: 80 };
        for begin in [30, 10, 20] {
            lane.push(LaneEvent { begin, duration: 5, values: [1; VALUES] }, &kept, &mut blocks).unwrap();
        }
        lane.flush(&kept, &mut blocks).unwrap();
        lane.written(blocks.finish().unwrap());
        assert_eq!((lane.events, lane.embedded, lane.chunks.len()), (3, 3, 1));
        assert_eq!((lane.chunks[0].first, lane.chunks[0].last), (10, 35));
        for begin in 0..1000 {
            let values = [begin * 7919 % 1013; VALUES];
            lane.push(LaneEvent { begin, duration: begin % 91, values }, &kept, &mut blocks).unwrap();
        }
        lane.flush(&kept, &mut blocks).unwrap();
        lane.written(blocks.finish().unwrap());
        assert_eq!((lane.events, lane.embedded, lane.refused, lane.chunks.len()), (1003, 3, 1000, 1));
    }

    #[test]
    fn a_gap_stays_in_one_chunk_while_it_fits() {
        let mut out = Vec::new();
        let mut blocks = Blocks::new(&mut out);
        let mut lane = Lane::new("device", Some(0), 0, &["leaf"]);
        let kept = KeptEvents { windows: None, most_bytes: u64::MAX };
        for begin in 0..CHUNK as u64 + 9 {
            lane.continues = (CHUNK as u64 - 9..CHUNK as u64 + 5).contains(&begin);
            lane.push(LaneEvent { begin, duration: 1, ..LaneEvent::default() }, &kept, &mut blocks).unwrap();
        }
        let counts = |lane: &Lane| lane.chunks.iter().map(|chunk| chunk.count).collect::<Vec<_>>();
        assert_eq!((counts(&lane), lane.split), (vec![CHUNK + 6], 0));
        lane.continues = true;
        for begin in 0..2 * CHUNK as u64 {
            lane.push(LaneEvent { begin, duration: 1, ..LaneEvent::default() }, &kept, &mut blocks).unwrap();
        }
        assert_eq!((counts(&lane), lane.split), (vec![CHUNK + 6, 2 * CHUNK], 1));
    }
}
