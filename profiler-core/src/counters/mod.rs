//! Hardware counters and gauges of devices, on the clock of the trace.
//!
//! Samples of hardware counters are means over short intervals of a whole device. They say nothing of kernels by
//! themselves; together with the records of the kernels that ran they do. Gauges (power, temperature, clocks) are
//! readings at moments. Nothing here knows where either comes from.
//!
//! What is sampled is in [`gpuwhy_trace::counters`]. Reading order: `log` (what is known of all devices); then what
//! follows from them: `regression` (least squares), `grouped` (how far that may be off), [`estimate`] (counters of
//! kernels), [`roofs`] (what limits them), [`power`] (what gauges add up to), [`engine`] (all of it, of one capture).

pub mod engine;
pub mod estimate;
mod grouped;
pub mod power;
mod regression;
pub mod roofs;
