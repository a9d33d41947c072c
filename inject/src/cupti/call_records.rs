//! Records of API calls, switched off and on while everything else is recorded.

use std::sync::atomic::Ordering;

use crate::cupti::recorder::{ActivityRecorder, Calls};

impl ActivityRecorder {
    /// Whether API calls are recorded while it is on.
    pub fn records_calls(&self) -> bool {
        self.calls_on.load(Ordering::Relaxed)
    }

    /// Records API calls or leaves them out, while everything else is recorded. Only from the flushing thread, while it
    /// is on. Calls that could not be chosen one by one, and those by which other tools are noticed, are never left
    /// out.
    pub fn record_calls(&self, on: bool) {
        if !self.can_leave_calls_out() || self.records_calls() == on {
            return;
        }
        for Calls { domain, ids, .. } in &self.calls {
            for &id in ids {
                // What this CUPTI does not know was refused from the start.
                let _ = if on { self.cupti.enable_api(*domain, id) } else { self.cupti.disable_api(*domain, id) };
            }
        }
        self.calls_on.store(on, Ordering::Relaxed);
    }

    /// Whether [`record_calls`](Self::record_calls) has an effect.
    pub fn can_leave_calls_out(&self) -> bool {
        let chosen = self.calls.iter().all(|calls| !calls.all.load(Ordering::Relaxed) && calls.rest.is_empty());
        chosen && !self.late && !self.ownership.is_yielded()
    }
}
