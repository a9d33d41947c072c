//! Events of application threads on their way to the collector: a ring of words for each thread.
//!
//! | file | what it does | runs on |
//! |---|---|---|
//! | `writer`, `stacks` | each thread's depth, and its way into its ring | application threads |
//! | `table` | keeps what is named once | application threads |
//! | `lanes`, `ring`, `packed` | the rings, and the words of an event | both |
//! | `nccl` | events of NCCL, in the same rings | both |
//!
//! An event costs its thread a clock reading and a copy of its text into a ring: no lock, no allocation once the
//! ring has its memory, no hashing. Events from before the first use of CUDA wait in the rings; when a ring is full,
//! complete ranges are dropped and counted.

pub mod lanes;
pub mod nccl;
pub mod packed;
mod ring;
pub mod stacks;
pub mod table;
pub mod writer;
