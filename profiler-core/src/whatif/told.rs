//! What calls launch, told before they are simulated: a scenario that joins or drops what a call launches must know it
//! when the call is entered, and its operation begins later.

use rustc_hash::FxHashMap;

use super::input::{Call, Launched};
use crate::record::ThreadId;

/// Launches that wait for their call to be simulated (40 bytes each); further ones are simulated as any other call.
const TOLD_LIMIT: usize = 1 << 17;
/// The table is looked through for calls that were never simulated after at least so many new ones.
const TOLD_USUAL: usize = 1 << 10;

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    by_call: FxHashMap<(ThreadId, u64), Launched>,
    /// It is looked through after so many more.
    due: usize,
}

impl Told {
    /// The call that `thread` enters at `start` launches this; calls before `position` have been simulated or left out.
    pub(super) fn tell(&mut self, thread: ThreadId, start: u64, launched: Launched, position: u64) {
        if self.due == 0 {
            self.by_call.retain(|&(_, start), _| start >= position);
            self.due = self.by_call.len().max(TOLD_USUAL);
        }
        self.due -= 1;
        if start >= position && self.by_call.len() < TOLD_LIMIT {
            self.by_call.insert((thread, start), launched);
        }
    }

    /// What `call` launches, if that was told.
    #[inline]
    pub(super) fn take(&mut self, call: &Call) -> Option<Launched> {
        if self.by_call.is_empty() { None } else { self.by_call.remove(&(call.thread, call.start)) }
    }
}
