//! Source lines of kernel launches, from samples of the launching threads that fell into their launches.
//!
//! A sample shows the line of a launch if it lies within the launching call of its thread, or in the host gap
//! directly before that call and the gap is at most [`DISPATCH_NANOS`] long: there the framework prepares the
//! launch. The launch is then marked, and the operation that joins it supplies the kernel's name, or the
//! graph. The result is a set of counts by work and place: how many samples saw a launch of this kernel at
//! this line. A launch without samples uses no memory.
//!
//! Samples and calls from before a flush mark come in any order. By the flush that places a call, all samples
//! up to its end have arrived.

use std::collections::VecDeque;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{NameId, StackId};
use rustc_hash::FxHashMap;

use super::call_lines::{CallKind, CallLines};
use super::launch_places::{LaunchPlace, PlaceId, Places};
use super::launches::LaunchCall;
use crate::attribution::api::ApiClass;
use crate::attribution::host_cause::Subject;
use crate::attribution::operation::DeviceOperation;
use crate::thresholds::DISPATCH_NANOS;

/// Total samples of all threads that wait for their call (16 bytes each), split equally, but at least
/// [`FEWEST_SAMPLES`] per thread.
const SAMPLES_TOGETHER: usize = 1 << 16;
const FEWEST_SAMPLES: usize = 64;
/// Sampled launches that wait for their operation, and the maximum number of samples per launch.
const AWAITED_LIMIT: usize = 16_384;
const SAMPLES_OF_LAUNCH: usize = 64;
/// Rows by work and place, 24 bytes each with their index.
const TOTALS_LIMIT: usize = 65_536;
/// Graphs whose kernels are summed.
const GRAPH_LIMIT: usize = 4_096;

/// Work started by a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaunchedWork {
    /// A kernel of this name.
    Kernel(NameId),
    /// A CUDA graph, by CUPTI's id; 0 when the records do not say.
    Graph(u32),
}

/// Counts of launching threads' samples by where they fell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchSampleCounts {
    /// Samples in the launch of a kernel or a graph, or in the host gap directly before it.
    pub in_launches: u64,
    /// Samples in launches of copies and memsets.
    pub in_copies: u64,
    /// Samples between launches, or in other calls.
    pub elsewhere: u64,
    /// Samples in launches that got no row because a table is full.
    pub overflow: u64,
    /// Samples in launches that left no record, or none yet.
    pub without_record: u64,
}

/// Kernels that one graph ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphKernels {
    /// Number of kernels.
    pub count: u64,
    /// Sum of their durations, nanoseconds.
    pub total_ns: u64,
}

/// Samples of one thread that wait for their call, in time order.
#[derive(Debug, Default)]
pub(crate) struct LaunchSamples {
    waiting: VecDeque<(u64, StackId)>,
    /// Samples dropped because no call arrived for too long.
    dropped: u64,
}

impl LaunchSamples {
    pub(crate) fn push(&mut self, at: u64, stack: StackId) {
        // A sample is almost always the newest one.
        let index = match self.waiting.back() {
            Some(&(last, _)) if last > at => self.waiting.partition_point(|&(known, _)| known <= at),
            _ => self.waiting.len(),
        };
        self.waiting.insert(index, (at, stack));
    }

    /// True if a sample taken up to `end` is waiting.
    #[inline]
    pub(crate) fn any_until(&self, end: u64) -> bool {
        self.waiting.front().is_some_and(|&(at, _)| at <= end)
    }

    /// Removes the oldest sample if it was taken up to `end`.
    fn take_until(&mut self, end: u64) -> Option<(u64, StackId)> {
        if self.any_until(end) { self.waiting.pop_front() } else { None }
    }

    /// Limits the samples to this thread's share among `threads`.
    pub(crate) fn limit(&mut self, threads: usize) {
        let limit = (SAMPLES_TOGETHER / threads.max(1)).max(FEWEST_SAMPLES);
        if self.waiting.len() > limit {
            let excess = self.waiting.len() - limit;
            self.waiting.drain(..excess);
            self.waiting.shrink_to(2 * limit);
            self.dropped += excess as u64;
        }
    }
}

/// An outermost call that samples may have fallen into; times in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampledCall {
    /// Index of the thread.
    pub(crate) thread: u32,
    /// End of the previous call on that thread; 0 for the first.
    pub(crate) before: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) class: ApiClass,
    /// True if the call launches work.
    pub(crate) launches: bool,
}

/// Counts of sampled launches. See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct LaunchLines {
    places: Places,
    calls: CallLines,
    /// Places of the samples in a launch, by its thread and start, until its operation arrives.
    awaited: FxHashMap<(u32, u64), Vec<PlaceId>>,
    /// The same launches in order of placement; some have been joined since.
    order: VecDeque<(u32, u64)>,
    all_totals: FxHashMap<(LaunchedWork, PlaceId), u64>,
    graphs: FxHashMap<u32, GraphKernels>,
    counts: LaunchSampleCounts,
}

impl LaunchLines {
    /// Assigns the samples up to the end of a call to that call, or to none. Returns true if the launch is to
    /// be joined.
    #[cold]
    #[inline(never)]
    pub(crate) fn placed(&mut self, call: SampledCall, samples: &mut LaunchSamples, dictionary: &Dictionary) -> bool {
        let prepares = call.before > 0 && call.start.saturating_sub(call.before) <= DISPATCH_NANOS;
        let mut is_awaited = false;
        while let Some((at, stack)) = samples.take_until(call.end) {
            let is_in = at >= call.start || (prepares && at > call.before);
            let kind = CallKind::of(call.class).filter(|_| if call.launches { is_in } else { at >= call.start });
            let place = kind.and_then(|kind| Some((kind, self.places.get(stack, dictionary)?)));
            if let Some((kind, place)) = place {
                self.calls.add(kind, place, at);
            }
            match call.class {
                _ if !call.launches || !is_in => self.counts.elsewhere += 1,
                ApiClass::KernelLaunch | ApiClass::GraphLaunch => {
                    self.counts.in_launches += 1;
                    is_awaited |= self.await_work((call.thread, call.start), place.map(|(_, place)| place));
                }
                _ => self.counts.in_copies += 1,
            }
        }
        is_awaited
    }

    fn await_work(&mut self, launch: (u32, u64), place: Option<PlaceId>) -> bool {
        let Some(place) = place else {
            self.counts.overflow += 1;
            return false;
        };
        let samples = self.awaited.entry(launch).or_default();
        if samples.is_empty() {
            self.order.push_back(launch);
        } else if samples.len() >= SAMPLES_OF_LAUNCH {
            // All samples come from one call that holds up the thread. The line is known, and one launch must
            // not outweigh all others.
            self.counts.overflow += 1;
            return true;
        }
        samples.push(place);
        if self.order.len() > AWAITED_LIMIT
            && let Some(oldest) = self.order.pop_front()
        {
            let lost = self.awaited.remove(&oldest).map_or(0, |samples| samples.len());
            self.counts.without_record += lost as u64;
        }
        true
    }

    /// An operation joined a launch that samples fell into.
    #[cold]
    #[inline(never)]
    pub(crate) fn joined(&mut self, launch: &LaunchCall, operation: &DeviceOperation) {
        let work = match (launch.class, operation.subject) {
            (ApiClass::GraphLaunch, _) => LaunchedWork::Graph(operation.graph_id),
            (_, Subject::Kernel(name)) => LaunchedWork::Kernel(name),
            // A kernel launch that left another kind of record identifies no kernel.
            _ => return,
        };
        // The first node of a graph takes the samples; later nodes find none.
        let Some(samples) = self.awaited.remove(&(launch.thread, launch.start)) else { return };
        for place in samples {
            let full = self.all_totals.len() >= TOTALS_LIMIT;
            match self.all_totals.get_mut(&(work, place)) {
                Some(count) => *count += 1,
                None if full => self.counts.overflow += 1,
                None => {
                    self.all_totals.insert((work, place), 1);
                }
            }
        }
        while self.order.front().is_some_and(|oldest| !self.awaited.contains_key(oldest)) {
            self.order.pop_front();
        }
    }

    pub(crate) fn graph_kernel(&mut self, graph: u32, nanos: u64) {
        let full = self.graphs.len() >= GRAPH_LIMIT && !self.graphs.contains_key(&graph);
        if !full {
            let kernels = self.graphs.entry(graph).or_default();
            kernels.count += 1;
            kernels.total_ns = kernels.total_ns.saturating_add(nanos);
        }
    }

    /// Number of samples in launches of each kernel or graph, by place.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (LaunchedWork, &LaunchPlace, u64)> {
        let row =
            |(&(work, place), &count): (&(LaunchedWork, PlaceId), &u64)| Some((work, self.places.place(place)?, count));
        self.all_totals.iter().filter_map(row)
    }

    /// Samples in calls of each kind, by place, taken after `from` (to an eighth of a second, or a 128th of a
    /// long run).
    pub(crate) fn calls(&self, from: u64) -> Vec<(CallKind, &LaunchPlace, u64)> {
        let of = |((kind, place), count)| Some((kind, self.places.place(place)?, count));
        let mut rows: Vec<_> = self.calls.since(from).into_iter().filter_map(of).collect();
        rows.sort_unstable_by(|a, b| (a.0, b.2, a.1).cmp(&(b.0, a.2, b.1)));
        rows
    }

    /// Kernels of each graph, by CUPTI's graph id.
    pub(crate) fn graphs(&self) -> impl Iterator<Item = (u32, GraphKernels)> {
        self.graphs.iter().map(|(&graph, &kernels)| (graph, kernels))
    }

    /// Sample counts, including those of `threads` that belong to no call yet.
    pub(crate) fn counts<'a>(&self, threads: impl Iterator<Item = &'a LaunchSamples>) -> LaunchSampleCounts {
        let awaited: usize = self.awaited.values().map(Vec::len).sum();
        let rest: u64 = threads.map(|samples| samples.dropped + samples.waiting.len() as u64).sum();
        LaunchSampleCounts {
            elsewhere: self.counts.elsewhere + rest,
            without_record: self.counts.without_record + awaited as u64,
            ..self.counts
        }
    }
}
