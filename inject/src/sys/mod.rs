//! What this library calls of the C library and of Linux. Nothing here logs: what goes wrong is an `io::Result`.

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
