//! Host activity: threads with their calls and samples, the work they launched, and the memory they
//! allocated.
//!
//! Calls come in any order within a flush. They are sorted by thread, separated from calls made inside other
//! calls, and passed to the rest of the engine as launches, as time in a function, and as the end of a host
//! gap of their thread. A call is placed by the first flush that passes its end: until then an enclosing one
//! may be missing. Host samples are judged immediately, because their stacks are in the dictionary.
//!
//! Reading order: [`threads`] (calls in order), [`launches`] (which call launched what; [`one_id`]: where CUPTI does
//! not tell), [`dependencies`] (which operation a stream waited for), [`samples`] with [`stacks`](super::stacks) and
//! [`interpreter_lock`] (what a thread did between calls), [`launch_lines`] (which line launched a kernel).

mod building;
pub(super) mod call_lines;
pub(super) mod dependencies;
pub(super) mod interpreter_lock;
pub(super) mod launch_lines;
pub(super) mod launches;
mod lost_launches;
pub(super) mod one_id;
pub(super) mod samples;
pub(crate) mod thread_table;
pub(super) mod threads;

use std::collections::BTreeMap;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{ApiCall, HostSample, MemoryEvent, Overhead, OverheadKind, RangeEvent, ThreadId, Timestamp};

use self::dependencies::Dependencies;
use self::interpreter_lock::{LockHeldBy, LockWatch};
use self::launch_lines::{LaunchLines, LaunchSampleCounts, SampledCall};
use self::launches::Launches;
use self::one_id::OneId;
use self::thread_table::ThreadTable;
use self::threads::{HostThread, Nesting};
use super::host_cause::HostCause;
use super::launch_order::StepMarks;
use super::operation::{Delivery, LONGEST_WINDOW, LaunchCall, is_no_time};
use super::ranges::{RangeFact, Ranges};
use super::simulation_feed::SimulationFeed;
use super::stacks::Stacks;
use super::statistics::ApiTable;
use crate::api::{ApiClass, ApiClasses, allocates};
use crate::memory::MemoryUse;
use crate::thresholds::FUTURE_NANOS;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Host {
    api_classes: ApiClasses,
    pub(super) api_table: ApiTable,
    pub(super) threads: ThreadTable,
    pub(super) launches: Launches,
    pub(super) one_id: OneId,
    pub(super) launch_lines: LaunchLines,
    pub(super) dependencies: Dependencies,
    pub(super) marks: StepMarks,
    pub(super) stacks: Stacks,
    lock: LockWatch,
    pub(super) memory: MemoryUse,
}

impl Host {
    pub(super) fn push_call(&mut self, mut call: ApiCall, delivery: &mut Delivery) {
        delivery.completeness.api_calls += 1;
        if is_no_time(call.start.nanos()) || is_no_time(call.end.nanos()) {
            delivery.completeness.bad_timestamps += 1;
            return;
        }
        if call.end < call.start {
            delivery.completeness.clamped_clocks += 1;
            call.end = call.start;
        }
        self.thread(call.thread, delivery).push(call);
    }

    /// Only the tracing cost of a thread is kept: module loading and the like are the program's own doing and
    /// show as API time.
    pub(super) fn push_overhead(&mut self, overhead: &Overhead, delivery: &mut Delivery) {
        delivery.completeness.overheads += 1;
        let by_tracing = matches!(
            overhead.kind,
            OverheadKind::BufferFlush
                | OverheadKind::Instrumentation
                | OverheadKind::Resource
                | OverheadKind::ActivityBufferRequest
                | OverheadKind::UnifiedMemoryInit
        );
        if by_tracing && overhead.thread.0 != 0 && overhead.start != Timestamp::ZERO {
            let thread = self.thread(overhead.thread, delivery);
            thread.push_overhead(overhead.start.nanos(), overhead.end.nanos());
        }
    }

    pub(super) fn push_sample(&mut self, sample: &HostSample, delivery: &mut Delivery, dictionary: &Dictionary) {
        delivery.completeness.samples += 1;
        let (since, at) = (sample.since.nanos(), sample.at.nanos());
        if since == 0 || at < since || at - since > LONGEST_WINDOW {
            delivery.completeness.bad_timestamps += 1;
            return;
        }
        self.memory.sampled(sample);
        let class = self.stacks.get(sample.stack, dictionary);
        self.thread(sample.thread, delivery).launch_samples.push(at, sample.stack, sample.read_within);
        if self.lock.push(sample, class) {
            self.place_samples(delivery);
        }
    }

    /// Places the samples that waited for others of the same time.
    fn place_samples(&mut self, delivery: &Delivery) {
        let Self { lock, threads, .. } = self;
        let views = lock.take(|thread| threads.get(thread).is_some_and(HostThread::calls_cuda));
        for (thread, view) in views {
            if let Some(line) = view.built_at() {
                self.threads.building.sampled(view.span(), line);
            }
            self.thread(thread, delivery).samples.push(view);
        }
    }

    /// See [`Attributor::lock_holders`](super::Attributor::lock_holders).
    pub(super) fn lock_holders(&self) -> Vec<(LockHeldBy, u64)> {
        let mut sums = BTreeMap::new();
        let calls = |id: ThreadId| self.threads.get(id).is_some_and(HostThread::calls_cuda);
        for (_, holder, samples) in self.lock.pairs().filter(|&(thread, ..)| calls(thread)) {
            *sums.entry(holder).or_default() += samples;
        }
        sums.into_iter().collect()
    }

    pub(super) fn push_memory(&mut self, event: &MemoryEvent, delivery: &mut Delivery) {
        delivery.completeness.memory_events += 1;
        if event.at == Timestamp::ZERO {
            delivery.completeness.bad_timestamps += 1;
            return;
        }
        self.memory.push(event);
    }

    /// A thread added a node to a graph: the launch during which it did so, known or not yet, runs nothing.
    /// Returns the index of the thread.
    pub(super) fn push_added_node(&mut self, thread: ThreadId, at: u64, delivery: &Delivery) -> u32 {
        let index = self.threads.index_of(thread, &self.launches, delivery.flush);
        self.threads.rows[index as usize].added_node(at);
        self.launches.captured(index, at);
        index
    }

    /// Ranges have no meaning until they are in order, so they are set aside until the flush that passes
    /// them.
    pub(super) fn push_range(
        &mut self,
        event: &RangeEvent,
        ranges: &mut Ranges,
        delivery: &mut Delivery,
        dictionary: &Dictionary,
    ) {
        if self.memory.blocks.push(event, dictionary) {
            return;
        }
        delivery.completeness.ranges += 1;
        if event.at == Timestamp::ZERO {
            delivery.completeness.bad_timestamps += 1;
            return;
        }
        let thread = self.threads.index_of(event.thread, &self.launches, delivery.flush);
        ranges.push(event, thread, dictionary);
    }

    #[inline]
    fn thread(&mut self, id: ThreadId, delivery: &Delivery) -> &mut HostThread {
        let index = self.threads.index_of(id, &self.launches, delivery.flush);
        &mut self.threads.rows[index as usize]
    }

    /// Places the calls that ended up to `horizon`, and all that started up to `begun`, complete or not.
    pub(super) fn place_calls(
        &mut self,
        horizon: u64,
        begun: u64,
        simulation: &mut SimulationFeed,
        delivery: &mut Delivery,
        dictionary: &Dictionary,
    ) {
        self.place_samples(delivery);
        self.memory.learn(dictionary);
        self.memory.advance_records(horizon);
        let latest = delivery.newest_flush.saturating_add(FUTURE_NANOS);
        let threads = self.threads.rows.len();
        for index in 0..self.threads.rows.len() {
            let mut newest_launch = None;
            self.threads.rows[index].sort_pending();
            while let Some(call) = self.threads.rows[index].take_next(horizon, latest, begun) {
                let (start, end) = (call.start.nanos(), call.end.nanos());
                if delivery.is_damaged(start, end) {
                    delivery.completeness.bad_timestamps += 1;
                    continue;
                }
                delivery.observe(start, end);
                self.place_call(index, &call, &mut newest_launch, simulation, delivery, dictionary);
            }
            self.threads.rows[index].limit(threads);
        }
    }

    /// `newest_launch` is the launch of the newest outermost call if it launches: its bounds and sequence.
    fn place_call(
        &mut self,
        index: usize,
        call: &ApiCall,
        newest_launch: &mut Option<(LaunchCall, u64)>,
        simulation: &mut SimulationFeed,
        delivery: &mut Delivery,
        dictionary: &Dictionary,
    ) {
        let (start, end) = (call.start.nanos(), call.end.nanos());
        let class = self.api_classes.get(call.function, dictionary);
        let ThreadTable { rows, hand_over, .. } = &mut self.threads;
        let thread = &mut rows[index];
        let succeeded = call.return_value == 0;
        let before = thread.newest_end();
        match thread.place(start, end, call.function, class) {
            Nesting::Outermost => {
                self.memory.called(index as u32, call, class, dictionary);
                let captured = class.launches() && thread.is_captured(start, end, class);
                let launches = class.launches() && succeeded && !captured;
                let sampled = thread.launch_samples.any_until(end) && {
                    let call = SampledCall { thread: index as u32, before, start, end, class, launches };
                    self.launch_lines.placed(call, &mut thread.launch_samples, dictionary)
                };
                let launch = LaunchCall { start, end, thread: index as u32, class, sampled };
                let correlation =
                    if launches { self.one_id.of_launch(call, &launch, &self.launches) } else { call.correlation };
                simulation.call(index, &ApiCall { correlation, ..*call }, class, launches);
                if class == ApiClass::Synchronize && succeeded {
                    self.marks.waits.push(index as u32, call.function, end);
                    self.one_id.waited(&launch, call.function, dictionary);
                }
                let name = || dictionary.api_function(call.function).map(|function| dictionary.name(function.name));
                if class == ApiClass::Memory && succeeded && name().is_some_and(allocates) {
                    self.marks.allocations.push(index as u32, call.function, end);
                }
                self.api_table.add(call.function, start, end - start, succeeded);
                *newest_launch = None;
                if succeeded {
                    match class {
                        ApiClass::CaptureBegin => thread.capturing = true,
                        ApiClass::CaptureEnd => thread.capturing = false,
                        _ => {}
                    }
                    if class.launches() {
                        hand_over.extend(thread.launched(end).then_some(index as u32));
                        let sequence = self.launches.insert(correlation, launch, captured);
                        *newest_launch = Some((launch, sequence));
                    }
                }
            }
            Nesting::Within { start, end } => {
                delivery.completeness.nested_api_calls += 1;
                if !succeeded || !class.launches() {
                    return;
                }
                hand_over.extend(thread.launched(end).then_some(index as u32));
                simulation.call(index, call, class, true);
                match newest_launch {
                    Some((launch, sequence)) if launch.start == start => {
                        if !self.one_id.has(call.correlation) {
                            self.launches.alias(call.correlation, *launch, *sequence);
                        }
                    }
                    _ => {
                        // A launch inside a call that is not known to launch.
                        let launch = LaunchCall { start, end, thread: index as u32, class, sampled: false };
                        let captured = thread.is_captured(start, end, class);
                        let correlation = if captured {
                            call.correlation
                        } else {
                            self.one_id.of_launch(call, &launch, &self.launches)
                        };
                        let sequence = self.launches.insert(correlation, launch, captured);
                        *newest_launch = Some((launch, sequence));
                    }
                }
            }
        }
    }

    /// Places the range events up to `horizon`, before the timelines advance to it.
    pub(super) fn place_ranges(&mut self, horizon: u64, ranges: &mut Ranges) {
        for finding in ranges.advance(horizon) {
            match finding {
                RangeFact::Step { thread, at } => self.marks.push(thread, Timestamp::from_nanos(at)),
                RangeFact::Begins { cause: HostCause::KernelBuild, at, .. } => self.threads.building.begin(at),
                RangeFact::Ends { cause: HostCause::KernelBuild, at, .. } => self.threads.building.end(at),
                RangeFact::Begins { thread, at, cause } => {
                    self.threads.rows[thread as usize].samples.enter_loader(at, cause);
                }
                RangeFact::Ends { thread, at, .. } => self.threads.rows[thread as usize].samples.leave_loader(at),
            }
        }
        self.memory.place(|thread, at| ranges.innermost(thread, at));
    }

    /// Start of the oldest call that is not placed.
    pub(super) fn oldest_pending(&self) -> Option<u64> {
        self.threads.rows.iter().filter_map(HostThread::earliest_pending).min()
    }

    /// Drops data that no gap from `keep_from` on can need.
    pub(super) fn forget_before(&mut self, keep_from: u64) {
        self.threads.rows.iter_mut().for_each(|thread| thread.forget_before(keep_from));
        self.threads.building.forget_before(keep_from);
    }

    /// Sample counts of all threads.
    pub(super) fn launch_sample_counts(&self) -> LaunchSampleCounts {
        self.launch_lines.counts(self.threads.rows.iter().map(|thread| &thread.launch_samples))
    }
}
