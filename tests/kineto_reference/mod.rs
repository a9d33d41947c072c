//! Our results compared with those of common tools on the same files, from public reference traces.
//!
//! Reference numbers are reproduced to the last digit: first by the rules of the tool, from the raw rows,
//! which proves what the tool counts. Then the engine's number is compared, and the difference is bounded by
//! the difference of the rules. `docs/design/comparison.md` explains each difference.
//!
//! The traces are not part of the repository. Without them the tests print `SKIPPED`.

mod bottlenecks;
mod hta;
mod oracle;
mod tensorboard;
