//! What the records of a graph's operations add to the call that launches it.
//!
//! A call is simulated when the watermark passes its entry, and what it launches comes later, so this is told apart, as
//! small grids are. Operations of one graph mostly come one after the other: only the first of them is looked up.

use rustc_hash::FxHashMap;

use super::input::Call;
use crate::record::ThreadId;

/// Launches of graphs that wait to be simulated (24 bytes each); what further ones cost is not known.
const TOLD_LIMIT: usize = 1 << 16;
/// The table is looked through for calls that were never simulated after at least so many new ones.
const TOLD_USUAL: usize = 1 << 10;

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct GraphNodes {
    /// Nanoseconds by thread and entry of the call.
    by_call: FxHashMap<(ThreadId, u64), u32>,
    /// That of the newest operation, which is not in the table yet.
    newest: Option<((ThreadId, u64), u32)>,
    /// The table is looked through after so many more.
    due: usize,
}

impl GraphNodes {
    /// The call that `thread` enters at `start` launches an operation whose record takes `nanos`; calls before
    /// `position` have been simulated or left out.
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
            self.due = self.by_call.len().max(TOLD_USUAL);
        }
        self.due -= 1;
        if self.by_call.len() < TOLD_LIMIT || self.by_call.contains_key(&call) {
            let sum = self.by_call.entry(call).or_default();
            *sum = sum.saturating_add(nanos);
        }
    }

    /// What the operations that `call` launches add to it, nanoseconds.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::CorrelationId;
    use crate::whatif::CallClass;

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
            assert!(nodes.by_call.len() <= 4 * TOLD_USUAL);
        }
        for launch in 200_000..300_000u64 {
            nodes.tell(ThreadId(1), launch, 1, 0);
        }
        assert_eq!(nodes.by_call.len(), TOLD_LIMIT);
    }
}
