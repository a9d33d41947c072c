//! What a step would be with shorter kernels: the newest steps are simulated once more, by themselves.
//!
//! Which kernels, and how much shorter, is known at the end only, and the worlds that are simulated as records come are
//! as many as a live run can afford. So the newest events are kept as the simulation took them, within a limit, and
//! each question runs through them again. Questions cost nothing until they are asked: then some milliseconds each.

use std::collections::VecDeque;

use gpuwhy_trace::record::{DeviceId, ThreadId};

use super::input::{Call, Operation, OperationClass, StepMark};
use super::replay::Replay;

/// Events that are kept, 72 bytes each: eight steps of a GPT with 680 kernels a step. What was kept longest goes.
const EVENT_LIMIT: usize = 1 << 15;
/// Steps at the begin of what is kept, and after each pause, that do not count: the worlds run apart in them.
const UNCOUNTED: u64 = 8;
/// Of few steps this part at most is not counted.
const UNCOUNTED_PART: u64 = 4;

/// What the simulation took.
#[derive(Clone, Copy, Debug)]
pub(super) enum Taken {
    /// Something happened to the steps of a device.
    Step(u64, DeviceId, StepMark),
    /// The outermost call of a thread returned.
    Return(u64, ThreadId),
    /// A call was entered; what tracing added to it is worked out.
    Enter(Call),
    /// An operation ran.
    Operation(Operation),
    /// A pause: what comes next has nothing before it.
    Restart,
}

#[derive(Clone, Debug, Default)]
pub(super) struct EventLog {
    events: VecDeque<Taken>,
}

impl EventLog {
    /// Keeps one more.
    #[inline]
    pub(super) fn push(&mut self, event: Taken) {
        if self.events.len() >= EVENT_LIMIT {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// How many steps at the begin of each part are not counted.
    fn uncounted(&self) -> u64 {
        let begins = self.events.iter().filter(|event| matches!(event, Taken::Step(.., StepMark::Begin(_))));
        (begins.count() as u64 / UNCOUNTED_PART).min(UNCOUNTED)
    }

    /// Simulates what is kept, where of each kernel the part `remains` (0 to 1) of its time is left in the scenario
    /// [`ScenarioKind::KernelsAtRoof`](super::ScenarioKind::KernelsAtRoof).
    pub(super) fn simulate(&self, remains: &dyn Fn(DeviceId, u32) -> f64) -> Replay {
        let uncounted = self.uncounted();
        let mut replay = Replay::of_all_steps();
        replay.sampling.leave_out(uncounted);
        for event in &self.events {
            match *event {
                Taken::Step(at, device, StepMark::Begin(series)) => {
                    replay.boundary(at, device, series);
                }
                Taken::Step(_, device, StepMark::Break) => replay.break_off(device),
                Taken::Return(at, thread) => replay.leave(thread, at),
                Taken::Enter(ref call) => {
                    replay.origin.tell(call.start);
                    replay.enter(call);
                }
                Taken::Operation(ref operation) => {
                    replay.origin.tell(operation.start);
                    replay.run(&shortened(operation, remains));
                }
                Taken::Restart => {
                    replay.restart();
                    replay.sampling.leave_out(uncounted);
                }
            }
        }
        replay
    }
}

fn shortened(operation: &Operation, remains: &dyn Fn(DeviceId, u32) -> f64) -> Operation {
    if operation.class != OperationClass::Compute {
        return *operation;
    }
    let gone = 1.0 - remains(operation.device, operation.kernel).clamp(0.0, 1.0);
    let nanos = operation.end.saturating_sub(operation.start) as f64 * gone;
    Operation { excess: nanos.min(f64::from(u32::MAX)) as u32, ..*operation }
}
