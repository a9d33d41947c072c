//! Memory that the program holds, and the call that took it to its peak.
//!
//! Events come in any order within a flush and are sorted here. They carry no thread; the call with the same
//! correlation id does, and it is known by the flush that passes its end. So a new peak stays open until its
//! call has arrived.

use std::collections::BTreeMap;

use gpuwhy_trace::record::{ApiCall, ApiFunctionId, MemoryEvent, NameId, ThreadId};

use crate::allocations::{Holding, Holdings, MemoryOwner};

/// Maximum events that wait for a flush (112 bytes each); beyond that the older half is processed as it is.
const PENDING_LIMIT: usize = 1 << 16;

/// Caller that took memory to its peak, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeakCaller {
    /// The thread.
    pub thread: ThreadId,
    /// The function that allocated.
    pub function: ApiFunctionId,
    /// The innermost range that was open on that thread.
    pub range: Option<NameId>,
    /// Time of the call, nanoseconds.
    start: u64,
    /// Index of the thread.
    index: u32,
    /// True once the range has been looked up.
    placed: bool,
}

/// Memory in use, with its peak callers.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pending: Vec<MemoryEvent>,
    holdings: Holdings,
    callers: BTreeMap<MemoryOwner, Option<PeakCaller>>,
}

impl Memory {
    pub(crate) fn push(&mut self, event: &MemoryEvent) {
        self.pending.push(*event);
        if self.pending.len() >= PENDING_LIMIT {
            self.pending.sort_by_key(|event| event.at);
            let half = self.pending[PENDING_LIMIT / 2].at.nanos();
            self.advance(half);
        }
    }

    /// Processes the events up to `horizon`. To be called before the calls up to there are placed.
    pub(crate) fn advance(&mut self, horizon: u64) {
        if self.pending.is_empty() {
            return;
        }
        // Stable: a release and an allocation at the same time keep their order of arrival.
        self.pending.sort_by_key(|event| event.at);
        let count = self.pending.partition_point(|event| event.at.nanos() <= horizon);
        for event in self.pending.drain(..count) {
            if let Some((place, holding)) = self.holdings.take(&event)
                && holding.peak_at == event.at
                && holding.current == holding.peak
            {
                self.callers.insert(place, None);
            }
        }
    }

    /// A call of the thread with this index ended.
    #[inline]
    pub(crate) fn called(&mut self, index: u32, call: &ApiCall) {
        if self.callers.is_empty() {
            return;
        }
        for (place, caller) in &mut self.callers {
            let is_its = self.holdings.get(*place).is_some_and(|holding| holding.peak_call == call.correlation);
            if is_its && caller.is_none() {
                let (thread, function, start) = (call.thread, call.function, call.start.nanos());
                *caller = Some(PeakCaller { thread, function, range: None, start, index, placed: false });
            }
        }
    }

    /// Finds the ranges of new callers; `range_of` returns the one that was open on a thread at a time.
    pub(crate) fn place(&mut self, range_of: impl Fn(u32, u64) -> Option<NameId>) {
        for caller in self.callers.values_mut().flatten().filter(|caller| !caller.placed) {
            caller.range = range_of(caller.index, caller.start);
            caller.placed = true;
        }
    }

    pub(crate) fn holdings(&self) -> &Holdings {
        &self.holdings
    }

    /// Each owner, with the caller that took it to its peak.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (MemoryOwner, &Holding, Option<PeakCaller>)> {
        self.holdings.rows().map(|(place, holding)| (place, holding, self.callers.get(&place).copied().flatten()))
    }
}
