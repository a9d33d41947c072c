//! gpuprof tells, while a CUDA program runs, why it is not faster.
//!
//! This crate is the way in for Rust programs. [`open`] reads a trace that `libprof.so` or the PyTorch profiler wrote;
//! a [`Session`] measures the program itself. Both give the [`Report`] that the `gpuprof report` command prints.
//!
//! ```no_run
//! let report = gpuprof::open("gpuprof-4711.gpuprof")?;
//! println!("{}", report.live_line());
//! # Ok::<(), gpuprof::OpenError>(())
//! ```

mod baseline;
pub mod bench;
mod collector;
mod expectations;
mod import;
mod open;
mod range;
mod session;

pub use baseline::Baseline;
pub use bench::{Bench, BenchError, Measurement};
pub use expectations::{Expectations, Failures};
#[cfg(feature = "export")]
pub use gpuprof_export as export;
pub use import::{KinetoError, import_kineto};
pub use open::{OpenError, open, open_capture, read};
pub use profiler_core::diff::{Diff, Refusal, compare};
pub use profiler_core::report::Report;
pub use profiler_core::trace::TraceError;
pub use range::Range;
pub use session::{Session, SessionBuilder, SessionError, SessionErrorKind, measure};

/// Compiles the Rust code of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
