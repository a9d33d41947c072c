//! Lesson 4: many small kernels in one launch. **Verdict: gpu_compute.**
//!
//! A CUDA graph of 1000 kernels is launched as one, so the host is out of the way. Compare with `--eager 1`, which
//! launches the same kernels one by one.
#![expect(unsafe_code, reason = "launches kernels")]

mod lesson;

use std::process::ExitCode;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};

/// Kernels of a graph.
const NODES: u64 = 1000;
/// Short, so that launching them one by one shows.
const KERNEL_MICROS: f64 = 3.0;

fn main() -> ExitCode {
    lesson::run("graph", &[("--eager", 0.0)], |lesson| {
        let launch_all = || (0..NODES).try_for_each(|_| lesson.launch(&lesson.stream, KERNEL_MICROS));
        let graph = if lesson.option("--eager") == 0.0 {
            lesson.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
            launch_all()?;
            lesson.stream.end_capture(CUgraphInstantiate_flags(0))?
        } else {
            None
        };
        let mut steps = 0;
        while lesson.goes_on() {
            match &graph {
                Some(graph) => graph.launch()?,
                None => launch_all()?,
            }
            // The host must not run ahead without end; waiting here costs one gap in 1000 kernels.
            lesson.stream.synchronize()?;
            steps += NODES;
        }
        Ok(steps)
    })
}
