//! The engine through its public interface.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "reads files, prints"
)]

mod attribution;
mod attribution_gaps;
mod attribution_host;
mod attribution_join;
#[cfg(feature = "serde")]
mod attribution_json;
mod attribution_properties;
mod attribution_range_limits;
mod attribution_ranges;
mod attribution_segments;
mod attribution_steps;
mod attribution_tables;
mod attribution_verdicts;
mod auto_mode;
mod captures;
mod collectives;
mod counters;
mod counters_compared;
mod counters_coverage;
mod counters_hostile;
mod diff;
mod diff_prediction;
mod geometry;
mod geometry_reference;
mod geometry_report;
mod history;
mod kernel_gains;
mod kernel_profiles;
mod launch_lines;
mod live_line;
mod memory_usage;
mod monitoring;
mod monitoring_recorded;
mod program_counters;
mod ranks;
mod ranks_simulated;
mod reference_trace;
mod report_advice;
mod stable_names;
mod steps;
mod steps_anchors;
mod steps_exact;
mod steps_periods;
mod steps_reference;
mod steps_told;
mod support;
mod trace_damage;
mod trace_golden;
mod trace_roundtrip;
mod trace_sample;
mod trace_window;
mod untraced;
mod verdict_host;
mod verdict_launch;
mod verdict_plan;
mod verdict_programs;
mod verdict_sentences;
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
