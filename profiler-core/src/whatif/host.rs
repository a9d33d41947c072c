//! The host's clocks: one for each thread in each scenario.
//!
//! Between two calls of a thread its clock advances by the real hole, less what the scenario removes. The hard part
//! is who a thread waited for outside CUDA: a forward pass hands over to a backward thread and takes over again, and
//! neither leaves a record. So a thread that was away for long is taken to have waited for the launching thread that
//! returned from CUDA last. Two independent launching threads with long holes are thereby coupled; the base does not
//! suffer, a scenario may be too pessimistic.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::input::Call;
use super::scenario::{Clocks, SCENARIO_COUNT, ScenarioKind};
use crate::attribution::DISPATCH_NANOS;
use crate::record::ThreadId;

/// Launches after which a thread can hand over to another one. Watchdogs that only poll, and threads that only
/// allocate, never get there.
const LAUNCHING_THREAD: u32 = 6;
/// Threads remembered; beyond, the one that returned first is forgotten.
const THREAD_LIMIT: usize = 1_024;
/// Waits for input remembered for a thread until the call that ends the hole comes.
const INPUT_LIMIT: usize = 1_024;

/// A call that has been entered and has not returned yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) call: Call,
    /// When it was entered, in every scenario.
    pub(super) entered: Clocks,
}

#[derive(Clone, Copy, Debug)]
struct Thread {
    /// Real time of the last return.
    returned: u64,
    clocks: Clocks,
    open: Option<Open>,
    launches: u32,
}

/// All threads.
#[derive(Clone, Debug, Default)]
pub(super) struct Threads {
    by_id: FxHashMap<ThreadId, Thread>,
    /// The launching thread that returned last, with its clocks.
    newest: Option<(ThreadId, u64, Clocks)>,
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

    /// The call that this thread is in.
    pub(super) fn open(&self, id: ThreadId) -> Option<&Open> {
        self.by_id.get(&id)?.open.as_ref()
    }

    /// Enters an outermost call: advances the thread's clocks over the hole before it.
    pub(super) fn enter(&mut self, call: &Call) -> Open {
        let newest = self.newest;
        let thread = *self.thread(call.thread, call.start);
        let own_hole = call.start.saturating_sub(thread.returned);
        let handed_over = newest.filter(|&(id, returned, _)| {
            let new = thread.launches == 0 && thread.returned == call.start;
            id != call.thread
                && returned <= call.start
                && (new || (own_hole > DISPATCH_NANOS && returned > thread.returned))
        });
        let (from, clocks) = handed_over.map_or((thread.returned, thread.clocks), |(_, at, clocks)| (at, clocks));
        let hole = call.start.saturating_sub(from);
        let input = input_within(self.inputs.get_mut(&call.thread), from, call.start);
        let input = input.min(hole);
        let entered = std::array::from_fn(|index| {
            let kind = ScenarioKind::ALL[index];
            // Whoever it waited for, a thread cannot be earlier than itself.
            let own = if handed_over.is_some() && thread.returned < call.start { thread.clocks[index] } else { 0 };
            clocks[index].saturating_add(kind.hole(hole, input)).max(own)
        });
        let open = Open { call: *call, entered };
        self.thread(call.thread, call.start).open = Some(open);
        open
    }

    /// Returns from the open call of a thread.
    pub(super) fn leave(&mut self, open: &Open, launched: bool, clocks: Clocks) {
        let id = open.call.thread;
        let thread = self.thread(id, open.call.end);
        thread.open = None;
        thread.returned = open.call.end;
        thread.clocks = clocks;
        thread.launches = thread.launches.saturating_add(u32::from(launched));
        if thread.launches >= LAUNCHING_THREAD && self.newest.is_none_or(|(_, at, _)| at <= open.call.end) {
            self.newest = Some((id, open.call.end, clocks));
        }
    }

    fn thread(&mut self, id: ThreadId, at: u64) -> &mut Thread {
        if self.by_id.len() >= THREAD_LIMIT && !self.by_id.contains_key(&id) {
            let oldest = self.by_id.iter().min_by_key(|(id, thread)| (thread.returned, **id)).map(|(&id, _)| id);
            if let Some(oldest) = oldest {
                self.by_id.remove(&oldest);
            }
        }
        self.by_id.entry(id).or_insert_with(|| Thread {
            returned: at,
            clocks: [at; SCENARIO_COUNT],
            open: None,
            launches: 0,
        })
    }
}

/// Nanoseconds of `inputs` within the hole from `from` to `to`. What ends in or before it is forgotten.
fn input_within(inputs: Option<&mut VecDeque<(u64, u64)>>, from: u64, to: u64) -> u64 {
    let mut input = 0u64;
    let Some(inputs) = inputs else { return 0 };
    while let Some(&(start, end)) = inputs.front().filter(|&&(start, _)| start < to) {
        input = end.min(to).saturating_sub(start.max(from)).saturating_add(input);
        if end > to {
            break; // The rest of it lies behind this call.
        }
        inputs.pop_front();
    }
    input
}
