//! The thread `gpuwhy-collect`: turns buffers into records, a bottleneck and a trace.
//!
//! Reading order: `collector` (messages, and the path of an event), `sources`, `router` with
//! `capture_filter`, `sinks` with `trace_file` and `session_trace`; then the parts that observe events:
//! `triggers`, `losses`, `summary`.

pub mod capture_filter;
pub mod collector;
mod losses;
pub mod raw_recording;
pub mod router;
pub mod session_trace;
mod sinks;
mod sources;
mod summary;
pub mod trace_file;
mod triggers;
