//! Launching calls: the work they launch, which is reported before they are simulated, and the newest calls
//! for lookup by their operations.
//!
//! An entry is large (one clock per scenario), so the entries are in a ring in the order of their calls and
//! the map by correlation id holds only indices. Bounded: the oldest entry makes room, and an operation that
//! comes later than that is simulated without a known launch.
//!
//! When the chosen scenarios change, an entry is updated on its next lookup: most are never looked up again,
//! and a turn of a set may last only for a step of some microseconds.

use gpuwhy_trace::record::{CorrelationId, ThreadId};
use rustc_hash::FxHashMap;

use super::device::SimulatedLaunch;
use super::input::{Call, Launched};
use super::scenario::SCENARIO_COUNT;
use super::variants::{CHOSEN_COUNT, Clocks};
use crate::collections::correlation_map::Correlated;

/// Number of launching calls remembered (176 bytes each). A stream queues about a thousand launches before
/// the host has to wait.
const LAUNCH_LIMIT: usize = 16_384;

/// The newest launching calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Launches {
    slots: Correlated<u32>,
    ring: Vec<CallEntry>,
    /// Index of the oldest entry once the ring is full.
    oldest: usize,
    /// Named scenario that each chosen one starts as.
    starts: [usize; CHOSEN_COUNT],
    /// Number of changes of the chosen scenarios, modulo 2^32.
    changes: u32,
}

#[derive(Clone, Copy, Debug)]
struct CallEntry {
    correlation: CorrelationId,
    /// Number of such changes that its clocks include.
    changes: u32,
    launch: SimulatedLaunch,
}

impl Launches {
    /// Stores a launching call. An older one with the same id is no longer found.
    pub(super) fn insert(&mut self, correlation: CorrelationId, launch: SimulatedLaunch) {
        let entry = CallEntry { correlation, changes: self.changes, launch };
        let slot = if self.ring.len() < LAUNCH_LIMIT {
            self.ring.push(entry);
            self.ring.len() - 1
        } else {
            let slot = self.oldest;
            let old = self.ring[slot].correlation;
            if self.slots.get(old.0) == Some(&(slot as u32)) {
                self.slots.remove(old.0);
            }
            self.ring[slot] = entry;
            self.oldest = (slot + 1) % LAUNCH_LIMIT;
            slot
        };
        self.slots.insert(correlation.0, slot as u32);
    }

    pub(super) fn get(&mut self, correlation: CorrelationId) -> Option<&SimulatedLaunch> {
        let slot = *self.slots.get(correlation.0)? as usize;
        let CallEntry { changes, launch, .. } = self.ring.get_mut(slot)?;
        if *changes != self.changes {
            *changes = self.changes;
            begin(&mut launch.entered, self.starts);
        }
        Some(launch)
    }

    /// From here on each chosen scenario is a different one, which starts as the named one of `starts`.
    pub(super) fn change(&mut self, starts: [usize; CHOSEN_COUNT]) {
        self.starts = starts;
        self.changes = self.changes.wrapping_add(1);
    }
}

/// Copies the clocks of a named scenario to each chosen one. The named ones never change, so only the newest
/// change matters.
pub(super) fn begin(clocks: &mut Clocks, starts: [usize; CHOSEN_COUNT]) {
    for (slot, start) in starts.into_iter().enumerate() {
        clocks[SCENARIO_COUNT + slot] = clocks[start];
    }
}

/// Launches of graphs that wait to be simulated (24 bytes each); the cost of further ones is unknown.
const NODES_LIMIT: usize = 1 << 16;
/// Minimum number of new entries between two scans of a table for calls that were never simulated.
const REPORTED_USUAL: usize = 1 << 10;

/// Tracing overhead that the records of a graph's operations add to the call that launches it.
///
/// A call is simulated when the watermark passes its entry, and its operations come later, so this is
/// reported separately, as for small grids. Operations of one graph mostly come consecutively: only the first
/// one is looked up.
#[derive(Clone, Debug, Default)]
pub(super) struct GraphNodes {
    /// Nanoseconds by thread and entry of the call.
    by_call: FxHashMap<(ThreadId, u64), u32>,
    /// Sum for the call of the newest operation, which is not in the table yet.
    newest: Option<((ThreadId, u64), u32)>,
    /// Number of further entries until the next scan of the table.
    due: usize,
}

impl GraphNodes {
    /// The call that `thread` enters at `start` launches an operation whose record takes `nanos`; calls
    /// before `position` have been simulated or left out.
    #[inline]
    pub(super) fn tell(&mut self, thread: ThreadId, start: u64, nanos: u32, position: u64) {
        match &mut self.newest {
            Some((call, sum)) if *call == (thread, start) => *sum = sum.saturating_add(nanos),
            _ => {
                self.keep_newest(position);
                self.newest = Some(((thread, start), nanos));
            }
        }
    }

    fn keep_newest(&mut self, position: u64) {
        let Some((call, nanos)) = self.newest.take() else { return };
        if self.due == 0 {
            self.by_call.retain(|&(_, start), _| start >= position);
            self.due = self.by_call.len().max(REPORTED_USUAL);
        }
        self.due -= 1;
        if self.by_call.len() < NODES_LIMIT || self.by_call.contains_key(&call) {
            let sum = self.by_call.entry(call).or_default();
            *sum = sum.saturating_add(nanos);
        }
    }

    /// Time that the operations launched by `call` add to it, nanoseconds.
    #[inline]
    pub(super) fn take(&mut self, call: &Call) -> u32 {
        let key = (call.thread, call.start);
        let newest = self.newest.take_if(|(newest, _)| *newest == key).map_or(0, |(_, nanos)| nanos);
        if self.by_call.is_empty() {
            return newest;
        }
        self.by_call.remove(&key).map_or(newest, |nanos| nanos.saturating_add(newest))
    }
}

/// Launches that wait for their call to be simulated (40 bytes each); further ones are simulated like any
/// other call.
const REPORTED_LIMIT: usize = 1 << 17;

/// Work launched by calls, reported before the calls are simulated: a scenario that joins or drops this work
/// must know it when the call is entered, and the operation starts later.
#[derive(Clone, Debug, Default)]
pub(super) struct AnnouncedLaunches {
    by_call: FxHashMap<(ThreadId, u64), Launched>,
    /// Number of further entries until the next scan of the table.
    due: usize,
}

impl AnnouncedLaunches {
    /// The call that `thread` enters at `start` launches this; calls before `position` have been simulated or
    /// left out.
    pub(super) fn tell(&mut self, thread: ThreadId, start: u64, launched: Launched, position: u64) {
        if self.due == 0 {
            self.by_call.retain(|&(_, start), _| start >= position);
            self.due = self.by_call.len().max(REPORTED_USUAL);
        }
        self.due -= 1;
        if start >= position && self.by_call.len() < REPORTED_LIMIT {
            self.by_call.insert((thread, start), launched);
        }
    }

    #[inline]
    pub(super) fn take(&mut self, call: &Call) -> Option<Launched> {
        if self.by_call.is_empty() { None } else { self.by_call.remove(&(call.thread, call.start)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::whatif::CallClass;
    use gpuwhy_trace::record::CorrelationId;

    #[test]
    fn operations_of_a_graph_are_summed_for_their_launch() {
        let call = |start| Call {
            thread: ThreadId(1),
            start,
            end: start + 9,
            class: CallClass::Launch,
            correlation: CorrelationId(1),
            tracing_ns: 0,
        };
        let mut nodes = GraphNodes::default();
        for (start, nanos) in [(100, 5), (100, 5), (200, 7), (100, 5), (300, 1)] {
            nodes.tell(ThreadId(1), start, nanos, 0);
        }
        assert_eq!([100, 100, 200, 300, 300].map(|start| nodes.take(&call(start))), [15, 0, 7, 1, 0]);
    }

    #[test]
    fn launches_that_are_never_simulated_are_forgotten() {
        let mut nodes = GraphNodes::default();
        for launch in 0..200_000u64 {
            nodes.tell(ThreadId(1), launch, 1, launch.saturating_sub(100));
            assert!(nodes.by_call.len() <= 4 * REPORTED_USUAL);
        }
        for launch in 200_000..300_000u64 {
            nodes.tell(ThreadId(1), launch, 1, 0);
        }
        assert_eq!(nodes.by_call.len(), NODES_LIMIT);
    }
}
