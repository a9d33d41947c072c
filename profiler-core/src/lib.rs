//! Records, trace format, attribution and report of gpuwhy.
//!
//! The data path, in reading order: a [`record`] refers to a [`dictionary`] for everything that repeats; records go
//! into the [`attribution`] engine, which gives every nanosecond of device time one cause, and into the [`trace`]
//! writer; the [`report`] is made from the engine's state, live or from a trace read back.
//!
//! This crate has never heard of CUPTI. It has no clock, environment, file or thread: times and bytes are
//! arguments, `Read` and `Write` are parameters.
#![forbid(unsafe_code)]

pub mod attribution;
pub mod bounded;
pub mod capture;
mod correlated;
pub mod cost;
pub mod demangle;
pub mod dictionary;
pub mod diff;
pub mod geometry;
mod line;
pub mod memory;
pub mod ranks;
pub mod record;
pub mod report;
mod runs;
pub mod session;
mod slab;
pub mod steps;
pub mod terminal;
pub mod trace;
pub mod utilisation;
pub mod whatif;
