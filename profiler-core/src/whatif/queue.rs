//! Puts what is told in any order into the order of time, up to the watermark.
//!
//! The recurrence only looks back, and everything it looks back at lies earlier in real time: a launch before its
//! operation, the end of an operation before the return of the call that waited for it. So one queue by time is all
//! the graph there is. It is bounded: when more waits than [`PENDING_LIMIT`], the oldest goes on without waiting.

use super::input::{Call, Operation};
use crate::record::{DeviceId, ThreadId};

/// Events that may wait for the watermark (80 bytes each): several seconds of the densest programs measured.
const PENDING_LIMIT: usize = 500_000;

/// Something that happens at one instant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A step of this device begins.
    Boundary(DeviceId),
    /// The outermost call of this thread returns.
    Return(ThreadId),
    /// A call is entered.
    Enter(Call),
    /// An operation begins.
    Operation(Operation),
}

impl Event {
    /// At one instant: what ends comes before what begins, and a boundary before the operation that made it one.
    const fn rank(&self) -> u8 {
        match self {
            Self::Boundary(_) => 0,
            Self::Return(_) => 1,
            Self::Enter(_) => 2,
            Self::Operation(_) => 3,
        }
    }

    /// Decides between equals by content, so that the order of delivery does not.
    const fn content(&self) -> (u32, u32, u64) {
        match self {
            Self::Boundary(device) => (device.0, 0, 0),
            Self::Return(thread) => (thread.0, 0, 0),
            // Of two calls entered at once, the longer one is the outer one.
            Self::Enter(call) => (call.thread.0, 0, u64::MAX - call.end),
            Self::Operation(operation) => (operation.device.0, operation.stream.0, operation.end),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u64,
    event: Event,
}

impl Entry {
    /// Decides between entries at one instant.
    const fn rank(&self) -> (u8, (u32, u32, u64)) {
        (self.event.rank(), self.event.content())
    }
}

/// Events that wait for the watermark.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    /// In the order of delivery, which decides between equals.
    waiting: Vec<Entry>,
    /// Time and place in `waiting` of those that are due, in order.
    due: Vec<(u64, usize)>,
}

impl Queue {
    pub(super) fn push(&mut self, at: u64, event: Event) {
        self.waiting.push(Entry { at, event });
    }

    /// Makes everything before `watermark` due, and the oldest of the rest when too much waits.
    pub(super) fn advance(&mut self, watermark: u64) {
        let Self { waiting, due } = self;
        let excess = waiting.len().saturating_sub(PENDING_LIMIT);
        let before = waiting.iter().filter(|entry| entry.at < watermark).count();
        let times = waiting.iter().enumerate().map(|(index, entry)| (entry.at, index));
        due.extend(times.filter(|&(at, _)| at < watermark || before < excess));
        // Threads and streams deliver runs, which a stable sort merges; a heap would look at each event many times.
        due.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| waiting[a.1].rank().cmp(&waiting[b.1].rank())));
        due.truncate(before.max(excess));
    }

    /// What is due, in order.
    pub(super) fn due(&self) -> impl Iterator<Item = (u64, &Event)> {
        self.due.iter().map(|&(at, index)| (at, &self.waiting[index].event))
    }

    /// Forgets what is due.
    pub(super) fn forget_due(&mut self) {
        let Some(&(_, last)) = self.due.last() else { return };
        let last = (self.waiting[last], last);
        let mut index = 0;
        self.waiting.retain(|entry| {
            let place = index;
            index += 1;
            let order = entry.at.cmp(&last.0.at).then_with(|| (entry.rank(), place).cmp(&(last.0.rank(), last.1)));
            order.is_gt()
        });
        self.due.clear();
    }
}
