//! Lane of a device: every nanosecond with its cause, and the operation that ended each gap.
//!
//! A late operation may change the newest segments, so these wait until they are final. Sums are corrected
//! immediately. Changes that come too late for the segments are counted.

use std::collections::VecDeque;
use std::io;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{StackId, Timestamp};
use profiler_core::attribution::Subject;
use profiler_core::attribution::segments::{GapEnd, Segment, TimeSegment};
use profiler_core::leaf::{LEAF_COUNT, Leaf};

use crate::block::Blocks;
use crate::lane::{KeptEvents, Lane, LaneEvent};
use crate::lost::Lost;
use crate::names::PageNames;
use crate::sums::{IntervalSums, Intervals};

/// Maximum number of waiting segments. The engine changes only the newest 4,096 idle ones; busy ones may be
/// between them, and one segment of the engine may be several here.
const WAITING: usize = 1 << 16;
/// Minimum number of idle segments among those that wait.
const WAITING_IDLE: usize = 2 * 4_096;

#[derive(Debug)]
pub(crate) struct DeviceLane {
    pub(crate) segments: Lane,
    sums: IntervalSums,
    waiting: VecDeque<Waiting>,
    /// Information about the newest gap that ended; segments without a gap end repeat it, which takes no
    /// bytes.
    ended: [u64; 4],
    waiting_idle: usize,
    /// Number of gaps with an unknown end.
    unresolved: u64,
    /// Time that was corrected too late for the page's segments, nanoseconds.
    pub(crate) uncorrected_ns: u64,
}

/// A segment, and the information about the gap that ends with it.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    time: TimeSegment,
    ends: Option<[u64; 4]>,
}

/// Added to the number of a leaf where a gap ends.
const GAP_END: u64 = 32;

/// State shared by all lanes for writing.
pub(crate) struct Context<'a, 'b> {
    pub(crate) origin: u64,
    pub(crate) kept: &'a KeptEvents,
    pub(crate) blocks: &'a mut Blocks<'b>,
    pub(crate) names: &'a mut PageNames,
    pub(crate) dictionary: &'a Dictionary,
}

impl DeviceLane {
    pub(crate) fn new(device: u32, label: String, intervals: Intervals) -> Self {
        let columns = &["leaf", "subject", "stack", "operation", "stream", "thread", "correlation"];
        Self {
            segments: Lane::new("device", Some(device), device.into(), columns).named(label),
            sums: IntervalSums::new(intervals, LEAF_COUNT),
            waiting: VecDeque::new(),
            waiting_idle: 0,
            ended: [0; 4],
            unresolved: 0,
            uncorrected_ns: 0,
        }
    }

    /// Processes a segment logged by the engine.
    pub(crate) fn take(&mut self, segment: Segment, with: &mut Context<'_, '_>) -> io::Result<()> {
        let since = |at: Timestamp| at.nanos().saturating_sub(with.origin);
        match segment {
            Segment::Time(time) => {
                self.sums.add(time.leaf as usize, since(time.from), since(time.to));
                self.wait(time);
                while self.waiting_idle > WAITING_IDLE || self.waiting.len() > WAITING {
                    self.release(with)?;
                }
            }
            Segment::Gap(gap) => self.gap(&gap, with),
            Segment::Moved { was, leaf, from, to } => {
                self.sums.take(was as usize, since(from), since(to));
                self.sums.add(leaf as usize, since(from), since(to));
                self.correct(leaf, from, to);
            }
        }
        Ok(())
    }

    fn wait(&mut self, time: TimeSegment) {
        if let Some(Waiting { time: newest, ends: None }) = self.waiting.back_mut()
            && (newest.leaf, newest.subject, newest.stack, newest.to)
                == (time.leaf, time.subject, time.stack, time.from)
        {
            newest.to = time.to;
            return;
        }
        self.waiting_idle += usize::from(!time.leaf.is_busy());
        self.waiting.push_back(Waiting { time, ends: None });
    }

    /// Corrects for a late operation that takes the time from `from` to `to`, which is within one idle
    /// segment or several adjacent ones.
    fn correct(&mut self, leaf: Leaf, from: Timestamp, to: Timestamp) {
        let first = self.waiting.partition_point(|segment| segment.time.to <= from);
        let last = self.waiting.partition_point(|segment| segment.time.from < to);
        let mut found = 0;
        let old: Vec<Waiting> = self.waiting.drain(first..last.max(first)).collect();
        let mut new = Vec::new();
        for Waiting { time: segment, ends } in old {
            self.waiting_idle -= usize::from(!segment.leaf.is_busy());
            let (begin, end) = (segment.from.max(from), segment.to.min(to));
            found += end.since(begin);
            // The rest before the operation is a gap that it ends, without further information.
            self.unresolved += u64::from(segment.from < begin && !segment.leaf.is_busy());
            new.push((TimeSegment { to: begin, ..segment }, None));
            new.push((TimeSegment { leaf, from: begin, to: end, subject: Subject::None, stack: StackId::NONE }, None));
            new.push((TimeSegment { from: end, ..segment }, ends));
        }
        self.uncorrected_ns += to.since(from).saturating_sub(found);
        for (index, (time, ends)) in new.into_iter().filter(|(time, _)| time.from < time.to).enumerate() {
            self.waiting_idle += usize::from(!time.leaf.is_busy());
            self.waiting.insert(first + index, Waiting { time, ends });
        }
    }

    fn release(&mut self, with: &mut Context<'_, '_>) -> io::Result<()> {
        let Some(Waiting { time: segment, ends }) = self.waiting.pop_front() else { return Ok(()) };
        self.waiting_idle -= usize::from(!segment.leaf.is_busy());
        let begin = segment.from.nanos().saturating_sub(with.origin);
        let subject = with.names.subject(segment.subject, with.dictionary);
        let stack = with.names.stack(segment.stack, with.dictionary);
        self.ended = ends.unwrap_or(self.ended);
        let [operation, stream, thread, correlation] = self.ended;
        let leaf = segment.leaf as u64 + if ends.is_some() { GAP_END } else { 0 };
        let event = LaneEvent { begin, duration: segment.to.since(segment.from), ..LaneEvent::default() };
        let event = event.with([leaf, subject.into(), stack.into(), operation, stream, thread, correlation]);
        self.segments.continues = ends.is_none() && !segment.leaf.is_busy();
        self.segments.push(event, with.kept, with.blocks)
    }

    pub(crate) fn lost(&self) -> Lost {
        Lost { gap_ends: self.unresolved, gaps_split: self.segments.split, ..Lost::default() }
    }

    /// Marks the newest segments as a gap with this end.
    fn gap(&mut self, gap: &GapEnd, with: &mut Context<'_, '_>) {
        let operation = with.names.subject(gap.subject, with.dictionary);
        let thread = gap.launch.map_or(0, |launch| u64::from(launch.thread.0) + 1);
        if let Some(newest) = self.waiting.back_mut().filter(|newest| newest.time.to == gap.to) {
            newest.ends = Some([operation.into(), gap.stream.0.into(), thread, gap.correlation.0.into()]);
        } else {
            self.unresolved += 1;
        }
    }

    /// Writes everything, with the sums; no further segments follow.
    pub(crate) fn finish(&mut self, with: &mut Context<'_, '_>) -> io::Result<()> {
        while !self.waiting.is_empty() {
            self.release(with)?;
        }
        self.segments.flush(with.kept, with.blocks)?;
        self.segments.sums = Some(with.blocks.numbered(self.sums.packed())?);
        Ok(())
    }
}
