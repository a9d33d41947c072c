//! libprof.so: the library that the CUDA driver loads into a program.
//!
//! In reading order, along the way of a record:
//!
//! | file | what it does | runs on |
//! |---|---|---|
//! | `border` | the entry points and every `unsafe` of this crate | the thread that calls `cuInit`; any that uses NVTX |
//! | `profiler` | start, finish, fork | that thread; the exiting thread |
//! | `capture` | what is measured, and when | whichever thread brings the news |
//! | `enable`, `interest` | which activity CUPTI is asked for | that thread; off: `gpuwhy-flush` |
//! | `activity`, `pool` | buffers out and in | application threads, CUPTI's worker |
//! | `flusher`, `unflushed` | makes CUPTI hand over, and when | `gpuwhy-flush` |
//! | `sampler` | what launching threads do without CUDA | `gpuwhy-sample` |
//! | `collector`, `decode` | buffers to records, verdict, trace | `gpuwhy-collect` |
//! | `graphs` | whether CUDA graphs stay one record | `gpuwhy-collect` |
//! | `nvtx` | the program's own ranges and marks | application threads, `gpuwhy-collect` |
//! | `session` | the program measures a part of itself | its threads, `gpuwhy-collect` |
//! | `control` | a socket to ask, start and stop | `gpuwhy-control` |
//! | `threads`, `room`, `log` | threads, memory, and lines on stderr, in a process that is not ours | all of them |
//! | `raw` | opt-in copy of the raw buffers | `gpuwhy-collect` |
//!
//! This code is a guest. It may lose data, and counts it; it never blocks the host, panics across the border, exits,
//! installs a signal handler, or writes to stdout.

mod activity;
mod border;
mod capture;
mod collector;
mod command_line;
pub mod control;
mod cost;
mod decode;
mod enable;
mod flusher;
mod gauges;
mod graphs;
mod interest;
mod links;
mod log;
mod nvtx;
mod output;
mod pool;
mod process;
mod profiler;
mod raw;
mod room;
mod sampler;
pub mod session;
pub mod settings;
mod sync;
mod threads;
mod trace_file;
mod unflushed;

pub use border::session_functions;
pub use output::create_new;
pub use profiler::{StartError, start_from_env};
