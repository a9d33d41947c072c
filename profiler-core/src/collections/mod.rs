//! Containers of the engine: each is bounded, or cheap where the standard one is not.

pub mod correlation_map;
pub mod queue;
pub mod slab;
pub mod sorted_runs;
