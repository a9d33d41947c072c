//! The layouts of `cupti-sys` against other descriptions of CUPTI.

mod cudarc;
mod numbers;
mod released;
