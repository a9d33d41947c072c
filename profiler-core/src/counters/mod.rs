//! Hardware counters and gauges of devices, on the clock of the trace.
//!
//! Samples of hardware counters are means over short intervals of a whole device. They say nothing of kernels by
//! themselves; together with the records of the kernels that ran they do. Gauges (power, temperature, clocks) are
//! readings at moments. Nothing here knows where either comes from.
//!
//! What is sampled is in [`gpuwhy_trace::counters`], here what follows from it. Reading order: [`engine`] (what comes
//! in, and all of one capture), [`estimate`] (counters of kernels) with `regression` (least squares) and `grouped` (how
//! far that may be off), [`roofs`] (what limits kernels), [`power`] (what gauges add up to).

pub mod engine;
pub mod estimate;
mod grouped;
pub mod power;
mod regression;
pub mod roofs;
