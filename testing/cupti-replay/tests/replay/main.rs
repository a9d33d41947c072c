//! The replay library through its real C functions, and the host program with a small profiler.
//!
//! A library has one state per process, so each test loads its own copy of the file. No test depends on
//! timing: where two threads must meet, they wait for each other.
#![expect(unsafe_code, reason = "calls C functions")]

mod client;
mod counters;
mod host;
mod play;
mod recording;
mod rules;
