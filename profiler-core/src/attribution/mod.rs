//! Where the device's time went: an accounting that runs while the program does.
//!
//! Records come in any order within a flush. [`Attributor::push`] counts them at once and puts them aside;
//! [`Attributor::flushed`] joins operations to their launching calls, works out the watermark before which nothing
//! can change any more, and enters everything before it into the accounts of each device. The work is O(1) amortized a
//! record (a sort of nearly sorted runs, a hash join, a sweep), and the state is bounded by what is in flight.
//! Nothing depends on where a flush falls, so a live run and its trace file give the same report.
//!
//! Reading order, which is the way of a kernel record: `operation` (what its record says), `arrival` (it waits for its
//! launch), `host` (calls and launches), `devices` (the timeline), `launch_order` (where steps begin),
//! `gap` (why nothing ran), `account` and `phases` (the time by cause), `simulation_feed` (the same records drive the
//! what-if simulation, [`crate::whatif`]). The words on the way are in [`leaf`] (the causes), [`host_cause`] (what idle
//! time is blamed on) and [`api`] (what a call is for).
//!
//! Not here: how steps are found ([`crate::steps`]).

mod account;
pub mod api;
mod arrival;
mod devices;
mod gap;
mod host;
pub(crate) mod host_activity;
pub mod host_cause;
mod launch_order;
pub mod leaf;
mod operation;
mod phases;
pub mod quantile;
mod ranges;
pub mod segments;
mod simulation_feed;
pub mod statistics;
pub mod step_sequence;

pub use account::DeviceAccount;
pub use host::launch_lines::{GraphKernels, LaunchPlace, LaunchSampleCounts, LaunchedWork};
pub use host::memory::PeakCaller;
pub use host::samples::SampleTotals;
pub use host::stacks::{HostLine, LineId};
pub use host::stacks::{is_native, line_of};
pub use host_cause::{GapTotals, Producer, Subject};
pub use operation::{is_communication, is_optimizer};
pub use phases::HostLead;
pub use ranges::{RangeCounts, RangeInside, RangeKey, RangeStyle, RangeTally, Spread};
pub use ranges::{is_step, template};

use gpuwhy_trace::completeness::Completeness;
use gpuwhy_trace::cost::{PriceSource, Prices};
use gpuwhy_trace::counters::CounterEvent;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{ApiFunctionId, DeviceId, LaunchConfigId, Record, ThreadId, Timestamp};

use self::arrival::Arrivals;
use self::devices::{Devices, Timeline};
use self::host::Host;
use self::host::threads::HostThread;
use self::operation::{Delivery, PENDING_LIMIT, WAITING_LIMIT};
use self::ranges::Ranges;
use self::segments::Segment;
use self::statistics::ApiStatistics;
use self::step_sequence::StepOperation;
use crate::allocations::{Holding, Holdings, MemoryOwner};
use crate::counters::engine::Counters;
use crate::steps::{LoggedStep, OverflowSeries, OverflowStep, PeriodFacts};
use crate::thresholds::{CLOCK_SLACK_NANOS, SYNC_SLACK_NANOS};
use crate::whatif::{Ceiling, ReplayedOperation, WhatIf};

/// The online attributor. See the [module](self).
#[derive(Debug, Default)]
pub struct Attributor {
    delivery: Delivery,
    arrivals: Arrivals,
    host: Host,
    ranges: Ranges,
    devices: Devices,
    /// Records pushed that may wait; see [`waits`](Self::waits).
    waiting: usize,
    awaits_work: bool,
}

impl Attributor {
    /// Knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a record. Order does not matter between two calls of [`flushed`](Self::flushed).
    pub fn push(&mut self, record: &Record, dictionary: &Dictionary) {
        let Self { delivery, arrivals, host, devices, .. } = self;
        match record {
            Record::Kernel(kernel) => arrivals.push_kernel(kernel, host, devices, delivery, dictionary),
            Record::Api(call) => host.push_call(*call, delivery),
            _ => self.push_rarer(record, dictionary),
        }
        self.waits(dictionary);
    }

    /// As [`push`](Self::push), apart from it since nearly all records are kernels and the calls that launch them.
    #[inline(never)]
    fn push_rarer(&mut self, record: &Record, dictionary: &Dictionary) {
        let Self { delivery, arrivals, host, devices, .. } = self;
        match record {
            Record::Kernel(_) | Record::Api(_) => {}
            Record::Copy(copy) => arrivals.push_copy(copy, host, devices, delivery, dictionary),
            Record::Memset(memset) => arrivals.push_memset(memset, host, devices, delivery),
            Record::Overhead(overhead) => host.push_overhead(overhead, delivery),
            Record::Sync(sync) => {
                delivery.completeness.syncs += 1;
                host.dependencies.waited(sync);
            }
            Record::Event(event) => {
                delivery.completeness.events += 1;
                host.dependencies.recorded(event);
            }
            Record::Range(event) => host.push_range(event, &mut self.ranges, delivery, dictionary),
            Record::Sample(sample) => host.push_sample(sample, delivery, dictionary),
            Record::Memory(event) => host.push_memory(event, delivery),
            Record::Managed(_) => delivery.completeness.managed_events += 1,
        }
    }

    /// A step that the program or its framework named begins on the host at `at`: on each device, the first operation
    /// launched at or after it, by whichever thread, begins the step. Marks must come before the flush that passes
    /// them, else the step begins with a later operation. A mark at the end of the last step closes it. Marks of
    /// other threads than the first one's are left out.
    pub fn step_mark(&mut self, thread: ThreadId, at: Timestamp) {
        self.host.marks.push(thread, at);
    }

    /// The steps that are over since this was last asked, by device: all that were found, unlike those that are
    /// remembered. They are noted from the first time on, so ask when a device is known and then after each flush.
    pub fn take_step_log(&mut self) -> Vec<(DeviceId, LoggedStep)> {
        let accounts = self.devices.accounts_mut();
        accounts.flat_map(|account| account.steps.take_log().into_iter().map(|step| (account.id(), step))).collect()
    }

    /// Keeps steps that are not remembered any more, until they are [taken](Self::take_step_overflow).
    pub fn keep_step_overflow(&mut self) {
        self.devices.keep_step_overflow();
    }

    /// The steps that were forgotten since this was last asked, by device, of every series. Ask often: they are kept
    /// until then.
    pub fn take_step_overflow(&mut self) -> Vec<(DeviceId, OverflowStep)> {
        let accounts = self.devices.accounts_mut();
        accounts
            .flat_map(|account| account.steps.take_overflow().into_iter().map(|step| (account.id(), step)))
            .collect()
    }

    /// The series of each device that its steps are from.
    pub fn step_overflow_series(&self) -> Vec<OverflowSeries> {
        self.devices.accounts().map(|account| account.steps.overflow_series(account.id())).collect()
    }

    /// What is measured begins at `at`: samples of counters from before are left out.
    pub fn begin(&mut self, at: Timestamp) {
        self.devices.counters.begin(at);
    }

    /// Takes a sample of hardware counters, a reading of gauges, or what is known of them. Samples come in the order of
    /// their times, before the flush that passes them or some flushes later.
    pub fn push_counters(&mut self, event: &CounterEvent) {
        if matches!(event, CounterEvent::Set(_)) {
            // Roofs will be known, and what nearer ones bring will be asked.
            self.devices.simulation.whatif.keep_events();
        }
        self.devices.counters.take(event);
    }

    /// The profiler itself held the program up in this time: steps of then are not typical ones, on any device.
    pub fn disturbed(&mut self, from: Timestamp, to: Timestamp) {
        self.devices.accounts_mut().for_each(|account| account.disturb(from, to));
    }

    /// Notes what the timeline of each device is given from here on: before the first record, or it is not whole.
    pub fn log_segments(&mut self) {
        self.devices.log_segments();
    }

    /// What was noted since this was last asked, by device; see [`segments`].
    pub fn take_segments(&mut self) -> Vec<(DeviceId, Vec<Segment>)> {
        let accounts = self.devices.accounts_mut();
        accounts.map(|account| (account.id(), account.take_segments())).collect()
    }

    /// Notes what the simulation makes of operations in these parts of the run; see [`Simulation::log`].
    ///
    /// [`Simulation::log`]: crate::whatif::Simulation::log
    pub fn log_replay(&mut self, parts: Vec<(u64, u64)>) {
        self.devices.simulation.whatif.log(parts);
    }

    /// Keeps the newest events of the simulation, so that it can be asked what shorter kernels bring; see
    /// [`Simulation::keep_events`].
    ///
    /// [`Simulation::keep_events`]: crate::whatif::Simulation::keep_events
    pub fn keep_simulated_events(&mut self) {
        self.devices.simulation.whatif.keep_events();
    }

    /// What was noted since this was last asked.
    pub fn take_replay(&mut self) -> Vec<ReplayedOperation> {
        self.devices.simulation.whatif.take_log()
    }

    /// Everything that completed before `at` and could be delivered has been pushed: enters what is final.
    pub fn flushed(&mut self, at: Timestamp, dictionary: &Dictionary) {
        let at = self.delivery.mark(at);
        let horizon = at.saturating_sub(CLOCK_SLACK_NANOS);
        self.place(horizon, 0, dictionary);
        let Self { delivery, arrivals, host, devices, .. } = self;
        let oldest_operation = arrivals.join_flushed(at, host, devices, delivery);
        let oldest_launch = host.launches.oldest_waiting(at);
        let oldest_call = host.oldest_pending();
        self.awaits_work = oldest_launch.is_some() || oldest_call.is_some();
        let oldest_host =
            oldest_launch.into_iter().chain(oldest_call).min().map(|time| time.saturating_sub(CLOCK_SLACK_NANOS));
        let mut watermark = oldest_host.into_iter().chain(oldest_operation).fold(horizon, u64::min);
        if devices.pending() > PENDING_LIMIT {
            watermark = horizon;
        }
        devices.counters.advance(watermark);
        self.advance(watermark);
        self.count_waiting();
    }

    /// Whether, as of the last flush, a launch was known whose device work has neither come nor been given up.
    pub fn awaits_work(&self) -> bool {
        self.awaits_work
    }

    /// No more records will come: enters everything. `at` is when the trace ended, or the last flush when unknown.
    pub fn finish(&mut self, at: Timestamp, dictionary: &Dictionary) {
        self.delivery.newest_flush = at.nanos().max(self.delivery.newest_flush);
        self.place(u64::MAX, u64::MAX, dictionary);
        self.arrivals.join_begun(u64::MAX, &mut self.host, &mut self.devices, &mut self.delivery);
        self.host.launches.give_up_all();
        // A sample behind the end has none of what ran then.
        self.devices.counters.advance(at.nanos());
        self.advance(u64::MAX);
    }

    /// What tracing adds to calls and gaps of which the records come from here on, and where those prices are from.
    /// Without this no cost of tracing is known, and nothing is said of the program without it.
    pub fn set_prices(&mut self, prices: Prices, source: PriceSource) {
        self.devices.simulation.set_prices(prices, source);
    }

    /// Gives the what-if simulation up, which costs up to half as much as everything else here: for a client that falls
    /// behind. The accounts go on; there are no ceilings from then on.
    pub fn stop_what_if(&mut self) {
        self.devices.simulation.whatif.stop();
    }

    /// The accounts of every device on which something ran, by ordinal.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceAccount> {
        self.devices.accounts()
    }

    /// Outermost API calls by function.
    pub fn api_statistics(&self) -> impl Iterator<Item = (ApiFunctionId, &ApiStatistics)> {
        self.host.api_table.rows()
    }

    /// Memory that was allocated while measuring and how much of it is held; empty unless it was recorded.
    pub fn holdings(&self) -> &Holdings {
        self.host.memory.holdings()
    }

    /// Memory by device and kind, with who took it to its peak, where that is known.
    pub fn memory(&self) -> impl Iterator<Item = (MemoryOwner, &Holding, Option<PeakCaller>)> {
        self.host.memory.rows()
    }

    /// Host samples at the threads that launched, summed.
    pub fn sample_totals(&self) -> SampleTotals {
        self.host.threads.sample_totals()
    }

    /// The line that a [`Subject::Host`] names.
    pub fn host_line(&self, id: LineId) -> Option<&HostLine> {
        self.host.stacks.line(id)
    }

    /// How often launches of a kernel or graph were seen at a place.
    pub fn launch_lines(&self) -> impl Iterator<Item = (LaunchedWork, &LaunchPlace, u64)> {
        self.host.launch_lines.rows()
    }

    /// The kernels of each graph that ran, by CUPTI's id of the graph.
    pub fn graph_kernels(&self) -> impl Iterator<Item = (u32, GraphKernels)> {
        self.host.launch_lines.graphs()
    }

    /// Where the samples of all threads went.
    pub fn launch_sample_counts(&self) -> LaunchSampleCounts {
        self.host.launch_sample_counts()
    }

    /// Ranges by name, with what ran and idled in them.
    pub fn ranges(&self) -> Vec<(RangeTally, RangeInside)> {
        self.ranges.rows()
    }

    /// What of the ranges could not be placed, and how many are open.
    pub fn range_counts(&self) -> (RangeCounts, u64) {
        (self.ranges.counts(), self.ranges.open())
    }

    /// What the program could gain at most, by the simulation where it can be believed, else by the accounts of
    /// `device` after start-up. `None` for a device on which nothing ran.
    pub fn what_if(&self, device: DeviceId) -> Option<WhatIf> {
        let account = &self.devices.timeline(device)?.account;
        self.devices.simulation.what_if(account)
    }

    /// What a step of `device` becomes where of each kernel the part `remains` of its time is left, 0 to 1, given its
    /// device and launch configuration. `None` where that is not simulated or not believed. Takes some milliseconds.
    #[must_use]
    pub fn with_shorter_kernels(
        &self,
        device: DeviceId,
        remains: &dyn Fn(DeviceId, LaunchConfigId) -> f64,
    ) -> Option<Ceiling> {
        let account = &self.devices.timeline(device)?.account;
        let believed = self.devices.simulation.what_if(account)?.refused.is_none();
        let remains = |device, kernel| remains(device, LaunchConfigId(kernel));
        believed.then(|| self.devices.simulation.with_shorter_kernels(account, &remains)).flatten()
    }

    /// Hardware counters and gauges.
    pub fn counters(&self) -> &Counters {
        &self.devices.counters
    }

    /// Where the prices of tracing are from that [`what_if`](Self::what_if) takes off.
    pub fn price_source(&self) -> PriceSource {
        self.devices.simulation.source
    }

    /// What the steps of `device` launch in order, and how many steps launched just that. Empty without steps.
    pub fn step_sequence(&self, device: DeviceId) -> (&[StepOperation], u64) {
        self.devices.timeline(device).map_or((&[], 0), |timeline| timeline.sequence().places())
    }

    /// What the launches on `device` say of steps of so many launches; `None` for a device on which nothing ran.
    pub fn step_facts(&self, device: DeviceId, period: u32) -> Option<PeriodFacts> {
        self.devices.timeline(device).map(|timeline| timeline.facts(period))
    }

    /// From the first begin to the last end of any record with times, nanoseconds.
    pub fn observed_ns(&self) -> u64 {
        self.delivery.observed_ns()
    }

    /// The newest flush mark, and the nanoseconds from the one before it: 0 before there are two.
    pub fn last_flush(&self) -> Option<(Timestamp, u64)> {
        self.delivery.last_flush
    }

    /// Counts of what came and what is doubtful. Loss, end and damage are not known here and stay empty.
    pub fn completeness(&self) -> Completeness {
        let beyond = self.devices().map(|account| account.statistics.kernel_table_overflow()).sum();
        Completeness {
            launches_without_activity: self.host.launches.without_activity,
            kernel_table_overflow: beyond,
            ..self.delivery.completeness.clone()
        }
    }

    /// A record was pushed, which may wait: for a flush mark, for an earlier record, or for the watermark.
    ///
    /// A flush mark says that nothing earlier will come. A trace may lack them (damage, or CUPTI does not return from a
    /// flush), and rows of constant columns take no bytes in a file, so the number of records is no limit either. When
    /// too many wait, the older half is entered as if a mark had come: bounded memory goes before exact order. What
    /// comes too late for it is counted as late, what was launched by a call that has not come as launched by none.
    #[inline]
    fn waits(&mut self, dictionary: &Dictionary) {
        self.waiting += 1;
        if self.waiting > WAITING_LIMIT {
            self.count_waiting();
            if self.waiting > WAITING_LIMIT / 2 {
                self.enter_older_half(dictionary);
            }
        }
    }

    /// Counts what still waits: records that never do have been counted as well.
    fn count_waiting(&mut self) {
        self.waiting = self.waiting_begins().count();
    }

    /// When everything that waits begins. Events of memory have a limit of their own.
    fn waiting_begins(&self) -> impl Iterator<Item = u64> {
        let arrivals = self.arrivals.places.iter().map(|&place| self.devices.operations[place].start);
        let operations = self.devices.timelines.iter().flat_map(Timeline::begins);
        let calls = self.host.threads.rows.iter().flat_map(HostThread::pending_begins);
        arrivals.chain(operations).chain(calls).chain(self.ranges.waiting())
    }

    /// Enters the older half of what waits, complete or not.
    #[cold]
    #[inline(never)]
    fn enter_older_half(&mut self, dictionary: &Dictionary) {
        let mut begins: Vec<u64> = self.waiting_begins().collect();
        let middle = begins.len() / 2;
        if middle > 0 {
            let (_, &mut at, _) = begins.select_nth_unstable(middle);
            // An operation may be shown so much later than it begins; see `launch_order`.
            let until = at.saturating_add(CLOCK_SLACK_NANOS + 1);
            self.delivery.newest_flush = self.delivery.newest_flush.max(until);
            self.place(until, until, dictionary);
            self.arrivals.join_begun(until, &mut self.host, &mut self.devices, &mut self.delivery);
            self.host.launches.oldest_waiting(until);
            self.advance(until);
        }
        self.count_waiting();
    }

    /// Places what the host did up to `horizon`, and the calls that began up to `begun`, complete or not.
    fn place(&mut self, horizon: u64, begun: u64, dictionary: &Dictionary) {
        let Self { delivery, host, ranges, devices, .. } = self;
        host.place_calls(horizon, begun, &mut devices.simulation, delivery, dictionary);
        host.place_ranges(horizon, ranges);
    }

    /// Enters everything before `watermark`; the next flush begins.
    fn advance(&mut self, watermark: u64) {
        self.delivery.completeness.bad_timestamps += self.devices.advance(watermark, &self.host, &mut self.ranges);
        if let Some(oldest) = self.devices.oldest_position() {
            self.host.forget_before(oldest.saturating_sub(SYNC_SLACK_NANOS));
        }
        self.delivery.flush += 1;
    }
}
