//! Where in a kernel warps wait: samples of program counters by function, instruction and source line.
//!
//! The hardware looks at one warp of each multiprocessor every so many cycles, and notes its program counter and what
//! it waits for ([`PcWindow`](gpuwhy_trace::kernels::PcWindow)). `report` is the arithmetic, `text` and `json` how it
//! is shown. Which line belongs to an instruction is in the module (cubin), which the trace does not have: see
//! [`SourceMap`].

#[cfg(feature = "serde")]
mod json;
mod report;
mod text;

pub use report::{FunctionSource, InstructionSource, LineSource, Place, SampledShare, SourceMap, SourceReport, Stall};
pub use text::source_text;
