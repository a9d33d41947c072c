//! Effect of shorter kernels on a step: a separate second simulation of the newest steps.
//!
//! The kernels, and their shorter times, are known only at the end, and the number of scenarios simulated
//! online is limited by the cost of a live run. So the newest events are kept as the simulation received
//! them, within a limit, and each query runs through them again. A query takes some milliseconds; without
//! queries there is no cost.

use std::collections::VecDeque;

use gpuwhy_trace::record::{DeviceId, ThreadId};

use super::input::{Call, Operation, OperationClass, StepMark};
use super::recurrence::Recurrence;

/// Maximum events kept, 72 bytes each: eight steps of a GPT with 680 kernels per step. The oldest are
/// dropped.
const EVENT_LIMIT: usize = 1 << 15;
/// Steps at the start of the kept events, and after each pause, that do not count because the scenarios
/// diverge in them.
const UNCOUNTED: u64 = 8;
/// With few steps, at most this part of them (as a divisor) is not counted.
const UNCOUNTED_PART: u64 = 4;

/// An event as the simulation received it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Taken {
    /// An event in the steps of a device.
    Step(u64, DeviceId, StepMark),
    /// The outermost call of a thread returned.
    Return(u64, ThreadId),
    /// A call was entered; it includes its tracing overhead.
    Enter(Call),
    /// An operation ran.
    Operation(Operation),
    /// A pause: the following events have no predecessors.
    Restart,
}

#[derive(Clone, Debug, Default)]
pub(super) struct EventLog {
    events: VecDeque<Taken>,
}

impl EventLog {
    /// Stores one more event.
    #[inline]
    pub(super) fn push(&mut self, event: Taken) {
        if self.events.len() >= EVENT_LIMIT {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Number of steps at the start of each part that do not count.
    fn uncounted(&self) -> u64 {
        let begins = self.events.iter().filter(|event| matches!(event, Taken::Step(.., StepMark::Begin(_))));
        (begins.count() as u64 / UNCOUNTED_PART).min(UNCOUNTED)
    }

    /// Simulates the kept events. Each kernel keeps the fraction `remains` (0 to 1) of its time in the
    /// scenario [`ScenarioKind::KernelsAtRoof`](super::ScenarioKind::KernelsAtRoof).
    pub(super) fn simulate(&self, remains: &dyn Fn(DeviceId, u32) -> f64) -> Recurrence {
        let uncounted = self.uncounted();
        let mut recurrence = Recurrence::of_all_steps();
        recurrence.sampling.leave_out(uncounted);
        for event in &self.events {
            match *event {
                Taken::Step(at, device, StepMark::Begin(series)) => {
                    recurrence.boundary(at, device, series);
                }
                Taken::Step(_, device, StepMark::Break) => recurrence.break_off(device),
                Taken::Return(at, thread) => recurrence.leave(thread, at),
                Taken::Enter(ref call) => {
                    recurrence.origin.tell(call.start);
                    recurrence.enter(call);
                }
                Taken::Operation(ref operation) => {
                    recurrence.origin.tell(operation.start);
                    recurrence.run(&shortened(operation, remains));
                }
                Taken::Restart => {
                    recurrence.restart();
                    recurrence.sampling.leave_out(uncounted);
                }
            }
        }
        recurrence
    }
}

fn shortened(operation: &Operation, remains: &dyn Fn(DeviceId, u32) -> f64) -> Operation {
    if !matches!(operation.class, OperationClass::Compute | OperationClass::Selection) {
        return *operation;
    }
    let gone = 1.0 - remains(operation.device, operation.kernel).clamp(0.0, 1.0);
    let nanos = operation.end.saturating_sub(operation.start) as f64 * gone;
    Operation { excess: nanos.min(f64::from(u32::MAX)) as u32, ..*operation }
}
