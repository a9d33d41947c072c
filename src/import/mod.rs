//! Traces of other profilers, fed to the same engine.
//!
//! An import answers the same question as a trace of our own and makes the answer comparable with the tools that
//! people already use on those files. What a format does not hold stays absent: nothing is guessed to fill a gap, and
//! every row that could not be used is counted in the report. SQLite files of Nsight Systems are read by `gpuwhy-export`,
//! which also writes them.

mod kineto;

pub use kineto::{KinetoError, import_kineto, translate_kineto};
