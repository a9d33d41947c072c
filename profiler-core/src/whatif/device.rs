//! Simulated clocks of a device: when each stream is free, and what an operation waited for.
//!
//! An operation starts when the last of three things is done: its launch, the previous operation on its
//! stream, and an event that its stream waits for. The event leaves no record that names the producer, so the
//! producer is inferred: an operation that neither its launch nor its stream explains, and that starts right
//! after another one ended, waited for that one. The dependency that was last in reality keeps its real lag,
//! up to a limit. A longer lag is unexplained time, which is counted and left out of the simulation, so that
//! the base scenario cannot hide it.

use gpuwhy_trace::record::{DeviceId, StreamId, ThreadId};
use rustc_hash::FxHashMap;

use super::gaps::{QueuedGaps, between_nodes, untraced};
use super::host::{Begun, SimulatedThread};
use super::input::{Call, Operation, OperationClass, READBACK_BYTES};
use super::joined::{SMALL_COPY_NANOS, joined_nanos};
use super::log::{SimulatedOperation, SimulationLog};
use super::scenario::{ScenarioKind, beside, removed_in};
use super::variants::{Clocks, Origin, VARIANT_COUNT, Variants, as_clock, is_traced, later, latest, plus};
use crate::thresholds::{INTER_KERNEL_NANOS, LAUNCH_LATENCY_NANOS};

/// Longest time from the end of an operation to the start of one on another stream that waited for it: an
/// event takes a few microseconds more than the order within a stream.
pub(super) const EVENT_NANOS: u64 = 15_000;
/// Lag on the stream above which other streams are searched. Measured medians between kernels are 1 to 4 us.
const EVENT_SUSPECTED_NANOS: u64 = 8_000;
/// Time that issuing takes within a call before the device can start: calls that launch take 2 to 10 us.
const ISSUE_NANOS: u64 = 10_000;
/// Maximum number of streams; beyond that, the least recently used one is forgotten.
const STREAM_LIMIT: usize = 256;

/// Data about a launching call that its operations need.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimulatedLaunch {
    pub(super) thread: ThreadId,
    pub(super) start: u64,
    pub(super) end: u64,
    /// Time of entry in every scenario.
    pub(super) entered: Clocks,
    /// Time at which the thread entered the call that launches this operation instead, in scenarios where
    /// small grids are one kernel or small copies are one copy.
    leader: Option<u64>,
    /// Tracing overhead of the call if it did not wait, nanoseconds.
    tracing: u32,
}

impl SimulatedLaunch {
    pub(super) fn of(call: &Call, thread: &SimulatedThread) -> Self {
        let SimulatedThread { entered, leader, .. } = *thread;
        let tracing = call.tracing_ns;
        Self { thread: call.thread, start: call.start, end: call.end, entered, leader, tracing }
    }
}

/// An operation that has started.
#[derive(Clone, Debug)]
struct StartedOperation {
    start: u64,
    end: u64,
    copy: bool,
    /// Time of its end in every scenario.
    done: Clocks,
    /// Time at which its stream continues, in every scenario: earlier than `done` if it runs in parallel with
    /// the stream.
    free: Clocks,
}

#[derive(Clone, Debug)]
struct Stream {
    key: (DeviceId, StreamId),
    /// The newest one and the one before: an operation that is still running was preceded by one that ended
    /// before it.
    runs: [Option<StartedOperation>; 2],
    /// Index of the newest one.
    newest: usize,
    /// End of the last operation that ran in parallel with the stream.
    beside: Clocks,
    /// The call that launched the newest operation outside the batch of another one, and the start of that
    /// operation.
    leader: (Option<(ThreadId, u64)>, Clocks),
}

impl Stream {
    fn new(key: (DeviceId, StreamId)) -> Self {
        Self {
            key,
            runs: [None, None],
            newest: 0,
            beside: [f64::MIN; VARIANT_COUNT],
            leader: (None, [f64::MIN; VARIANT_COUNT]),
        }
    }

    /// The newest operation that ended before `start`.
    fn before(&self, start: u64) -> Option<&StartedOperation> {
        self.runs().find(|run| run.end <= start)
    }

    /// Runs an operation that is otherwise `ready` at that time. Returns its end and its start.
    fn append(
        &mut self,
        operation: &Operation,
        ready: &Clocks,
        edges: &Edges,
        launch: Option<&SimulatedLaunch>,
        variants: &Variants,
    ) -> (Clocks, Clocks) {
        let (start, end) = (operation.start, operation.end.max(operation.start));
        let copies = operation.class.is_copy();
        let mut begin = *ready;
        if let Some(run) = self.before(start) {
            begin = latest(&begin, &plus(&run.free, edges.untraced_stream_lag));
            let base = ScenarioKind::Base as usize;
            begin[base] = later(ready[base], run.free[base] + as_clock(edges.stream_lag));
            if !run.copy && !copies {
                let lag = as_clock(between_nodes(edges.stream_lag, edges.usual).min(edges.untraced_stream_lag));
                variants
                    .without(ScenarioKind::LaunchesFree)
                    .for_each(|variant| begin[variant] = later(ready[variant], run.free[variant] + lag));
            }
        }
        if let Some((free, lag)) = &edges.event {
            begin = latest(&begin, &plus(free, *lag));
        }
        let newest = self.runs[self.newest].as_ref();
        let beside = beside(operation.class);
        for variant in beside.into_iter().flat_map(|kind| variants.without(kind)) {
            // A copy from the host does not depend on computed data.
            let after = if operation.class == OperationClass::CopyFromHost { ready[variant] } else { begin[variant] };
            begin[variant] = later(after, self.beside[variant]);
        }
        let leader = launch.and_then(|launch| Some((launch.thread, launch.leader?)));
        let batched = leader.is_some() && leader == self.leader.0 && edges.event.is_none();
        let nanos = end - start;
        let mut done = plus(&begin, nanos);
        match newest.filter(|_| batched) {
            // A joined copy adds the time for its bytes.
            Some(newest) if copies => variants.without(ScenarioKind::CopiesJoined).for_each(|variant| {
                begin[variant] = self.leader.1[variant];
                done[variant] = newest.done[variant] + as_clock(joined_nanos(operation));
            }),
            // A batch ends with the last of its kernels.
            Some(newest) => variants.without(ScenarioKind::GridsFilled).for_each(|variant| {
                begin[variant] = self.leader.1[variant];
                done[variant] = later(begin[variant] + as_clock(nanos), newest.done[variant]);
            }),
            None => {}
        }
        if copies {
            shorten(operation, &begin, &mut done, variants);
        } else if operation.excess != 0 {
            let at_roof = as_clock(nanos.saturating_sub(operation.excess.into()));
            variants.without(ScenarioKind::KernelsAtRoof).for_each(|variant| done[variant] = begin[variant] + at_roof);
        }
        let mut free = done;
        // The newest operation ends after this one starts: two nodes of a graph run at once on what is
        // reported as one stream.
        if let Some(newest) = newest.filter(|run| run.end > start) {
            free = latest(&done, &newest.free);
        }
        for variant in beside.into_iter().flat_map(|kind| variants.without(kind)) {
            free[variant] = newest.map_or(f64::MIN, |run| run.free[variant]);
        }
        if let Some(kind) = removed_in(operation.class, operation.bytes) {
            // The next operation finds the stream as this one did.
            for variant in variants.without(kind) {
                free[variant] = newest.map_or(f64::MIN, |run| run.free[variant]);
                done[variant] = newest.map_or(f64::MIN, |run| run.done[variant]);
                begin[variant] = done[variant];
            }
        }
        for variant in beside.into_iter().flat_map(|kind| variants.without(kind)) {
            self.beside[variant] = later(self.beside[variant], done[variant]);
        }
        if !batched {
            self.leader = (launch.map(|launch| (launch.thread, launch.start)), begin);
        }
        self.newest = 1 - self.newest;
        self.runs[self.newest] = Some(StartedOperation { start, end, copy: copies, done, free });
        (done, begin)
    }

    fn change_clocks(&mut self, change: &mut impl FnMut(&mut Clocks)) {
        for run in self.runs.iter_mut().flatten() {
            change(&mut run.done);
            change(&mut run.free);
        }
        change(&mut self.beside);
        change(&mut self.leader.1);
    }

    /// Newest first.
    fn runs(&self) -> impl Iterator<Item = &StartedOperation> {
        [&self.runs[self.newest], &self.runs[1 - self.newest]].into_iter().flatten()
    }
}

/// Dependencies of an operation.
#[derive(Clone, Debug)]
struct Edges {
    /// From the entry of its launch to its start, as far as the launch explains it, nanoseconds.
    issue: u64,
    /// The same without tracing.
    untraced_issue: u64,
    /// From the end of the previous operation on its stream, nanoseconds.
    stream_lag: u64,
    /// The same without tracing.
    untraced_stream_lag: u64,
    /// Shortest gap to be expected within a stream, nanoseconds.
    usual: u64,
    /// End of the operation on another stream that it waited for, and the time from there to its start.
    event: Option<(Clocks, u64)>,
    /// True if no operation of its stream is known.
    first: bool,
}

/// Moves `done` earlier where a copy that starts at `begin` takes less time than in reality.
fn shorten(operation: &Operation, begin: &Clocks, done: &mut Clocks, variants: &Variants) {
    let nanos = operation.end.saturating_sub(operation.start);
    if operation.excess != 0 {
        let pinned = as_clock(nanos.saturating_sub(operation.excess.into()));
        variants.without(ScenarioKind::CopiesOverlapped).for_each(|variant| done[variant] = begin[variant] + pinned);
    }
    if operation.class == OperationClass::CopyToHost && operation.bytes > READBACK_BYTES {
        let small = as_clock(nanos.min(SMALL_COPY_NANOS));
        variants.without(ScenarioKind::ReadsReduced).for_each(|variant| done[variant] = begin[variant] + small);
    }
}

/// Progress of one device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// Real end of everything up to now.
    pub(super) real: u64,
    /// The same in every scenario.
    pub(super) clocks: Clocks,
    /// Time that operations waited without a known reason while the device was idle, nanoseconds.
    pub(super) unexplained: u64,
}

impl Default for Progress {
    fn default() -> Self {
        Self { real: 0, clocks: [f64::MIN; VARIANT_COUNT], unexplained: 0 }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Streams {
    rows: Vec<Stream>,
    indices: FxHashMap<(DeviceId, StreamId), usize>,
    /// Stream that was requested last.
    newest: usize,
    /// Log of simulated operations, if requested.
    log: Option<Box<SimulationLog>>,
}

impl Streams {
    /// Logs operations that start in these parts of the run, which are in order.
    pub(super) fn log(&mut self, parts: Vec<(u64, u64)>) {
        self.log = Some(Box::new(SimulationLog::new(parts)));
    }

    /// Operations logged since the last call.
    pub(super) fn take_log(&mut self) -> Vec<SimulatedOperation> {
        self.log.as_mut().map_or_else(Vec::new, |log| log.take())
    }

    pub(super) fn forget(&mut self) {
        *self = Self { log: self.log.take(), ..Self::default() };
    }

    /// Runs an operation in every scenario and adds it to its device's `progress` and `gaps`. Returns its
    /// start if its launching call had not returned.
    pub(super) fn run(
        &mut self,
        operation: &Operation,
        launch: Option<&SimulatedLaunch>,
        progress: &mut Progress,
        gaps: &mut QueuedGaps,
        origin: Origin,
        variants: &Variants,
    ) -> Option<Begun> {
        let index = self.index_of((operation.device, operation.stream));
        let edges = self.edges(index, operation, launch, progress, gaps);
        // The same sums for every scenario first, then the differences of some: most operations are kernels
        // that compute, and this is the innermost loop of the simulation.
        let ready: Clocks = match launch {
            Some(launch) => {
                let (traced, untraced) = (as_clock(edges.issue), as_clock(edges.untraced_issue));
                let issue = |variant: usize| if is_traced(variant) { traced } else { untraced };
                variants.each(|variant, gone| {
                    launch.entered[variant] + if gone.launches_free() { 0.0 } else { issue(variant) }
                })
            }
            // Neither launch nor predecessor: it starts when all previous operations are done, or is the
            // first one.
            None if edges.first && progress.real == 0 => [origin.clock(operation.start); VARIANT_COUNT],
            None if edges.first => {
                let start = origin.clock(operation.start);
                progress.clocks.map(|done| if done < start { done } else { start })
            }
            None => [f64::MIN; VARIANT_COUNT],
        };
        let (done, begin) = self.rows[index].append(operation, &ready, &edges, launch, variants);
        if let Some(log) = &mut self.log {
            log.note(operation, &begin, &done);
        }
        let (start, end) = (operation.start, operation.end.max(operation.start));
        progress.clocks = latest(&progress.clocks, &done);
        progress.real = progress.real.max(end);
        // Only a call that has not returned can have waited for it.
        let to_host = operation.class == OperationClass::CopyToHost;
        launch.filter(|launch| start <= launch.end).map(|_| Begun { start, end, clocks: begin, to_host })
    }

    /// Real dependencies of an operation. Exactly one edge carries the real lag: the one that was last. The
    /// order within a stream always costs the device its gap, but never makes an operation later than it was.
    fn edges(
        &self,
        index: usize,
        operation: &Operation,
        launch: Option<&SimulatedLaunch>,
        progress: &mut Progress,
        gaps: &mut QueuedGaps,
    ) -> Edges {
        let start = operation.start;
        let before = self.rows[index].before(start);
        let stream_free = before.map_or(0, |run| run.end);
        // Time at which the launch was issued.
        let issued = launch.map(|launch| {
            let issued = if stream_free <= launch.start || operation.node {
                // The call of a graph is long: the device may start before it returns.
                launch.end
            } else {
                launch.end.min(launch.start.saturating_add(ISSUE_NANOS))
            };
            issued.min(start).max(launch.start)
        });
        let known = stream_free.max(issued.unwrap_or(0));
        let event =
            if known.saturating_add(EVENT_SUSPECTED_NANOS) < start { self.ended_before(index, start) } else { None };
        let (mut launch_lag, mut event_lag) = (0, 0);
        let usual = gaps.before(operation.class);
        let mut stream_lag = usual.min(start - stream_free);
        // A wait while another operation runs is mostly for room on the device, and costs no step time.
        let idle = start.saturating_sub(progress.real);
        let mut lag = |from: u64, limit: u64| {
            let lag = start.saturating_sub(from);
            progress.unexplained += lag.saturating_sub(limit).min(idle);
            lag.min(limit)
        };
        if let Some((from, _)) = event {
            event_lag = lag(from, EVENT_NANOS);
        } else if let Some(issued) = issued.filter(|&issued| issued > stream_free) {
            launch_lag = lag(issued, LAUNCH_LATENCY_NANOS);
        } else if before.is_some() {
            stream_lag = lag(stream_free, INTER_KERNEL_NANOS);
            gaps.add(operation.class, start - stream_free);
        } else if progress.real != 0 {
            lag(progress.real, 0);
        }
        let within = issued.zip(launch).map(|(issued, launch)| (issued - launch.start, u64::from(launch.tracing)));
        let issue = |tracing_counts: bool| {
            let of =
                |(within, tracing): (u64, u64)| if tracing_counts { within } else { within.saturating_sub(tracing) };
            within.map_or(0, |within| of(within).saturating_add(launch_lag))
        };
        Edges {
            issue: issue(true),
            untraced_issue: issue(false),
            stream_lag,
            untraced_stream_lag: untraced(stream_lag, usual, operation.tracing_ns.into(), operation.node),
            usual,
            event: event.map(|(_, free)| (free, event_lag)),
            first: before.is_none(),
        }
    }

    /// Applies `change` to the clocks of all streams.
    pub(super) fn change_clocks(&mut self, change: &mut impl FnMut(&mut Clocks)) {
        self.rows.iter_mut().for_each(|stream| stream.change_clocks(change));
    }

    /// The operation that ended last within `(from, to]`: its real end and its end in every scenario. `thread`: only
    /// on streams to which this thread launched last.
    pub(super) fn ended_within(&self, from: u64, to: u64, thread: Option<ThreadId>) -> Option<(u64, &Clocks)> {
        let launched = |stream: &&Stream| thread.is_none() || stream.leader.0.map(|(launcher, _)| launcher) == thread;
        let rows = self.rows.iter().filter(launched);
        let runs = rows.flat_map(|stream| stream.runs().map(|run| (stream.key, run)));
        let within = runs.filter(|(_, run)| run.end > from && run.end <= to);
        within.max_by_key(|(key, run)| (run.end, run.start, *key)).map(|(_, run)| (run.end, &run.done))
    }

    /// The operation on a stream other than that at `index` that an operation starting at `start` may have
    /// waited for.
    fn ended_before(&self, index: usize, start: u64) -> Option<(u64, Clocks)> {
        let others = self.rows.iter().enumerate().filter(|&(other, _)| other != index).map(|(_, stream)| stream);
        let runs = others.flat_map(|stream| stream.runs().map(|run| (stream.key, run)));
        let within = runs.filter(|(_, run)| run.end <= start && start - run.end <= EVENT_NANOS);
        within.max_by_key(|(key, run)| (run.end, run.start, *key)).map(|(_, run)| (run.end, run.free))
    }

    fn index_of(&mut self, key: (DeviceId, StreamId)) -> usize {
        // Mostly the stream that was requested last.
        if self.rows.get(self.newest).is_none_or(|stream| stream.key != key) {
            self.newest = self.find_or_add(key);
        }
        self.newest
    }

    fn find_or_add(&mut self, key: (DeviceId, StreamId)) -> usize {
        if let Some(&index) = self.indices.get(&key) {
            return index;
        }
        let index = if self.rows.len() < STREAM_LIMIT {
            self.rows.push(Stream::new(key));
            self.rows.len() - 1
        } else {
            let last_used = |stream: &Stream| stream.runs().next().map_or(0, |run| run.start);
            let oldest = (0..self.rows.len()).min_by_key(|&index| (last_used(&self.rows[index]), self.rows[index].key));
            let index = oldest.unwrap_or_default();
            let forgotten = std::mem::replace(&mut self.rows[index], Stream::new(key));
            self.indices.remove(&forgotten.key);
            index
        };
        self.indices.insert(key, index);
        index
    }
}
