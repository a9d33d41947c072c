//! gpuwhy shows, while a CUDA program runs, why it is not faster.
//!
//! This crate is the entry point for Rust programs, mainly for authors of kernels.
//!
//! | to | use |
//! |---|---|
//! | measure a part of the program | [`Session`], [`measure`] |
//! | read a trace of `libprof.so`, of the PyTorch profiler or of Nsight Systems | [`open`] |
//! | fail a test when a kernel gets slower or the host gets in the way | [`Expectations`], [`Baseline`] |
//! | compare two runs | [`compare`] |
//! | write other tools' formats | `export`, with the feature of this name |
//!
//! All of them use a [`Report`]: kernels, copies, API calls, idle time by cause, ranges, steps, the bottleneck and
//! the possible gains, as plain data. Times are in nanoseconds, with the suffix `_ns`; shares are 0 to 1. `Display`
//! prints the short report, `serde::Serialize` the documented JSON (docs/reference/report.md).
//!
//! # A trace, without a GPU
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Two launches and their kernels, as the PyTorch profiler writes them (microseconds).
//! let trace = r#"{"schemaVersion": 1, "traceEvents": [
//!   {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 0, "dur": 5, "args": {"correlation": 1}},
//!   {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 20, "dur": 5, "args": {"correlation": 2}},
//!   {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 8, "dur": 2, "args": {"device": 0, "stream": 7, "correlation": 1}},
//!   {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 28, "dur": 2, "args": {"device": 0, "stream": 7, "correlation": 2}}
//! ]}"#;
//! let report = gpuwhy::import_kineto(trace.as_bytes())?;
//! let device = &report.devices[0];
//! assert_eq!((&*device.kernels[0].name, device.kernels[0].durations.median()), ("gemm", 2_000));
//! // Every nanosecond of the device's window has one cause.
//! assert_eq!((device.window_ns, device.leaves.iter().sum()), (22_000, 22_000));
//! assert_eq!(device.leaves[gpuwhy::Leaf::LaunchApi as usize], 5_000);
//! // Two kernels are too few for a bottleneck, which says so.
//! assert_eq!(report.bottleneck.cause, gpuwhy::Cause::CannotTell);
//!
//! let json = serde_json::to_value(&report)?;
//! assert_eq!(json["devices"][0]["window_ns"], 22_000);
//! # Ok(())
//! # }
//! ```
//!
//! # A session
//!
//! ```no_run
//! let session = gpuwhy::Session::start()?; // before the first CUDA call
//! // ... launch kernels ...
//! println!("{}", session.finish()?);
//! # Ok::<(), gpuwhy::SessionError>(())
//! ```
//! Building needs no CUDA: a session searches for libcupti when it starts, and if there is none, the error says what
//! to install. The interface has no type of a CUDA crate, so it works with any crate that launches kernels. The only
//! condition is that the first session of the process starts before CUDA:
//!
//! | with | start it before |
//! |---|---|
//! | cudarc | `CudaContext::new` |
//! | candle, burn and others on cudarc | their first CUDA device, `Device::new_cuda` |
//! | cust | `cust::quick_init` |
//! | the runtime or the driver API | the first call, such as `cudaMalloc` or `cuInit` |
//!
//! Programs that set up a device before they measure call [`prepare`] there. Other languages use
//! `capi/include/gpuwhy.h`. The lessons in `examples/` use cudarc, those in `examples/c` the driver API.
//!
#![cfg_attr(
    feature = "export",
    doc = r#"# Other tools' formats

What a session leaves in a named file is a trace like any other:

```no_run
use std::path::Path;
use gpuwhy::export::{Destination, TargetFormat, Options, TraceFile, unwatched, export};

let session = gpuwhy::Session::builder().trace("run.gpuwhy").start()?;
// ... launch kernels ...
session.finish()?;
let trace = TraceFile::open("run.gpuwhy")?;
let format = TargetFormat::Perfetto;
let to = Destination::new(Path::new("run.perfetto-trace"), format.shape(), false, &[])?;
let outcome = export(&trace, format, to, &Options::default(), &mut unwatched)?;
outcome.notes.iter().for_each(|note| eprintln!("{note}"));
# Ok::<(), Box<dyn std::error::Error>>(())
```
"#
)]
//! # Features
//!
//! * `cli` (default): the command `gpuwhy`. Programs that only measure themselves turn it off.
//! * `export`: the exporters, queries and Nsight Systems' SQLite as input; part of `cli`.
//!
//! # Versions
//!
//! Semantic versioning covers the items documented here and the contents of a [`Report`] and a [`Diff`]; the packages
//! that they come from may change in a minor version. Structs and enumerations that may grow are `non_exhaustive`. The
//! JSON and the trace format have separate versions. The minimum supported Rust version is 1.88; raising it is a
//! minor version.

mod baseline;
mod expectations;
mod kernel_rules;
mod module_rules;
mod run_rules;
mod session;

pub use baseline::Baseline;
pub use expectations::{Expectations, Failures, JudgedRule, Judgment};
pub use gpuwhy_compare::diff::{Diff, NotComparable, compare};
#[cfg(feature = "export")]
pub use gpuwhy_export as export;
pub use gpuwhy_import::{
    KinetoError, OpenError, import_kineto, open, open_capture, open_watched, open_window, read, translate_kineto,
};
pub use gpuwhy_report::kernels::Roof;
pub use gpuwhy_report::run::Report;
pub use gpuwhy_trace::format::TraceError;
#[doc(hidden)]
pub use profiler_core;
pub use profiler_core::leaf::{Cause, Leaf};
#[doc(hidden)]
pub use session::fork;
pub use session::range::Range;
pub use session::{Session, SessionBuilder, SessionError, SessionErrorKind, measure, prepare};

/// Contents of a [`Report`] and of a [`Diff`], and the words for them.
pub mod report {
    pub use gpuwhy_compare::diff;
    pub use gpuwhy_report::{launch_site, library, run, words};
}

/// Events and records of a trace, and its format.
pub mod trace {
    pub use gpuwhy_trace::{dictionary, event, format, process_info, record};
}

/// Compiles the Rust code of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
