//! Accounting of the device's time, computed while the program runs.
//!
//! Records come in any order within a flush. [`Attributor::push`] counts them immediately and sets them
//! aside; [`Attributor::flushed`] joins operations to their launching calls, computes the watermark before
//! which the result is final, and adds everything before it to the accounts of each device. The work is O(1)
//! amortized per record (a sort of nearly sorted runs, a hash join, a sweep), and the state is bounded by
//! what is in flight. The result does not depend on flush boundaries, so a live run and its trace file
//! produce the same report.
//!
//! Reading order, which follows a kernel record: `operation` (contents of its record), `arrival` (it waits
//! for its launch), `host` (calls and launches), `devices` (the timeline), `launch_order` (where steps
//! start), `gap` (why the device was idle), `account` and `phases` (the time by cause), `simulation_feed`
//! (the same records drive the simulation, [`crate::whatif`]), `graph_nodes` (origins of replayed operations).
//! The vocabulary is in [`crate::leaf`] (causes), [`host_cause`] (subjects of idle time) and [`crate::api`] (purposes
//! of calls).
//! Step detection is in [`crate::steps`].

mod account;
mod arrival;
mod builds;
mod devices;
mod gap;
mod gap_history;
mod graph_nodes;
mod host;
pub(crate) mod host_activity;
pub mod host_cause;
mod host_lead;
mod launch_order;
mod launch_places;
mod node_gaps;
mod operation;
mod other_processes;
mod phase_work;
mod phases;
pub mod queue_waits;
mod ranges;
pub mod segments;
pub mod servers;
mod simulation_feed;
mod stacks;
pub mod statistics;
pub mod step_sequence;

pub use account::DeviceAccount;
pub use builds::KernelBuilds;
pub use graph_nodes::{AddedNode, GraphNodes, GraphOriginCounts, GraphRanges, GraphWork, NodeSource, WholeGraph};
pub use graph_nodes::{Common, NodeOrigins};
pub use host::call_lines::CallKind;
pub use host::interpreter_lock::{LockHeldBy, LockHolder};
pub use host::launch_lines::{GraphKernels, LaunchSampleCounts, LaunchSampleSum, LaunchedWork};
pub use host::samples::SampleTotals;
pub use host_cause::{GapSamples, GapTotals, Producer, Seen, Stratum, Subject};
pub use host_lead::HostLead;
pub use launch_places::LaunchPlace;
pub use operation::{is_communication, is_optimizer, is_selection};
pub use other_processes::OtherProcess;
pub use phase_work::Work;
pub use ranges::{RangeCounts, RangeInside, RangeKey, RangeStyle, RangeTotals, Spread};
pub use ranges::{is_layer, is_step, template};
pub use stacks::{HostLine, LineId, is_generated, is_library, is_native, line_of};

use std::collections::BTreeMap;

use gpuwhy_trace::completeness::Completeness;
use gpuwhy_trace::cost::{PriceSource, Prices};
use gpuwhy_trace::counters::CounterEvent;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::memory_call::MemoryCall;
use gpuwhy_trace::record::{ApiFunctionId, DeviceId, LaunchConfigId, Record, ThreadId, Timestamp};

use self::arrival::Arrivals;
use self::devices::{Devices, Timeline};
use self::host::Host;
use self::host::threads::HostThread;
use self::host_cause::HostCause;
use self::operation::{Delivery, PENDING_LIMIT, WAITING_LIMIT};
use self::ranges::Ranges;
use self::segments::Segment;
use self::statistics::ApiStatistics;
use self::step_sequence::{StepCalls, StepOperation};
use crate::counters::engine::Counters;
use crate::memory::blocks::BlockLooks;
use crate::memory::{DeviceMemory, Holding, Holdings, MemoryCalls, MemoryOwner, PeakCaller};
use crate::steps::{LoggedStep, OverflowSeries, OverflowStep, PeriodFacts, StepSeries};
use crate::thresholds::{CLOCK_SLACK_NANOS, SYNC_SLACK_NANOS};
use crate::whatif::{BestCase, SimulatedOperation, WhatIf};

/// What an engine keeps in addition to its accounts. Chosen before the first record.
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    /// True for the timeline of each device, for [`take_segments`](Attributor::take_segments).
    pub segments: bool,
    /// True for steps that are no longer remembered, for [`take_step_overflow`](Attributor::take_step_overflow).
    pub step_overflow: bool,
    /// True for the newest events of the simulation, at most 2.4 MB, from which it computes the gain of shorter
    /// kernels. If counters are sampled, they are kept anyway.
    pub simulated_events: bool,
    /// Parts of the run whose operations are logged with their position in every scenario of the simulation, for
    /// [`take_simulated`](Attributor::take_simulated): in order, from start to end, nanoseconds on the clock of the trace.
    pub simulated_parts: Vec<(u64, u64)>,
    /// True without the simulation; see [`stop_what_if`](Attributor::stop_what_if).
    pub no_simulation: bool,
}

/// Online attributor. See the [module](self).
#[derive(Debug, Default)]
pub struct Attributor {
    delivery: Delivery,
    arrivals: Arrivals,
    host: Host,
    ranges: Ranges,
    devices: Devices,
    graph_nodes: GraphNodes,
    /// Number of pushed records that may wait; see [`waits`](Self::waits).
    waiting: usize,
    awaits_work: bool,
}

impl Attributor {
    /// Creates an empty attributor.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty attributor with these options.
    pub fn with(options: EngineOptions) -> Self {
        let mut new = Self::default();
        let simulation = &mut new.devices.simulation.whatif;
        if options.simulated_events {
            simulation.keep_events();
        }
        if !options.simulated_parts.is_empty() {
            simulation.log(options.simulated_parts);
        }
        if options.no_simulation {
            simulation.stop();
        }
        new.devices.segments_logged = options.segments;
        new.devices.step_overflow_kept = options.step_overflow;
        new
    }

    /// The measurement starts at `at`: earlier counter samples are left out.
    pub fn begin(&mut self, at: Timestamp) {
        self.devices.counters.begin(at);
        self.host.memory.from = at.nanos();
    }

    /// The recording began while the program ran: nothing in it is start-up, unless a call that initializes CUDA is
    /// among its records. Must come before the first record.
    pub fn begun_midway(&mut self) {
        self.devices.set_midway(true);
    }

    /// Adds a record. Order does not matter between two calls of [`flushed`](Self::flushed).
    pub fn push(&mut self, record: &Record, dictionary: &Dictionary) {
        let Self { delivery, arrivals, host, devices, graph_nodes, .. } = self;
        match record {
            Record::Kernel(kernel) => {
                let captured = graph_nodes.place_id(kernel.graph_node_id);
                arrivals.push_kernel(kernel, captured, host, devices, delivery, dictionary);
                graph_nodes.kernel(kernel, dictionary);
            }
            Record::Api(call) => {
                devices.called(call.function, dictionary);
                host.push_call(*call, delivery);
            }
            _ => self.push_rarer(record, dictionary),
        }
        self.waits(dictionary);
    }

    /// Rest of [`push`](Self::push). It is separate because nearly all records are kernels and the calls that
    /// launch them.
    #[inline(never)]
    fn push_rarer(&mut self, record: &Record, dictionary: &Dictionary) {
        let Self { delivery, arrivals, host, devices, graph_nodes, .. } = self;
        match record {
            Record::Kernel(_) | Record::Api(_) => {}
            Record::Copy(copy) => {
                let captured = graph_nodes.place_id(copy.graph_node_id);
                arrivals.push_copy(copy, captured, host, devices, delivery, dictionary);
                graph_nodes.transfer(&copy.into());
            }
            Record::Memset(memset) => {
                arrivals.push_memset(memset, graph_nodes.place_id(memset.graph_node_id), host, devices, delivery);
                graph_nodes.transfer(&memset.into());
            }
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
            Record::Managed(event) => devices.managed(event, delivery),
        }
    }

    /// A step named by the program or its framework starts on the host at `at`. On each device, the first
    /// operation launched at or after `at`, by any thread, starts the step. Marks must come before the flush
    /// that passes them, otherwise the step starts with a later operation. A mark at the end of the last step
    /// closes it. Only marks of the first marking thread count.
    pub fn step_mark(&mut self, thread: ThreadId, at: Timestamp) {
        self.host.marks.push(thread, at);
    }

    /// Steps that ended since the last call, by device: all that were found, unlike the remembered ones. They
    /// are logged from the first call on, so call this when a device is known and then after each flush.
    pub fn take_step_log(&mut self) -> Vec<(DeviceId, LoggedStep)> {
        let accounts = self.devices.accounts_mut();
        accounts.flat_map(|account| account.steps.take_log().into_iter().map(|step| (account.id(), step))).collect()
    }

    /// Steps of every series that were forgotten since the last call, by device. They are kept until taken
    /// if the [options](EngineOptions) request it, so call this frequently.
    pub fn take_step_overflow(&mut self) -> Vec<(DeviceId, OverflowStep)> {
        let accounts = self.devices.accounts_mut();
        accounts
            .flat_map(|account| account.steps.take_overflow().into_iter().map(|step| (account.id(), step)))
            .collect()
    }

    /// Series of steps that represents `device`; `None` for a device on which nothing ran.
    pub fn step_series(&self, device: DeviceId) -> Option<StepSeries> {
        self.devices.timeline(device).map(|timeline| timeline.account.step_series())
    }

    /// Series that each device's steps come from.
    pub fn step_overflow_series(&self) -> Vec<OverflowSeries> {
        self.devices.accounts().map(|account| account.steps.overflow_series(account.id())).collect()
    }

    /// Adds a sample of hardware counters, a utilization reading, or a description of their source. Samples
    /// come in order of time, before the flush that passes them or some flushes later.
    pub fn push_counters(&mut self, event: &CounterEvent) {
        if matches!(event, CounterEvent::Set(_)) {
            // Rooflines will be known, and the gain of getting closer to them will be requested.
            self.devices.simulation.whatif.keep_events();
        }
        self.devices.counters.take(event);
        self.devices.others.take(event);
        self.host.memory.read(event);
    }

    /// Adds a call of the driver that takes or gives device memory.
    pub fn push_memory_call(&mut self, call: &MemoryCall, dictionary: &Dictionary) {
        self.host.memory.took(call, dictionary);
    }

    /// The profiler itself held up the program in this interval: steps in it are not typical, on any device.
    pub fn disturbed(&mut self, from: Timestamp, to: Timestamp) {
        self.devices.accounts_mut().for_each(|account| account.disturb(from, to));
    }

    /// Segments logged since the last call, by device; see [`segments`].
    pub fn take_segments(&mut self) -> Vec<(DeviceId, Vec<Segment>)> {
        let accounts = self.devices.accounts_mut();
        accounts.map(|account| (account.id(), account.take_segments())).collect()
    }

    /// Operations logged since the last call.
    pub fn take_simulated(&mut self) -> Vec<SimulatedOperation> {
        self.devices.simulation.whatif.take_log()
    }

    /// All deliverable records of work that completed before `at` have been pushed: processes the final part.
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

    /// True if, as of the last flush, there was a launch whose device work has neither arrived nor been abandoned.
    pub fn awaits_work(&self) -> bool {
        self.awaits_work
    }

    /// No more records will come: processes the rest. `at` is the end of the trace, or the last flush if the
    /// end is unknown.
    pub fn finish(&mut self, at: Timestamp, dictionary: &Dictionary) {
        self.delivery.newest_flush = at.nanos().max(self.delivery.newest_flush);
        self.place(u64::MAX, u64::MAX, dictionary);
        self.arrivals.join_begun(u64::MAX, &mut self.host, &mut self.devices, &mut self.delivery);
        self.host.launches.give_up_all();
        // A counter sample after the end contains no work of the run.
        self.devices.counters.advance(at.nanos());
        self.advance(u64::MAX);
    }

    /// Sets the overhead that tracing adds to calls and gaps whose records come from here on, and the source
    /// of that overhead table. Without it no cost of tracing is known, and no prediction is made for the
    /// program without tracing.
    pub fn set_prices(&mut self, prices: Prices, source: PriceSource) {
        self.devices.simulation.set_prices(prices, source);
    }

    /// Stops the simulation, which costs up to half as much as everything else here: for a client that cannot
    /// keep up. The accounting continues, but there are no best cases from then on.
    pub fn stop_what_if(&mut self) {
        self.devices.simulation.whatif.stop();
    }

    /// Accounts of every device on which something ran, by ordinal.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceAccount> {
        self.devices.accounts()
    }

    /// Other processes that the driver saw on a device, and their use after start-up, the one with the most use first.
    pub fn other_processes(&self, device: DeviceId) -> Vec<OtherProcess> {
        let account = self.devices().find(|account| account.id() == device);
        self.devices.others.on(device, account.map_or(0, |account| account.steady_start().nanos()))
    }

    /// Outermost API calls by function.
    pub fn api_statistics(&self) -> impl Iterator<Item = (ApiFunctionId, &ApiStatistics)> {
        self.host.api_table.rows()
    }

    /// Number of outermost calls of a function that begin after `at`.
    pub fn calls_after(&self, function: ApiFunctionId, at: Timestamp) -> u64 {
        self.host.api_table.calls_after(function, at.nanos())
    }

    /// Memory of each device with readings or recorded allocations.
    pub fn device_memory(&self) -> Vec<DeviceMemory> {
        self.host.memory.devices(|device| {
            let Some(timeline) = self.devices.timeline(device) else { return (0, 0) };
            let account = &timeline.account;
            let steady = account.steps().steady(account.steady_start());
            (account.steady_start().nanos(), steady.median_duration())
        })
    }

    /// Looks at the blocks of PyTorch's allocator; `None` without `gpuwhy run --pytorch memory`.
    pub fn block_looks(&self) -> Option<&BlockLooks> {
        self.host.memory.blocks.looks()
    }

    /// Calls that allocated or released memory of devices, by function, the one with the most time first.
    pub fn memory_calls(&self) -> Vec<(ApiFunctionId, MemoryCalls)> {
        self.host.memory.calls()
    }

    /// Memory allocated while measuring and the part still in use; empty unless it was recorded.
    pub fn holdings(&self) -> &Holdings {
        self.host.memory.holdings()
    }

    /// Memory by device and kind, with the caller that took it to its peak, if known.
    pub fn memory(&self) -> impl Iterator<Item = (MemoryOwner, &Holding, Option<PeakCaller>)> {
        self.host.memory.rows()
    }

    /// Sum of the host samples of launching threads.
    pub fn sample_totals(&self) -> SampleTotals {
        self.host.threads.sample_totals()
    }

    /// Time that samples of launching threads since `from` cover, by activity, line and index of the thread. Where
    /// there is device work, samples are dropped when the gaps that they explain are over.
    pub fn sampled_activities(&self, from: Timestamp) -> BTreeMap<(HostCause, LineId, u32), GapSamples> {
        self.host.threads.sampled_activities(from.nanos())
    }

    /// Samples of threads that call CUDA in a wait for the interpreter's lock, by its holder.
    pub fn lock_holders(&self) -> Vec<(LockHeldBy, u64)> {
        self.host.lock_holders()
    }

    /// True if the thread called CUDA.
    pub fn calls_cuda(&self, thread: ThreadId) -> bool {
        self.host.threads.get(thread).is_some_and(|thread| thread.calls_cuda())
    }

    /// The thread of a [`Stratum`].
    pub fn thread(&self, index: u32) -> Option<ThreadId> {
        self.host.threads.ids().get(index as usize).copied()
    }

    /// The line of a [`Subject::Host`].
    pub fn host_line(&self, id: LineId) -> Option<&HostLine> {
        self.host.stacks.line(id)
    }

    /// Samples in launches of each kernel or graph, by place; `None` for those without a stack.
    pub fn launch_lines(&self) -> impl Iterator<Item = (LaunchedWork, Option<&LaunchPlace>, LaunchSampleSum)> {
        self.host.launch_lines.rows()
    }

    /// Time of each kernel or graph whose launches last so long that samples can show their lines for certain
    /// ([`CERTAIN_LAUNCH_NANOS`](crate::thresholds::CERTAIN_LAUNCH_NANOS)), nanoseconds.
    pub fn certain_launches(&self) -> impl Iterator<Item = (LaunchedWork, u64)> {
        self.host.launch_lines.certain_ns()
    }

    /// Samples of launching threads in calls of each kind, by place, taken after `from`: the kinds in order,
    /// most samples first.
    pub fn call_lines(&self, from: Timestamp) -> Vec<(CallKind, &LaunchPlace, u64)> {
        self.host.launch_lines.calls(from.nanos())
    }

    /// Kernels of each graph that ran, by CUPTI's graph id.
    pub fn graph_kernels(&self) -> impl Iterator<Item = (u32, GraphKernels)> {
        self.host.launch_lines.graphs()
    }

    /// Launch sample counts of all threads.
    pub fn launch_sample_counts(&self) -> LaunchSampleCounts {
        self.host.launch_sample_counts()
    }

    /// Ranges by name, with the device work and idle time in them.
    pub fn ranges(&self) -> Vec<(RangeTotals, RangeInside)> {
        self.ranges.rows()
    }

    /// Counts of range events that could not be placed, and number of open ranges.
    pub fn range_counts(&self) -> (RangeCounts, u64) {
        (self.ranges.counts(), self.ranges.open())
    }

    /// Best case for the program: from the simulation if it is reliable, else from the accounts of `device`
    /// after start-up. `None` for a device on which nothing ran.
    pub fn what_if(&self, device: DeviceId) -> Option<WhatIf> {
        let account = &self.devices.timeline(device)?.account;
        self.devices.simulation.what_if(account)
    }

    /// Simulated step of `device` if each kernel keeps the fraction `remains` (0 to 1) of its time, given its device
    /// and launch configuration. `None` if that is not simulated or not reliable. Takes some milliseconds.
    #[must_use]
    pub fn with_shorter_kernels(
        &self,
        device: DeviceId,
        remains: &dyn Fn(DeviceId, LaunchConfigId) -> f64,
    ) -> Option<BestCase> {
        let account = &self.devices.timeline(device)?.account;
        let believed = self.devices.simulation.what_if(account)?.refused.is_none();
        let remains = |device, kernel| remains(device, LaunchConfigId(kernel));
        believed.then(|| self.devices.simulation.with_shorter_kernels(account, &remains)).flatten()
    }

    /// Hardware counters and utilization readings.
    pub fn counters(&self) -> &Counters {
        &self.devices.counters
    }

    /// Source of the overhead table that [`what_if`](Self::what_if) subtracts.
    pub fn price_source(&self) -> PriceSource {
        self.devices.simulation.source
    }

    /// Launches of a step of `device`, in order, the number of steps with exactly these launches, and their calls
    /// in sum. Empty without steps.
    pub fn step_sequence(&self, device: DeviceId) -> (&[StepOperation], u64, StepCalls) {
        self.devices.timeline(device).map_or((&[], 0, StepCalls::default()), |timeline| timeline.sequence().places())
    }

    /// Facts about steps of `period` launches on `device`; `None` for a device on which nothing ran.
    pub fn step_facts(&self, device: DeviceId, period: u32) -> Option<PeriodFacts> {
        self.devices.timeline(device).map(|timeline| timeline.facts(period))
    }

    /// Nanoseconds from the first start to the last end of any record with times.
    pub fn observed_ns(&self) -> u64 {
        self.delivery.observed_ns()
    }

    /// Newest flush mark, and the nanoseconds since the previous one; 0 before there are two.
    pub fn last_flush(&self) -> Option<(Timestamp, u64)> {
        self.delivery.last_flush
    }

    /// Counts of records received and of doubtful ones. Loss, end and damage are not known here.
    pub fn completeness(&self) -> Completeness {
        Completeness {
            launches_without_activity: self.host.launches.without_activity,
            shared_ids: self.host.launches.shared_ids,
            ordered_launches: self.host.one_id.launches,
            kernel_table_overflow: self.devices().map(|account| account.statistics.kernel_table_overflow()).sum(),
            ..self.delivery.completeness.clone()
        }
    }

    /// Counts a pushed record, which may wait: for a flush mark, for an earlier record, or for the watermark.
    ///
    /// A flush mark means that no earlier record will come. A trace may lack marks (damage, or CUPTI does not
    /// return from a flush), and rows of constant columns take no bytes in a file, so the number of records
    /// is unlimited too. When too many wait, the older half is processed as if a mark had come: bounded
    /// memory takes precedence over exact order. Records that then come too late are counted as late, and
    /// operations whose launching call has not arrived are counted as having none.
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

    /// Recounts the waiting records: the number includes records that never wait.
    fn count_waiting(&mut self) {
        self.waiting = self.waiting_begins().count();
    }

    /// Start times of all waiting records. Memory events have their own limit.
    fn waiting_begins(&self) -> impl Iterator<Item = u64> {
        let arrivals = self.arrivals.slots.iter().map(|&slot| self.devices.operations[slot].start);
        let operations = self.devices.timelines.iter().flat_map(Timeline::begins);
        let calls = self.host.threads.rows.iter().flat_map(HostThread::pending_begins);
        arrivals.chain(operations).chain(calls).chain(self.ranges.waiting())
    }

    /// Processes the older half of the waiting records, complete or not.
    #[cold]
    #[inline(never)]
    fn enter_older_half(&mut self, dictionary: &Dictionary) {
        let mut begins: Vec<u64> = self.waiting_begins().collect();
        let middle = begins.len() / 2;
        if middle > 0 {
            let (_, &mut at, _) = begins.select_nth_unstable(middle);
            // An operation may be shown this much later than it starts; see `launch_order`.
            let until = at.saturating_add(CLOCK_SLACK_NANOS + 1);
            self.delivery.newest_flush = self.delivery.newest_flush.max(until);
            self.place(until, until, dictionary);
            self.arrivals.join_begun(until, &mut self.host, &mut self.devices, &mut self.delivery);
            self.host.launches.oldest_waiting(until);
            self.advance(until);
        }
        self.count_waiting();
    }

    /// Places host activity up to `horizon`, and the calls that started up to `begun`, complete or not.
    fn place(&mut self, horizon: u64, begun: u64, dictionary: &Dictionary) {
        let Self { delivery, host, ranges, devices, .. } = self;
        host.place_calls(horizon, begun, &mut devices.simulation, delivery, dictionary);
        host.place_ranges(horizon, ranges);
        self.graph_nodes.place_ranges(horizon, ranges);
    }

    /// Processes everything before `watermark` and starts the next flush.
    fn advance(&mut self, watermark: u64) {
        self.host.memory.advance(watermark);
        self.delivery.completeness.bad_timestamps += self.devices.advance(watermark, &self.host, &mut self.ranges);
        if let Some(oldest) = self.devices.oldest_position() {
            self.host.forget_before(oldest.saturating_sub(SYNC_SLACK_NANOS));
        }
        self.delivery.flush += 1;
    }
}
