//! Opens trace files and makes their reports: traces of gpuwhy, of the PyTorch profiler (Kineto) and of
//! Nsight Systems.
//!
//! The format is recognized by the contents of a file, not by its name; [`Input`] opens a file once and
//! `format` recognizes it. A report takes one pass ([`open()`], [`Input::report`]). An exporter may read the
//! records repeatedly ([`TraceFile`]); for that, a file of another profiler is translated into a temporary
//! trace. An import does not guess: data that a format lacks stays absent, and the report counts the rows
//! that cannot be used.
//!
//! Reading order: `format`, `input`, `request`, `open` (reports), `recompute`, `operators`, `window` (a part of a run),
//! `trace_file`, `kineto`, `nsys`, `plausible` (impossible times of both), `python` (lines of source code for
//! remedies). SQLite files of Nsight Systems need the feature `nsys`, remedies that read lines of source code the
//! feature `source`.

mod bounded;
mod error;
mod format;
mod input;
mod kineto;
#[cfg(feature = "nsys")]
mod nsys;
mod open;
mod operators;
mod plausible;
mod progress;
#[cfg(feature = "source")]
mod python;
pub mod rank_report;
mod recompute;
mod request;
pub mod scratch;
mod trace_file;
mod translate;
mod window;

pub use error::OpenError;
pub use format::is_kineto;
pub use input::Input;
pub use kineto::{KinetoError, import_kineto, translate_kineto};
pub use open::{open, open_capture, open_watched, open_window, read};
pub use progress::{Progress, share, unwatched};
pub use recompute::{Observer, RunState};
pub use request::Request;
pub use trace_file::{Pass, Passed, Scope, TraceFile, stem};
