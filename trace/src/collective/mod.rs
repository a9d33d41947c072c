//! Collective operations, as NCCL told them: communicators, and what was queued in them.

mod event;
mod names;

pub use event::{CollectiveEvent, Communicator, QueuedOperation, Way};
pub use names::{Algorithm, DataType, Function, Protocol};
