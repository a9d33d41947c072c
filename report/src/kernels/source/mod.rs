//! Location of stalls in a kernel: PC samples by function, instruction and source line.
//!
//! At a fixed interval of cycles the hardware samples one warp of each multiprocessor and records its program
//! counter and stall reason ([`PcWindow`](gpuwhy_trace::kernels::PcWindow)). `report` has the arithmetic,
//! `text` and `json` the output. The source line of an instruction is in the module (cubin), which is not in
//! the trace: see [`SourceMap`].

#[cfg(feature = "serde")]
mod json;
mod report;
mod text;

pub use report::{
    FunctionSource, InstructionSource, LineSource, SampledShare, SourceLine, SourceMap, SourceReport, Stall,
};
pub use text::source_text;
