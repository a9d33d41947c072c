//! Engine of gpuwhy: the cause of each nanosecond of device time, and the possible gains.
//!
//! In reading order: records go into [`attribution`], which assigns every nanosecond of device time to one
//! cause; it finds [`steps`] and simulates the effect of a fix ([`whatif`]). In addition, [`counters`] and
//! [`collective`] operations are joined with the kernels that ran, [`monitoring`] divides time by samples alone,
//! and [`operators`] sums that of a framework's operators.
//!
//! This crate contains no text for people: that is in `gpuwhy-report`. It uses no clock, environment, file or
//! thread: times are arguments.
#![forbid(unsafe_code)]

pub mod api;
pub mod attribution;
mod collections;
pub mod collective;
pub mod counters;
#[cfg(feature = "serde")]
pub mod document;
pub mod leaf;
pub mod managed;
pub mod memory;
pub mod monitoring;
pub mod operators;
pub mod quantile;
pub mod sorting;
pub mod steps;
pub mod thresholds;
pub mod whatif;
