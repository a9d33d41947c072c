//! The device's clocks: when each stream is free, and who an operation waited for.
//!
//! An operation begins when the last of three things is done: its launch, the operation before it on its stream, and
//! whatever its stream was told to wait for. The last of these leaves no record that names the producer, so it is
//! inferred: an operation that neither its launch nor its stream explains, and that begins right after another one
//! ended, waited for that one. Whichever came last in reality keeps its real lag, up to a limit; a longer lag is
//! unexplained time, which is counted and left out of the simulation, so that the base cannot hide it.

use rustc_hash::FxHashMap;

use super::gaps::{QueuedGaps, between_nodes, untraced};
use super::host::{Begun, Thread};
use super::input::{Call, Operation, OperationClass};
use super::scenario::{Clocks, Origin, SCENARIO_COUNT, ScenarioKind, as_clock, each, later, latest, plus};
use crate::record::{DeviceId, StreamId, ThreadId};
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
    /// When it was entered, in every scenario.
    pub(super) entered: Clocks,
    /// When its thread entered the call that launches its kernel in its place where small grids are one kernel.
    leader: Option<u64>,
    /// What tracing added to it if it waited for nothing, nanoseconds.
    tracing: u32,
}

impl Launch {
    /// The outermost `call` that `thread` is in.
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
    /// When it ends, in every scenario.
    done: Clocks,
    /// When its stream goes on, in every scenario: earlier than `done` if it runs beside the stream.
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
    /// The call that launched the newest operation that is not in the batch of another one, and when that begins where
    /// small grids are one kernel.
    leader: (Option<(ThreadId, u64)>, f64),
}

impl Stream {
    fn new(key: (DeviceId, StreamId)) -> Self {
        Self { key, runs: [None, None], newest: 0, beside: [f64::MIN; SCENARIO_COUNT], leader: (None, f64::MIN) }
    }

    /// The newest first.
    fn runs(&self) -> impl Iterator<Item = &Run> {
        [&self.runs[self.newest], &self.runs[1 - self.newest]].into_iter().flatten()
    }
}

/// The sum of one device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// Real end of everything so far.
    pub(super) real: u64,
    /// The same in every scenario.
    pub(super) clocks: Clocks,
    /// Time that operations waited for nothing known while the device was idle, nanoseconds.
    pub(super) unexplained: u64,
}

impl Default for Progress {
    fn default() -> Self {
        Self { real: 0, clocks: [f64::MIN; SCENARIO_COUNT], unexplained: 0 }
    }
}

/// All streams of all devices.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams {
    rows: Vec<Stream>,
    places: FxHashMap<(DeviceId, StreamId), usize>,
    /// The one that was asked for last.
    newest: usize,
}

impl Streams {
    /// Runs an operation in every scenario and adds it to its device's `progress` and `gaps`. Gives its begin when
    /// its launching call had not returned.
    pub(super) fn run(
        &mut self,
        operation: &Operation,
        launch: Option<&Launch>,
        progress: &mut Progress,
        gaps: &mut QueuedGaps,
        origin: Origin,
    ) -> Option<Begun> {
        let place = self.place((operation.device, operation.stream));
        let stream = &self.rows[place];
        let (start, end) = (operation.start, operation.end.max(operation.start));
        let before = stream.runs().find(|run| run.end <= start);
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

        // Exactly one edge carries the real lag: the one that came last. The order within a stream costs the device its
        // gap in every case, but never makes an operation later than it was.
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
        let issue = within.map_or(0, |(within, _)| within.saturating_add(launch_lag));
        let untraced_issue =
            within.map_or(0, |(within, tracing)| within.saturating_sub(tracing).saturating_add(launch_lag));
        let untraced_lag = untraced(stream_lag, usual, operation.tracing_ns.into(), operation.node);

        // The same sums in every scenario, and then what is different in some: most operations are kernels that
        // compute, and this is the innermost loop of the simulation.
        let ready: Clocks = match launch {
            Some(launch) => {
                let (issue, untraced) = (as_clock(issue), as_clock(untraced_issue));
                let issue = |kind: ScenarioKind| if kind.is_traced() { issue } else { untraced };
                each(|kind| launch.entered[kind as usize] + if kind.launches_free() { 0.0 } else { issue(kind) })
            }
            // Neither launch nor predecessor: it came when everything before it was done, or first of all.
            None if before.is_none() && progress.real == 0 => [origin.clock(start); SCENARIO_COUNT],
            None if before.is_none() => {
                let start = origin.clock(start);
                progress.clocks.map(|done| if done < start { done } else { start })
            }
            None => [f64::MIN; SCENARIO_COUNT],
        };
        let mut begin = ready;
        if let Some(run) = before {
            begin = latest(&begin, &plus(&run.free, untraced_lag));
            let base = ScenarioKind::Base as usize;
            begin[base] = later(ready[base], run.free[base] + as_clock(stream_lag));
            if !run.copy && !operation.class.is_copy() {
                let lag = as_clock(between_nodes(stream_lag, usual).min(untraced_lag));
                let index = ScenarioKind::LaunchesFree as usize;
                begin[index] = later(ready[index], run.free[index] + lag);
            }
        }
        if let Some((_, free)) = &event {
            begin = latest(&begin, &plus(free, event_lag));
        }
        let newest = stream.runs[stream.newest].as_ref();
        let beside = operation.class.beside().map(|kind| kind as usize);
        if let Some(index) = beside {
            // A copy from the host needs nothing that the device computed.
            let after = if operation.class == OperationClass::CopyFromHost { ready[index] } else { begin[index] };
            begin[index] = later(after, stream.beside[index]);
        }
        let filled = ScenarioKind::GridsFilled as usize;
        let leader = launch.and_then(|launch| Some((launch.thread, launch.leader?)));
        let batched = leader.is_some() && leader == stream.leader.0 && event.is_none();
        if batched {
            begin[filled] = stream.leader.1;
        }
        let nanos = end - start;
        let mut done = plus(&begin, nanos);
        if let Some(newest) = newest.filter(|_| batched) {
            // A batch ends with the last of its kernels.
            done[filled] = later(done[filled], newest.done[filled]);
        }
        if operation.excess != 0 && operation.class.is_copy() {
            let index = ScenarioKind::CopiesOverlapped as usize;
            done[index] = begin[index] + as_clock(nanos.saturating_sub(operation.excess.into()));
        }
        let mut free = done;
        // An end in the future of this operation: two nodes of a graph run at once on what is reported as one stream.
        if let Some(newest) = newest.filter(|run| run.end > start) {
            free = latest(&done, &newest.free);
        }
        if let Some(index) = beside {
            free[index] = newest.map_or(f64::MIN, |run| run.free[index]);
        }
        progress.clocks = latest(&progress.clocks, &done);
        let stream = &mut self.rows[place];
        if let Some(index) = beside {
            stream.beside[index] = later(stream.beside[index], done[index]);
        }
        if !batched {
            stream.leader = (launch.map(|launch| (launch.thread, launch.start)), begin[filled]);
        }
        stream.newest = 1 - stream.newest;
        stream.runs[stream.newest] = Some(Run { start, end, copy: operation.class.is_copy(), done, free });
        progress.real = progress.real.max(end);
        // Only a call that has not returned can have waited for it.
        launch.filter(|launch| start <= launch.end).map(|_| Begun { start, end, clocks: begin })
    }

    /// The operation, on any stream, that ended last within `(from, to]`: its real end and its end in every scenario.
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
