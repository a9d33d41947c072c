//! Tests of comparisons through their public interface.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "reads files, prints"
)]

mod counters_compared;
mod diff;
mod diff_prediction;
mod diff_runs;
mod history;
mod job;
mod kept_rows;
mod ranks;
mod ranks_simulated;

/// Synthetic programs, as in the tests of reports.
#[allow(dead_code, reason = "the tests of reports use the other parts")]
mod support {
    include!("../../report/tests/support/mod.rs");
}

#[allow(dead_code, reason = "the tests of reports use the other parts")]
mod counted {
    include!("../../report/tests/counted.rs");
}
