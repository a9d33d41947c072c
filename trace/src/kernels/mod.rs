//! What was measured of single kernels: values of hardware counters, and samples of program counters.

mod profile;
mod window;

pub use profile::{KernelProfile, Outcome};
pub use window::{PcCount, PcFunction, PcWindow, limit};
