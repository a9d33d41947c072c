//! The host's clocks: one for each thread in each scenario.
//!
//! Between two calls of a thread its clock advances by the real hole, less what the scenario removes. The hard part
//! is who a thread waited for outside CUDA: a forward pass hands over to a backward thread and takes over again, and
//! neither leaves a record. So a thread that was away for long is taken to have waited for the launching thread that
//! returned from CUDA last. Two independent launching threads with long holes are thereby coupled; the base does not
//! suffer, a scenario may be too pessimistic.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::batches::Batches;
use super::input::{Call, CallClass, SmallGrid};
use super::scenario::{Clocks, Origin, SCENARIO_COUNT, ScenarioKind, as_clock, each, latest};
use crate::record::ThreadId;
use crate::thresholds::DISPATCH_NANOS;

/// Launches after which a thread can hand over to another one. Watchdogs that only poll, and threads that only
/// allocate, never get there.
const LAUNCHING_THREAD: u32 = 6;
/// Threads remembered; beyond, the one that returned first is forgotten.
const THREAD_LIMIT: usize = 1_024;
/// Waits for input remembered for a thread until the call that ends the hole comes.
const INPUT_LIMIT: usize = 1_024;

/// One host thread.
#[derive(Clone, Debug)]
pub(super) struct Thread {
    id: ThreadId,
    /// The call that it is in.
    pub(super) open: Option<Call>,
    /// When that was entered, in every scenario.
    pub(super) entered: Clocks,
    /// The newest operation of that call, if one has begun.
    pub(super) begun: Option<Begun>,
    /// When the call was entered that launches its kernel in its place where small grids are one kernel.
    pub(super) leader: Option<u64>,
    /// The call before moved its copy through a staging buffer.
    pub(super) staged: bool,
    /// Real time of the last return.
    returned: u64,
    clocks: Clocks,
    launches: u32,
    pub(super) batches: Batches,
}

/// The begin of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    pub(super) start: u64,
    pub(super) end: u64,
    /// When it begins, in every scenario.
    pub(super) clocks: Clocks,
}

/// The launching thread that returned last.
#[derive(Clone, Debug)]
struct Newest {
    id: ThreadId,
    returned: u64,
    clocks: Clocks,
}

/// All threads.
#[derive(Clone, Debug, Default)]
pub(super) struct Threads {
    rows: Vec<Thread>,
    places: FxHashMap<ThreadId, usize>,
    newest: Option<Newest>,
    /// Place of the thread that was asked for last.
    asked: usize,
    /// Waits for input that no call has ended yet. Apart from the threads, whose clocks begin with their first call.
    inputs: FxHashMap<ThreadId, VecDeque<(u64, u64)>>,
}

impl Threads {
    /// The thread waited for input from `start` to `end`.
    pub(super) fn input_wait(&mut self, id: ThreadId, start: u64, end: u64) {
        if self.inputs.len() >= THREAD_LIMIT && !self.inputs.contains_key(&id) {
            return;
        }
        let inputs = self.inputs.entry(id).or_default();
        if inputs.len() == INPUT_LIMIT {
            inputs.pop_front();
        }
        inputs.push_back((start, end));
    }

    /// Forgets all threads, but not the waits for input that are still to come.
    pub(super) fn forget_clocks(&mut self) {
        *self = Self { inputs: std::mem::take(&mut self.inputs), ..Self::default() };
    }

    /// A thread that was seen before and is not forgotten.
    pub(super) fn get_mut(&mut self, id: ThreadId) -> Option<&mut Thread> {
        let place = self.find(id)?;
        self.rows.get_mut(place)
    }

    /// Enters an outermost call, which launches `grid` if it launches a small one: advances the thread's clocks over the hole
    /// before it.
    pub(super) fn enter(&mut self, call: &Call, grid: Option<SmallGrid>, origin: Origin) -> &Thread {
        let place = self.place(call.thread, call.start, origin);
        let thread = &mut self.rows[place];
        let own_hole = call.start.saturating_sub(thread.returned);
        let new = thread.launches == 0 && thread.returned == call.start;
        let may_have_waited = new || own_hole > DISPATCH_NANOS;
        let handed_over = self.newest.as_ref().filter(|newest| {
            may_have_waited
                && newest.id != call.thread
                && newest.returned <= call.start
                && (new || newest.returned > thread.returned)
        });
        let from = handed_over.map_or(thread.returned, |newest| newest.returned);
        let hole = call.start.saturating_sub(from);
        let mut input = 0;
        if !self.inputs.is_empty()
            && let Some(inputs) = self.inputs.get_mut(&call.thread)
        {
            input = input_within(inputs, from, call.start).min(hole);
            if inputs.is_empty() {
                self.inputs.remove(&call.thread);
            }
        }
        let clocks = handed_over.map_or(&thread.clocks, |newest| &newest.clocks);
        let mut entered = each(|kind| clocks[kind as usize] + as_clock(kind.hole(hole, input)));
        if handed_over.is_some() && thread.returned < call.start {
            // Whoever it waited for, a thread cannot be earlier than itself.
            entered = latest(&entered, &thread.clocks);
        }
        thread.leader = None;
        if let Some((leader, returned)) = thread.batches.enter(call, grid, own_hole) {
            thread.leader = Some(leader);
            entered[ScenarioKind::GridsFilled as usize] = returned;
        }
        thread.entered = entered;
        thread.open = Some(*call);
        thread.begun = None;
        thread
    }

    /// Returns from the open call of a thread; `staged` if that moved its copy through a staging buffer.
    pub(super) fn leave(&mut self, call: &Call, clocks: Clocks, staged: bool) {
        let Some(place) = self.find(call.thread) else { return };
        let Self { rows, newest, .. } = self;
        let thread = &mut rows[place];
        thread.open = None;
        thread.staged = staged;
        thread.returned = call.end;
        thread.clocks = clocks;
        thread.batches.leave(call, clocks[ScenarioKind::GridsFilled as usize]);
        thread.launches = thread.launches.saturating_add(u32::from(call.class == CallClass::Launch));
        if thread.launches >= LAUNCHING_THREAD && newest.as_ref().is_none_or(|newest| newest.returned <= call.end) {
            *newest = Some(Newest { id: call.thread, returned: call.end, clocks });
        }
    }

    /// Where the thread is, if it is known: mostly where the one was that was asked for last.
    fn find(&mut self, id: ThreadId) -> Option<usize> {
        if self.rows.get(self.asked).is_none_or(|thread| thread.id != id) {
            self.asked = *self.places.get(&id)?;
        }
        Some(self.asked)
    }

    /// Where the thread is; it is new at `at` unless it is known.
    fn place(&mut self, id: ThreadId, at: u64, origin: Origin) -> usize {
        if let Some(place) = self.find(id) {
            return place;
        }
        let thread = Thread {
            id,
            open: None,
            entered: [0.0; SCENARIO_COUNT],
            begun: None,
            leader: None,
            staged: false,
            returned: at,
            clocks: [origin.clock(at); SCENARIO_COUNT],
            launches: 0,
            batches: Batches::default(),
        };
        let place = if self.rows.len() < THREAD_LIMIT {
            self.rows.push(thread);
            self.rows.len() - 1
        } else {
            let oldest = (0..self.rows.len()).min_by_key(|&place| (self.rows[place].returned, self.rows[place].id));
            let place = oldest.unwrap_or_default();
            let forgotten = std::mem::replace(&mut self.rows[place], thread);
            self.places.remove(&forgotten.id);
            place
        };
        self.places.insert(id, place);
        place
    }
}

/// Nanoseconds of `inputs` within the hole from `from` to `to`. What ends in or before it is forgotten.
fn input_within(inputs: &mut VecDeque<(u64, u64)>, from: u64, to: u64) -> u64 {
    let mut input = 0u64;
    while let Some(&(start, end)) = inputs.front().filter(|&&(start, _)| start < to) {
        input = end.min(to).saturating_sub(start.max(from)).saturating_add(input);
        if end > to {
            break; // The rest of it lies behind this call.
        }
        inputs.pop_front();
    }
    input
}
