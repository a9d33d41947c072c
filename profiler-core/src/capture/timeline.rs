//! What captures note of their timelines, for those who draw or export them.

use super::Captures;
use crate::attribution::segments::Segment;
use crate::record::DeviceId;
use crate::steps::{LoggedStep, StepSeries};
use crate::whatif::ReplayedOperation;

impl Captures {
    /// The steps that are over since this was last asked, with the number of their capture, of all captures that are
    /// still known; see [`Attributor::take_step_log`].
    pub fn take_step_log(&mut self) -> Vec<(u32, DeviceId, LoggedStep)> {
        let captures = self.open.iter_mut().chain(&mut self.kept);
        let steps = captures.flat_map(|capture| {
            let number = capture.row.number;
            capture.attributor.take_step_log().into_iter().map(move |(device, step)| (number, device, step))
        });
        steps.collect()
    }

    /// Notes the timelines of the requested capture from its begin on; of all captures when none is requested.
    pub fn log_segments(&mut self) {
        self.segments_logged = true;
    }

    /// As [`log_segments`](Self::log_segments), and notes where operations in these parts of the run are in every
    /// scenario of the simulation; see [`Attributor::log_replay`].
    pub fn log_replay(&mut self, parts: Vec<(u64, u64)>) {
        self.segments_logged = true;
        self.replay_logged = parts;
    }

    /// What of the replay was noted since this was last asked.
    pub fn take_replay(&mut self) -> Vec<ReplayedOperation> {
        let captures = self.open.iter_mut().chain(&mut self.kept);
        captures.flat_map(|capture| capture.attributor.take_replay()).collect()
    }

    /// What was noted since this was last asked, of the capture that the report is about; see
    /// [`Attributor::take_segments`].
    pub fn take_segments(&mut self) -> Vec<(DeviceId, Vec<Segment>)> {
        let captures = self.open.iter_mut().chain(&mut self.kept);
        captures.flat_map(|capture| capture.attributor.take_segments()).collect()
    }

    /// Which steps speak for `device` in the capture that the report is about.
    #[must_use]
    pub fn step_series(&self, device: DeviceId) -> Option<StepSeries> {
        let mut accounts = self.shown()?.attributor.devices();
        accounts.find(|account| account.id() == device).map(|account| account.step_series())
    }
}
