//! The capture that a record belongs to, and the trace of a session of the program.

pub mod capture_filter;
pub mod router;
pub mod session_trace;
