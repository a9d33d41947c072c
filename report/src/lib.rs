//! Reports of gpuwhy: about one [`run`], with a framework's [operators](run::operators), and about single [`kernels`];
//! and one line about a run for the [`history`] of its program.
//!
//! [`capture`] holds the engines of a process, live or from a trace, and builds reports from their state. The
//! texts use [`text_format`] and [`words`]; [`metrics`] are for monitoring systems. [`launch_site`] and [`library`]
//! name the origin of a launch and of a kernel; [`cupti`] has the known bugs of CUPTI.
//!
//! This crate has no clock, environment, file or thread: times are arguments.
#![forbid(unsafe_code)]

pub mod capture;
pub mod cupti;
#[cfg(feature = "serde")]
pub mod document;
pub mod history;
pub mod kernels;
pub mod launch_site;
pub mod library;
pub mod metrics;
pub mod run;
pub mod state;
pub mod text_format;
pub mod words;
