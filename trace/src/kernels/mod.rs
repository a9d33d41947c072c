//! Measurements of individual kernels: hardware counter values.

mod profile;

pub use profile::{KernelProfile, Outcome};
