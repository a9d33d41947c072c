//! The writing side of one thread: its events go into its ring, or are dropped so that ranges remain
//! complete.
//!
//! If there is no room, starts are dropped, never ends: an end that does not fit waits here, and is written
//! with its original time as soon as there is room.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use gpuwhy_trace::record::RangeEventKind;
use nvtx_sys::{Attributes, Message, Text};

use crate::rings::lanes::{self, ThreadRing};
use crate::rings::nccl::{NcclEvent, ReadEvent};
use crate::rings::packed::Packed;
use crate::rings::ring::Fill;
use crate::rings::stacks::RangeStacks;
use crate::runtime::Profiler;
use crate::sys::clock::wall_clock;
use crate::sys::threads;

/// Maximum number of ends that wait in one thread. Those of pushed ranges are bounded by the recorded pushes;
/// this bounds the others.
const MAX_OWED: usize = 1 << 16;

/// Number of dropped events. `Relaxed`: a statistic.
static DROPPED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static WRITER: RefCell<Option<Writer>> = const { RefCell::new(None) };
}

/// State of a thread.
#[derive(Debug)]
pub struct Writer {
    stacks: RangeStacks,
    outlet: Outlet,
}

/// Connection to the ring.
#[derive(Debug)]
struct Outlet {
    generation: u32,
    thread: u32,
    lane: Option<&'static ThreadRing>,
    pending: VecDeque<Packed>,
    /// Number of NCCL launches on this thread, including those that did not fit; wraps.
    launches: u16,
}

/// Number of events dropped, on all threads.
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

fn drop_events(count: u64) {
    DROPPED.fetch_add(count, Ordering::Relaxed);
}

/// Runs `work` with this thread's writer. `None` if recording has stopped, if the thread is ending, or if it
/// was interrupted in here by a signal whose handler uses NVTX.
pub fn with<T>(work: impl FnOnce(&mut Writer) -> T) -> Option<T> {
    let generation = lanes::generation()?;
    let answer = with_writer(generation, work);
    if answer.is_none() {
        drop_events(1);
    }
    answer
}

/// As [`with`], for events that are not ranges and are counted elsewhere.
pub fn try_with<T>(work: impl FnOnce(&mut Writer) -> T) -> Option<T> {
    with_writer(lanes::generation()?, work)
}

fn with_writer<T>(generation: u32, work: impl FnOnce(&mut Writer) -> T) -> Option<T> {
    let answer = WRITER.try_with(|writer| {
        let mut writer = writer.try_borrow_mut().ok()?;
        if writer.as_ref().is_none_or(|writer| writer.outlet.generation != generation) {
            *writer = Some(Writer::new(generation));
        }
        writer.as_mut().map(work)
    });
    answer.ok().flatten()
}

impl Writer {
    fn new(generation: u32) -> Self {
        let thread = threads::thread_id();
        let lane = lanes::take(generation, thread);
        Self {
            stacks: RangeStacks::default(),
            outlet: Outlet { generation, thread, lane, pending: VecDeque::new(), launches: 0 },
        }
    }

    /// Records a mark, or the start of a range with this number. `false` if it was dropped.
    pub fn begin(&mut self, kind: RangeEventKind, domain: u32, range: u64, event: &Attributes<'_>) -> bool {
        self.outlet.begin(kind, domain, range, event)
    }

    /// Records the end of a range that was recorded.
    pub fn end(&mut self, domain: u32, range: u64) {
        self.outlet.end(RangeEventKind::End, domain, range);
    }

    /// Records an event of NCCL. `false` if it was dropped.
    pub fn nccl(&mut self, event: NcclEvent) -> bool {
        let outlet = &mut self.outlet;
        if matches!(event, NcclEvent::LaunchBegin(_)) {
            outlet.launches = outlet.launches.wrapping_add(1);
        }
        let Some(lane) = outlet.write_pending() else { return false };
        let fill = ReadEvent { at: wall_clock(), launch: outlet.launches, event }.write(&lane.ring);
        woken(fill)
    }

    /// Records a push. Returns its depth.
    pub fn push(&mut self, domain: u32, event: &Attributes<'_>) -> u32 {
        let Self { stacks, outlet } = self;
        if stacks.is_suppressed(domain) {
            drop_events(1);
        }
        stacks.push(domain, || outlet.begin(RangeEventKind::Push, domain, 0, event))
    }

    /// Records a pop. Returns the depth of its push, if there was one.
    pub fn pop(&mut self, domain: u32) -> Option<u32> {
        let (level, recorded) = self.stacks.pop(domain)?;
        if recorded {
            self.outlet.end(RangeEventKind::Pop, domain, 0);
        } else {
            drop_events(1);
        }
        Some(level)
    }
}

impl Outlet {
    fn begin(&mut self, kind: RangeEventKind, domain: u32, range: u64, event: &Attributes<'_>) -> bool {
        let text = if let Message::Text(text) = event.message { text } else { Text::Narrow(&[]) };
        let written = self.write_pending().is_some_and(|lane| {
            let packed = Packed::new(kind, wall_clock(), domain, range, event);
            write(&packed, lane, text)
        });
        if !written {
            drop_events(1);
        }
        written
    }

    fn end(&mut self, kind: RangeEventKind, domain: u32, range: u64) {
        let packed = Packed { kind, at: wall_clock(), domain, range, ..Packed::default() };
        let written = self.write_pending().is_some_and(|lane| write(&packed, lane, Text::Narrow(&[])));
        if !written && self.pending.len() < MAX_OWED {
            self.pending.push_back(packed);
        } else if !written {
            drop_events(1);
        }
    }

    /// Writes the pending ends. Returns the lane once none is pending.
    fn write_pending(&mut self) -> Option<&'static ThreadRing> {
        let lane = match self.lane {
            Some(lane) => lane,
            None => *self.lane.insert(lanes::take(self.generation, self.thread)?),
        };
        while let Some(packed) = self.pending.front() {
            write(packed, lane, Text::Narrow(&[])).then(|| self.pending.pop_front())?;
        }
        Some(lane)
    }
}

/// Writes an event, and wakes the collector if that is due. True if there was room.
fn write(packed: &Packed, lane: &ThreadRing, text: Text<'_>) -> bool {
    woken(packed.write(&lane.ring, text))
}

/// Wakes the collector if a ring is half full. True if there was room.
fn woken(fill: Fill) -> bool {
    if fill == Fill::Half {
        Profiler::ranges_wait();
    }
    fill.is_written()
}

impl Drop for Outlet {
    fn drop(&mut self) {
        let lane = self.write_pending();
        drop_events(self.pending.len() as u64);
        if let Some(lane) = lane.or(self.lane) {
            lane.ring.leave();
        }
    }
}
