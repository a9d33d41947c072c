//! Reports of gpuwhy: about one [`run`], a comparison ([`diff`]), several [`ranks`], a [hanging](hang) job,
//! single [`kernels`], and the [`history`] of a program.
//!
//! [`capture`] holds the engines of a process, live or from a trace, and builds reports from their state. The
//! texts use [`text_format`] and [`words`]; [`metrics`] are for monitoring systems.
//!
//! This crate has no clock, environment, file or thread: times are arguments.
#![forbid(unsafe_code)]

pub mod capture;
pub mod diff;
#[cfg(feature = "serde")]
mod document;
pub mod hang;
pub mod history;
pub mod kernels;
pub mod metrics;
pub mod ranks;
pub mod run;
pub mod text_format;
pub mod words;
