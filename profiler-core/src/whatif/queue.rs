//! Puts what is told in any order into the order of time, up to the watermark.
//!
//! The recurrence only looks back, and everything it looks back at lies earlier in real time: a launch before its
//! operation, the end of an operation before the return of the call that waited for it. So one queue by time is all
//! the graph there is. It is bounded: when more waits than [`PENDING_LIMIT`], the oldest goes on without waiting.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

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
    sequence: u64,
}

impl Entry {
    const fn key(&self) -> (u64, u8, (u32, u32, u64), u64) {
        (self.at, self.event.rank(), self.event.content(), self.sequence)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// Events that wait for the watermark.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Reverse<Entry>>,
    sequence: u64,
}

impl Queue {
    pub(super) fn push(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.heap.push(Reverse(Entry { at, event, sequence: self.sequence }));
    }

    /// The next event before `watermark`, or the oldest one when too many wait.
    pub(super) fn pop_before(&mut self, watermark: u64) -> Option<(u64, Event)> {
        let Reverse(oldest) = self.heap.peek()?;
        if oldest.at >= watermark && self.heap.len() <= PENDING_LIMIT {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }
}
