//! Where operations are in every scenario, for whoever draws a few steps of it.
//!
//! The simulation keeps clocks only; here is what they were at each operation, in the parts of the run that were asked
//! for, if somebody asked.

use gpuwhy_trace::record::{DeviceId, StreamId, Timestamp};

use super::input::{Operation, OperationClass};
use super::scenario::SCENARIO_COUNT;
use super::worlds::Clocks;

/// Operations that are noted at most between two times that they are taken.
const LIMIT: usize = 1 << 18;

/// An operation and when it would have run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayedOperation {
    /// On which device.
    pub device: DeviceId,
    /// On which stream.
    pub stream: StreamId,
    /// What it does.
    pub class: OperationClass,
    /// When it really began.
    pub start: Timestamp,
    /// When it really ended.
    pub end: Timestamp,
    /// Begin and end in each scenario, indexed by `ScenarioKind as usize`, nanoseconds on a clock that all operations
    /// share.
    pub replayed: [(f64, f64); SCENARIO_COUNT],
}

/// Operations since they were last taken.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplayLog {
    /// Begin and end of the parts that are noted, in order.
    parts: Vec<(u64, u64)>,
    rows: Vec<ReplayedOperation>,
}

impl ReplayLog {
    pub(super) fn new(parts: Vec<(u64, u64)>) -> Self {
        Self { parts, rows: Vec::new() }
    }

    /// Notes an operation, if it began in one of the parts.
    pub(super) fn note(&mut self, operation: &Operation, begin: &Clocks, done: &Clocks) {
        let start = operation.start;
        let part = self.parts.partition_point(|&(_, to)| to <= start);
        if self.rows.len() < LIMIT && self.parts.get(part).is_some_and(|&(from, _)| from <= start) {
            self.rows.push(ReplayedOperation {
                device: operation.device,
                stream: operation.stream,
                class: operation.class,
                start: Timestamp::from_nanos(start),
                end: Timestamp::from_nanos(operation.end.max(start)),
                replayed: std::array::from_fn(|world| (begin[world], done[world])),
            });
        }
    }

    pub(super) fn take(&mut self) -> Vec<ReplayedOperation> {
        std::mem::take(&mut self.rows)
    }
}
