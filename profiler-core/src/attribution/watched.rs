//! Activities of launching threads in a run without records of device work.

use std::collections::BTreeMap;

use gpuwhy_trace::record::Timestamp;

use super::Attributor;
use super::host_cause::{GapSamples, HostCause};
use super::stacks::LineId;

impl Attributor {
    /// Time that samples of launching threads since `from` cover, by activity, line and place of the thread. Where
    /// there is device work, samples are dropped when the gaps that they explain are over.
    pub fn sampled_activities(&self, from: Timestamp) -> BTreeMap<(HostCause, LineId, u32), GapSamples> {
        self.host.threads.sampled_activities(from.nanos())
    }
}
