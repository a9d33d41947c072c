//! What the what-if replay is told, and when: the one place where the attributor knows of it.
//!
//! The books never depend on the replay, so all calls go this way only.

use super::DeviceAccount;
use super::api::ApiClass;
use super::operation::{InputWait, Operation};
use crate::record::{ApiCall, ThreadId};
use crate::thresholds::CLOCK_SLACK_NANOS;
use crate::whatif::{self, CallClass, LaunchedBy, OperationClass, Simulation, SmallGrid, WhatIf};

/// Tells the replay what it needs of calls, operations and steps.
#[derive(Debug, Default)]
pub(super) struct SimulationFeed {
    replay: Simulation,
}

impl SimulationFeed {
    /// Gives the replay up.
    pub(super) fn stop(&mut self) {
        self.replay.stop();
    }

    /// What the replay says about a device, its ceilings additive where it is not believed.
    pub(super) fn what_if(&self, account: &DeviceAccount) -> Option<WhatIf> {
        let answer = self.replay.what_if(account.id(), account.step_series(), account.steady_start().nanos())?;
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
        if self.replay.skips(call.start.nanos()) {
            return;
        }
        let class = if launches || !class.launches() { class.into() } else { CallClass::Other };
        self.replay.call(&whatif::Call {
            thread: replay_thread(thread),
            start: call.start.nanos(),
            end: call.end.nanos(),
            class,
            correlation: call.correlation,
        });
    }

    /// An operation was joined with its launch, which the watermark has not passed.
    #[inline]
    pub(super) fn small_grid(&mut self, operation: &Operation) {
        let Operation { device, stream, symbol: kernel, fit, graph, .. } = *operation;
        if let Some(launch) = operation.launch.filter(|_| fit > 0 && !graph) {
            let grid = SmallGrid { device, stream, kernel, fit: fit.into() };
            self.replay.small_grid(replay_thread(launch.thread as usize), launch.start, grid);
        }
    }

    /// An operation is on its way to its timeline.
    #[inline]
    pub(super) fn operation(&mut self, operation: &Operation) {
        // Mostly a long run is not replayed: nothing is worked out then.
        let begin = operation.launch.map_or(operation.start, |launch| launch.start.max(operation.start));
        if self.replay.skips(begin) {
            return;
        }
        let Some(class) = OperationClass::of(operation.leaf) else { return };
        let correlation = operation.correlation;
        self.replay.operation(&whatif::Operation {
            start: operation.start,
            end: operation.end,
            device: operation.device,
            stream: operation.stream,
            class,
            launch: operation.launch.map(|launch| LaunchedBy { correlation, start: launch.start }),
            excess: operation.excess(),
        });
    }

    /// A timeline has advanced: takes the input waits, the begins of steps and where one broke off.
    pub(super) fn take_findings(&mut self, account: &mut DeviceAccount) {
        for InputWait { thread, start, end } in account.input_waits.drain(..) {
            self.replay.input_wait(replay_thread(thread as usize), start, end);
        }
        let device = account.id();
        for (at, series) in account.boundaries.drain(..) {
            self.replay.step_boundary(device, at, series);
        }
        for at in account.breaks.drain(..) {
            self.replay.step_break(device, at);
        }
    }

    /// All timelines have advanced to `watermark`; each may have stopped short of it by the clock slack.
    pub(super) fn advance(&mut self, watermark: u64) {
        let replayed = if watermark == u64::MAX { watermark } else { watermark.saturating_sub(CLOCK_SLACK_NANOS) };
        self.replay.advance(replayed);
    }
}

/// The replay needs to tell threads apart, not to know them.
fn replay_thread(index: usize) -> ThreadId {
    ThreadId(u32::try_from(index).unwrap_or(u32::MAX))
}
