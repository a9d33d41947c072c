//! Steps: what a program repeats, and how long each repetition took by cause.
//!
//! Boundaries are on the device: a step begins when the first operation that was launched in it begins there. Host
//! marks carry run-ahead and would blur what the device did.

use crate::attribution::leaf::Leaves;
use crate::record::Timestamp;

/// How step boundaries were found, the most trustworthy first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepSource {
    /// Ranges that the program or its framework named.
    Annotated,
    /// A period in the sequence of launches.
    Period,
    /// An operation that comes once a step.
    Anchor,
    /// Nothing repeats: windows of a fixed length.
    Window,
}

/// One step on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Begin on the device.
    pub start: Timestamp,
    /// End: the begin of the next one.
    pub end: Timestamp,
    /// Device operations in it.
    pub operations: u64,
    /// Its time by cause; sums to `end - start` exactly.
    pub leaves: Leaves,
}

/// The steps of one device that are still remembered, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    /// How they were found.
    pub source: StepSource,
    /// Device operations of one step, when a period was found.
    pub period: Option<u64>,
    /// Steps found so far, those included that are not remembered any more.
    pub seen: u64,
    /// The newest ones, bounded in number.
    pub rows: Vec<Step>,
}
