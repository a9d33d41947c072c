//! What runs on the devices of the process: a timeline for each, and what all of them feed.

use super::account::DeviceAccount;
use super::host::Host;
use super::operation::Operation;
use super::ranges::Ranges;
use super::simulation_feed::SimulationFeed;
use super::sweep::Timeline;
use crate::collections::slab::Slab;
use crate::counters::engine::Counters;
use crate::counters::estimate::Activity;
use crate::record::DeviceId;

/// Devices of one process; ordinals beyond are damage.
const DEVICE_LIMIT: usize = 256;
/// Operations of the busiest device that are entered, and simulated, at a time: they stay in the processor's caches
/// meanwhile.
const SLICE: usize = 512;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Devices {
    /// By ordinal.
    pub(super) timelines: Vec<Timeline>,
    /// All operations that wait: for their launch, then for the watermark.
    pub(super) operations: Slab<Operation>,
    pub(super) simulation: SimulationFeed,
    pub(super) counters: Counters,
    segments_logged: bool,
    /// Whether forgotten steps are kept until they are taken.
    step_overflow_kept: bool,
}

impl Devices {
    /// The accounts of every device on which something ran.
    pub(super) fn accounts(&self) -> impl Iterator<Item = &DeviceAccount> {
        self.timelines.iter().map(|timeline| &timeline.account)
    }

    /// As [`accounts`](Self::accounts).
    pub(super) fn accounts_mut(&mut self) -> impl Iterator<Item = &mut DeviceAccount> {
        self.timelines.iter_mut().map(|timeline| &mut timeline.account)
    }

    /// The timeline of a device on which something ran.
    pub(super) fn timeline(&self, device: DeviceId) -> Option<&Timeline> {
        self.timelines.iter().find(|timeline| timeline.account.id() == device)
    }

    /// Where the timeline of a device is; it gets one if there is room.
    #[inline]
    pub(super) fn index(&mut self, device: DeviceId) -> Option<usize> {
        // Nearly always the ordinals are 0, 1 and so on.
        let usual = device.0 as usize;
        if self.timelines.get(usual).is_some_and(|timeline| timeline.account.id() == device) {
            return Some(usual);
        }
        self.find_or_add(device)
    }

    #[cold]
    fn find_or_add(&mut self, device: DeviceId) -> Option<usize> {
        match self.timelines.binary_search_by_key(&device, |timeline| timeline.account.id()) {
            Ok(index) => Some(index),
            Err(_) if self.timelines.len() >= DEVICE_LIMIT => None,
            Err(index) => {
                let mut timeline = Timeline::new(device);
                if self.segments_logged {
                    timeline.account.log_segments();
                }
                if self.step_overflow_kept {
                    timeline.account.keep_step_overflow();
                }
                self.timelines.insert(index, timeline);
                Some(index)
            }
        }
    }

    /// Notes what the timelines are given from here on.
    pub(super) fn log_segments(&mut self) {
        self.segments_logged = true;
        self.accounts_mut().for_each(DeviceAccount::log_segments);
    }

    /// Keeps forgotten steps until they are taken.
    pub(super) fn keep_step_overflow(&mut self) {
        self.step_overflow_kept = true;
        self.accounts_mut().for_each(DeviceAccount::keep_step_overflow);
    }

    /// Tells the counters what ran, where there are any.
    #[inline]
    pub(super) fn sampled(&mut self, operation: &Operation, activity: Activity) {
        if self.counters.is_sampled() {
            self.counters.ran(operation.device, activity, operation.start, operation.end);
        }
    }

    /// Operations that the watermark has not passed.
    pub(super) fn pending(&self) -> usize {
        self.timelines.iter().map(Timeline::pending).sum()
    }

    /// Enters everything before `watermark`. Where a flush falls does not matter, so it is done in slices of time.
    /// Gives the number of operations that were refused.
    pub(super) fn advance(&mut self, watermark: u64, host: &Host, ranges: &mut Ranges) -> u64 {
        for timeline in &mut self.timelines {
            timeline.sort(&self.operations);
        }
        let busiest = self.timelines.iter().max_by_key(|timeline| timeline.pending());
        let slices = busiest.into_iter().flat_map(|timeline| timeline.every(SLICE));
        let slices: Vec<u64> = slices.take_while(|&to| to < watermark).chain([watermark]).collect();
        slices.into_iter().map(|to| self.advance_slice(to, host, ranges)).sum()
    }

    fn advance_slice(&mut self, watermark: u64, host: &Host, ranges: &mut Ranges) -> u64 {
        let mut refused = 0;
        for timeline in &mut self.timelines {
            refused += timeline.advance(watermark, &mut self.operations, host, &mut self.simulation, ranges);
            self.simulation.take_findings(&mut timeline.account, &mut timeline.inputs.waits);
        }
        self.simulation.advance(watermark);
        refused
    }

    /// The earliest point up to which a timeline is final. A device on which nothing runs yet has no gap that could
    /// need old calls.
    pub(super) fn oldest_position(&self) -> Option<u64> {
        self.accounts().map(DeviceAccount::position).filter(|&position| position != 0).min()
    }
}
