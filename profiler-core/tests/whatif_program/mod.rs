//! A tiny CUDA program and the machine it runs on: the truth against which the simulation is tested.
//!
//! A program is a list of actions of one host thread in a step. The machine runs it by the rules of CUDA
//! (streams are in order, a synchronization waits for everything) and writes the records that a profiler
//! would collect. To find the real effect of a change, change the program or the machine and run it again:
//! the machine never uses the simulation.
#![allow(dead_code)]

use std::collections::BTreeMap;

use gpuwhy_trace::record::{CorrelationId, DeviceId, StreamId, ThreadId};
use profiler_core::steps::{StepSeries, StepSource};
use profiler_core::whatif::{
    Call, CallClass, Launched, LaunchedBy, Operation, OperationClass, ScenarioKind, Simulation, SmallGrid, Transfer,
};

pub const DEVICE: DeviceId = DeviceId(0);
pub const STEPS: StepSeries = StepSeries { source: StepSource::Annotated, period: 0 };
const ORIGIN: u64 = 1_000_000_000;

/// One action of the host.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// Works for this many nanoseconds without calling CUDA.
    Work(u64),
    /// Waits for an input batch for this many nanoseconds.
    Input(u64),
    /// Launches an operation on a stream: stream, nanoseconds, class.
    Launch(u32, u64, OperationClass),
    /// Launches a small kernel on a stream: stream, nanoseconds, number that fits on the device at once.
    Small(u32, u64, u32),
    /// Copies between host and device on a stream: stream, nanoseconds, bytes, true if to the host.
    Copy(u32, u64, u16, bool),
    /// Like [`Act::Copy`], but the call returns when the copy is done, as for pageable memory.
    BlockingCopy(u32, u64, u16, bool),
    /// The next launch on the first stream waits for the work on the second one.
    StreamWait(u32, u32),
    /// Waits until the device is idle.
    Synchronize,
    /// Frees memory: waits until the device is idle, and then takes this many nanoseconds.
    Free(u64),
    /// Allocates memory for this many nanoseconds, without waiting.
    Allocate(u64),
    /// Another thread continues from here.
    Thread(u32),
    /// The next operation starts this much later than any edge explains.
    Unexplained(u64),
}

/// Costs, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// A launching call.
    pub launch: u64,
    /// From the return of a launch to the start on an idle device.
    pub latency: u64,
    /// Between two operations of a stream.
    pub between: u64,
    /// From the end of an operation to the start of one on another stream that waited for it.
    pub event: u64,
    /// From the end of the last operation to the return of a synchronization.
    pub wake_up: u64,
    /// Maximum number of waiting launches: a call that adds one more lasts until the oldest of them has run
    /// (on one stream).
    pub queue: usize,
}

pub const MACHINE: Machine =
    Machine { launch: 5_000, latency: 3_000, between: 1_000, event: 2_000, wake_up: 10_000, queue: usize::MAX };

/// Records of a profiler.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    pub calls: Vec<Call>,
    pub operations: Vec<Operation>,
    pub inputs: Vec<(ThreadId, u64, u64)>,
    /// Thread and entry of the launching call, and its work.
    pub reported: Vec<(ThreadId, u64, Launched)>,
    /// Start of the first operation of each step.
    pub boundaries: Vec<u64>,
    /// Time at which the device was idle at the end of each step.
    pub finished: Vec<u64>,
}

impl Machine {
    /// Runs `step` `times` times.
    pub fn run(&self, step: &[Act], times: usize) -> Recording {
        let mut seen = Recording::default();
        let (mut now, mut thread, mut correlation) = (ORIGIN, 1, 0);
        let mut free: BTreeMap<u32, u64> = BTreeMap::new();
        let mut waits: BTreeMap<u32, u64> = BTreeMap::new();
        let mut unexplained = 0;
        for _ in 0..times {
            let first = seen.operations.len();
            for &act in step {
                let mut call = |now: &mut u64, end: u64, class: CallClass, correlation: u32| {
                    let (start, thread) = (*now, ThreadId(thread));
                    let correlation = CorrelationId(correlation);
                    seen.calls.push(Call { thread, start, end, class, correlation, tracing_ns: 0 });
                    *now = end;
                };
                let blocks = matches!(act, Act::BlockingCopy(..));
                let (act, moved) = match act {
                    Act::Small(stream, nanos, fit) => {
                        let grid = SmallGrid { device: DEVICE, stream: StreamId(stream), kernel: fit, fit };
                        seen.reported.push((ThreadId(thread), now, Launched::Grid(grid)));
                        (Act::Launch(stream, nanos, OperationClass::Compute), 0)
                    }
                    Act::Copy(stream, nanos, bytes, to_host) | Act::BlockingCopy(stream, nanos, bytes, to_host) => {
                        let copy = Transfer { device: DEVICE, stream: StreamId(stream), to_host, bytes };
                        seen.reported.push((ThreadId(thread), now, Launched::Copy(copy)));
                        let class = if to_host { OperationClass::CopyToHost } else { OperationClass::CopyFromHost };
                        (Act::Launch(stream, nanos, class), bytes)
                    }
                    other => (other, 0),
                };
                if let Act::Launch(_, _, OperationClass::Selection) = act {
                    seen.reported.push((ThreadId(thread), now, Launched::RemovedIn(ScenarioKind::NoReadbacks)));
                }
                match act {
                    Act::Work(nanos) => now += nanos,
                    Act::Input(nanos) => {
                        seen.inputs.push((ThreadId(thread), now, now + nanos));
                        now += nanos;
                    }
                    Act::Launch(stream, nanos, class) => {
                        correlation += 1;
                        let entered = now;
                        let oldest = seen.operations.len().checked_sub(self.queue);
                        let room = oldest.map_or(0, |oldest| seen.operations[oldest].end);
                        let issued = room.max(entered + self.launch);
                        let ready = issued + self.latency;
                        let in_order = free.get(&stream).map_or(0, |free| free + self.between);
                        let waited = waits.remove(&stream).map_or(0, |ended| ended + self.event);
                        let start = ready.max(in_order).max(waited) + std::mem::take(&mut unexplained);
                        free.insert(stream, start + nanos);
                        let returned = if blocks { start + nanos + self.wake_up } else { issued };
                        call(&mut now, returned, CallClass::Launch, correlation);
                        let launch = LaunchedBy { correlation: CorrelationId(correlation), start: entered };
                        seen.operations.push(Operation {
                            start,
                            end: start + nanos,
                            device: DEVICE,
                            stream: StreamId(stream),
                            class,
                            launch: Some(launch),
                            excess: 0,
                            tracing_ns: 0,
                            node: false,
                            bytes: moved,
                            kernel: 0,
                        });
                    }
                    Act::StreamWait(waiting, producer) => {
                        if let Some(&ended) = free.get(&producer) {
                            waits.insert(waiting, ended);
                        }
                    }
                    Act::Synchronize => {
                        correlation += 1;
                        let done = free.values().copied().max().unwrap_or(0).max(now);
                        call(&mut now, done + self.wake_up, CallClass::Wait, correlation);
                    }
                    Act::Free(nanos) => {
                        correlation += 1;
                        let done = free.values().copied().max().unwrap_or(0).max(now);
                        call(&mut now, done + nanos, CallClass::Memory, correlation);
                    }
                    Act::Allocate(nanos) => {
                        correlation += 1;
                        let end = now + nanos;
                        call(&mut now, end, CallClass::Memory, correlation);
                    }
                    Act::Thread(other) => thread = other,
                    Act::Unexplained(nanos) => unexplained = nanos,
                    Act::Small(..) | Act::Copy(..) | Act::BlockingCopy(..) => unreachable!("it is a launch"),
                }
            }
            seen.boundaries.extend(seen.operations[first..].iter().map(|operation| operation.start).min());
            seen.finished.extend(free.values().copied().max());
        }
        seen
    }
}

impl Recording {
    /// Nanoseconds per step once the program runs steadily: the mean over the second half.
    pub fn steady_step(&self) -> f64 {
        let (last, middle) = (self.finished.len() - 1, self.finished.len() / 2);
        (self.finished[last] - self.finished[middle]) as f64 / (last - middle) as f64
    }

    /// Simulates everything at once.
    pub fn simulate(&self) -> Simulation {
        self.simulated(Simulation::new())
    }

    /// Like [`simulate`](Self::simulate), with a step that broke off at `at`.
    pub fn simulate_with_break(&self, at: u64) -> Simulation {
        let mut simulation = Simulation::new();
        simulation.step_break(DEVICE, at);
        self.simulated(simulation)
    }

    /// Like [`simulate`](Self::simulate), with all steps.
    pub fn simulate_whole(&self) -> Simulation {
        self.simulated(Simulation::of_all_steps())
    }

    fn simulated(&self, mut simulation: Simulation) -> Simulation {
        self.reported.iter().for_each(|&(thread, launch, launched)| simulation.launches(thread, launch, launched));
        self.operations.iter().for_each(|operation| simulation.operation(operation));
        self.calls.iter().for_each(|call| simulation.call(call));
        self.inputs.iter().for_each(|&(thread, start, end)| simulation.input_wait(thread, start, end));
        self.boundaries.iter().for_each(|&at| simulation.step_boundary(DEVICE, at, STEPS));
        simulation.advance(u64::MAX);
        simulation
    }

    /// Every `flush` nanoseconds, simulates the records that started until then, on one stream in launch
    /// order.
    pub fn simulate_by(&self, flush: u64) -> Simulation {
        let mut simulation = Simulation::new();
        let end = self.finished.last().map_or(ORIGIN, |last| last + 1_000_000_000);
        let mut from = 0;
        let mut to = ORIGIN;
        let (mut calls, mut operations, mut boundaries) =
            (self.calls.iter().peekable(), self.operations.iter().peekable(), self.boundaries.iter().peekable());
        let mut reported = self.reported.iter().peekable();
        let mut inputs = self.inputs.iter().peekable();
        while from < end {
            while let Some(call) = calls.next_if(|call| call.start < to) {
                simulation.call(call);
            }
            while let Some(&(thread, launch, launched)) = reported.next_if(|&&(_, launch, _)| launch < to) {
                simulation.launches(thread, launch, launched);
            }
            while let Some(&(thread, start, end)) = inputs.next_if(|&&(_, start, _)| start < to) {
                simulation.input_wait(thread, start, end);
            }
            while let Some(operation) = operations.next_if(|operation| operation.start < to) {
                simulation.operation(operation);
            }
            while let Some(&at) = boundaries.next_if(|&&at| at < to) {
                simulation.step_boundary(DEVICE, at, STEPS);
            }
            simulation.advance(to);
            (from, to) = (to, to + flush);
        }
        simulation.advance(u64::MAX);
        simulation
    }
}
