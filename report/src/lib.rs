//! The reports of gpuwhy: about one [`run`], a comparison ([`diff`]), several [`ranks`], a program that [hangs](hang),
//! single [`kernels`], and the [`history`] of a program.
//!
//! [`capture`] holds the engines of a process, live or from a trace, and makes reports of their state. The texts are
//! made with [`text_format`] and [`words`]; [`metrics`] are for monitoring systems.
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
