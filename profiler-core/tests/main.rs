//! Tests of the engine through its public interface.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "reads files, prints"
)]

mod attribution_segments;
mod monitoring;
mod reference_trace;
mod steps;
mod steps_anchors;
mod steps_exact;
mod steps_periods;
mod steps_reference;
mod steps_reported;
mod whatif;
mod whatif_combined;
mod whatif_copies;
mod whatif_edges;
mod whatif_grids;
mod whatif_program;
mod whatif_properties;
mod whatif_reference;
mod whatif_sampling;
mod whatif_stop;
mod whatif_untraced;
