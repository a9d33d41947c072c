//! What the what-if simulation is told, and when: the one place where the attributor knows of it.
//!
//! The accounts never depend on the simulation, so all calls go this way only.

use super::DeviceAccount;
use super::api::ApiClass;
use super::operation::{InputWait, Operation};
use crate::record::{ApiCall, ThreadId};
use crate::thresholds::CLOCK_SLACK_NANOS;
use crate::whatif::{
    self, CallClass, Launched, LaunchedBy, MOST_BYTES, OperationClass, Simulation, SmallGrid, Transfer, WhatIf,
};

/// Tells the simulation what it needs of calls, operations and steps.
#[derive(Debug, Default)]
pub(super) struct SimulationFeed {
    simulation: Simulation,
}

impl SimulationFeed {
    /// Gives the simulation up.
    pub(super) fn stop(&mut self) {
        self.simulation.stop();
    }

    /// What the simulation says about a device, its ceilings additive where it is not believed.
    pub(super) fn what_if(&self, account: &DeviceAccount) -> Option<WhatIf> {
        let answer = self.simulation.what_if(account.id(), account.step_series(), account.steady_start().nanos())?;
        let leaves = account.steady_leaves();
        // What is said of a step and what it could become must be of the same steps.
        let answer = match account.typical_steps() {
            Some(_) => answer,
            None => answer.only_if_it_covers(leaves.iter().sum()),
        };
        Some(answer.or_additive(&leaves, account.steady_link_ns()))
    }

    /// A call of the thread with this index was placed. `launches`: device work comes out of it; one that launches by
    /// its class and does not (it failed, or a capture took it) costs its time and nothing else.
    pub(super) fn call(&mut self, thread: usize, call: &ApiCall, class: ApiClass, launches: bool) {
        if self.simulation.skips(call.start.nanos()) {
            return;
        }
        let class = if launches || !class.launches() { class.into() } else { CallClass::Other };
        self.simulation.call(&whatif::Call {
            thread: simulated_thread(thread),
            start: call.start.nanos(),
            end: call.end.nanos(),
            class,
            correlation: call.correlation,
        });
    }

    /// An operation was joined with its launch, which the watermark has not passed.
    #[inline]
    pub(super) fn launched(&mut self, operation: &Operation) {
        let Operation { device, stream, symbol: kernel, fit, bytes, graph, .. } = *operation;
        if (fit > 0 || bytes > 0)
            && !graph
            && let Some(launch) = operation.launch
            && let Some(class) = OperationClass::of(operation.leaf)
        {
            let to_host = class == OperationClass::CopyToHost;
            let launched = match class {
                _ if fit > 0 => Launched::Grid(SmallGrid { device, stream, kernel, fit: fit.into() }),
                OperationClass::CopyToHost => Launched::Copy(Transfer { device, stream, to_host, bytes }),
                OperationClass::CopyFromHost if bytes < MOST_BYTES => {
                    Launched::Copy(Transfer { device, stream, to_host, bytes })
                }
                _ => return,
            };
            self.simulation.launches(simulated_thread(launch.thread as usize), launch.start, launched);
        }
    }

    /// An operation is on its way to its timeline.
    #[inline]
    pub(super) fn operation(&mut self, operation: &Operation) {
        // Mostly a long run is not simulated: nothing is worked out then.
        let begin = operation.launch.map_or(operation.start, |launch| launch.start.max(operation.start));
        if self.simulation.skips(begin) {
            return;
        }
        let Some(class) = OperationClass::of(operation.leaf) else { return };
        let correlation = operation.correlation;
        self.simulation.operation(&whatif::Operation {
            start: operation.start,
            end: operation.end,
            device: operation.device,
            stream: operation.stream,
            class,
            launch: operation.launch.map(|launch| LaunchedBy { correlation, start: launch.start }),
            excess: operation.excess(),
            bytes: operation.bytes,
        });
    }

    /// A timeline has advanced: takes the input waits, the begins of steps and where one broke off.
    pub(super) fn take_findings(&mut self, account: &mut DeviceAccount) {
        for InputWait { thread, start, end } in account.input_waits.drain(..) {
            self.simulation.input_wait(simulated_thread(thread as usize), start, end);
        }
        let device = account.id();
        for (at, series) in account.boundaries.drain(..) {
            self.simulation.step_boundary(device, at, series);
        }
        for at in account.breaks.drain(..) {
            self.simulation.step_break(device, at);
        }
    }

    /// All timelines have advanced to `watermark`; each may have stopped short of it by the clock slack.
    pub(super) fn advance(&mut self, watermark: u64) {
        let simulated = if watermark == u64::MAX { watermark } else { watermark.saturating_sub(CLOCK_SLACK_NANOS) };
        self.simulation.advance(simulated);
    }
}

/// The simulation needs to tell threads apart, not to know them.
fn simulated_thread(index: usize) -> ThreadId {
    ThreadId(u32::try_from(index).unwrap_or(u32::MAX))
}
