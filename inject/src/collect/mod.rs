//! The thread `gpuwhy-collect`: buffers become records, a verdict and a trace.

pub mod capture_filter;
pub mod capture_router;
pub mod collector;
pub mod live;
mod on_flush;
pub mod raw_recording;
mod routing;
pub mod session_trace;
mod summary;
pub mod trace_file;
