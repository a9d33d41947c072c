//! libprof.so: the library that the CUDA driver loads into a program.
//!
//! In reading order, along the path of a record:
//!
//! | file | what it does | runs on |
//! |---|---|---|
//! | `entry` | C entry points: driver, NVTX, NCCL, sessions of a program | the thread that calls `cuInit`; any |
//! | `lifecycle`, `start`, `runtime` | start, finish, fork; the profiler and its state | that thread; the exiting one |
//! | `config`, `calibration` | settings from the environment; this machine's table of overheads | that thread |
//! | `process_info`, `command_line` | what a trace says about the process | that thread |
//! | `capture` | which parts of the run are recorded | the thread of each event |
//! | `cupti` | callbacks, calls and records of CUPTI | application threads, CUPTI's worker, `gpuwhy-flush` |
//! | `flusher` | makes CUPTI deliver its buffers | `gpuwhy-flush` |
//! | `sampler` | samples launching threads outside of CUDA | `gpuwhy-sample` |
//! | `counters` | NVML readings, utilization and GPU counters of devices | `gpuwhy-counters` |
//! | `kernels` | GPU counters of selected kernels | application threads, `gpuwhy-kernels` |
//! | `routing` | the capture that a record belongs to | `gpuwhy-collect` |
//! | `collect`, `cost` | turns buffers into records, a bottleneck and a trace | `gpuwhy-collect` |
//! | `nvtx` | the program's own ranges and marks | application threads |
//! | `rings` | their way to the collector | application threads, `gpuwhy-collect` |
//! | `history` | writes a line about the run at its end | `gpuwhy-history` |
//! | `nccl` | communicators and their operations | application threads, NCCL's |
//! | `session` | lets the program measure a part of itself | its threads, `gpuwhy-collect` |
//! | `control` | a socket to query, start and stop | `gpuwhy-control` |
//! | `shared` | messages and shared state of these threads | all of them |
//! | `sys`, `worker`, `log` | the C library; threads and log lines in a process of the user | all of them |
//! | `sync` | atomics that a model checker can replace | all of them |
//!
//! This library runs inside the user's process. It may lose data, and counts it. It never blocks the program,
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
mod nccl;
mod nvtx;
mod process_info;
mod rings;
mod routing;
mod runtime;
mod sampler;
pub mod session;
mod shared;
mod start;
mod sync;
mod sys;
mod worker;

pub use entry::session_functions;
pub use lifecycle::start_from_env;
pub use runtime::StartError;
pub use sys::files::create_new;
