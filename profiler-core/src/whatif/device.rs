//! The device's clocks: when each stream is free, and who an operation waited for.
//!
//! An operation begins when the last of three things is done: its launch, the operation before it on its stream, and
//! whatever its stream was told to wait for. The last of these leaves no record that names the producer, so it is
//! inferred: an operation that neither its launch nor its stream explains, and that begins right after another one
//! ended, waited for that one. Whichever came last in reality keeps its real lag, up to a limit; a longer lag is
//! unexplained time, which is counted and left out of the simulation, so that the base cannot hide it.

use gpuwhy_trace::record::{DeviceId, StreamId, ThreadId};
use rustc_hash::FxHashMap;

use super::gaps::{QueuedGaps, between_nodes, untraced};
use super::host::{Begun, Thread};
use super::input::{Call, Operation, OperationClass, READBACK_BYTES};
use super::joined::{SMALL_COPY_NANOS, joined_nanos};
use super::replay_log::{ReplayLog, ReplayedOperation};
use super::scenario::{ScenarioKind, beside};
use super::worlds::{Clocks, Origin, WORLD_COUNT, Worlds, as_clock, is_traced, later, latest, plus};
use crate::thresholds::{INTER_KERNEL_NANOS, LAUNCH_LATENCY_NANOS};

/// Longest time from the end of an operation to the begin of one on another stream that waited for it: an event
/// takes a few microseconds more than the order within a stream.
pub(super) const EVENT_NANOS: u64 = 15_000;
/// A lag on the stream above which another stream is asked. Measured medians between kernels are 1 to 4 us.
const EVENT_SUSPECTED_NANOS: u64 = 8_000;
/// Time that issuing takes within a call before the device can begin: calls that launch take 2 to 10 us.
const ISSUE_NANOS: u64 = 10_000;
/// Streams remembered; beyond, the one that was used longest ago is forgotten.
const STREAM_LIMIT: usize = 256;

/// A launching call as its operations need it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launch {
    pub(super) thread: ThreadId,
    pub(super) start: u64,
    pub(super) end: u64,
    /// When it was entered, in every world.
    pub(super) entered: Clocks,
    /// When its thread entered the call that launches its operation in its place where small grids are one kernel, or
    /// small copies one copy.
    leader: Option<u64>,
    /// What tracing added to it if it waited for nothing, nanoseconds.
    tracing: u32,
}

impl Launch {
    pub(super) fn of(call: &Call, thread: &Thread) -> Self {
        let Thread { entered, leader, .. } = *thread;
        let tracing = call.tracing_ns;
        Self { thread: call.thread, start: call.start, end: call.end, entered, leader, tracing }
    }
}

/// An operation that has begun.
#[derive(Clone, Debug)]
struct Run {
    start: u64,
    end: u64,
    copy: bool,
    /// When it ends, in every world.
    done: Clocks,
    /// When its stream goes on, in every world: earlier than `done` if it runs beside the stream.
    free: Clocks,
}

#[derive(Clone, Debug)]
struct Stream {
    key: (DeviceId, StreamId),
    /// Two, the newest and the one before: an operation that is still running has one that ended before it.
    runs: [Option<Run>; 2],
    /// Which of them is the newest.
    newest: usize,
    /// When the last operation that ran beside the stream ends.
    beside: Clocks,
    /// The call that launched the newest operation that is not in the batch of another one, and when that begins.
    leader: (Option<(ThreadId, u64)>, Clocks),
}

impl Stream {
    fn new(key: (DeviceId, StreamId)) -> Self {
        Self {
            key,
            runs: [None, None],
            newest: 0,
            beside: [f64::MIN; WORLD_COUNT],
            leader: (None, [f64::MIN; WORLD_COUNT]),
        }
    }

    /// The newest operation that ended before `start`.
    fn before(&self, start: u64) -> Option<&Run> {
        self.runs().find(|run| run.end <= start)
    }

    /// Runs an operation that can be `ready` for its stream then. Gives its end and its begin.
    fn append(
        &mut self,
        operation: &Operation,
        ready: &Clocks,
        edges: &Edges,
        launch: Option<&Launch>,
        worlds: &Worlds,
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
                worlds
                    .without(ScenarioKind::LaunchesFree)
                    .for_each(|world| begin[world] = later(ready[world], run.free[world] + lag));
            }
        }
        if let Some((free, lag)) = &edges.event {
            begin = latest(&begin, &plus(free, *lag));
        }
        let newest = self.runs[self.newest].as_ref();
        let beside = beside(operation.class);
        for world in beside.into_iter().flat_map(|kind| worlds.without(kind)) {
            // A copy from the host needs nothing that the device computed.
            let after = if operation.class == OperationClass::CopyFromHost { ready[world] } else { begin[world] };
            begin[world] = later(after, self.beside[world]);
        }
        let leader = launch.and_then(|launch| Some((launch.thread, launch.leader?)));
        let batched = leader.is_some() && leader == self.leader.0 && edges.event.is_none();
        let nanos = end - start;
        let mut done = plus(&begin, nanos);
        match newest.filter(|_| batched) {
            // A joined copy is longer by what its bytes need.
            Some(newest) if copies => worlds.without(ScenarioKind::CopiesJoined).for_each(|world| {
                begin[world] = self.leader.1[world];
                done[world] = newest.done[world] + as_clock(joined_nanos(operation));
            }),
            // A batch ends with the last of its kernels.
            Some(newest) => worlds.without(ScenarioKind::GridsFilled).for_each(|world| {
                begin[world] = self.leader.1[world];
                done[world] = later(begin[world] + as_clock(nanos), newest.done[world]);
            }),
            None => {}
        }
        if copies {
            shorten(operation, &begin, &mut done, worlds);
        } else if operation.excess != 0 {
            let at_roof = as_clock(nanos.saturating_sub(operation.excess.into()));
            worlds.without(ScenarioKind::KernelsAtRoof).for_each(|world| done[world] = begin[world] + at_roof);
        }
        let mut free = done;
        // An end in the future of this operation: two nodes of a graph run at once on what is reported as one stream.
        if let Some(newest) = newest.filter(|run| run.end > start) {
            free = latest(&done, &newest.free);
        }
        for world in beside.into_iter().flat_map(|kind| worlds.without(kind)) {
            free[world] = newest.map_or(f64::MIN, |run| run.free[world]);
        }
        if operation.class == OperationClass::CopyToHost && operation.bytes <= READBACK_BYTES {
            // It is not there: what comes next finds the stream as this operation did.
            for world in worlds.without(ScenarioKind::NoReadbacks) {
                free[world] = newest.map_or(f64::MIN, |run| run.free[world]);
                done[world] = newest.map_or(f64::MIN, |run| run.done[world]);
                begin[world] = done[world];
            }
        }
        for world in beside.into_iter().flat_map(|kind| worlds.without(kind)) {
            self.beside[world] = later(self.beside[world], done[world]);
        }
        if !batched {
            self.leader = (launch.map(|launch| (launch.thread, launch.start)), begin);
        }
        self.newest = 1 - self.newest;
        self.runs[self.newest] = Some(Run { start, end, copy: copies, done, free });
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

    /// The newest first.
    fn runs(&self) -> impl Iterator<Item = &Run> {
        [&self.runs[self.newest], &self.runs[1 - self.newest]].into_iter().flatten()
    }
}

/// What an operation waited for.
#[derive(Clone, Debug)]
struct Edges {
    /// From the entry of its launch to its begin, as far as the launch explains it, nanoseconds.
    issue: u64,
    /// The same without tracing.
    untraced_issue: u64,
    /// From the end of the operation before on its stream, nanoseconds.
    stream_lag: u64,
    /// The same without tracing.
    untraced_stream_lag: u64,
    /// The shortest gap within a stream that can be expected, nanoseconds.
    usual: u64,
    /// When the operation on another stream was done that it waited for, and how long it then took to begin.
    event: Option<(Clocks, u64)>,
    /// No operation of its stream is known.
    first: bool,
}

/// Where a copy that begins at `begin` takes less time than it did, it is `done` sooner.
fn shorten(operation: &Operation, begin: &Clocks, done: &mut Clocks, worlds: &Worlds) {
    let nanos = operation.end.saturating_sub(operation.start);
    if operation.excess != 0 {
        let pinned = as_clock(nanos.saturating_sub(operation.excess.into()));
        worlds.without(ScenarioKind::CopiesOverlapped).for_each(|world| done[world] = begin[world] + pinned);
    }
    if operation.class == OperationClass::CopyToHost && operation.bytes > READBACK_BYTES {
        let small = as_clock(nanos.min(SMALL_COPY_NANOS));
        worlds.without(ScenarioKind::ReadsReduced).for_each(|world| done[world] = begin[world] + small);
    }
}

/// The sum of one device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// Real end of everything so far.
    pub(super) real: u64,
    /// The same in every world.
    pub(super) clocks: Clocks,
    /// Time that operations waited for nothing known while the device was idle, nanoseconds.
    pub(super) unexplained: u64,
}

impl Default for Progress {
    fn default() -> Self {
        Self { real: 0, clocks: [f64::MIN; WORLD_COUNT], unexplained: 0 }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Streams {
    rows: Vec<Stream>,
    places: FxHashMap<(DeviceId, StreamId), usize>,
    /// The one that was asked for last.
    newest: usize,
    /// For who asked for it.
    log: Option<Box<ReplayLog>>,
}

impl Streams {
    /// Notes operations that begin in these parts of the run, which are in order.
    pub(super) fn log(&mut self, parts: Vec<(u64, u64)>) {
        self.log = Some(Box::new(ReplayLog::new(parts)));
    }

    /// What was noted since it was last taken.
    pub(super) fn take_log(&mut self) -> Vec<ReplayedOperation> {
        self.log.as_mut().map_or_else(Vec::new, |log| log.take())
    }

    pub(super) fn forget(&mut self) {
        *self = Self { log: self.log.take(), ..Self::default() };
    }

    /// Runs an operation in every world and adds it to its device's `progress` and `gaps`. Gives its begin when
    /// its launching call had not returned.
    pub(super) fn run(
        &mut self,
        operation: &Operation,
        launch: Option<&Launch>,
        progress: &mut Progress,
        gaps: &mut QueuedGaps,
        origin: Origin,
        worlds: &Worlds,
    ) -> Option<Begun> {
        let place = self.place((operation.device, operation.stream));
        let edges = self.edges(place, operation, launch, progress, gaps);
        // The same sums in every world, and then what is different in some: most operations are kernels that compute,
        // and this is the innermost loop of the simulation.
        let ready: Clocks = match launch {
            Some(launch) => {
                let (traced, untraced) = (as_clock(edges.issue), as_clock(edges.untraced_issue));
                let issue = |world: usize| if is_traced(world) { traced } else { untraced };
                worlds.each(|world, gone| launch.entered[world] + if gone.launches_free() { 0.0 } else { issue(world) })
            }
            // Neither launch nor predecessor: it came when everything before it was done, or first of all.
            None if edges.first && progress.real == 0 => [origin.clock(operation.start); WORLD_COUNT],
            None if edges.first => {
                let start = origin.clock(operation.start);
                progress.clocks.map(|done| if done < start { done } else { start })
            }
            None => [f64::MIN; WORLD_COUNT],
        };
        let (done, begin) = self.rows[place].append(operation, &ready, &edges, launch, worlds);
        if let Some(log) = &mut self.log {
            log.note(operation, &begin, &done);
        }
        let (start, end) = (operation.start, operation.end.max(operation.start));
        progress.clocks = latest(&progress.clocks, &done);
        progress.real = progress.real.max(end);
        // Only a call that has not returned can have waited for it.
        launch.filter(|launch| start <= launch.end).map(|_| Begun { start, end, clocks: begin })
    }

    /// What an operation waited for, really. Exactly one edge carries the real lag: the one that came last. The order
    /// within a stream costs the device its gap in every case, but never makes an operation later than it was.
    fn edges(
        &self,
        place: usize,
        operation: &Operation,
        launch: Option<&Launch>,
        progress: &mut Progress,
        gaps: &mut QueuedGaps,
    ) -> Edges {
        let start = operation.start;
        let before = self.rows[place].before(start);
        let stream_free = before.map_or(0, |run| run.end);
        // How long after its entry the launch had been issued.
        let issued = launch.map(|launch| {
            let issued = if stream_free <= launch.start {
                launch.end
            } else {
                launch.end.min(launch.start.saturating_add(ISSUE_NANOS))
            };
            issued.min(start).max(launch.start)
        });
        let known = stream_free.max(issued.unwrap_or(0));
        let event =
            if known.saturating_add(EVENT_SUSPECTED_NANOS) < start { self.ended_before(place, start) } else { None };
        let (mut launch_lag, mut event_lag) = (0, 0);
        let usual = gaps.before(operation.class);
        let mut stream_lag = usual.min(start - stream_free);
        // A wait beside something that runs is mostly one for room on the device, and costs no step anything.
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

    /// Shows the clocks of all streams to `change`.
    pub(super) fn change_clocks(&mut self, change: &mut impl FnMut(&mut Clocks)) {
        self.rows.iter_mut().for_each(|stream| stream.change_clocks(change));
    }

    /// The operation, on any stream, that ended last within `(from, to]`: its real end and its end in every world.
    pub(super) fn ended_within(&self, from: u64, to: u64) -> Option<(u64, &Clocks)> {
        let runs = self.rows.iter().flat_map(|stream| stream.runs().map(|run| (stream.key, run)));
        let within = runs.filter(|(_, run)| run.end > from && run.end <= to);
        within.max_by_key(|(key, run)| (run.end, run.start, *key)).map(|(_, run)| (run.end, &run.done))
    }

    /// The operation on another stream than that at `place` that an operation beginning at `start` may have waited for.
    fn ended_before(&self, place: usize, start: u64) -> Option<(u64, Clocks)> {
        let others = self.rows.iter().enumerate().filter(|&(other, _)| other != place).map(|(_, stream)| stream);
        let runs = others.flat_map(|stream| stream.runs().map(|run| (stream.key, run)));
        let within = runs.filter(|(_, run)| run.end <= start && start - run.end <= EVENT_NANOS);
        within.max_by_key(|(key, run)| (run.end, run.start, *key)).map(|(_, run)| (run.end, run.free))
    }

    fn place(&mut self, key: (DeviceId, StreamId)) -> usize {
        // Mostly the one that was asked for last.
        if self.rows.get(self.newest).is_none_or(|stream| stream.key != key) {
            self.newest = self.find_or_add(key);
        }
        self.newest
    }

    fn find_or_add(&mut self, key: (DeviceId, StreamId)) -> usize {
        if let Some(&place) = self.places.get(&key) {
            return place;
        }
        let place = if self.rows.len() < STREAM_LIMIT {
            self.rows.push(Stream::new(key));
            self.rows.len() - 1
        } else {
            let last_used = |stream: &Stream| stream.runs().next().map_or(0, |run| run.start);
            let oldest = (0..self.rows.len()).min_by_key(|&place| (last_used(&self.rows[place]), self.rows[place].key));
            let place = oldest.unwrap_or_default();
            let forgotten = std::mem::replace(&mut self.rows[place], Stream::new(key));
            self.places.remove(&forgotten.key);
            place
        };
        self.places.insert(key, place);
        place
    }
}
