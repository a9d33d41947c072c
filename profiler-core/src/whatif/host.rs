//! Simulated clocks of the host: one for each thread in each scenario.
//!
//! Between two calls of a thread its clock advances by the real host gap, less the part that the scenario
//! removes. The hard part is which thread a thread waited for outside CUDA: a forward pass hands over to a
//! backward thread and takes over again, and neither leaves a record. So a thread with a long absence is
//! assumed to have waited for the launching thread that returned from CUDA last. This couples two independent
//! launching threads with long host gaps; the base is unaffected, but a scenario may be too pessimistic.

use std::collections::VecDeque;

use gpuwhy_trace::record::ThreadId;
use rustc_hash::FxHashMap;

use super::input::{Call, CallClass, Launched};
use super::joined::{Batches, CopyCall, CopyCalls};
use super::scenario::{SCENARIO_COUNT, ScenarioKind};
use super::variants::{Clocks, Origin, VARIANT_COUNT, Variants, as_clock, earlier, later, latest};
use crate::thresholds::{DISPATCH_NANOS, LAUNCHING_THREAD};

/// Maximum number of threads; beyond that, the one that returned first is forgotten.
const THREAD_LIMIT: usize = 1_024;
/// Waits for input remembered per thread until the call that ends the host gap arrives.
const INPUT_LIMIT: usize = 1_024;
/// Longest call that only issues work: the slowest median of issuing one is 10 us. An allocation of at most this
/// length did not wait.
pub(super) const SHORT_CALL_NANOS: u64 = 12_000;

#[derive(Clone, Debug)]
pub(super) struct SimulatedThread {
    id: ThreadId,
    pub(super) open: Option<Call>,
    /// Its time of entry in every scenario.
    pub(super) entered: Clocks,
    /// Newest operation of that call, if one has started.
    pub(super) begun: Option<Begun>,
    /// Entry of the call that launches this operation instead, in scenarios where small grids are one kernel
    /// or small copies are one copy.
    pub(super) leader: Option<u64>,
    /// Scenario in which that call does not exist, besides those that `copies` knows.
    removed_in: Option<ScenarioKind>,
    /// True if the previous call moved its copy through a staging buffer.
    pub(super) staged: bool,
    /// Real time of the last return.
    returned: u64,
    clocks: Clocks,
    launches: u64,
    pub(super) batches: Batches,
    pub(super) copies: CopyCalls,
}

/// Start of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Start in every scenario.
    pub(super) clocks: Clocks,
    /// True if it copies to the host.
    pub(super) to_host: bool,
}

/// The launching thread that returned last.
#[derive(Clone, Debug)]
struct Newest {
    id: ThreadId,
    returned: u64,
    clocks: Clocks,
}

impl SimulatedThread {
    /// Adjusts `entered` in the scenarios in which the work of the open call is joined or removed; the call
    /// comes `own_gap` nanoseconds after the thread returned from the previous one.
    fn join(
        &mut self,
        call: &Call,
        launched: Option<Launched>,
        own_gap: u64,
        entered: &mut Clocks,
        variants: &Variants,
    ) {
        let (grid, copy) = match launched {
            Some(Launched::Grid(grid)) => (Some(grid), None),
            Some(Launched::Copy(copy)) => (None, Some(copy)),
            Some(Launched::RemovedIn(_)) | None => (None, None),
        };
        self.removed_in = match launched {
            Some(Launched::RemovedIn(kind)) => Some(kind),
            _ => None,
        };
        if let Some(kind) = self.removed_in.filter(|_| own_gap <= DISPATCH_NANOS) {
            variants.without(kind).for_each(|variant| entered[variant] = self.clocks[variant]);
        }
        self.leader = None;
        if let Some((leader, returned)) = self.batches.enter(call, grid, own_gap) {
            self.leader = Some(leader);
            variants.without(ScenarioKind::GridsFilled).for_each(|variant| entered[variant] = returned[variant]);
        }
        if let Some((leader, returned)) = self.copies.enter(call, copy, own_gap) {
            self.leader = Some(leader);
            variants.without(ScenarioKind::CopiesJoined).for_each(|variant| entered[variant] = returned[variant]);
        }
        if self.copies.open.of_readback && own_gap <= DISPATCH_NANOS {
            variants.without(ScenarioKind::NoReadbacks).for_each(|variant| entered[variant] = self.clocks[variant]);
        }
        if self.copies.open.after_read && own_gap > DISPATCH_NANOS {
            variants.without(ScenarioKind::ReadsReduced).for_each(|variant| entered[variant] = self.clocks[variant]);
        }
    }

    /// Adds the costs of entering the open `call` and returning from it, `gap` nanoseconds after the event it
    /// waited for; `input` nanoseconds of the gap were a wait for data. Approximate: costs may overlap.
    fn add_costs(&self, call: &Call, gap: u64, input: u64, costs: &mut [f64; SCENARIO_COUNT]) {
        let lasted = call.end - call.start;
        let mut add = |kind: ScenarioKind, nanos: u64| costs[kind as usize] += as_clock(nanos);
        add(ScenarioKind::DataReady, input);
        let work = if gap > DISPATCH_NANOS { ScenarioKind::NoHostWork } else { ScenarioKind::LaunchesFree };
        add(work, gap - input);
        match call.class {
            CallClass::Launch => add(ScenarioKind::LaunchesFree, lasted.min(DISPATCH_NANOS)),
            CallClass::Wait => add(ScenarioKind::NoSyncs, lasted),
            CallClass::Memory => add(ScenarioKind::NoAllocations, lasted),
            CallClass::Other => {}
        }
        let CopyCall { of_readback, after_read, joined, .. } = self.copies.open;
        if of_readback {
            add(ScenarioKind::NoReadbacks, lasted);
        }
        if after_read && gap > DISPATCH_NANOS {
            add(ScenarioKind::ReadsReduced, gap);
        }
        if let Some(kind) = self.removed_in {
            add(kind, lasted);
        }
        if joined {
            add(ScenarioKind::CopiesJoined, lasted.saturating_add(gap));
        } else if self.leader.is_some() {
            add(ScenarioKind::GridsFilled, lasted.saturating_add(gap));
        }
    }

    /// Adjusts the return from the open `call` in scenarios in which its work differs. `may_have_waited`: its
    /// duration allows for a wait for the device. `released`: when the wait ended, and the real time from
    /// there to the return.
    pub(super) fn correct_return(
        &self,
        call: &Call,
        may_have_waited: bool,
        released: Option<(&Clocks, u64)>,
        clocks: &mut Clocks,
        variants: &Variants,
    ) {
        let entered = &self.entered;
        let CopyCall { of_readback, large_read, joined, .. } = self.copies.open;
        if joined {
            let (copied, wake_up) = released.filter(|_| call.class == CallClass::Wait).unwrap_or((entered, 0));
            for variant in variants.without(ScenarioKind::CopiesJoined) {
                clocks[variant] = later(entered[variant], copied[variant] + as_clock(wake_up));
            }
        } else if self.leader.is_some() {
            // Its kernel is part of another launch.
            variants.without(ScenarioKind::GridsFilled).for_each(|variant| clocks[variant] = entered[variant]);
        } else if call.class == CallClass::Launch && self.begun.is_none() && self.batches.leave_room() {
            for variant in variants.without(ScenarioKind::GridsFilled) {
                clocks[variant] = earlier(clocks[variant], entered[variant] + as_clock(SHORT_CALL_NANOS));
            }
        }
        if let Some(begun) = self.begun.as_ref().filter(|_| large_read && may_have_waited) {
            // It waits only for a small copy.
            for variant in variants.without(ScenarioKind::ReadsReduced) {
                let copied = later(entered[variant], begun.clocks[variant]) + as_clock(SHORT_CALL_NANOS);
                clocks[variant] = earlier(clocks[variant], copied);
            }
        }
        if of_readback {
            variants.without(ScenarioKind::NoReadbacks).for_each(|variant| clocks[variant] = entered[variant]);
        }
        if let Some(kind) = self.removed_in {
            variants.without(kind).for_each(|variant| clocks[variant] = entered[variant]);
        }
    }

    fn change_clocks(&mut self, change: &mut impl FnMut(&mut Clocks)) {
        change(&mut self.entered);
        change(&mut self.clocks);
        if let Some(begun) = &mut self.begun {
            change(&mut begun.clocks);
        }
        self.batches.change_clocks(change);
        self.copies.change_clocks(change);
    }
}

/// All threads.
#[derive(Clone, Debug, Default)]
pub(super) struct Threads {
    rows: Vec<SimulatedThread>,
    indices: FxHashMap<ThreadId, usize>,
    newest: Option<Newest>,
    /// Index of the thread requested last.
    asked: usize,
    /// Waits for input that no call has ended yet. Separate from the threads, whose clocks start with their
    /// first call.
    inputs: FxHashMap<ThreadId, VecDeque<(u64, u64)>>,
    /// Host time of each cost, nanoseconds.
    pub(super) costs: [f64; SCENARIO_COUNT],
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

    /// Forgets all threads but keeps the pending waits for input.
    pub(super) fn forget_clocks(&mut self) {
        *self = Self { inputs: std::mem::take(&mut self.inputs), costs: self.costs, ..Self::default() };
    }

    /// Applies `change` to the clocks of all threads.
    pub(super) fn change_clocks(&mut self, change: &mut impl FnMut(&mut Clocks)) {
        self.rows.iter_mut().for_each(|thread| thread.change_clocks(change));
        if let Some(newest) = &mut self.newest {
            change(&mut newest.clocks);
        }
    }

    /// A thread that was seen before and is not forgotten.
    pub(super) fn get_mut(&mut self, id: ThreadId) -> Option<&mut SimulatedThread> {
        let index = self.find(id)?;
        self.rows.get_mut(index)
    }

    /// Enters an outermost call that launches `launched`, if known: advances the thread's clocks over the
    /// host gap before it.
    pub(super) fn enter(
        &mut self,
        call: &Call,
        launched: Option<Launched>,
        origin: Origin,
        variants: &Variants,
    ) -> &SimulatedThread {
        let index = self.index_of(call.thread, call.start, origin);
        let thread = &mut self.rows[index];
        let own_gap = call.start.saturating_sub(thread.returned);
        let new = thread.launches == 0 && thread.returned == call.start;
        let may_have_waited = new || own_gap > DISPATCH_NANOS;
        let handed_over = self.newest.as_ref().filter(|newest| {
            may_have_waited
                && newest.id != call.thread
                && newest.returned <= call.start
                && (new || newest.returned > thread.returned)
        });
        let from = handed_over.map_or(thread.returned, |newest| newest.returned);
        let host_gap = call.start.saturating_sub(from);
        let mut input = 0;
        if !self.inputs.is_empty()
            && let Some(inputs) = self.inputs.get_mut(&call.thread)
        {
            input = input_within(inputs, from, call.start).min(host_gap);
            if inputs.is_empty() {
                self.inputs.remove(&call.thread);
            }
        }
        // Costs are joined only with a previous call of the same thread.
        let joined_gap = if handed_over.is_some() { u64::MAX } else { own_gap };
        let clocks = handed_over.map_or(&thread.clocks, |newest| &newest.clocks);
        let mut entered = variants.each(|variant, gone| clocks[variant] + as_clock(gone.host_gap(host_gap, input)));
        if handed_over.is_some() && thread.returned < call.start {
            // Regardless of the thread it waited for, a thread cannot be earlier than itself.
            entered = latest(&entered, &thread.clocks);
        }
        thread.join(call, launched, joined_gap, &mut entered, variants);
        thread.add_costs(call, host_gap, input, &mut self.costs);
        thread.entered = entered;
        thread.open = Some(*call);
        thread.begun = None;
        thread
    }

    /// Returns from the open call of a thread; `staged` if that moved its copy through a staging buffer.
    pub(super) fn leave(&mut self, call: &Call, clocks: Clocks, staged: bool) {
        let Some(index) = self.find(call.thread) else { return };
        let Self { rows, newest, .. } = self;
        let thread = &mut rows[index];
        thread.open = None;
        thread.staged = staged;
        thread.returned = call.end;
        thread.clocks = clocks;
        thread.batches.leave(call, &clocks);
        thread.copies.leave(call, &clocks);
        thread.launches = thread.launches.saturating_add(u64::from(call.class == CallClass::Launch));
        if thread.launches >= LAUNCHING_THREAD && newest.as_ref().is_none_or(|newest| newest.returned <= call.end) {
            *newest = Some(Newest { id: call.thread, returned: call.end, clocks });
        }
    }

    /// Index of the thread, if known: mostly that of the previous request.
    fn find(&mut self, id: ThreadId) -> Option<usize> {
        if self.rows.get(self.asked).is_none_or(|thread| thread.id != id) {
            self.asked = *self.indices.get(&id)?;
        }
        Some(self.asked)
    }

    /// Index of the thread; an unknown one is created at `at`.
    fn index_of(&mut self, id: ThreadId, at: u64, origin: Origin) -> usize {
        if let Some(index) = self.find(id) {
            return index;
        }
        let thread = SimulatedThread {
            id,
            open: None,
            entered: [0.0; VARIANT_COUNT],
            begun: None,
            leader: None,
            removed_in: None,
            staged: false,
            returned: at,
            clocks: [origin.clock(at); VARIANT_COUNT],
            launches: 0,
            batches: Batches::default(),
            copies: CopyCalls::default(),
        };
        let index = if self.rows.len() < THREAD_LIMIT {
            self.rows.push(thread);
            self.rows.len() - 1
        } else {
            let oldest = (0..self.rows.len()).min_by_key(|&index| (self.rows[index].returned, self.rows[index].id));
            let index = oldest.unwrap_or_default();
            let forgotten = std::mem::replace(&mut self.rows[index], thread);
            self.indices.remove(&forgotten.id);
            index
        };
        self.indices.insert(id, index);
        index
    }
}

/// Nanoseconds of `inputs` within the host gap from `from` to `to`. Inputs that end in or before it are
/// removed.
fn input_within(inputs: &mut VecDeque<(u64, u64)>, from: u64, to: u64) -> u64 {
    let mut input = 0u64;
    while let Some(&(start, end)) = inputs.front().filter(|&&(start, _)| start < to) {
        input = end.min(to).saturating_sub(start.max(from)).saturating_add(input);
        if end > to {
            break; // The rest lies after this call.
        }
        inputs.pop_front();
    }
    input
}
