//! Source lines of kernel launches, from samples of the launching threads that fell into their launches.
//!
//! A sample belongs to a launch if it lies within the launching call of its thread, or in the host gap directly
//! before that call and the gap is at most [`DISPATCH_NANOS`] long: there the framework prepares the launch. The
//! launch is then marked, and the operation that joins it supplies the kernel's name, or the graph. The result
//! is a set of counts by work and place: how many samples saw a launch of this kernel at this line. A launch
//! without samples uses no memory.
//!
//! The stack is read a moment after the time of the sample: some microseconds if the record says so
//! (`HostSample::read_within`), up to [`STACK_DELAY_NANOS`] otherwise. So the line of a launch is certain only if the
//! call lasts until then. Such a sample counts by the part of kernel time that it stands for: the duration of the
//! kernel, divided by the time in which a sample of the call would have been certain. If the record says when the
//! stack was read, a sample shows the line of a kind of calls ([`CallKind`]) only if the thread made no other call
//! until then.
//!
//! Samples and calls from before a flush mark come in any order. By the flush that places a call, all samples
//! up to its end have arrived.

use std::collections::VecDeque;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{NameId, StackId};
use rustc_hash::FxHashMap;

use super::call_lines::{CallKind, CallLines};
use crate::api::ApiClass;
use crate::attribution::host_cause::Subject;
use crate::attribution::launch_places::{LaunchPlace, PlaceId, Places};
use crate::attribution::operation::{DeviceOperation, LaunchCall};
use crate::thresholds::{CERTAIN_LAUNCH_NANOS, DISPATCH_NANOS, STACK_DELAY_NANOS};

/// Total samples of all threads that wait for their call (24 bytes each), split equally, but at least
/// [`FEWEST_SAMPLES`] per thread.
const SAMPLES_TOGETHER: usize = 1 << 16;
const FEWEST_SAMPLES: usize = 64;
/// Longest time from a copy to the wait for it: PyTorch takes 1 to 3 us.
const READ_NANOS: u64 = 10_000;
/// Sampled launches that wait for their operation, and the maximum number of samples per launch.
const AWAITED_LIMIT: usize = 16_384;
const SAMPLES_OF_LAUNCH: usize = 64;
/// Rows by work and place, 48 bytes each with their index.
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
#[non_exhaustive]
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

/// Samples in the launches of one kernel or graph at one place.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LaunchSampleSum {
    /// Number of samples.
    pub samples: u64,
    /// Of them, those whose stack was certainly read during the launching call.
    pub certain: u64,
    /// Sum over the launches with certain samples: their number times the duration of the kernel (1 for a
    /// graph), divided by the time in which a sample of the call is certain.
    pub weight: f64,
    /// Sum of the squares of the same.
    pub squares: f64,
}

/// Kernels that one graph ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphKernels {
    /// Number of kernels.
    pub count: u64,
    /// Sum of their durations, nanoseconds.
    pub total_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct WaitingSample {
    at: u64,
    stack: StackId,
    /// Nanoseconds after which the stack was read; 0 if unknown.
    read_within: u32,
    /// Kind of the call that the sample fell into, if the stack was read after that call.
    began_in: Option<CallKind>,
}

impl WaitingSample {
    const fn read(&self) -> u64 {
        self.at.saturating_add(self.read_within as u64)
    }
}

/// Samples of one thread that wait for their call, in time order.
#[derive(Debug, Default)]
pub(crate) struct LaunchSamples {
    waiting: VecDeque<WaitingSample>,
    /// Samples dropped because no call arrived for too long.
    dropped: u64,
}

impl LaunchSamples {
    pub(crate) fn push(&mut self, at: u64, stack: StackId, read_within: u32) {
        // A sample is almost always the newest one.
        let index = match self.waiting.back() {
            Some(last) if last.at > at => self.waiting.partition_point(|known| known.at <= at),
            _ => self.waiting.len(),
        };
        self.waiting.insert(index, WaitingSample { at, stack, read_within, began_in: None });
    }

    /// True if a sample taken up to `end` is waiting.
    #[inline]
    pub(crate) fn any_until(&self, end: u64) -> bool {
        self.waiting.front().is_some_and(|sample| sample.at <= end)
    }

    /// Samples that belong to no call yet.
    fn unplaced(&self) -> u64 {
        self.waiting.iter().filter(|sample| sample.began_in.is_none()).count() as u64
    }

    /// Limits the samples to this thread's share among `threads`.
    pub(crate) fn limit(&mut self, threads: usize) {
        let limit = (SAMPLES_TOGETHER / threads.max(1)).max(FEWEST_SAMPLES);
        if self.waiting.len() > limit {
            let before = self.unplaced();
            self.waiting.drain(..self.waiting.len() - limit);
            self.waiting.shrink_to(2 * limit);
            self.dropped += before - self.unplaced();
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

impl SampledCall {
    /// True if a launch is prepared in the time since the previous call.
    const fn is_prepared(&self) -> bool {
        self.before > 0 && self.start.saturating_sub(self.before) <= DISPATCH_NANOS
    }

    /// True if a time is within the call, or within the time in which it is prepared.
    const fn includes(&self, at: u64) -> bool {
        at >= self.start || (self.is_prepared() && at > self.before)
    }

    /// Kind of call that the thread made at this time, no later than the end of the call.
    fn kind_at(&self, at: u64) -> Option<CallKind> {
        CallKind::of(self.class).filter(|_| if self.launches { self.includes(at) } else { at >= self.start })
    }

    /// What the thread does up to the end of the call, after calls of this kind; `None` if the line of a sample that
    /// began there may be of either.
    fn continued(&self, kind: CallKind) -> Option<CallKind> {
        let of = CallKind::of(self.class);
        let is_short = self.end.saturating_sub(self.start) <= DISPATCH_NANOS;
        match (kind, of) {
            _ if !self.is_prepared() => None,
            // The line that reads a value copies it and waits.
            (CallKind::Copy, Some(CallKind::Wait)) if self.start - self.before <= READ_NANOS => of,
            // Between launches, a framework makes short calls of all kinds.
            (CallKind::Launch, _) | (_, None) if is_short => Some(kind),
            _ => of.filter(|&of| of == kind),
        }
    }
}

/// A sample in a launch whose operation has not arrived.
#[derive(Clone, Copy, Debug)]
struct AwaitedSample {
    /// `None` if the sample has no stack, or the tables are full.
    place: Option<PlaceId>,
    /// Time in which a sample of the call is certain, nanoseconds; `None` if this one is not.
    certain_in: Option<u64>,
}

/// Counts of sampled launches. See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct LaunchLines {
    places: Places,
    call_places: Places,
    calls: CallLines,
    /// Samples in a launch, by its thread and start, until its operation arrives.
    awaited: FxHashMap<(u32, u64), Vec<AwaitedSample>>,
    /// The same launches in order of placement; some have been joined since.
    order: VecDeque<(u32, u64)>,
    all_totals: FxHashMap<(LaunchedWork, Option<PlaceId>), LaunchSampleSum>,
    /// Time of the kernels whose launches were long enough for a certain sample.
    certain_ns: FxHashMap<LaunchedWork, u64>,
    graphs: FxHashMap<u32, GraphKernels>,
    counts: LaunchSampleCounts,
}

impl LaunchLines {
    /// Assigns the samples up to the end of a call to that call, or to none. Returns true if the launch is to
    /// be joined.
    #[cold]
    #[inline(never)]
    pub(crate) fn placed(&mut self, call: SampledCall, samples: &mut LaunchSamples, dictionary: &Dictionary) -> bool {
        let mut is_awaited = false;
        let mut index = 0;
        while let Some(&sample) = samples.waiting.get(index).filter(|sample| sample.at <= call.end) {
            let kind = match sample.began_in {
                Some(began_in) => call.continued(began_in),
                None => {
                    is_awaited |= self.sampled(&call, &sample, dictionary);
                    call.kind_at(sample.at)
                }
            };
            if kind.is_some_and(|kind| sample.read() > call.end && kind.launches()) {
                samples.waiting[index].began_in = kind;
                index += 1;
                continue;
            }
            if let Some(kind) = kind.filter(|_| sample.read() <= call.end)
                && let Some(place) = self.call_places.with_inner_frames(sample.stack, dictionary)
            {
                self.calls.add(kind, place, sample.at);
            }
            samples.waiting.remove(index);
        }
        is_awaited
    }

    /// Counts a sample taken up to the end of the call. Returns true if it waits for the work of the call.
    fn sampled(&mut self, call: &SampledCall, sample: &WaitingSample, dictionary: &Dictionary) -> bool {
        match call.class {
            _ if !call.launches || !call.includes(sample.at) || sample.read() > call.end => self.counts.elsewhere += 1,
            ApiClass::KernelLaunch | ApiClass::GraphLaunch => {
                self.counts.in_launches += 1;
                let read_within = if sample.read_within == 0 { STACK_DELAY_NANOS } else { sample.read_within.into() };
                let is_certain = call.end.saturating_sub(call.start) >= CERTAIN_LAUNCH_NANOS
                    && sample.at >= call.start
                    && sample.at.saturating_add(read_within) <= call.end;
                let certain_in = is_certain.then(|| call.end.saturating_sub(call.start + read_within).max(1));
                let place = self.places.get(sample.stack, dictionary);
                return self.await_work((call.thread, call.start), AwaitedSample { place, certain_in });
            }
            _ => self.counts.in_copies += 1,
        }
        false
    }

    fn await_work(&mut self, launch: (u32, u64), sample: AwaitedSample) -> bool {
        if sample.place.is_none() {
            self.counts.overflow += 1;
            if sample.certain_in.is_none() {
                return false;
            }
        }
        let samples = self.awaited.entry(launch).or_default();
        if samples.is_empty() {
            self.order.push_back(launch);
        } else if samples.len() >= SAMPLES_OF_LAUNCH {
            // All samples come from one call that holds up the thread. The line is known, and one launch must
            // not outweigh all others.
            self.counts.overflow += u64::from(sample.place.is_some());
            return true;
        }
        samples.push(sample);
        if self.order.len() > AWAITED_LIMIT
            && let Some(oldest) = self.order.pop_front()
        {
            let lost = self.awaited.remove(&oldest).map_or(0, |samples| with_place(&samples));
            self.counts.without_record += lost;
        }
        true
    }

    /// An operation joined a launch that samples fell into.
    #[cold]
    #[inline(never)]
    pub(crate) fn joined(&mut self, launch: &LaunchCall, operation: &DeviceOperation) {
        let Some(work) = work_of(launch, operation) else { return };
        // The first node of a graph takes the samples; later nodes find none.
        let Some(mut samples) = self.awaited.remove(&(launch.thread, launch.start)) else { return };
        let stands_for = match work {
            LaunchedWork::Kernel(_) => operation.end.saturating_sub(operation.start) as f64,
            LaunchedWork::Graph(_) => 1.0,
        };
        samples.sort_by_key(|sample| sample.place);
        for same in samples.chunk_by(|a, b| a.place == b.place) {
            let key = (work, same[0].place);
            if self.all_totals.len() >= TOTALS_LIMIT && !self.all_totals.contains_key(&key) {
                self.counts.overflow += with_place(same);
                continue;
            }
            let certain_in = same.iter().filter_map(|sample| sample.certain_in);
            let certain = certain_in.clone().count();
            let weight = certain_in.map(|nanos| stands_for / nanos as f64).sum::<f64>();
            let sum = self.all_totals.entry(key).or_default();
            sum.samples += same.len() as u64;
            sum.certain += certain as u64;
            sum.weight += weight;
            sum.squares += weight * weight;
        }
        while self.order.front().is_some_and(|oldest| !self.awaited.contains_key(oldest)) {
            self.order.pop_front();
        }
    }

    /// A kernel joined a launch that lasted at least [`CERTAIN_LAUNCH_NANOS`].
    #[cold]
    #[inline(never)]
    pub(crate) fn joined_long(&mut self, launch: &LaunchCall, operation: &DeviceOperation) {
        let Some(work) = work_of(launch, operation).filter(|_| matches!(operation.subject, Subject::Kernel(_))) else {
            return;
        };
        if self.certain_ns.len() < TOTALS_LIMIT || self.certain_ns.contains_key(&work) {
            let sum = self.certain_ns.entry(work).or_default();
            *sum = sum.saturating_add(operation.end.saturating_sub(operation.start));
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

    /// Samples in launches of each kernel or graph, by place; `None` for those without a stack.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (LaunchedWork, Option<&LaunchPlace>, LaunchSampleSum)> {
        self.all_totals
            .iter()
            .map(|(&(work, place), &sum)| (work, place.and_then(|place| self.places.place(place)), sum))
    }

    /// Time of each kernel or graph that was launched by calls of at least [`CERTAIN_LAUNCH_NANOS`], nanoseconds.
    pub(crate) fn certain_ns(&self) -> impl Iterator<Item = (LaunchedWork, u64)> {
        self.certain_ns.iter().map(|(&work, &nanos)| (work, nanos))
    }

    /// Samples in calls of each kind, by place, taken after `from` (to an eighth of a second, or a 128th of a
    /// long run).
    pub(crate) fn calls(&self, from: u64) -> Vec<(CallKind, &LaunchPlace, u64)> {
        let of = |((kind, place), count)| Some((kind, self.call_places.place(place)?, count));
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
        let awaited: u64 = self.awaited.values().map(|samples| with_place(samples)).sum();
        let rest: u64 = threads.map(|samples| samples.dropped + samples.unplaced()).sum();
        LaunchSampleCounts {
            elsewhere: self.counts.elsewhere + rest,
            without_record: self.counts.without_record + awaited,
            ..self.counts
        }
    }
}

/// Samples that are not counted as without a stack.
fn with_place(samples: &[AwaitedSample]) -> u64 {
    samples.iter().filter(|sample| sample.place.is_some()).count() as u64
}

/// `None` for a kernel launch that left another kind of record: it identifies no kernel.
fn work_of(launch: &LaunchCall, operation: &DeviceOperation) -> Option<LaunchedWork> {
    match (launch.class, operation.subject) {
        (ApiClass::GraphLaunch, _) => Some(LaunchedWork::Graph(operation.graph_id)),
        (_, Subject::Kernel(name)) => Some(LaunchedWork::Kernel(name)),
        _ => None,
    }
}
