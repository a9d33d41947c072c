//! Where the device's time went: an accounting that runs while the program does.
//!
//! Records come in any order within a flush. [`Attributor::push`] counts them at once and puts them aside;
//! [`Attributor::flushed`] joins operations to their launching calls, works out the watermark before which nothing
//! can change any more, and enters everything before it into the books of each device. The work is O(1) amortised a
//! record (a sort of nearly sorted runs, a hash join, a sweep), and the state is bounded by what is in flight.
//! Nothing depends on where a flush falls, so a live run and its trace file give the same report.
//!
//! Reading order: [`leaf`] (the causes), [`api`] (what a call is for), `arrival`, `threads` and `join` (who launched what),
//! `launch_order` (where steps begin), `sweep` (the timeline), `gap` (why nothing ran), `looks` (what the host did), `account` (the books).
//!
//! Beside the books the same records drive the what-if replay ([`crate::whatif`]), by way of `replay_feed`.
//!
//! Not here: how steps are found ([`crate::steps`]).

mod account;
mod activity;
pub mod api;
mod arrival;
mod dependencies;
mod gap;
pub mod host_cause;
mod host_lead;
mod host_records;
mod join;
mod launch_order;
pub mod leaf;
mod loaders;
mod looks;
mod memory;
mod quantile;
mod ranges;
mod replay_feed;
mod stacks;
pub mod statistics;
pub mod step_sequence;
mod stretches;
mod sweep;
mod thread_table;
mod threads;

pub use account::{DeviceAccount, Subject, Tally};
pub use activity::is_communication;
pub use dependencies::Producer;
pub use gap::{
    DISPATCH_NANOS, INPUT_BYTES, INPUT_HOLE_NANOS, INTER_KERNEL_NANOS, LAUNCH_LATENCY_NANOS, PARKED_NANOS,
    SYNC_SLACK_NANOS,
};
pub use host_lead::HostLead;

pub use looks::LookTotals;
pub use memory::PeakCaller;
pub(crate) use ranges::template;
pub use ranges::{RangeCounts, RangeInside, RangeKey, RangeStyle, RangeTally, Spread};
pub use stacks::{HostLine, LineId};

use self::activity::KernelClasses;
use self::api::ApiClasses;
use self::dependencies::Dependencies;
use self::join::{Launch, Launches};
use self::launch_order::Marks;
use self::leaf::Leaf;
use self::memory::Memory;
use self::ranges::Ranges;
use self::replay_feed::ReplayFeed;
use self::stacks::Stacks;
use self::statistics::{ApiStatistics, ApiTable};
use self::step_sequence::Place;
use self::sweep::{Host, Operation, Timeline};
use self::thread_table::ThreadTable;
use self::threads::{HostThread, Nesting};
use crate::dictionary::Dictionary;
use crate::memory::{Holding, Holdings, Place as MemoryPlace};
use crate::record::{ApiCall, ApiFunctionId, DeviceId, Overhead, OverheadKind, Record, ThreadId, Timestamp};
use crate::report::Completeness;
use crate::whatif::WhatIf;

/// Host and device clocks are mapped to each other with an error; an operation may seem to begin this much before
/// the call that launched it. Measured differences stay under 20 us.
pub const CLOCK_SLACK_NANOS: u64 = 50_000;
/// An operation waits for its launching call for as long as a launch waits for its operation.
const JOIN_PATIENCE_NANOS: u64 = 2_000_000_000;
const JOIN_PATIENCE_FLUSHES: u64 = 3;
/// A record that ends this much after the flush that delivered it cannot be true.
const FUTURE_NANOS: u64 = 10_000_000_000;
/// Operations that may wait for the watermark (some 112 bytes each). When there are more, the flush mark alone decides:
/// bounded memory goes before exact order, and what then comes late is counted. Only programs that launch large graphs
/// far ahead get here: a graph does not say how many records it will leave, so all that ran since the launch of the oldest
/// unfinished one would wait, a million operations a second.
const PENDING_LIMIT: usize = 1 << 17;
/// Operations that may wait for their launch; when there are more, those without one are counted.
const UNJOINED_LIMIT: usize = 1_000_000;
/// Operations that came since the last flush before those whose launch is known go on to their timeline.
const ARRIVALS: usize = 1 << 14;
/// Devices of one process; ordinals beyond are damage.
const DEVICE_LIMIT: usize = 256;

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
    dependencies: Dependencies,
    arrivals: Vec<Operation>,
    /// So many arrivals are looked through for those whose launch is known.
    arrivals_due: usize,
    timelines: Vec<Timeline>,
    marks: Marks,
    replay: ReplayFeed,
    completeness: Completeness,
    observed: Option<(u64, u64)>,
    flush: u64,
    newest_flush: u64,
    last_flush: Option<(Timestamp, u64)>,
    awaits_work: bool,
    ready: Vec<ApiCall>,
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
            Record::Copy(copy) => self.push_copy(copy, dictionary),
            Record::Memset(memset) => self.push_memset(memset),
            Record::Api(call) => self.push_call(*call),
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
        self.place_calls(horizon, dictionary);
        self.place_ranges(horizon);
        let oldest_operation = self.join_arrivals(at, false);
        let oldest_launch = self.launches.oldest_waiting(at);
        let oldest_call = self.threads.rows.iter().filter_map(HostThread::earliest_pending).min();
        self.awaits_work = oldest_launch.is_some() || oldest_call.is_some();
        let oldest_host =
            oldest_launch.into_iter().chain(oldest_call).min().map(|time| time.saturating_sub(CLOCK_SLACK_NANOS));
        let mut watermark = oldest_host.into_iter().chain(oldest_operation).fold(horizon, u64::min);
        if self.timelines.iter().map(Timeline::pending).sum::<usize>() > PENDING_LIMIT {
            watermark = horizon;
        }
        self.advance(watermark);
        self.flush += 1;
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
        self.place_calls(u64::MAX, dictionary);
        self.place_ranges(u64::MAX);
        self.join_arrivals(self.newest_flush, true);
        self.launches.give_up_all();
        self.advance(u64::MAX);
        self.flush += 1;
    }

    /// The books of every device on which something ran, by ordinal.
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
    pub fn memory(&self) -> impl Iterator<Item = (MemoryPlace, &Holding, Option<PeakCaller>)> {
        self.memory.rows()
    }

    /// Looks at the threads that launched, summed.
    #[must_use]
    pub fn look_totals(&self) -> LookTotals {
        self.threads.look_totals()
    }

    /// The line that a [`Subject::Host`] names.
    #[must_use]
    pub fn host_line(&self, id: LineId) -> Option<&HostLine> {
        self.stacks.line(id)
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

    /// Gives the what-if replay up, which costs about as much as everything else here: for a client that falls behind.
    /// The books go on; there are no ceilings from then on.
    pub fn stop_what_if(&mut self) {
        self.replay.stop();
    }

    /// What the program could gain at most, by the replay where it can be believed, else by the books of `device`
    /// after start-up. `None` for a device on which nothing ran.
    #[must_use]
    pub fn what_if(&self, device: DeviceId) -> Option<WhatIf> {
        let account = self.devices().find(|account| account.id() == device)?;
        self.replay.what_if(account)
    }

    /// What the steps of `device` launch in order, and how many steps launched just that. Empty without steps.
    #[must_use]
    pub fn step_sequence(&self, device: DeviceId) -> (&[Place], u64) {
        let timeline = self.timelines.iter().find(|timeline| timeline.account.id() == device);
        timeline.map_or((&[], 0), |timeline| timeline.sequence().places())
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
        let beyond = self.devices().map(|account| account.statistics.kernels_beyond_table()).sum();
        Completeness {
            launches_without_activity: self.launches.without_activity,
            kernels_beyond_table: beyond,
            ..self.completeness.clone()
        }
    }

    fn push_call(&mut self, mut call: ApiCall) {
        self.completeness.api_calls += 1;
        if call.start == Timestamp::ZERO || call.end == Timestamp::ZERO {
            self.completeness.bad_timestamps += 1;
            return;
        }
        if call.end < call.start {
            self.completeness.clamped_clocks += 1;
            call.end = call.start;
        }
        let thread = self.thread_index(call.thread);
        self.threads.rows[thread as usize].push(call);
    }

    /// Only what tracing itself costs a thread is kept: module loading and the like are the program's own doing and
    /// show as API time.
    fn push_overhead(&mut self, overhead: &Overhead) {
        self.completeness.overheads += 1;
        let by_tracing = matches!(
            overhead.kind,
            OverheadKind::BufferFlush
                | OverheadKind::Instrumentation
                | OverheadKind::Resource
                | OverheadKind::ActivityBufferRequest
                | OverheadKind::UnifiedMemoryInit
        );
        if by_tracing && overhead.thread.0 != 0 && overhead.start != Timestamp::ZERO {
            let thread = self.thread_index(overhead.thread);
            self.threads.rows[thread as usize].push_overhead(overhead.start.nanos(), overhead.end.nanos());
        }
    }

    fn place_calls(&mut self, horizon: u64, dictionary: &Dictionary) {
        let mut ready = std::mem::take(&mut self.ready);
        let threads = self.threads.rows.len();
        for index in 0..self.threads.rows.len() {
            let mut newest_launch = None;
            self.threads.rows[index].take_ready(horizon, self.newest_flush.saturating_add(FUTURE_NANOS), &mut ready);
            for call in &ready {
                let (start, end) = (call.start.nanos(), call.end.nanos());
                if self.is_damaged(start, end) {
                    self.completeness.bad_timestamps += 1;
                    continue;
                }
                self.observe(start, end);
                self.place_call(index, call, &mut newest_launch, dictionary);
            }
            self.threads.rows[index].limit_calls(threads);
        }
        self.ready = ready;
    }

    /// `newest_launch` is the launch of the newest outermost call, when it launches: its bounds and sequence.
    fn place_call(
        &mut self,
        index: usize,
        call: &ApiCall,
        newest_launch: &mut Option<(Launch, u64)>,
        dictionary: &Dictionary,
    ) {
        let (start, end) = (call.start.nanos(), call.end.nanos());
        self.memory.called(index as u32, call);
        let class = self.api_classes.get(call.function, dictionary);
        let thread = &mut self.threads.rows[index];
        let succeeded = call.return_value == 0;
        match thread.place(start, end, call.function, class) {
            Nesting::Outermost => {
                let launches = class.launches() && succeeded && !thread.capturing;
                self.replay.call(index, call, class, launches);
                self.api_table.add(call.function, end - start, succeeded);
                *newest_launch = None;
                if succeeded {
                    match class {
                        api::ApiClass::CaptureBegin => thread.capturing = true,
                        api::ApiClass::CaptureEnd => thread.capturing = false,
                        _ => {}
                    }
                    if class.launches() {
                        thread.launches = true;
                        let launch = Launch { start, end, thread: index as u32, class };
                        let sequence = self.launches.insert(call.correlation, launch, thread.capturing);
                        *newest_launch = Some((launch, sequence));
                    }
                }
            }
            Nesting::Within { start, end } => {
                self.completeness.nested_api_calls += 1;
                if !succeeded || !class.launches() {
                    return;
                }
                thread.launches = true;
                self.replay.call(index, call, class, true);
                match newest_launch {
                    Some((launch, sequence)) if launch.start == start => {
                        self.launches.alias(call.correlation, *launch, *sequence);
                    }
                    _ => {
                        // A launch inside a call that is not known to launch.
                        let launch = Launch { start, end, thread: index as u32, class };
                        let sequence = self.launches.insert(call.correlation, launch, thread.capturing);
                        *newest_launch = Some((launch, sequence));
                    }
                }
            }
        }
    }

    /// Hands operations to their timelines; those whose call is not there yet stay. Gives the earliest of these.
    fn join_arrivals(&mut self, at: u64, last: bool) -> Option<u64> {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        let mut oldest: Option<u64> = None;
        let last = last || arrivals.len() > UNJOINED_LIMIT;
        arrivals.retain_mut(|operation| {
            operation.launch = self.launches.join(operation.correlation, operation.device, operation.stream);
            if operation.launch.is_none() && !last {
                let patient = at.saturating_sub(operation.end) <= JOIN_PATIENCE_NANOS
                    || self.flush - operation.flush < JOIN_PATIENCE_FLUSHES;
                if patient {
                    if operation.start != 0 {
                        oldest = Some(oldest.map_or(operation.start, |time| time.min(operation.start)));
                    }
                    return true;
                }
            }
            self.enter(operation);
            false
        });
        self.arrivals_due = ARRIVALS.max(arrivals.len() * 2);
        if arrivals.capacity() > 4 * self.arrivals_due {
            arrivals.shrink_to(self.arrivals_due);
        }
        self.arrivals = arrivals;
        oldest
    }

    /// Between two flushes, when many operations came: hands those over whose call is known. The rest, and what a flush
    /// must confirm the time of, stays.
    fn join_known(&mut self) {
        let confirmed = self.newest_flush.saturating_add(FUTURE_NANOS);
        let mut arrivals = std::mem::take(&mut self.arrivals);
        arrivals.retain_mut(|operation| {
            if self.newest_flush == 0 || operation.end > confirmed {
                return true;
            }
            operation.launch = self.launches.join(operation.correlation, operation.device, operation.stream);
            if operation.launch.is_some() {
                self.enter(operation);
            }
            operation.launch.is_none()
        });
        self.arrivals_due = ARRIVALS.max(arrivals.len() * 2);
        self.arrivals = arrivals;
    }

    fn enter(&mut self, operation: &mut Operation) {
        match operation.launch {
            None => self.completeness.activities_without_launch += 1,
            Some(launch) => {
                operation.graph |= launch.class == api::ApiClass::GraphLaunch;
                self.completeness.clamped_clocks += u64::from(operation.start != 0 && operation.start < launch.start);
            }
        }
        if operation.start == 0 {
            return;
        }
        if self.is_damaged(operation.start, operation.end) {
            self.completeness.bad_timestamps += 1;
            return;
        }
        self.observe(operation.start, operation.end);
        if let Some(work) = operation.leaf.work() {
            let Operation { device, stream, correlation, end, .. } = *operation;
            self.dependencies.ran(device, stream, correlation.0, work, end);
        }
        if let Some(index) = self.timeline_index(operation.device) {
            let late = self.timelines[index].push(operation, &mut self.replay);
            self.completeness.late_ns += late.total;
            self.completeness.patched_ns += late.patched;
        }
    }

    fn advance(&mut self, watermark: u64) {
        let Self { threads, launches, marks, dependencies, timelines, replay, ranges, completeness, .. } = self;
        let host = Host { threads: &threads.rows, launches, marks, dependencies };
        for timeline in timelines {
            completeness.bad_timestamps += timeline.advance(watermark, &host, replay, ranges);
            replay.take_findings(&mut timeline.account);
        }
        self.replay.advance(watermark);
        // A device on which nothing runs yet has no gap that could need old calls.
        let open = self.timelines.iter().map(|timeline| timeline.account.position()).filter(|&position| position != 0);
        if let Some(oldest) = open.min() {
            for thread in &mut self.threads.rows {
                thread.forget_before(oldest.saturating_sub(SYNC_SLACK_NANOS));
            }
        }
    }

    /// Whether a record cannot have been delivered by now, or only by a process that ran for the longest window.
    /// Without any flush there is nothing to compare with.
    fn is_damaged(&self, start: u64, end: u64) -> bool {
        self.newest_flush != 0
            && (end > self.newest_flush.saturating_add(FUTURE_NANOS)
                || start < self.newest_flush.saturating_sub(sweep::LONGEST_WINDOW))
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
                self.timelines.insert(index, Timeline::new(device));
                Some(index)
            }
        }
    }

    fn thread_index(&mut self, id: ThreadId) -> u32 {
        self.threads.place(id, &self.launches, self.flush)
    }
}
