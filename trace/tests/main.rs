//! The trace through its public interface.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "reads files, prints"
)]

mod geometry;
mod geometry_reference;
mod graph_nodes;
mod memory_calls;
mod source_lines;
mod trace_damage;
mod trace_golden;
mod trace_roundtrip;
mod trace_sample;
mod trace_window;
