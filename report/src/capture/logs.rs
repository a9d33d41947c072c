//! Logs that captures keep in addition to their totals, for clients that read them while records arrive:
//! steps, timelines, the simulation.

use gpuwhy_trace::record::DeviceId;
use profiler_core::attribution::segments::Segment;
use profiler_core::steps::{LoggedStep, OverflowSeries, OverflowStep, StepSeries};
use profiler_core::whatif::ReplayedOperation;

use super::Captures;

impl Captures {
    /// Returns the steps completed since the previous call, with the number of their capture, for all
    /// captures still in memory; see
    /// [`take_step_log`](profiler_core::attribution::Attributor::take_step_log).
    pub fn take_step_log(&mut self) -> Vec<(u32, DeviceId, LoggedStep)> {
        let captures = self.open.iter_mut().chain(&mut self.kept);
        let steps = captures.flat_map(|capture| {
            let number = capture.row.number;
            capture.attributor.take_step_log().into_iter().map(move |(device, step)| (number, device, step))
        });
        steps.collect()
    }

    /// Keeps steps that drop out of memory, for captures from here on; see
    /// [`keep_step_overflow`](profiler_core::attribution::Attributor::keep_step_overflow).
    pub fn keep_step_overflow(&mut self) {
        self.step_overflow_kept = true;
    }

    /// Returns the steps dropped since the previous call, with the number of their capture.
    pub fn take_step_overflow(&mut self) -> Vec<(u32, DeviceId, OverflowStep)> {
        let captures = self.open.iter_mut().chain(&mut self.kept);
        let steps = captures.flat_map(|capture| {
            let number = capture.row.number;
            capture.attributor.take_step_overflow().into_iter().map(move |(device, step)| (number, device, step))
        });
        steps.collect()
    }

    /// Returns the reported capture and the series of its devices' steps; see
    /// [`step_overflow_series`](profiler_core::attribution::Attributor::step_overflow_series).
    pub fn step_overflow_series(&self) -> Option<(u32, Vec<OverflowSeries>)> {
        self.shown().map(|capture| (capture.row.number, capture.attributor.step_overflow_series()))
    }

    /// Logs the timelines of the requested capture from its start; of all captures when none is requested.
    pub fn log_segments(&mut self) {
        self.segments_logged = true;
    }

    /// Like [`log_segments`](Self::log_segments), and also logs the position of the operations in these parts
    /// of the run in every scenario of the simulation; see
    /// [`log_replay`](profiler_core::attribution::Attributor::log_replay).
    pub fn log_replay(&mut self, parts: Vec<(u64, u64)>) {
        self.segments_logged = true;
        self.replay_logged = parts;
    }

    /// Returns the simulated operations logged since the previous call.
    pub fn take_replay(&mut self) -> Vec<ReplayedOperation> {
        let captures = self.open.iter_mut().chain(&mut self.kept);
        captures.flat_map(|capture| capture.attributor.take_replay()).collect()
    }

    /// Returns the segments logged since the previous call, with the number of their capture; see
    /// [`take_segments`](profiler_core::attribution::Attributor::take_segments).
    pub fn take_segments(&mut self) -> Vec<(u32, DeviceId, Vec<Segment>)> {
        let captures = self.open.iter_mut().chain(&mut self.kept);
        let segments = captures.flat_map(|capture| {
            let number = capture.row.number;
            capture.attributor.take_segments().into_iter().map(move |(device, segments)| (number, device, segments))
        });
        segments.collect()
    }

    /// Returns the series of steps that represents `device` in the reported capture.
    pub fn step_series(&self, device: DeviceId) -> Option<StepSeries> {
        let mut accounts = self.shown()?.attributor.devices();
        accounts.find(|account| account.id() == device).map(|account| account.step_series())
    }
}
