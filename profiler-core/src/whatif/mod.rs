//! What if: how fast the program would be if one of its costs were gone.
//!
//! A streaming max-plus simulation. The state is clocks only (one for each host thread and each stream, in each
//! scenario) and every call and every operation advances a few of them, so a record costs O(1) and no graph of the
//! program is ever built. Real times decide once what waited for what; then each scenario redoes the sums with its
//! own weights:
//!
//! ```text
//! entered = max(clock of the thread or of the one that handed over to it + host gap, own clock)
//! begin   = max(entered + issue, end of the operation before on the stream + gap, end of the one waited for) + lag
//! return  = max(entered, end of the operation that released the call) + wake-up, or entered + duration
//! ```
//!
//! Edges keep the lag they really had, so that the base reproduces the real times except where something happened
//! that no edge explains; that part is left out on purpose and shows as base error. [`WhatIf`] holds the gate.
//!
//! # Where the attributor calls in
//!
//! All input may come in any order as long as it comes before [`Simulation::advance`] passes its time (a late call or
//! operation is simulated as if it came now, a late boundary is left out):
//!
//! 1. a call placed as outermost (or nested, if it launches): [`Simulation::call`];
//! 2. an operation that has been joined with its launch, on its way to the timeline: [`Simulation::operation`];
//! 3. a small grid or a copy between host and device that has been joined with its launch: [`Simulation::launches`],
//!    before the watermark passes that launch;
//!    Likewise an operation of a graph whose record costs its launch time: [`Simulation::graph_node`];
//! 4. a host gap explained as a wait for input: [`Simulation::input_wait`], with the whole host gap, not only the idle
//!    part of it;
//! 5. a step found: [`Simulation::step_boundary`], at the begin of its first operation;
//! 6. after the timelines have advanced to a watermark (and done 4 and 5): [`Simulation::advance`] to the same one.
//!
//! After some hundred steps the simulation pauses most of the time (`sampling`).
//!
//! Not here: finding steps, finding input waits, slower ranks (they take the records of other processes:
//! [`crate::ranks`]), and any price of removing a cost.

mod batches;
mod ceiling;
mod combinations;
mod copies;
mod device;
mod estimate;
mod gaps;
mod host;
mod input;
mod intervals;
mod launches;
mod nodes;
mod queue;
mod replay_log;
mod sampling;
mod scenario;
mod shorter;
mod steps;
mod told;
mod worlds;

pub use ceiling::{Ceiling, WORTH_DOING, WORTH_SHOWING};
pub(crate) use ceiling::{about, faster};
pub use combinations::Combined;
pub use estimate::{BASE_ERROR_LIMIT, COVERED_LEAST, FEWEST_STEPS, Refusal, UNEXPLAINED_LIMIT, WhatIf};
pub use input::{
    Call, CallClass, Launched, LaunchedBy, MOST_BYTES, Operation, OperationClass, READBACK_BYTES, SmallGrid, Transfer,
};
pub use replay_log::ReplayedOperation;
pub use scenario::{SCENARIO_COUNT, ScenarioKind};
pub use steps::StepTimes;
pub use worlds::Removed;

use self::combinations::Combinations;
use self::device::{Launch, Progress, Streams};
use self::gaps::QueuedGaps;
use self::host::{Begun, SHORT_CALL_NANOS, Threads};
use self::launches::Launches;
use self::nodes::GraphNodes;
use self::queue::{Event, Queue, StepMark};
use self::sampling::Sampling;
use self::shorter::{EventLog, Taken};
use self::steps::Steps;
use self::told::Told;
use self::worlds::{CHOSEN_COUNT, Clocks, Origin, WORLD_COUNT, Worlds, as_clock, is_traced, later};
use crate::attribution::api::BLOCKING_COPY_NANOS;
use crate::record::{DeviceId, ThreadId};
use crate::steps::StepSeries;

/// An operation that ended at most this long before a waiting call returned is what released it: waking a thread
/// takes some microseconds to some tens.
pub const RELEASE_NANOS: u64 = 40_000;
/// Devices of one process; operations on others are not simulated.
const DEVICE_LIMIT: usize = 256;

#[derive(Clone, Debug, Default)]
struct Device {
    id: DeviceId,
    progress: Progress,
    gaps: QueuedGaps,
    steps: Steps,
}

/// The streaming simulation. See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Simulation {
    queue: Queue,
    threads: Threads,
    streams: Streams,
    devices: Vec<Device>,
    origin: Origin,
    launches: Launches,
    nodes: GraphNodes,
    told: Told,
    worlds: Worlds,
    combinations: Combinations,
    sampling: Sampling,
    /// The newest watermark.
    position: u64,
    late_boundaries: u64,
    stopped: bool,
    /// The newest events, for who asks about shorter kernels.
    kept: Option<Box<EventLog>>,
}

impl Simulation {
    /// Knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Knows nothing yet, and will simulate all steps however many there are: what simulating a part of them is
    /// measured against.
    #[must_use]
    pub fn of_all_steps() -> Self {
        Self { sampling: Sampling::whole(), ..Self::default() }
    }

    /// Forgets everything and takes nothing more: for a client that cannot afford the simulation any longer. There is
    /// no answer from then on.
    pub fn stop(&mut self) {
        *self = Self { stopped: true, ..Self::default() };
    }

    /// Whether what begins at `at` need not be told, because it is not simulated.
    #[inline]
    pub(crate) fn skips(&self, at: u64) -> bool {
        self.stopped || self.sampling.is_paused(at)
    }

    /// A call was made. Nested calls may be told too; they only lend their correlation id to the outer one.
    pub fn call(&mut self, call: &Call) {
        if self.stopped {
            return;
        }
        self.origin.tell(call.start);
        if !self.sampling.is_paused(call.start) {
            self.queue.push_call(Call { end: call.end.max(call.start), ..*call });
        }
    }

    /// An operation ran.
    pub fn operation(&mut self, operation: &Operation) {
        if self.stopped {
            return;
        }
        self.origin.tell(operation.start);
        // Clocks differ a little: whatever they say, it began after its launch.
        let at = operation.launch.map_or(operation.start, |launch| launch.start.max(operation.start));
        if !self.sampling.is_paused(at) {
            self.queue.push_operation(at, *operation);
        }
    }

    /// The call that `thread` enters at `launch` launches this. Told when the watermark has passed it, or for a launch
    /// that is not told itself, it changes nothing.
    pub fn launches(&mut self, thread: ThreadId, launch: u64, launched: Launched) {
        if !self.skips(launch) {
            self.told.tell(thread, launch, launched, self.position);
        }
    }

    /// The call that `thread` enters at `launch` launches one operation more of a graph, whose record adds `tracing_ns`
    /// to the call. Told when the watermark has passed it, it changes nothing.
    pub fn graph_node(&mut self, thread: ThreadId, launch: u64, tracing_ns: u32) {
        if launch >= self.position && !self.skips(launch) {
            self.nodes.tell(thread, launch, tracing_ns, self.position);
        }
    }

    /// The thread waited for an input batch from `start` to `end`, between two calls.
    pub fn input_wait(&mut self, thread: ThreadId, start: u64, end: u64) {
        if self.stopped {
            return;
        }
        if start < end {
            self.threads.input_wait(thread, start, end);
        }
    }

    /// A step of `series` begins on the device with the operation that begins there at `at`.
    /// One before the watermark comes too late to be simulated: the step before it and the one after become one.
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

    /// The step that the device is in at `at` is none: it had no work any more, or what was found does not repeat. A
    /// break before the watermark comes too late and is left out.
    pub fn step_break(&mut self, device: DeviceId, at: u64) {
        if !self.stopped && at >= self.position {
            self.queue.push_step(at, device, StepMark::Break);
        }
    }

    /// Boundaries that came behind the watermark and were left out.
    #[must_use]
    pub const fn late_boundaries(&self) -> u64 {
        self.late_boundaries
    }

    /// Nothing that happened before `watermark` will be told any more: simulates it.
    pub fn advance(&mut self, watermark: u64) {
        if self.stopped {
            return;
        }
        self.position = self.position.max(watermark);
        let mut queue = std::mem::take(&mut self.queue);
        queue.sort();
        while let Some((at, event)) = queue.next(watermark) {
            if self.sampling.is_paused(at) {
                queue.skip_before(self.sampling.paused_until().min(watermark));
                continue;
            }
            match event {
                Event::Step(device, mark) => {
                    self.keep(Taken::Step(at, device, mark));
                    match mark {
                        StepMark::Begin(series) => self.boundary(at, device, series),
                        StepMark::Break => self.break_off(device),
                    }
                }
                Event::Return(thread) => {
                    self.keep(Taken::Return(at, thread));
                    self.leave(thread, at);
                }
                Event::Enter(call) => self.enter(call),
                Event::Operation(operation) => {
                    self.keep(Taken::Operation(*operation));
                    self.run(operation);
                }
            }
        }
        self.queue = queue;
    }

    /// Notes where operations that begin in these parts of the run are in every scenario. The parts are in order, from
    /// begin to end, nanoseconds on the clock of the trace.
    pub fn log(&mut self, parts: Vec<(u64, u64)>) {
        if !self.stopped {
            self.streams.log(parts);
        }
    }

    /// What was noted since it was last taken, in the order of the simulation.
    pub fn take_log(&mut self) -> Vec<ReplayedOperation> {
        self.streams.take_log()
    }

    /// What those steps of `series` say that were simulated and began at `since` or later, if any operation ran on the
    /// device.
    #[must_use]
    pub fn what_if(&self, device: DeviceId, series: StepSeries, since: u64) -> Option<WhatIf> {
        let device = self.device(device)?;
        let rows = device.steps.rows(series);
        let combined = self.combinations.results((device.id, series));
        Some(WhatIf::of(&rows[rows.partition_point(|row| row.began < since)..], combined))
    }

    /// The steps of a device in order, several in one when there are many.
    #[must_use]
    pub fn steps(&self, device: DeviceId, series: StepSeries) -> &[StepTimes] {
        self.device(device).map_or(&[], |device| device.steps.rows(series))
    }

    /// Replayed time at which the device has done everything so far, in every scenario, nanoseconds; after the first
    /// pause of the simulation, counted from the real end of the newest one.
    #[must_use]
    pub fn clocks(&self, device: DeviceId) -> Option<[u64; SCENARIO_COUNT]> {
        let clocks = self.device(device)?.progress.clocks;
        Some(std::array::from_fn(|world| self.origin.time(clocks[world])))
    }

    fn device(&self, id: DeviceId) -> Option<&Device> {
        self.devices.iter().find(|device| device.id == id)
    }

    fn boundary(&mut self, at: u64, device: DeviceId, series: StepSeries) {
        let devices = self.devices.len() as u64;
        let Some(device) = self.devices.iter_mut().find(|known| known.id == device) else { return };
        if !self.sampling.counts(devices) {
            return;
        }
        let step = device.steps.boundary(&device.progress, series, self.sampling.stands_for());
        let of = (device.id, series);
        if let Some(sets) = step.and_then(|step| self.combinations.step(of, &step, &self.threads.costs)) {
            self.choose(sets);
        }
        if self.sampling.counted(at, devices) {
            self.restart();
        }
    }

    /// From here on the chosen worlds are without these sets; each begins as the named world beside it.
    fn choose(&mut self, sets: [(Removed, usize); CHOSEN_COUNT]) {
        self.worlds.chosen = sets.map(|(set, _)| set);
        let starts = sets.map(|(_, start)| start);
        let mut change = |clocks: &mut Clocks| launches::begin(clocks, starts);
        self.threads.change_clocks(&mut change);
        self.streams.change_clocks(&mut change);
        self.launches.change(starts);
        for device in &mut self.devices {
            change(&mut device.progress.clocks);
            device.steps.change_clocks(&mut change);
        }
    }

    /// Keeps an event, if anybody will ask for it.
    #[inline]
    fn keep(&mut self, event: Taken) {
        if let Some(kept) = &mut self.kept {
            kept.push(event);
        }
    }

    /// Begins anew, with what was counted: what comes next is the first that is simulated.
    fn restart(&mut self) {
        self.keep(Taken::Restart);
        self.threads.forget_clocks();
        self.streams.forget();
        for device in &mut self.devices {
            device.steps.break_off();
            device.progress.clocks = [self.origin.clock(device.progress.real); WORLD_COUNT];
        }
    }

    fn break_off(&mut self, device: DeviceId) {
        self.sampling.break_off();
        if let Some(device) = self.devices.iter_mut().find(|known| known.id == device) {
            device.steps.break_off();
        }
    }

    fn enter(&mut self, call: &Call) {
        if let Some(thread) = self.threads.get_mut(call.thread)
            && let Some(outer) = thread.open
        {
            if call.start < outer.end {
                let launch = Launch::of(&outer, thread);
                self.launches.insert(call.correlation, launch);
                self.keep(Taken::Enter(*call));
                return;
            }
            // It returned at the instant it was entered, or right now.
            self.close(&outer);
        }
        let launched = self.told.take(call);
        let nodes = self.nodes.take(call);
        let call = &Call { tracing_ns: call.tracing_ns.saturating_add(nodes), ..*call };
        self.keep(Taken::Enter(*call));
        let thread = self.threads.enter(call, launched, self.origin, &self.worlds);
        if call.class != CallClass::Other {
            let launch = Launch::of(call, thread);
            self.launches.insert(call.correlation, launch);
        }
    }

    fn leave(&mut self, thread: ThreadId, at: u64) {
        // The return of a nested call finds the outer one still open.
        let open = self.threads.get_mut(thread).and_then(|thread| thread.open);
        if let Some(call) = open.filter(|call| call.end <= at) {
            self.close(&call);
        }
    }

    fn close(&mut self, call: &Call) {
        let Some(thread) = self.threads.get_mut(call.thread) else { return };
        let (entered, begun) = (&thread.entered, thread.begun.as_ref());
        let (lasted, untraced) = (call.lasted(), call.untraced());
        let may_have_waited = match call.class {
            CallClass::Wait | CallClass::Memory => lasted > SHORT_CALL_NANOS,
            // A full queue, or pageable memory.
            CallClass::Launch => untraced > BLOCKING_COPY_NANOS,
            CallClass::Other => false,
        };
        let released = if may_have_waited { released_by(call, begun, &self.streams) } else { None };
        let stages = released.as_ref().is_some_and(|released| released.staged);
        // A framework waits right behind such a copy, because its memory may be used again when the call returns.
        let for_copy = stages || (thread.staged && call.class == CallClass::Wait);
        let mut clocks = match &released {
            &Some(Released { at, clocks, .. }) => self.worlds.each(|world, gone| {
                let entered = entered[world];
                let from = if gone.never_waits(call.class) { entered } else { later(entered, clocks[world]) };
                let returned = from + as_clock(gone.wake_up(call.end - at, call.class));
                let issued = entered + as_clock(SHORT_CALL_NANOS);
                if for_copy && gone.stages_nothing() && issued < returned { issued } else { returned }
            }),
            None => self.worlds.each(|world, gone| {
                let lasted = if is_traced(world) { lasted } else { untraced };
                entered[world] + as_clock(gone.call(lasted, call.class))
            }),
        };
        let released = released.as_ref().map(|released| (released.clocks, call.end - released.at));
        thread.correct_return(call, may_have_waited, released, &mut clocks, &self.worlds);
        self.threads.leave(call, clocks, stages);
    }

    fn run(&mut self, operation: &Operation) {
        let place = self.devices.iter().position(|device| device.id == operation.device).unwrap_or(self.devices.len());
        if place == self.devices.len() {
            if place == DEVICE_LIMIT {
                return;
            }
            self.devices.push(Device { id: operation.device, ..Device::default() });
        }
        let device = &mut self.devices[place];
        let launched_by = operation.launch.map(|launch| launch.correlation);
        let launch = launched_by.and_then(|correlation| self.launches.get(correlation));
        let launch = launch.filter(|launch| self.sampling.knows(launch.start));
        if launch.is_some() || launched_by.is_none() {
            self.sampling.caught_up();
        }
        let took = as_clock(operation.end.saturating_sub(operation.start));
        match operation.class {
            OperationClass::CopyToHost if operation.bytes > READBACK_BYTES => {
                self.threads.costs[ScenarioKind::ReadsReduced as usize] += took;
            }
            OperationClass::Communication => {
                self.threads.costs[ScenarioKind::CommunicationHidden as usize] += took;
            }
            _ => {}
        }
        if operation.class.is_copy() {
            self.threads.costs[ScenarioKind::CopiesOverlapped as usize] += took;
        }
        let begun =
            self.streams.run(operation, launch, &mut device.progress, &mut device.gaps, self.origin, &self.worlds);
        if let (Some(begun), Some(launch)) = (begun, launch)
            && let Some(thread) = self.threads.get_mut(launch.thread)
            && thread.open.is_some_and(|call| Some(call.correlation) == launched_by)
        {
            thread.begun = Some(begun);
        }
    }
}

/// What a call that waited was waiting for.
struct Released<'a> {
    /// When that was, really.
    at: u64,
    /// The same in every scenario.
    clocks: &'a Clocks,
    /// It was the call's own copy, which it moved through a staging buffer.
    staged: bool,
}

/// What released a call that waited.
///
/// A copy to or from pageable memory waits for its turn and then moves the data through a staging buffer; the last
/// piece is under way when the call returns. So an own operation that outlasts the call released it by beginning.
fn released_by<'a>(call: &Call, own: Option<&'a Begun>, streams: &'a Streams) -> Option<Released<'a>> {
    if let Some(own) = own.filter(|own| own.start > call.start && own.start <= call.end && own.end > call.end) {
        return Some(Released { at: own.start, clocks: &own.clocks, staged: true });
    }
    let earliest = call.start.max(call.end.saturating_sub(RELEASE_NANOS + 1));
    let (at, clocks) = streams.ended_within(earliest, call.end)?;
    Some(Released { at, clocks, staged: false })
}
