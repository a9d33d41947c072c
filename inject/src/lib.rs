//! libprof.so: the library that the CUDA driver loads into a program.
//!
//! In reading order, along the way of a record:
//!
//! | file | what it does | runs on |
//! |---|---|---|
//! | `entry` | what C calls: the driver, NVTX, NCCL, a program that measures itself | the thread that calls `cuInit`; any |
//! | `lifecycle`, `start`, `runtime` | start, finish, fork; the one profiler and its state | that thread; the exiting thread |
//! | `config` | what the environment says | that thread |
//! | `capture` | what is measured, and when | whichever thread brings the event |
//! | `cupti` | what CUPTI calls, what it is asked for, and what its records mean | application threads, CUPTI's worker, `gpuwhy-flush` |
//! | `flusher` | makes CUPTI hand over its buffers | `gpuwhy-flush` |
//! | `sampler` | what launching threads do outside of CUDA | `gpuwhy-sample` |
//! | `counters` | gauges, utilization and hardware counters of devices | `gpuwhy-counters` |
//! | `kernels` | hardware counters of chosen kernels | application threads, `gpuwhy-kernels` |
//! | `collect`, `cost` | buffers become records, a verdict and a trace | `gpuwhy-collect` |
//! | `nvtx` | the program's own ranges and marks | application threads, `gpuwhy-collect` |
//! | `history` | a line about the run at its end | `gpuwhy-history` |
//! | `nccl` | communicators and their operations | application threads, NCCL's, `gpuwhy-collect` |
//! | `session` | the program measures a part of itself | its threads, `gpuwhy-collect` |
//! | `control` | a socket to ask, start and stop | `gpuwhy-control` |
//! | `message` | what these threads send each other, and what they share | all of them |
//! | `sys`, `worker`, `log` | the C library; threads and log lines in a process that is not ours | all of them |
//!
//! This library runs inside somebody else's process. It may lose data, and counts it. It never blocks the program,
//! panics into C, exits, installs a signal handler, or writes to stdout.

mod calibration;
mod capture;
mod collect;
mod command_line;
pub mod config;
pub mod control;
mod cost;
mod counters;
mod cupti;
mod entry;
mod flusher;
mod history;
mod kernels;
mod lifecycle;
mod log;
mod message;
mod nccl;
mod nvtx;
mod process_info;
mod runtime;
mod sampler;
pub mod session;
mod start;
mod sync;
mod sys;
mod worker;

pub use entry::session_functions;
pub use lifecycle::start_from_env;
pub use runtime::StartError;
pub use sys::files::create_new;
