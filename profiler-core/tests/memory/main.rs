//! How much memory the engine needs. The allocator counts for the whole process, so the tests run one at a time.

mod attribution_memory;
mod bounded_memory;
mod counting;
mod graph_memory;
mod memory_without_flushes;
