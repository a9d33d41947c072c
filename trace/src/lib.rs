//! The data recorded by gpuwhy, and the trace that stores it. Reading a trace requires only this crate.
//!
//! A [`record`] refers to a [`dictionary`] for all repeating data. In addition to records, there are
//! [`counters`], [`collective`] operations, the origins of nodes of graphs ([`graph_node`]), calls that take or
//! give device memory ([`memory_call`]), [`kernels`] that were measured, [`utilization`], and the overhead of tracing ([`cost`]). [`format`](mod@format) writes all of that into a file and reads it back.
//!
//! ```no_run
#![doc = include_str!("../examples/kernels.rs")]
//! ```
//!
//! This crate is independent of CUPTI. It uses no clock, environment, file or thread: times and bytes are
//! arguments, `Read` and `Write` are parameters.
#![forbid(unsafe_code)]

pub mod collective;
pub mod completeness;
pub mod cost;
pub mod counters;
#[doc(hidden)]
pub mod demangle;
pub mod dictionary;
#[cfg(feature = "serde")]
#[doc(hidden)]
pub mod document;
pub mod event;
pub mod format;
pub mod geometry;
pub mod graph_node;
pub mod json_text;
pub mod kernels;
pub mod loss;
pub mod memory_call;
#[doc(hidden)]
pub mod named;
pub mod own_marks;
#[doc(hidden)]
pub mod preamble;
pub mod process_info;
#[doc(hidden)]
pub mod pytorch_range;
pub mod record;
#[doc(hidden)]
pub mod short_text;
pub mod source_line;
pub mod submission;
pub mod utilization;
