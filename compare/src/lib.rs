//! Comparisons of gpuwhy: two programs ([`diff`]), several [`ranks`] of a job, a [hanging](hang) job, and a run with
//! the earlier ones of its program ([`history`]).
//!
//! The injected library needs none of it. This crate has no clock, environment, file or thread: times are arguments.
#![forbid(unsafe_code)]

pub mod diff;
pub mod hang;
pub mod history;
pub mod ranks;
