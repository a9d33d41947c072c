//! Records, trace format, attribution and report of gpuwhy.
//!
//! The data path, in reading order: a [`record`] refers to a [`dictionary`] for everything that repeats; records go
//! into the [`attribution`] engine, which gives every nanosecond of device time one cause, and into the [`trace`]
//! writer; the [`report`] is made from the engine's state, live or from a trace read back.
//!
//! This crate has never heard of CUPTI. It has no clock, environment, file or thread: times and bytes are
//! arguments, `Read` and `Write` are parameters.
#![forbid(unsafe_code)]

pub mod allocations;
pub mod attribution;
pub mod capture;
mod collections;
pub mod collective;
pub mod completeness;
pub mod cost;
pub mod counters;
pub mod demangle;
pub mod dictionary;
pub mod diff;
#[cfg(feature = "serde")]
mod document;
pub mod event;
pub mod geometry;
pub mod hang;
pub mod history;
pub mod json_text;
pub mod kernels;
pub mod loss;
pub mod metrics;
pub mod monitoring;
pub mod preamble;
pub mod process_info;
pub mod ranks;
pub mod record;
pub mod report;
pub mod steps;
pub mod text_format;
pub mod thresholds;
pub mod trace;
pub mod utilization;
pub mod whatif;
pub mod words;
