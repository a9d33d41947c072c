//! Measurements of individual kernels: hardware counter values and PC samples.

mod profile;
mod window;

pub use profile::{KernelProfile, Outcome};
pub use window::{PcCount, PcFunction, PcWindow, limit};
