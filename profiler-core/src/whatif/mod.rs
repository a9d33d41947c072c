//! Simulates how fast the program would be if one of its costs were removed.
//!
//! A streaming max-plus simulation. The state consists only of clocks (one for each host thread and each
//! stream, in each scenario) and every call and every operation advances a few of them, so a record costs
//! O(1) and no graph of the program is ever built. Real times decide once which dependency each wait had;
//! then each scenario redoes the sums with its own weights:
//!
//! ```text
//! entered = max(clock of the thread or of the one that handed over to it + host gap, own clock)
//! begin   = max(entered + issue, end of the operation before on the stream + gap, end of the one waited for) + lag
//! return  = max(entered, end of the operation that released the call) + wake-up, or entered + duration
//! ```
//!
//! Edges keep their real lag, so that the base reproduces the real times except for effects that no edge
//! explains; that part is left out on purpose and appears as base error. [`WhatIf`] decides if the result is
//! reliable.
//!
//! # Calls from the attributor
//!
//! All input may come in any order as long as it comes before [`Simulation::advance`] passes its time (a late
//! call or operation is simulated as if it came now, a late boundary is left out):
//!
//! 1. a call placed as outermost (or nested, if it launches): [`Simulation::call`];
//! 2. an operation that has been joined with its launch, on its way to the timeline:
//!    [`Simulation::operation`];
//! 3. a small grid or a copy between host and device that has been joined with its launch:
//!    [`Simulation::launches`], before the watermark passes that launch; similarly an operation of a graph
//!    whose record costs its launch time: [`Simulation::graph_node`];
//! 4. a host gap explained as a wait for input: [`Simulation::input_wait`], with the complete host gap, not
//!    only its idle part;
//! 5. a step found: [`Simulation::step_boundary`], at the start of its first operation;
//! 6. after the timelines have advanced to a watermark (and done 4 and 5): [`Simulation::advance`] to the
//!    same one.
//!
//! After some hundred steps the simulation pauses most of the time (`sampling`).
//!
//! Not here: detection of steps and of input waits, slower ranks (they require the records of other
//! processes: `ranks` in `gpuwhy-report`), and the cost of a fix itself.

mod best_case;
mod busy;
mod combinations;
mod device;
mod estimate;
mod gaps;
mod host;
mod input;
mod intervals;
mod joined;
mod launches;
mod log;
mod recurrence;
mod sampling;
mod scenario;
mod shorter;
mod steps;
mod variants;

pub use best_case::{BestCase, WORTH_DOING, WORTH_SHOWING};
pub use busy::Busy;
pub use combinations::Combined;
pub use estimate::{BASE_ERROR_LIMIT, COVERED_LEAST, FEWEST_STEPS, SimulationProblem, UNEXPLAINED_LIMIT, WhatIf};
pub use input::{
    Call, CallClass, Launched, LaunchedBy, MOST_BYTES, Operation, OperationClass, READBACK_BYTES, SmallGrid, Transfer,
};
pub use intervals::limited;
pub use log::SimulatedOperation;
pub use recurrence::RELEASE_NANOS;
pub(crate) use scenario::removed_in;
pub use scenario::{SCENARIO_COUNT, ScenarioKind};
pub use steps::StepTimes;
pub use variants::Removed;

use gpuwhy_trace::record::{DeviceId, ThreadId};

use self::input::{InputEvent, Queue, StepMark};
use self::recurrence::Recurrence;
use self::shorter::{EventLog, Taken};
use crate::steps::StepSeries;

/// The streaming simulation. See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Simulation {
    queue: Queue,
    recurrence: Recurrence,
    /// Newest watermark.
    position: u64,
    late_boundaries: u64,
    stopped: bool,
    /// Newest events, for queries about shorter kernels.
    kept: Option<Box<EventLog>>,
}

impl Simulation {
    /// Creates an empty simulation.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty simulation that simulates all steps regardless of their number: the reference for
    /// simulating a part of them.
    pub fn of_all_steps() -> Self {
        Self { recurrence: Recurrence::of_all_steps(), ..Self::default() }
    }

    /// Drops all state and ignores further input: for a client that can no longer afford the simulation.
    /// There are no results from then on.
    pub fn stop(&mut self) {
        *self = Self { stopped: true, ..Self::default() };
    }

    /// True if input at `at` is not needed, because it is not simulated.
    #[inline]
    pub(crate) fn skips(&self, at: u64) -> bool {
        self.stopped || self.recurrence.sampling.is_paused(at)
    }

    /// Adds a call. Nested calls may be added too; they only map their correlation id to the outer one.
    pub fn call(&mut self, call: &Call) {
        if self.stopped {
            return;
        }
        self.recurrence.origin.tell(call.start);
        if !self.recurrence.sampling.is_paused(call.start) {
            self.queue.push_call(Call { end: call.end.max(call.start), ..*call });
        }
    }

    /// Adds an operation.
    pub fn operation(&mut self, operation: &Operation) {
        if self.stopped {
            return;
        }
        self.recurrence.origin.tell(operation.start);
        // Clocks differ a little: the operation really started after its launch.
        let at = operation.launch.map_or(operation.start, |launch| launch.start.max(operation.start));
        if !self.recurrence.sampling.is_paused(at) {
            self.queue.push_operation(at, *operation);
        }
    }

    /// The call that `thread` enters at `launch` launches this. Has no effect after the watermark has passed
    /// the call, or if the call itself is never added.
    pub fn launches(&mut self, thread: ThreadId, launch: u64, launched: Launched) {
        if !self.skips(launch) {
            self.recurrence.reported.tell(thread, launch, launched, self.position);
        }
    }

    /// The call that `thread` enters at `launch` launches one more operation of a graph, whose record adds
    /// `tracing_ns` to the call. Has no effect after the watermark has passed the call.
    pub fn graph_node(&mut self, thread: ThreadId, launch: u64, tracing_ns: u32) {
        if launch >= self.position && !self.skips(launch) {
            self.recurrence.nodes.tell(thread, launch, tracing_ns, self.position);
        }
    }

    /// The thread waited for an input batch from `start` to `end`, between two calls.
    pub fn input_wait(&mut self, thread: ThreadId, start: u64, end: u64) {
        if self.stopped {
            return;
        }
        if start < end {
            self.recurrence.input_wait(thread, start, end);
        }
    }

    /// A step of `series` starts on the device with the operation that starts there at `at`. A boundary
    /// before the watermark comes too late to be simulated: the step before it and the one after become one.
    pub fn step_boundary(&mut self, device: DeviceId, at: u64, series: StepSeries) {
        if self.stopped {
            return;
        }
        if at < self.position {
            self.late_boundaries += 1;
        } else {
            self.queue.push_step(at, device, StepMark::Begin(series));
        }
    }

    /// Discards the step that the device is in at `at`: it had no work any more, or the detected sequence
    /// does not repeat. A break before the watermark comes too late and is ignored.
    pub fn step_break(&mut self, device: DeviceId, at: u64) {
        if !self.stopped && at >= self.position {
            self.queue.push_step(at, device, StepMark::Break);
        }
    }

    /// Boundaries that came after the watermark had passed them and were ignored.
    pub const fn late_boundaries(&self) -> u64 {
        self.late_boundaries
    }

    /// Simulates up to `watermark`; no earlier input will come.
    pub fn advance(&mut self, watermark: u64) {
        if self.stopped {
            return;
        }
        self.position = self.position.max(watermark);
        let mut queue = std::mem::take(&mut self.queue);
        queue.sort();
        while let Some((at, event)) = queue.next(watermark) {
            if self.recurrence.sampling.is_paused(at) {
                queue.skip_before(self.recurrence.sampling.paused_until().min(watermark));
                continue;
            }
            match event {
                InputEvent::Step(device, mark) => {
                    self.keep(Taken::Step(at, device, mark));
                    match mark {
                        StepMark::Begin(series) => {
                            if self.recurrence.boundary(at, device, series) {
                                self.keep(Taken::Restart);
                            }
                        }
                        StepMark::Break => self.recurrence.break_off(device),
                    }
                }
                InputEvent::Return(thread) => {
                    self.keep(Taken::Return(at, thread));
                    self.recurrence.leave(thread, at);
                }
                InputEvent::Enter(call) => {
                    let call = self.recurrence.enter(call);
                    self.keep(Taken::Enter(call));
                }
                InputEvent::Operation(operation) => {
                    self.keep(Taken::Operation(*operation));
                    self.recurrence.run(operation);
                }
            }
        }
        self.queue = queue;
    }

    /// Logs the times in every scenario of operations that start in these parts of the run. The parts are in
    /// order, from start to end, nanoseconds on the clock of the trace.
    pub fn log(&mut self, parts: Vec<(u64, u64)>) {
        if !self.stopped {
            self.recurrence.streams.log(parts);
        }
    }

    /// Operations logged since the last call, in the order of the simulation.
    pub fn take_log(&mut self) -> Vec<SimulatedOperation> {
        self.recurrence.streams.take_log()
    }

    /// Result for the simulated steps of `series` that started at `since` or later, if any operation ran on
    /// the device.
    pub fn what_if(&self, device: DeviceId, series: StepSeries, since: u64) -> Option<WhatIf> {
        self.recurrence.what_if(device, series, since)
    }

    /// Steps of a device in order; several in one row if there are many.
    pub fn steps(&self, device: DeviceId, series: StepSeries) -> &[StepTimes] {
        self.recurrence.steps(device, series)
    }

    /// Simulated time at which the device has finished all work up to now, in every scenario, nanoseconds;
    /// after the first pause of the simulation, counted from the real end of the newest one.
    pub fn clocks(&self, device: DeviceId) -> Option<[u64; SCENARIO_COUNT]> {
        self.recurrence.clocks(device)
    }

    /// Keeps the newest events from here on, for [`with_shorter_kernels`](Self::with_shorter_kernels).
    pub fn keep_events(&mut self) {
        if !self.stopped && self.kept.is_none() {
            self.kept = Some(Box::default());
        }
    }

    /// Simulated steps of `series` if each kernel keeps the fraction `remains` (0 to 1) of its time, given
    /// its device and its [`Operation::kernel`]. Based on the newest steps; relative to a step without
    /// tracing, like all best cases. `None` if events are not kept, or if the simulation of the kept events
    /// is not reliable.
    #[must_use]
    pub fn with_shorter_kernels(
        &self,
        device: DeviceId,
        series: StepSeries,
        remains: &dyn Fn(DeviceId, u32) -> f64,
    ) -> Option<BestCase> {
        let answer = self.kept.as_ref()?.simulate(remains).what_if(device, series, 0)?;
        if answer.refused.is_some() {
            return None;
        }
        // No result unless a step became shorter.
        let step_ns = answer.best_cases.first()?;
        let now = (step_ns.step_ns as f64 * step_ns.speedup) as u64;
        let unchanged = BestCase { interval: Some((1.0, 1.0)), ..BestCase::new(ScenarioKind::KernelsAtRoof, now, now) };
        Some(answer.best_case(ScenarioKind::KernelsAtRoof).copied().unwrap_or(unchanged))
    }

    /// Stores an event, if events are kept.
    #[inline]
    fn keep(&mut self, event: Taken) {
        if let Some(kept) = &mut self.kept {
            kept.push(event);
        }
    }
}
