//! Wrappers around the C library and Linux. They do not log: errors are an `io::Result`.

pub mod clock;
pub mod descriptors;
pub mod files;
pub mod memory;
pub mod perf;
pub mod process;
pub mod signals;
pub mod sockets;
pub mod stderr;
pub mod threads;
