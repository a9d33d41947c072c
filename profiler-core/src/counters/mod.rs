//! Hardware counters and utilization readings of devices, on the clock of the trace.
//!
//! Samples of hardware counters are means of an entire device over short intervals. Alone they cannot be
//! assigned to kernels, but together with the records of the kernels that ran they can. Readings (power,
//! temperature, clocks) are values at single moments. This module is independent of the source of either.
//!
//! The sampled data is defined in [`gpuwhy_trace::counters`]; this module derives results from it. Reading
//! order: [`engine`] (all input of one capture), [`estimate`] (counters of kernels) with `regression` (least
//! squares) and `grouped` (its errors), [`roofs`] (limits of kernels), [`power`] (totals of readings).

pub mod engine;
pub mod estimate;
mod grouped;
pub mod power;
mod regression;
pub mod roofs;
