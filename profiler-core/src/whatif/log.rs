//! Times of operations in every scenario, for clients that draw a few simulated steps.
//!
//! The simulation keeps only clocks; this log records them at each operation, in the requested parts of the
//! run.

use gpuwhy_trace::record::{DeviceId, StreamId, Timestamp};

use super::input::{Operation, OperationClass};
use super::scenario::SCENARIO_COUNT;
use super::variants::Clocks;

/// Maximum operations in the log; further ones are ignored until the log is emptied.
const LIMIT: usize = 1 << 18;

/// An operation with its real and simulated times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulatedOperation {
    /// Device that ran it.
    pub device: DeviceId,
    /// Stream it ran on.
    pub stream: StreamId,
    /// Kind of operation.
    pub class: OperationClass,
    /// Real start.
    pub start: Timestamp,
    /// Real end.
    pub end: Timestamp,
    /// Start and end in each scenario, indexed by `ScenarioKind as usize`, nanoseconds on a clock that all
    /// operations share.
    pub simulated: [(f64, f64); SCENARIO_COUNT],
}

/// Operations since they were last taken.
#[derive(Clone, Debug, Default)]
pub(super) struct SimulationLog {
    /// Start and end of the logged parts, in order.
    parts: Vec<(u64, u64)>,
    rows: Vec<SimulatedOperation>,
}

impl SimulationLog {
    pub(super) fn new(parts: Vec<(u64, u64)>) -> Self {
        Self { parts, rows: Vec::new() }
    }

    /// Logs an operation, if it started in one of the parts.
    pub(super) fn note(&mut self, operation: &Operation, begin: &Clocks, done: &Clocks) {
        let start = operation.start;
        let part = self.parts.partition_point(|&(_, to)| to <= start);
        if self.rows.len() < LIMIT && self.parts.get(part).is_some_and(|&(from, _)| from <= start) {
            self.rows.push(SimulatedOperation {
                device: operation.device,
                stream: operation.stream,
                class: operation.class,
                start: Timestamp::from_nanos(start),
                end: Timestamp::from_nanos(operation.end.max(start)),
                simulated: std::array::from_fn(|variant| (begin[variant], done[variant])),
            });
        }
    }

    pub(super) fn take(&mut self) -> Vec<SimulatedOperation> {
        std::mem::take(&mut self.rows)
    }
}
