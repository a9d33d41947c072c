//! Which line launched a kernel, from samples of the launching threads that fell into its launches.
//!
//! A sample tells the line of a launch when it lies within the launching call of its thread, or in the host gap
//! directly before that call when the gap is at most [`DISPATCH_NANOS`] long: there the framework prepares the launch.
//! The launch is then marked, and the operation that joins it brings the kernel's name, or the graph. What is kept are
//! tallies by work and place: how often launches of this kernel were seen at this line. A launch that no sample fell
//! into keeps nothing.
//!
//! Samples and calls of the time before a flush mark come in any order. By the flush that places a call, all samples up
//! to its end have come.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::api::ApiClass;
use super::join::Launch;
use super::launch_places::{LaunchPlace, PlaceId, Places};
use super::operation::Operation;
use super::subject::Subject;
use crate::dictionary::Dictionary;
use crate::record::{NameId, StackId};
use crate::thresholds::DISPATCH_NANOS;

/// Samples of all threads together that wait for the call they fall into (16 bytes each), in equal parts, but at least
/// [`FEWEST_SAMPLES`] of each.
const SAMPLES_TOGETHER: usize = 1 << 16;
const FEWEST_SAMPLES: usize = 64;
/// Sampled launches that wait for their operation, and samples that one of them may have.
const AWAITED_LIMIT: usize = 16_384;
const SAMPLES_OF_LAUNCH: usize = 64;
/// Rows of work and place, 24 bytes each with their index.
const TALLY_LIMIT: usize = 65_536;
/// Graphs whose kernels are summed.
const GRAPH_LIMIT: usize = 4_096;

/// What a launch launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaunchedWork {
    /// A kernel of this name.
    Kernel(NameId),
    /// A CUDA graph, by CUPTI's id; 0 when the records do not say.
    Graph(u32),
}

/// Where the samples of launching threads went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchSampleCounts {
    /// Samples that fell into the launch of a kernel or a graph, or into the host gap directly before it.
    pub in_launches: u64,
    /// Samples in launches of copies and memsets.
    pub in_copies: u64,
    /// Samples between launches, or in other calls.
    pub elsewhere: u64,
    /// Of those in launches: without a row, since a table is full.
    pub overflow: u64,
    /// Of those in launches: the launch left no record, or none yet.
    pub without_record: u64,
}

/// Kernels that one graph ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphKernels {
    /// Kernels.
    pub count: u64,
    /// Sum of their durations, nanoseconds.
    pub total_ns: u64,
}

/// Samples of one thread that wait for the call they fall into, in order.
#[derive(Debug, Default)]
pub(super) struct LaunchSamples {
    waiting: VecDeque<(u64, StackId)>,
    /// Dropped, since no call came for long.
    dropped: u64,
}

impl LaunchSamples {
    pub(super) fn push(&mut self, at: u64, stack: StackId) {
        // Almost every sample is the newest one.
        let index = match self.waiting.back() {
            Some(&(last, _)) if last > at => self.waiting.partition_point(|&(known, _)| known <= at),
            _ => self.waiting.len(),
        };
        self.waiting.insert(index, (at, stack));
    }

    /// Whether a sample waits that was taken up to `end`.
    #[inline]
    pub(super) fn any_until(&self, end: u64) -> bool {
        self.waiting.front().is_some_and(|&(at, _)| at <= end)
    }

    /// Takes the oldest sample that was taken up to `end`.
    fn take_until(&mut self, end: u64) -> Option<(u64, StackId)> {
        if self.any_until(end) { self.waiting.pop_front() } else { None }
    }

    /// Keeps no more than this thread's part, there being `threads`.
    pub(super) fn limit(&mut self, threads: usize) {
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
pub(super) struct SampledCall {
    /// Index of the thread.
    pub(super) thread: u32,
    /// End of the call before it on that thread; 0 for the first.
    pub(super) before: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    /// What it launches; `None` when it launches nothing.
    pub(super) launches: Option<ApiClass>,
}

/// Tallies of sampled launches. See the [module](self).
#[derive(Debug, Default)]
pub(super) struct LaunchLines {
    places: Places,
    /// Places of the samples in a launch, by its thread and begin, until its operation comes.
    awaited: FxHashMap<(u32, u64), Vec<PlaceId>>,
    /// The same launches in the order of placing; some have been joined meanwhile.
    order: VecDeque<(u32, u64)>,
    tallies: FxHashMap<(LaunchedWork, PlaceId), u64>,
    graphs: FxHashMap<u32, GraphKernels>,
    counts: LaunchSampleCounts,
}

impl LaunchLines {
    /// Gives the samples up to the end of a call to it, or to none. Answers whether the launch is to be joined.
    #[cold]
    #[inline(never)]
    pub(super) fn placed(&mut self, call: SampledCall, samples: &mut LaunchSamples, dictionary: &Dictionary) -> bool {
        let prepares = call.before > 0 && call.start.saturating_sub(call.before) <= DISPATCH_NANOS;
        let mut is_awaited = false;
        while let Some((at, stack)) = samples.take_until(call.end) {
            let is_in = at >= call.start || (prepares && at > call.before);
            match call.launches.filter(|_| is_in) {
                None => self.counts.elsewhere += 1,
                Some(ApiClass::KernelLaunch | ApiClass::GraphLaunch) => {
                    self.counts.in_launches += 1;
                    is_awaited |= self.await_work((call.thread, call.start), stack, dictionary);
                }
                Some(_) => self.counts.in_copies += 1,
            }
        }
        is_awaited
    }

    fn await_work(&mut self, launch: (u32, u64), stack: StackId, dictionary: &Dictionary) -> bool {
        let Some(place) = self.places.get(stack, dictionary) else {
            self.counts.overflow += 1;
            return false;
        };
        let samples = self.awaited.entry(launch).or_default();
        if samples.is_empty() {
            self.order.push_back(launch);
        } else if samples.len() >= SAMPLES_OF_LAUNCH {
            // All samples of one call in which the thread is held up: the line is known, and one launch is not to
            // outweigh all others.
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
    pub(super) fn joined(&mut self, launch: &Launch, operation: &Operation) {
        let work = match (launch.class, operation.subject) {
            (ApiClass::GraphLaunch, _) => LaunchedWork::Graph(operation.graph_id),
            (_, Subject::Kernel(name)) => LaunchedWork::Kernel(name),
            // A launch of a kernel that left another record: nothing that could be told.
            _ => return,
        };
        // Nodes of a graph behind its first find nothing any more.
        let Some(samples) = self.awaited.remove(&(launch.thread, launch.start)) else { return };
        for place in samples {
            let full = self.tallies.len() >= TALLY_LIMIT;
            match self.tallies.get_mut(&(work, place)) {
                Some(count) => *count += 1,
                None if full => self.counts.overflow += 1,
                None => {
                    self.tallies.insert((work, place), 1);
                }
            }
        }
        while self.order.front().is_some_and(|oldest| !self.awaited.contains_key(oldest)) {
            self.order.pop_front();
        }
    }

    /// A graph ran a kernel.
    pub(super) fn graph_kernel(&mut self, graph: u32, nanos: u64) {
        let full = self.graphs.len() >= GRAPH_LIMIT && !self.graphs.contains_key(&graph);
        if !full {
            let kernels = self.graphs.entry(graph).or_default();
            kernels.count += 1;
            kernels.total_ns = kernels.total_ns.saturating_add(nanos);
        }
    }

    /// How often launches of a kernel or graph were seen at a place.
    pub(super) fn rows(&self) -> impl Iterator<Item = (LaunchedWork, &LaunchPlace, u64)> {
        let row =
            |(&(work, place), &count): (&(LaunchedWork, PlaceId), &u64)| Some((work, self.places.place(place)?, count));
        self.tallies.iter().filter_map(row)
    }

    /// The kernels of each graph, by CUPTI's id of the graph.
    pub(super) fn graphs(&self) -> impl Iterator<Item = (u32, GraphKernels)> {
        self.graphs.iter().map(|(&graph, &kernels)| (graph, kernels))
    }

    /// Where the samples went, with those of `threads` that belong to no call yet.
    pub(super) fn counts<'a>(&self, threads: impl Iterator<Item = &'a LaunchSamples>) -> LaunchSampleCounts {
        let awaited: usize = self.awaited.values().map(Vec::len).sum();
        let rest: u64 = threads.map(|samples| samples.dropped + samples.waiting.len() as u64).sum();
        LaunchSampleCounts {
            elsewhere: self.counts.elsewhere + rest,
            without_record: self.counts.without_record + awaited as u64,
            ..self.counts
        }
    }
}
