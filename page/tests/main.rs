//! Pages of traces: their contents equal those of the report.

mod diff;
mod graphs;
mod losses;
mod page;
mod programs;
mod ranks;
mod redact;
mod statics;
mod timeline;

/// Compares ranks in memory, as the tests of comparisons. Included, because no source has `#[path]`.
mod kept_rows {
    include!("../../compare/tests/kept_rows.rs");
}
