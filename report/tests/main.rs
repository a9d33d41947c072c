//! Tests of reports through their public interface, and of parts of the engine that show best in them.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "reads files, prints"
)]

mod attribution;
mod attribution_bottlenecks;
mod attribution_builds;
mod attribution_gaps;
mod attribution_host;
mod attribution_join;
#[cfg(feature = "serde")]
mod attribution_json;
mod attribution_other_process;
mod attribution_properties;
mod attribution_range_limits;
mod attribution_ranges;
mod attribution_steps;
mod attribution_tables;
mod auto_mode;
mod between_iterations;
mod bottleneck_gains;
mod bottleneck_host;
mod bottleneck_launch;
mod bottleneck_plan;
mod bottleneck_programs;
mod bottleneck_sentences;
mod call_lines;
mod captures;
mod collectives;
mod counted;
mod counters;
mod counters_coverage;
mod counters_hostile;
mod cupti;
mod geometry_report;
mod graph_origins;
mod host_lines;
mod host_lock;
mod kernel_gains;
mod kernel_profiles;
mod launch_lines;
mod live_line;
mod memory_usage;
mod monitoring_recorded;
mod remedies;
mod remedy_choice;
mod remedy_records;
mod report_advice;
mod serving;
mod stable_names;
#[allow(dead_code, reason = "the tests of comparisons use the other parts")]
mod support;
mod untraced;
