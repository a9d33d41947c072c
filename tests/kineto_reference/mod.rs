//! Our answers beside those of the tools that people use on the same files, from public reference traces.
//!
//! Where a reference number is reproduced it is reproduced to its last digit: first by the rules of its tool, from
//! the raw rows, so that it is certain what the tool counts; then the engine's number is compared and the difference
//! bounded by what the rules differ in. `docs/design/comparison.md` argues each difference.
//!
//! The traces are not part of the repository. Without them the tests say `SKIPPED`.

mod hta;
mod oracle;
mod tensorboard;
mod verdicts;
