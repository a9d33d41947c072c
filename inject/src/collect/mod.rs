//! The thread `gpuwhy-collect`: turns buffers into records, a bottleneck and a trace.
//!
//! Reading order: `collector` (messages, and the path of an event), `sources` with `ranges`, `sinks` with
//! `trace_file`; then the parts that observe events:
//! `triggers`, `losses`, `summary`, `source_lines`.

pub mod collector;
mod losses;
pub mod ranges;
pub mod raw_recording;
mod sinks;
mod source_lines;
mod sources;
mod summary;
pub mod trace_file;
mod triggers;
