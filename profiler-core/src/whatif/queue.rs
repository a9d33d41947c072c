//! Puts what is told in any order into the order of time, up to the watermark.
//!
//! The recurrence only looks back, and everything it looks back at lies earlier in real time: a launch before its
//! operation, the end of an operation before the return of the call that waited for it. So one queue by time is all
//! the graph there is. It is bounded: when more waits than [`PENDING_LIMIT`], the oldest goes on without waiting.
//!
//! What is sorted is small: a time and a place. Calls and operations stay where they were put, in slabs.

use std::cmp::Ordering;

use super::input::{Call, Operation};
use crate::record::{DeviceId, ThreadId};
use crate::slab::Slab;
use crate::steps::StepSeries;

/// Events that may wait for the watermark (at most 80 bytes each): several seconds of the densest programs measured.
const PENDING_LIMIT: usize = 500_000;

/// Something that happens at one instant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event<'a> {
    /// A step of this device begins.
    Boundary(DeviceId, StepSeries),
    /// The step that this device is in is none.
    Break(DeviceId),
    /// The outermost call of this thread returns.
    Return(ThreadId),
    /// A call is entered.
    Enter(&'a Call),
    /// An operation begins.
    Operation(&'a Operation),
}

/// At one instant, what ends comes before what begins, and a boundary before the operation that made it one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
enum Rank {
    Boundary,
    Break,
    Return,
    Enter,
    Operation,
}

/// An event that waits.
#[derive(Clone, Copy, Debug)]
struct Key {
    at: u64,
    rank: Rank,
    /// Device, thread, or place in the slab.
    what: u32,
}

/// Events that wait for the watermark.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    /// In order, then in the order of delivery, which decides between equals.
    keys: Vec<Key>,
    boundaries: Slab<(DeviceId, StepSeries)>,
    calls: Slab<Call>,
    operations: Slab<Operation>,
    /// How many of the first keys are due.
    due: usize,
}

impl Queue {
    /// A call is entered and returns.
    pub(super) fn push_call(&mut self, call: Call) {
        let what = self.calls.insert(call);
        self.keys.push(Key { at: call.start, rank: Rank::Enter, what });
        self.keys.push(Key { at: call.end, rank: Rank::Return, what: call.thread.0 });
    }

    /// An operation counts as beginning at `at`.
    pub(super) fn push_operation(&mut self, at: u64, operation: Operation) {
        let what = self.operations.insert(operation);
        self.keys.push(Key { at, rank: Rank::Operation, what });
    }

    /// A step begins.
    pub(super) fn push_boundary(&mut self, at: u64, device: DeviceId, series: StepSeries) {
        let what = self.boundaries.insert((device, series));
        self.keys.push(Key { at, rank: Rank::Boundary, what });
    }

    /// A step breaks off.
    pub(super) fn push_break(&mut self, at: u64, device: DeviceId) {
        self.keys.push(Key { at, rank: Rank::Break, what: device.0 });
    }

    /// Makes everything before `watermark` due, and the oldest of the rest when too much waits.
    pub(super) fn advance(&mut self, watermark: u64) {
        let Self { keys, boundaries, calls, operations, due } = self;
        // Threads and timelines deliver runs, which a stable sort merges; a heap would look at each event many times.
        keys.sort_by(|a, b| match a.at.cmp(&b.at) {
            Ordering::Equal => {
                let content = |key| content(key, boundaries, calls, operations);
                a.rank.cmp(&b.rank).then_with(|| content(a).cmp(&content(b)))
            }
            order => order,
        });
        let excess = keys.len().saturating_sub(PENDING_LIMIT);
        *due = keys.partition_point(|key| key.at < watermark).max(excess);
    }

    /// What is due, in order.
    pub(super) fn due(&self) -> impl Iterator<Item = (u64, Event<'_>)> {
        self.keys[..self.due].iter().map(|key| {
            let event = match key.rank {
                Rank::Boundary => {
                    let (device, series) = self.boundaries[key.what];
                    Event::Boundary(device, series)
                }
                Rank::Break => Event::Break(DeviceId(key.what)),
                Rank::Return => Event::Return(ThreadId(key.what)),
                Rank::Enter => Event::Enter(&self.calls[key.what]),
                Rank::Operation => Event::Operation(&self.operations[key.what]),
            };
            (key.at, event)
        })
    }

    /// Forgets what is due.
    pub(super) fn forget_due(&mut self) {
        for key in self.keys.drain(..self.due) {
            match key.rank {
                Rank::Break | Rank::Return => {}
                Rank::Boundary => self.boundaries.remove(key.what),
                Rank::Enter => self.calls.remove(key.what),
                Rank::Operation => self.operations.remove(key.what),
            }
        }
        self.due = 0;
    }
}

/// Decides between events of one rank at one instant by what they are, so that the order of delivery does not.
fn content(
    key: &Key,
    boundaries: &Slab<(DeviceId, StepSeries)>,
    calls: &Slab<Call>,
    operations: &Slab<Operation>,
) -> (u32, u32, u64) {
    match key.rank {
        Rank::Break | Rank::Return => (key.what, 0, 0),
        Rank::Boundary => {
            let (device, series) = boundaries[key.what];
            (device.0, series.source as u32, series.period.into())
        }
        Rank::Enter => {
            // Of two calls entered at once, the longer one is the outer one.
            let call = &calls[key.what];
            (call.thread.0, 0, u64::MAX - call.end)
        }
        Rank::Operation => {
            let operation = &operations[key.what];
            (operation.device.0, operation.stream.0, operation.end)
        }
    }
}
