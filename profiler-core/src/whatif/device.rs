//! The device's clocks: when each stream is free, and who an operation waited for.
//!
//! An operation begins when the last of three things is done: its launch, the operation before it on its stream, and
//! whatever its stream was told to wait for. The last of these leaves no record that names the producer, so it is
//! inferred: an operation that neither its launch nor its stream explains, and that begins right after another one
//! ended, waited for that one. Whichever came last in reality keeps its real lag, up to a limit; a longer lag is
//! unexplained time, which is counted and left out of the replay, so that the base cannot hide it.

use rustc_hash::FxHashMap;

use super::input::{Operation, OperationClass};
use super::scenario::{Clocks, SCENARIO_COUNT, ScenarioKind};
use crate::attribution::{INTER_KERNEL_NANOS, LAUNCH_LATENCY_NANOS};
use crate::record::{DeviceId, StreamId};

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
    pub(super) start: u64,
    pub(super) end: u64,
    /// When it was entered, in every scenario.
    pub(super) entered: Clocks,
    /// Its newest operation, if one has begun.
    pub(super) begun: Option<Begun>,
}

/// The begin of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    pub(super) start: u64,
    pub(super) end: u64,
    /// When it begins, in every scenario.
    pub(super) clocks: Clocks,
}

/// An operation that has begun.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: u64,
    end: u64,
    /// When it ends, in every scenario.
    done: Clocks,
    /// When its stream goes on, in every scenario: earlier than `done` if it runs beside the stream.
    free: Clocks,
}

#[derive(Clone, Debug, Default)]
struct Stream {
    /// The newest and the one before: an operation that is still running has one that ended before it.
    runs: [Option<Run>; 2],
    /// When the last operation that ran beside the stream ends.
    beside: Clocks,
}

/// The sum of one device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Real end of everything so far.
    pub(super) real: u64,
    /// The same in every scenario.
    pub(super) clocks: Clocks,
    /// Time that operations waited for nothing known while the device was idle, nanoseconds.
    pub(super) unexplained: u64,
}

/// All streams of all devices.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams {
    by_id: FxHashMap<(DeviceId, StreamId), Stream>,
}

/// What one operation waited for: clocks it cannot begin before, and the real lag behind them.
#[derive(Clone, Copy, Debug)]
struct Edge {
    clocks: Clocks,
    lag: u64,
}

impl Streams {
    /// Runs an operation in every scenario and adds it to its device's `progress`. Gives when it begins.
    pub(super) fn run(&mut self, operation: &Operation, launch: Option<&Launch>, progress: &mut Progress) -> Begun {
        let key = (operation.device, operation.stream);
        let (start, end) = (operation.start, operation.end.max(operation.start));
        let runs = self.by_id.get(&key).map_or([None; 2], |stream| stream.runs);
        let before = runs.iter().flatten().find(|run| run.end <= start).copied();
        // An end in the future of this operation: two nodes of a graph run at once on what is reported as one stream.
        let overlaps = runs[0].is_some_and(|run| run.end > start);
        let stream_free = before.map_or(0, |run| run.end);

        let launched = launch.map(|launch| {
            let issued = if stream_free <= launch.start {
                launch.end
            } else {
                launch.end.min(launch.start.saturating_add(ISSUE_NANOS))
            };
            let issued = issued.min(start).max(launch.start);
            (issued, launch)
        });
        let known = stream_free.max(launched.map_or(0, |(issued, _)| issued));
        let event =
            if known.saturating_add(EVENT_SUSPECTED_NANOS) < start { self.ended_before(key, start) } else { None };

        // Exactly one edge carries the real lag: the one that came last.
        let (mut launch_lag, mut stream_lag, mut event_lag) = (0, 0, 0);
        // A wait beside something that runs is mostly one for room on the device, and costs no step anything.
        let idle = start.saturating_sub(progress.real);
        let mut lag = |from: u64, limit: u64| {
            let lag = start.saturating_sub(from);
            progress.unexplained += lag.saturating_sub(limit).min(idle);
            lag.min(limit)
        };
        if let Some((from, _)) = event {
            event_lag = lag(from, EVENT_NANOS);
        } else if let Some((issued, _)) = launched.filter(|&(issued, _)| issued > stream_free) {
            launch_lag = lag(issued, LAUNCH_LATENCY_NANOS);
        } else if before.is_some() {
            stream_lag = lag(stream_free, INTER_KERNEL_NANOS);
        } else if progress.real != 0 {
            lag(progress.real, 0);
        }
        let after_stream = before.map(|run| Edge { clocks: run.free, lag: stream_lag });
        let after_event = event.map(|(_, clocks)| Edge { clocks, lag: event_lag });

        let previous_free = runs[0].map_or([0; SCENARIO_COUNT], |run| run.free);
        let stream = self.stream(key);
        let mut begun = Begun { start, end, clocks: [0; SCENARIO_COUNT] };
        let mut run = Run { start, end, done: [0; SCENARIO_COUNT], free: [0; SCENARIO_COUNT] };
        for kind in ScenarioKind::ALL {
            let index = kind as usize;
            let beside = kind.runs_beside(operation.class);
            let reached = |edge: Option<Edge>| edge.map_or(0, |edge| edge.clocks[index].saturating_add(edge.lag));
            let ready = match launched {
                Some((_, launch)) if kind.launches_free() => launch.entered[index],
                Some((issued, launch)) => {
                    launch.entered[index].saturating_add(issued - launch.start).saturating_add(launch_lag)
                }
                // Neither launch nor predecessor: it came when everything before it was done, or first of all.
                None if before.is_none() && progress.real == 0 => start,
                None if before.is_none() => progress.clocks[index].min(start),
                None => 0,
            };
            let begin = if beside && operation.class == OperationClass::CopyFromHost {
                ready.max(stream.beside[index])
            } else {
                let after_beside = if beside { stream.beside[index] } else { 0 };
                ready.max(reached(after_stream)).max(reached(after_event)).max(after_beside)
            };
            let done = begin.saturating_add(kind.duration(end - start, operation.peer_wait));
            begun.clocks[index] = begin;
            run.done[index] = done;
            if beside {
                run.free[index] = previous_free[index];
                stream.beside[index] = stream.beside[index].max(done);
            } else {
                run.free[index] = if overlaps { done.max(previous_free[index]) } else { done };
            }
            progress.clocks[index] = progress.clocks[index].max(done);
        }
        progress.real = progress.real.max(end);
        stream.runs = [Some(run), runs[0]];
        begun
    }

    /// The operation, on any stream, that ended last within `(from, to]`: its real end and its end in every scenario.
    pub(super) fn ended_within(&self, from: u64, to: u64) -> Option<(u64, Clocks)> {
        let runs = self.by_id.iter().flat_map(|(key, stream)| stream.runs.iter().flatten().map(move |run| (key, run)));
        let within = runs.filter(|(_, run)| run.end > from && run.end <= to);
        within.max_by_key(|(key, run)| (run.end, run.start, **key)).map(|(_, run)| (run.end, run.done))
    }

    /// The operation on another stream than `key` that an operation beginning at `start` may have waited for.
    fn ended_before(&self, key: (DeviceId, StreamId), start: u64) -> Option<(u64, Clocks)> {
        let others = self.by_id.iter().filter(|(other, _)| **other != key);
        let runs = others.flat_map(|(key, stream)| stream.runs.iter().flatten().map(move |run| (key, run)));
        let within = runs.filter(|(_, run)| run.end <= start && start - run.end <= EVENT_NANOS);
        within.max_by_key(|(key, run)| (run.end, run.start, **key)).map(|(_, run)| (run.end, run.free))
    }

    fn stream(&mut self, key: (DeviceId, StreamId)) -> &mut Stream {
        if self.by_id.len() >= STREAM_LIMIT && !self.by_id.contains_key(&key) {
            let last_used = |stream: &Stream| stream.runs[0].map_or(0, |run| run.start);
            let oldest = self.by_id.iter().min_by_key(|(key, stream)| (last_used(stream), **key)).map(|(&key, _)| key);
            if let Some(oldest) = oldest {
                self.by_id.remove(&oldest);
            }
        }
        self.by_id.entry(key).or_default()
    }
}
