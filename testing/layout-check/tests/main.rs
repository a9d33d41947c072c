//! The layouts of `cupti-sys` against other descriptions of CUPTI.

mod counters;
mod cudarc;
mod numbers;
mod ranges;
mod released;
