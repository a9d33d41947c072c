//! Where the device's time went: an accounting that runs while the program does.
//!
//! Records come in any order within a flush. [`Attributor::push`] counts them at once and puts them aside;
//! [`Attributor::flushed`] joins operations to their launching calls, works out the watermark before which nothing
//! can change any more, and enters everything before it into the accounts of each device. The work is O(1) amortized a
//! record (a sort of nearly sorted runs, a hash join, a sweep), and the state is bounded by what is in flight.
//! Nothing depends on where a flush falls, so a live run and its trace file give the same report.
//!
//! Reading order: [`leaf`] (the causes), [`api`] (what a call is for), `calls`, `arrival`, `threads` and `join` (who
//! launched what), `launch_order` (where steps begin), `sweep` (the timeline), `gap` (why nothing ran), `host_samples`
//! (what the host did), `launch_lines` (which line launched a kernel), `account` (the time by cause), `queries` (what
//! can be asked).
//!
//! Beside the accounts the same records drive the what-if simulation ([`crate::whatif`]), by way of `simulation_feed`.
//!
//! Not here: how steps are found ([`crate::steps`]).

mod account;
mod activity;
pub mod api;
mod arrival;
mod calls;
mod dependencies;
mod gap;
pub(crate) mod host_activity;
pub mod host_cause;
mod host_lead;
mod host_records;
mod host_samples;
mod host_waits;
mod idle_log;
mod input_gaps;
mod join;
mod launch_lines;
mod launch_order;
mod launch_places;
pub mod leaf;
mod limits;
mod link_time;
mod loaders;
mod memory;
mod operation;
mod phases;
pub(crate) mod quantile;
mod queries;
mod ranges;
mod running;
pub mod segments;
mod simulation_feed;
mod stacks;
pub mod statistics;
pub mod step_sequence;
mod subject;
mod sweep;
mod thread_table;
mod threads;
mod waiting;

pub use account::DeviceAccount;
pub use activity::{is_communication, is_optimizer};
pub use host_lead::HostLead;

pub use host_samples::SampleTotals;
pub use launch_lines::{GraphKernels, LaunchSampleCounts, LaunchedWork};
pub use launch_places::LaunchPlace;
pub(crate) use loaders::is_native;
pub use memory::PeakCaller;
pub use ranges::{RangeCounts, RangeInside, RangeKey, RangeStyle, RangeTally, Spread};
pub(crate) use ranges::{is_step, template};
pub(crate) use stacks::line_of;
pub use stacks::{HostLine, LineId};
pub use subject::{GapTotals, Producer, Subject};

use self::activity::KernelClasses;
use self::api::ApiClasses;
use self::dependencies::Dependencies;
use self::join::Launches;
use self::launch_lines::LaunchLines;
use self::launch_order::StepMarks;
use self::limits::PENDING_LIMIT;
use self::memory::Memory;
use self::operation::{Arrivals, Operation};
use self::ranges::Ranges;
use self::segments::Segment;
use self::simulation_feed::SimulationFeed;
use self::stacks::Stacks;
use self::statistics::ApiTable;
use self::sweep::{Host, Timeline};
use self::thread_table::ThreadTable;
use self::threads::HostThread;
use crate::collections::slab::Slab;
use crate::completeness::Completeness;
use crate::cost::{PriceSource, Prices};
use crate::counters::CounterEvent;
use crate::counters::engine::Counters;
use crate::dictionary::Dictionary;
use crate::record::{DeviceId, Record, ThreadId, Timestamp};
use crate::steps::{LoggedStep, OverflowSeries, OverflowStep};
use crate::thresholds::{CLOCK_SLACK_NANOS, FUTURE_NANOS, SYNC_SLACK_NANOS};
use crate::whatif::ReplayedOperation;

/// Devices of one process; ordinals beyond are damage.
const DEVICE_LIMIT: usize = 256;
/// Operations of the busiest device that are entered, and simulated, at a time: they stay in the processor's caches
/// meanwhile.
const SLICE: usize = 512;

/// Whether this stands where no time is known: the end of the range of values is as impossible as its begin.
fn is_no_time(nanos: u64) -> bool {
    matches!(nanos, 0 | u64::MAX)
}

/// The online attributor. See the [module](self).
#[derive(Debug, Default)]
pub struct Attributor {
    api_classes: ApiClasses,
    kernel_classes: KernelClasses,
    api_table: ApiTable,
    stacks: Stacks,
    ranges: Ranges,
    memory: Memory,
    threads: ThreadTable,
    launches: Launches,
    launch_lines: LaunchLines,
    dependencies: Dependencies,
    /// All that wait: for their launch, then for the watermark.
    operations: Slab<Operation>,
    arrivals: Arrivals,
    /// Records pushed that may wait; see `waiting`.
    waiting: usize,
    timelines: Vec<Timeline>,
    marks: StepMarks,
    simulation: SimulationFeed,
    counters: Counters,
    completeness: Completeness,
    /// First begin and last end of what has times.
    observed: Option<(u64, u64)>,
    flush: u64,
    newest_flush: u64,
    last_flush: Option<(Timestamp, u64)>,
    awaits_work: bool,
    segments_logged: bool,
    /// Whether forgotten steps are kept until they are taken.
    step_overflow_kept: bool,
}

impl Attributor {
    /// Knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a record. Order does not matter between two calls of [`flushed`](Self::flushed).
    pub fn push(&mut self, record: &Record, dictionary: &Dictionary) {
        match record {
            Record::Kernel(kernel) => self.push_kernel(kernel, dictionary),
            Record::Api(call) => self.push_call(*call),
            _ => self.push_rarer(record, dictionary),
        }
        self.waits(dictionary);
    }

    /// As [`push`](Self::push), apart from it since nearly all records are kernels and the calls that launch them.
    #[inline(never)]
    fn push_rarer(&mut self, record: &Record, dictionary: &Dictionary) {
        match record {
            Record::Kernel(_) | Record::Api(_) => {}
            Record::Copy(copy) => self.push_copy(copy, dictionary),
            Record::Memset(memset) => self.push_memset(memset),
            Record::Overhead(overhead) => self.push_overhead(overhead),
            Record::Sync(sync) => {
                self.completeness.syncs += 1;
                self.dependencies.waited(sync);
            }
            Record::Event(event) => {
                self.completeness.events += 1;
                self.dependencies.recorded(event);
            }
            Record::Range(event) => self.push_range(event, dictionary),
            Record::Sample(sample) => self.push_sample(sample, dictionary),
            Record::Memory(event) => self.push_memory(event),
            Record::Managed(_) => self.completeness.managed_events += 1,
        }
    }

    /// A step that the program or its framework named begins on the host at `at`: on each device, the first operation
    /// launched at or after it, by whichever thread, begins the step. Marks must come before the flush that passes
    /// them, else the step begins with a later operation. A mark at the end of the last step closes it. Marks of
    /// other threads than the first one's are left out.
    pub fn step_mark(&mut self, thread: ThreadId, at: Timestamp) {
        self.marks.push(thread, at);
    }

    /// The steps that are over since this was last asked, by device: all that were found, unlike those that are
    /// remembered. They are noted from the first time on, so ask when a device is known and then after each flush.
    pub fn take_step_log(&mut self) -> Vec<(DeviceId, LoggedStep)> {
        let accounts = self.timelines.iter_mut().map(|timeline| &mut timeline.account);
        accounts.flat_map(|account| account.take_step_log().into_iter().map(|step| (account.id(), step))).collect()
    }

    /// Keeps steps that are not remembered any more, until they are [taken](Self::take_step_overflow).
    pub fn keep_step_overflow(&mut self) {
        self.step_overflow_kept = true;
        self.timelines.iter_mut().for_each(|timeline| timeline.account.keep_step_overflow());
    }

    /// The steps that were forgotten since this was last asked, by device, of every series. Ask often: they are kept
    /// until then.
    pub fn take_step_overflow(&mut self) -> Vec<(DeviceId, OverflowStep)> {
        let accounts = self.timelines.iter_mut().map(|timeline| &mut timeline.account);
        accounts.flat_map(|account| account.take_step_overflow().into_iter().map(|step| (account.id(), step))).collect()
    }

    /// The series of each device that its steps are from.
    #[must_use]
    pub fn step_overflow_series(&self) -> Vec<OverflowSeries> {
        self.timelines.iter().map(|timeline| timeline.account.step_overflow_series()).collect()
    }

    /// What is measured begins at `at`: samples of counters from before are left out.
    pub fn begin(&mut self, at: Timestamp) {
        self.counters.begin(at);
    }

    /// Takes a sample of hardware counters, a reading of gauges, or what is known of them. Samples come in the order of
    /// their times, before the flush that passes them or some flushes later.
    pub fn push_counters(&mut self, event: &CounterEvent) {
        if matches!(event, CounterEvent::Set(_)) {
            // Roofs will be known, and what nearer ones bring will be asked.
            self.simulation.keep_events();
        }
        self.counters.take(event);
    }

    /// The profiler itself held the program up in this time: steps of then are not typical ones, on any device.
    pub fn disturbed(&mut self, from: Timestamp, to: Timestamp) {
        self.timelines.iter_mut().for_each(|timeline| timeline.account.disturb(from, to));
    }

    /// Notes what the timeline of each device is given from here on: before the first record, or it is not whole.
    pub fn log_segments(&mut self) {
        self.segments_logged = true;
        self.timelines.iter_mut().for_each(|timeline| timeline.account.log_segments());
    }

    /// What was noted since this was last asked, by device; see [`segments`].
    pub fn take_segments(&mut self) -> Vec<(DeviceId, Vec<Segment>)> {
        let accounts = self.timelines.iter_mut().map(|timeline| &mut timeline.account);
        accounts.map(|account| (account.id(), account.take_segments())).collect()
    }

    /// Notes what the simulation makes of operations in these parts of the run; see [`Simulation::log`].
    ///
    /// [`Simulation::log`]: crate::whatif::Simulation::log
    pub fn log_replay(&mut self, parts: Vec<(u64, u64)>) {
        self.simulation.log(parts);
    }

    /// Keeps the newest events of the simulation, so that it can be asked what shorter kernels bring; see
    /// [`Simulation::keep_events`].
    ///
    /// [`Simulation::keep_events`]: crate::whatif::Simulation::keep_events
    pub fn keep_simulated_events(&mut self) {
        self.simulation.keep_events();
    }

    /// What was noted since this was last asked.
    pub fn take_replay(&mut self) -> Vec<ReplayedOperation> {
        self.simulation.take_log()
    }

    /// Everything that completed before `at` and could be delivered has been pushed: enters what is final.
    pub fn flushed(&mut self, at: Timestamp, dictionary: &Dictionary) {
        let at = at.nanos().max(self.newest_flush);
        // A mark that comes again says that nothing more is vouched for, not that flushes are closer.
        if self.last_flush.is_none_or(|(before, _)| before.nanos() < at) {
            let interval = self.last_flush.map_or(0, |(before, _)| at - before.nanos());
            self.last_flush = Some((Timestamp::from_nanos(at), interval));
        }
        self.newest_flush = at;
        let horizon = at.saturating_sub(CLOCK_SLACK_NANOS);
        self.memory.advance(horizon);
        self.place_calls(horizon, 0, dictionary);
        self.place_ranges(horizon);
        let oldest_operation = self.join_arrivals(at);
        let oldest_launch = self.launches.oldest_waiting(at);
        let oldest_call = self.threads.rows.iter().filter_map(HostThread::earliest_pending).min();
        self.awaits_work = oldest_launch.is_some() || oldest_call.is_some();
        let oldest_host =
            oldest_launch.into_iter().chain(oldest_call).min().map(|time| time.saturating_sub(CLOCK_SLACK_NANOS));
        let mut watermark = oldest_host.into_iter().chain(oldest_operation).fold(horizon, u64::min);
        if self.timelines.iter().map(Timeline::pending).sum::<usize>() > PENDING_LIMIT {
            watermark = horizon;
        }
        self.counters.advance(watermark);
        self.advance(watermark);
        self.flush += 1;
        self.count_waiting();
    }

    /// Whether, as of the last flush, a launch was known whose device work has neither come nor been given up.
    #[must_use]
    pub fn awaits_work(&self) -> bool {
        self.awaits_work
    }

    /// No more records will come: enters everything. `at` is when the trace ended, or the last flush when unknown.
    pub fn finish(&mut self, at: Timestamp, dictionary: &Dictionary) {
        self.newest_flush = at.nanos().max(self.newest_flush);
        self.memory.advance(u64::MAX);
        self.place_calls(u64::MAX, u64::MAX, dictionary);
        self.place_ranges(u64::MAX);
        self.join_begun(u64::MAX);
        self.launches.give_up_all();
        // A sample behind the end has none of what ran then.
        self.counters.advance(at.nanos());
        self.advance(u64::MAX);
        self.flush += 1;
    }

    /// What tracing adds to calls and gaps of which the records come from here on, and where those prices are from.
    /// Without this no cost of tracing is known, and nothing is said of the program without it.
    pub fn set_prices(&mut self, prices: Prices, source: PriceSource) {
        self.simulation.set_prices(prices, source);
    }

    /// Gives the what-if simulation up, which costs up to half as much as everything else here: for a client that falls
    /// behind. The accounts go on; there are no ceilings from then on.
    pub fn stop_what_if(&mut self) {
        self.simulation.stop();
    }

    /// Enters everything before `watermark`. Where a flush falls does not matter, so it is done in slices of time.
    fn advance(&mut self, watermark: u64) {
        for timeline in &mut self.timelines {
            timeline.sort(&self.operations);
        }
        let busiest = self.timelines.iter().max_by_key(|timeline| timeline.pending());
        let slices = busiest.into_iter().flat_map(|timeline| timeline.every(SLICE));
        let slices: Vec<u64> = slices.take_while(|&to| to < watermark).chain([watermark]).collect();
        for to in slices {
            self.advance_slice(to);
        }
        // A device on which nothing runs yet has no gap that could need old calls.
        let open = self.timelines.iter().map(|timeline| timeline.account.position()).filter(|&position| position != 0);
        if let Some(oldest) = open.min() {
            for thread in &mut self.threads.rows {
                thread.forget_before(oldest.saturating_sub(SYNC_SLACK_NANOS));
            }
        }
    }

    fn advance_slice(&mut self, watermark: u64) {
        let Self { operations, threads, launches, marks, dependencies, timelines, simulation, ranges, .. } = self;
        let host = Host { threads: &threads.rows, thread_ids: threads.ids(), launches, marks, dependencies };
        for timeline in timelines {
            let refused = timeline.advance(watermark, operations, &host, simulation, ranges);
            self.completeness.bad_timestamps += refused;
            simulation.take_findings(&mut timeline.account);
        }
        self.simulation.advance(watermark);
    }

    /// Whether a record cannot have been delivered by now, or only by a process that ran for the longest window.
    /// Without any flush there is nothing to compare with.
    #[inline]
    fn is_damaged(&self, start: u64, end: u64) -> bool {
        let newest = self.newest_flush;
        newest != 0
            && (end > newest.saturating_add(FUTURE_NANOS) || start < newest.saturating_sub(sweep::LONGEST_WINDOW))
    }

    fn observe(&mut self, start: u64, end: u64) {
        let (first, last) = self.observed.get_or_insert((start, end));
        *first = (*first).min(start);
        *last = (*last).max(end);
    }

    #[inline]
    fn timeline_index(&mut self, device: DeviceId) -> Option<usize> {
        // Nearly always the ordinals are 0, 1 and so on.
        let usual = device.0 as usize;
        if self.timelines.get(usual).is_some_and(|timeline| timeline.account.id() == device) {
            return Some(usual);
        }
        self.find_or_add_timeline(device)
    }

    #[cold]
    fn find_or_add_timeline(&mut self, device: DeviceId) -> Option<usize> {
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
}
