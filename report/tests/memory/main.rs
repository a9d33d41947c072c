//! Memory use of the engine. The allocator counts for the complete process, so the tests run one at a time.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "reads files, prints"
)]

mod attribution_memory;
mod bounded_memory;
mod counting;
mod graph_memory;
mod memory_without_flushes;
