//! The engine of gpuwhy: what each nanosecond of device time is spent on, and what could be gained.
//!
//! In reading order: records go into [`attribution`], which gives every nanosecond of device time one cause; it finds
//! [`steps`] and simulates what a fix would bring ([`whatif`]). Beside it, [`counters`] and [`collective`] operations
//! meet the kernels that ran, and [`monitoring`] divides time by samples alone.
//!
//! This crate has no sentences for people: those are in `gpuwhy-report`. It has no clock, environment, file or thread:
//! times are arguments.
#![forbid(unsafe_code)]

pub mod allocations;
pub mod attribution;
mod collections;
pub mod collective;
pub mod counters;
#[cfg(feature = "serde")]
pub mod document;
pub mod monitoring;
pub mod steps;
pub mod thresholds;
pub mod whatif;
