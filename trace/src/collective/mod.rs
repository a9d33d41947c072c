//! Collective operations reported by NCCL: communicators and the operations queued in them.

mod event;
mod names;

pub use event::{CollectiveEvent, Communicator, Execution, QueuedOperation};
pub use names::{Algorithm, DataType, Function, Protocol};
