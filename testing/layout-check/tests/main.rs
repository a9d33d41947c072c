//! The layouts of `cupti-sys` compared with other descriptions of CUPTI.

mod counters;
mod cudarc;
mod numbers;
mod ranges;
mod released;
