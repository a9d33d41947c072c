//! Recurrence of the simulation: each call, operation and step advances the clocks of every scenario.
//!
//! Events come in time order; [`Simulation`](super::Simulation) ensures that.

use gpuwhy_trace::record::{DeviceId, ThreadId};

use super::combinations::Combinations;
use super::device::{Progress, SimulatedLaunch, Streams};
use super::estimate::WhatIf;
use super::gaps::QueuedGaps;
use super::host::{Begun, SHORT_CALL_NANOS, Threads};
use super::input::{Call, CallClass, Operation, OperationClass, READBACK_BYTES};
use super::launches::{self, AnnouncedLaunches, GraphNodes, Launches};
use super::sampling::Sampling;
use super::scenario::{SCENARIO_COUNT, ScenarioKind};
use super::steps::{SimulatedSteps, StepTimes};
use super::variants::{CHOSEN_COUNT, Clocks, Origin, Removed, VARIANT_COUNT, Variants, as_clock, is_traced, later};
use crate::api::BLOCKING_COPY_NANOS;
use crate::steps::StepSeries;

/// An operation that ended at most this long before a waiting call returned is the one that released it:
/// waking a thread takes up to some tens of microseconds.
pub const RELEASE_NANOS: u64 = 40_000;
/// Devices of one process; operations on others are not simulated.
const DEVICE_LIMIT: usize = 256;

#[derive(Clone, Debug, Default)]
struct SimulatedDevice {
    id: DeviceId,
    progress: Progress,
    gaps: QueuedGaps,
    steps: SimulatedSteps,
}

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct Recurrence {
    threads: Threads,
    pub(super) streams: Streams,
    devices: Vec<SimulatedDevice>,
    pub(super) origin: Origin,
    launches: Launches,
    pub(super) nodes: GraphNodes,
    pub(super) reported: AnnouncedLaunches,
    variants: Variants,
    combinations: Combinations,
    /// Sums of the overhead of calls, nanoseconds: as seen in calls that launch graphs, and by the table.
    seen_tracing: u64,
    priced_tracing: u64,
    pub(super) sampling: Sampling,
}

impl Recurrence {
    /// Simulates all steps regardless of their number.
    pub(super) fn of_all_steps() -> Self {
        Self { sampling: Sampling::whole(), ..Self::default() }
    }

    /// The thread waited for an input batch from `start` to `end`, between two calls.
    pub(super) fn input_wait(&mut self, thread: ThreadId, start: u64, end: u64) {
        self.threads.input_wait(thread, start, end);
    }

    pub(super) fn what_if(&self, device: DeviceId, series: StepSeries, since: u64) -> Option<WhatIf> {
        let device = self.device(device)?;
        let rows = device.steps.rows(series);
        let combined = self.combinations.results((device.id, series));
        let seen = self.seen_tracing as f64 / (self.seen_tracing + self.priced_tracing).max(1) as f64;
        Some(WhatIf::of(&rows[rows.partition_point(|row| row.began < since)..], combined, 1.0 - seen))
    }

    pub(super) fn steps(&self, device: DeviceId, series: StepSeries) -> &[StepTimes] {
        self.device(device).map_or(&[], |device| device.steps.rows(series))
    }

    pub(super) fn clocks(&self, device: DeviceId) -> Option<[u64; SCENARIO_COUNT]> {
        let clocks = self.device(device)?.progress.clocks;
        Some(std::array::from_fn(|variant| self.origin.time(clocks[variant])))
    }

    fn device(&self, id: DeviceId) -> Option<&SimulatedDevice> {
        self.devices.iter().find(|device| device.id == id)
    }

    /// A step of `series` starts on the device. Returns true if it is the last before a pause, after which
    /// the state starts over.
    pub(super) fn boundary(&mut self, at: u64, device: DeviceId, series: StepSeries) -> bool {
        let devices = self.devices.len() as u64;
        let Some(device) = self.devices.iter_mut().find(|known| known.id == device) else { return false };
        if !self.sampling.counts(devices) {
            return false;
        }
        let step = device.steps.boundary(&device.progress, series, self.sampling.stands_for());
        let of = (device.id, series);
        if let Some(sets) = step.and_then(|step| self.combinations.step(of, &step, &self.threads.costs)) {
            self.choose(sets);
        }
        let paused = self.sampling.counted(at, devices);
        if paused {
            self.restart();
        }
        paused
    }

    /// From here on the chosen scenarios remove these sets; each starts as the named scenario paired with it.
    fn choose(&mut self, sets: [(Removed, usize); CHOSEN_COUNT]) {
        self.variants.chosen = sets.map(|(set, _)| set);
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

    /// Starts over but keeps the results: the next input is the first to be simulated.
    pub(super) fn restart(&mut self) {
        self.threads.forget_clocks();
        self.streams.forget();
        for device in &mut self.devices {
            device.steps.break_off();
            device.progress.clocks = [self.origin.clock(device.progress.real); VARIANT_COUNT];
        }
    }

    /// Discards the current step of the device.
    pub(super) fn break_off(&mut self, device: DeviceId) {
        self.sampling.break_off();
        if let Some(device) = self.devices.iter_mut().find(|known| known.id == device) {
            device.steps.break_off();
        }
    }

    /// A thread enters a call. Returns the call including the tracing overhead of the operations that it
    /// launches.
    pub(super) fn enter(&mut self, call: &Call) -> Call {
        if let Some(thread) = self.threads.get_mut(call.thread)
            && let Some(outer) = thread.open
        {
            if call.start < outer.end {
                let launch = SimulatedLaunch::of(&outer, thread);
                self.launches.insert(call.correlation, launch);
                return *call;
            }
            // The open call returned at the instant this one was entered, or returns now.
            self.close(&outer);
        }
        let launched = self.reported.take(call);
        let tracing_ns = match self.nodes.take(call) {
            0 => call.tracing_ns,
            nodes => graph_tracing(call.lasted(), nodes),
        };
        self.seen_tracing += u64::from(tracing_ns.saturating_sub(call.tracing_ns));
        self.priced_tracing += u64::from(call.tracing_ns.min(tracing_ns));
        let call = Call { tracing_ns, ..*call };
        let thread = self.threads.enter(&call, launched, self.origin, &self.variants);
        if call.class != CallClass::Other {
            let launch = SimulatedLaunch::of(&call, thread);
            self.launches.insert(call.correlation, launch);
        }
        call
    }

    /// A thread may return from its outermost call.
    pub(super) fn leave(&mut self, thread: ThreadId, at: u64) {
        // At the return of a nested call, the outer one is still open.
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
            CallClass::Wait => true,
            CallClass::Memory => lasted > SHORT_CALL_NANOS,
            // A full queue, or pageable memory.
            CallClass::Launch => untraced > BLOCKING_COPY_NANOS,
            CallClass::Other => false,
        };
        let released = if may_have_waited { released_by(call, begun, &self.streams) } else { None };
        let stages = released.as_ref().is_some_and(|released| released.staged);
        // A framework waits directly after such a copy, because its memory may be reused when the call
        // returns.
        let for_copy = stages || (thread.staged && call.class == CallClass::Wait);
        let mut clocks = match &released {
            &Some(Released { at, clocks, .. }) => self.variants.each(|variant, gone| {
                let entered = entered[variant];
                let from = if gone.never_waits(call.class) { entered } else { later(entered, clocks[variant]) };
                let returned = from + as_clock(gone.wake_up(call.end - at, call.class));
                let issued = entered + as_clock(SHORT_CALL_NANOS);
                if for_copy && gone.stages_nothing() && issued < returned { issued } else { returned }
            }),
            None => self.variants.each(|variant, gone| {
                let lasted = if is_traced(variant) { lasted } else { untraced };
                entered[variant] + as_clock(gone.call(lasted, call.class))
            }),
        };
        let released = released.as_ref().map(|released| (released.clocks, call.end - released.at));
        thread.correct_return(call, may_have_waited, released, &mut clocks, &self.variants);
        self.threads.leave(call, clocks, stages);
    }

    pub(super) fn run(&mut self, operation: &Operation) {
        let index = self.devices.iter().position(|device| device.id == operation.device).unwrap_or(self.devices.len());
        if index == self.devices.len() {
            if index == DEVICE_LIMIT {
                return;
            }
            self.devices.push(SimulatedDevice { id: operation.device, ..SimulatedDevice::default() });
        }
        let device = &mut self.devices[index];
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
            self.streams.run(operation, launch, &mut device.progress, &mut device.gaps, self.origin, &self.variants);
        if let (Some(begun), Some(launch)) = (begun, launch)
            && let Some(thread) = self.threads.get_mut(launch.thread)
            && thread.open.is_some_and(|call| Some(call.correlation) == launched_by)
        {
            thread.begun = Some(begun);
        }
    }
}

/// Duration of a call that launches a graph, without tracing: 5 to 7 us with 277 nodes, 3 us with one (H200).
const GRAPH_CALL_NANOS: u64 = 2_500;
/// Part of the price of its nodes that it takes in addition: 10 of 831 ns each.
const OWN_PART: u32 = 80;
/// Sum of the prices of nodes below which a graph was recorded as a whole, or has one node.
const WHOLE_GRAPH: u32 = 3_000;
/// Longest overhead of such a launch.
const WHOLE_GRAPH_NANOS: u64 = 1_000_000;

/// Overhead of tracing in a call of `lasted` nanoseconds that launches a graph; by the table its nodes cost
/// `nodes`. The call itself shows it better: it took 271 and 542 us in two runs of one program on one machine.
/// A call that waited for room in the queue must not count as a whole.
fn graph_tracing(lasted: u64, nodes: u32) -> u32 {
    let seen = lasted.saturating_sub(GRAPH_CALL_NANOS + u64::from(nodes / OWN_PART));
    let most = if nodes < WHOLE_GRAPH { WHOLE_GRAPH_NANOS } else { 4 * u64::from(nodes) };
    u32::try_from(seen.clamp(u64::from(nodes / 2), most).min(lasted)).unwrap_or(u32::MAX)
}

/// Event that ended the wait of a call.
struct Released<'a> {
    /// Real time of the event.
    at: u64,
    /// Its time in every scenario.
    clocks: &'a Clocks,
    /// True if it was the call's own copy, which it moved through a staging buffer.
    staged: bool,
}

/// Finds the event that released a waiting call.
///
/// A copy to or from pageable memory waits until it can run and then moves the data through a staging buffer;
/// the last piece is still in flight when the call returns. So the call's own operation, if it outlasts the
/// call, released it by starting.
fn released_by<'a>(call: &Call, own: Option<&'a Begun>, streams: &'a Streams) -> Option<Released<'a>> {
    if let Some(own) = own.filter(|own| own.start > call.start && own.start <= call.end && own.end > call.end) {
        return Some(Released { at: own.start, clocks: &own.clocks, staged: true });
    }
    let mut earliest = call.start.max(call.end.saturating_sub(RELEASE_NANOS + 1));
    // Its data is then moved out of the staging buffer, which takes longer than waking up.
    if let Some(own) = own.filter(|own| own.to_host && own.end > call.start && own.end <= earliest) {
        earliest = own.end - 1;
    }
    // The end of a kernel of another thread falls into a short call by chance.
    let thread = (call.lasted() <= SHORT_CALL_NANOS).then_some(call.thread);
    let (at, clocks) = streams.ended_within(earliest, call.end, thread)?;
    Some(Released { at, clocks, staged: false })
}
