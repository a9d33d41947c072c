//! What the attributor can be asked, at any time: the accounts of the devices, tables, counters.
//!
//! Nothing is worked out that was not entered before; what is final and what may still change is told by the last
//! flush.

use super::statistics::ApiStatistics;
use super::step_sequence::StepOperation;
use super::{
    Attributor, DeviceAccount, GraphKernels, HostLine, LaunchPlace, LaunchSampleCounts, LaunchedWork, LineId,
    PeakCaller, RangeCounts, RangeInside, RangeTally, SampleTotals,
};
use crate::allocations::{Holding, Holdings, MemoryOwner};
use crate::completeness::Completeness;
use crate::cost::PriceSource;
use crate::counters::engine::Counters;
use crate::record::{ApiFunctionId, DeviceId, LaunchConfigId, Timestamp};
use crate::steps::PeriodFacts;
use crate::whatif::{Ceiling, WhatIf};

impl Attributor {
    /// The accounts of every device on which something ran, by ordinal.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceAccount> {
        self.timelines.iter().map(|timeline| &timeline.account)
    }

    /// Outermost API calls by function.
    pub fn api_statistics(&self) -> impl Iterator<Item = (ApiFunctionId, &ApiStatistics)> {
        self.api_table.rows()
    }

    /// Memory that was allocated while measuring and how much of it is held; empty unless it was recorded.
    #[must_use]
    pub fn holdings(&self) -> &Holdings {
        self.memory.holdings()
    }

    /// Memory by device and kind, with who took it to its peak, where that is known.
    pub fn memory(&self) -> impl Iterator<Item = (MemoryOwner, &Holding, Option<PeakCaller>)> {
        self.memory.rows()
    }

    /// Host samples at the threads that launched, summed.
    #[must_use]
    pub fn sample_totals(&self) -> SampleTotals {
        self.threads.sample_totals()
    }

    /// The line that a [`Subject::Host`](super::Subject::Host) names.
    #[must_use]
    pub fn host_line(&self, id: LineId) -> Option<&HostLine> {
        self.stacks.line(id)
    }

    /// How often launches of a kernel or graph were seen at a place.
    pub fn launch_lines(&self) -> impl Iterator<Item = (LaunchedWork, &LaunchPlace, u64)> {
        self.launch_lines.rows()
    }

    /// The kernels of each graph that ran, by CUPTI's id of the graph.
    pub fn graph_kernels(&self) -> impl Iterator<Item = (u32, GraphKernels)> {
        self.launch_lines.graphs()
    }

    /// Where the samples of all threads went.
    #[must_use]
    pub fn launch_sample_counts(&self) -> LaunchSampleCounts {
        self.launch_lines.counts(self.threads.rows.iter().map(|thread| &thread.launch_samples))
    }

    /// Ranges by name, with what ran and idled in them.
    #[must_use]
    pub fn ranges(&self) -> Vec<(RangeTally, RangeInside)> {
        self.ranges.rows()
    }

    /// What of the ranges could not be placed, and how many are open.
    #[must_use]
    pub fn range_counts(&self) -> (RangeCounts, u64) {
        (self.ranges.counts(), self.ranges.open())
    }

    /// What the program could gain at most, by the simulation where it can be believed, else by the accounts of
    /// `device` after start-up. `None` for a device on which nothing ran.
    #[must_use]
    pub fn what_if(&self, device: DeviceId) -> Option<WhatIf> {
        let account = self.devices().find(|account| account.id() == device)?;
        self.simulation.what_if(account)
    }

    /// What a step of `device` becomes where of each kernel the part `remains` of its time is left, 0 to 1, given its
    /// device and launch configuration. `None` where that is not simulated or not believed. Takes some milliseconds.
    #[must_use]
    pub fn with_shorter_kernels(
        &self,
        device: DeviceId,
        remains: &dyn Fn(DeviceId, LaunchConfigId) -> f64,
    ) -> Option<Ceiling> {
        let account = self.devices().find(|account| account.id() == device)?;
        let believed = self.simulation.what_if(account)?.refused.is_none();
        let remains = |device, kernel| remains(device, LaunchConfigId(kernel));
        believed.then(|| self.simulation.with_shorter_kernels(account, &remains)).flatten()
    }

    /// Hardware counters and gauges.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Where the prices of tracing are from that [`what_if`](Self::what_if) takes off.
    #[must_use]
    pub fn price_source(&self) -> PriceSource {
        self.simulation.source()
    }

    /// What the steps of `device` launch in order, and how many steps launched just that. Empty without steps.
    #[must_use]
    pub fn step_sequence(&self, device: DeviceId) -> (&[StepOperation], u64) {
        let timeline = self.timelines.iter().find(|timeline| timeline.account.id() == device);
        timeline.map_or((&[], 0), |timeline| timeline.sequence().places())
    }

    /// What the launches on `device` say of steps of so many launches; `None` for a device on which nothing ran.
    #[must_use]
    pub fn step_facts(&self, device: DeviceId, period: u32) -> Option<PeriodFacts> {
        let timeline = self.timelines.iter().find(|timeline| timeline.account.id() == device);
        timeline.map(|timeline| timeline.facts(period))
    }

    /// From the first begin to the last end of any record with times, nanoseconds.
    #[must_use]
    pub fn observed_ns(&self) -> u64 {
        self.observed.map_or(0, |(first, last)| last - first)
    }

    /// The newest flush mark, and the nanoseconds from the one before it: 0 before there are two.
    #[must_use]
    pub fn last_flush(&self) -> Option<(Timestamp, u64)> {
        self.last_flush
    }

    /// Counts of what came and what is doubtful. Loss, end and damage are not known here and stay empty.
    #[must_use]
    pub fn completeness(&self) -> Completeness {
        let beyond = self.devices().map(|account| account.statistics.kernel_table_overflow()).sum();
        Completeness {
            launches_without_activity: self.launches.without_activity,
            kernel_table_overflow: beyond,
            ..self.completeness.clone()
        }
    }
}
