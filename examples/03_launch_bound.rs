//! Lesson 3: launching takes longer than the work, and a fix. **Bottleneck: launch**; with a CUDA graph
//! **gpu_compute**.
//!
//! Between two launches the host does the work of a framework for each operation, which takes longer than the
//! kernel. A graph is launched with one call, so the host no longer limits the program. The best case in the
//! first report shows the maximum gain of that.
#![expect(unsafe_code, reason = "launches kernels")]

mod lesson;

use std::process::ExitCode;
use std::time::Duration;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use gpuwhy::Session;
use lesson::{Gpu, Outcome, promise, promise_bottleneck, repeat, run, think};

/// Kernels per step.
const KERNELS: u32 = 100;
/// Duration of each kernel.
const KERNEL_MICROS: f64 = 10.0;
/// Host work for each kernel.
const FRAMEWORK: Duration = Duration::from_micros(20);

fn main() -> ExitCode {
    run(|| {
        let session = Session::start()?;
        let gpu = Gpu::new()?;
        let launch_all = |pause: Duration| -> Outcome {
            for _ in 0..KERNELS {
                think(pause);
                gpu.launch(&gpu.stream, KERNEL_MICROS)?;
            }
            Ok(())
        };
        let eager = repeat(1.0, || {
            launch_all(FRAMEWORK)?;
            Ok(gpu.stream.synchronize()?)
        })?;
        let report = session.finish()?;
        promise_bottleneck(&report, "launch")?;
        let best_case = report.best_speedup(report.bottleneck.cause);

        gpu.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
        launch_all(Duration::ZERO)?;
        let graph = gpu.stream.end_capture(CUgraphInstantiate_flags(0))?.ok_or("the capture gave no graph")?;
        let session = Session::start()?;
        let fixed = repeat(1.0, || {
            graph.launch()?;
            Ok(gpu.stream.synchronize()?)
        })?;
        promise_bottleneck(&session.finish()?, "gpu_compute")?;

        let gain = fixed / eager;
        println!("{eager:.0} steps/s, with a graph {fixed:.0}: {gain:.2}x; the best case was {best_case:?}");
        promise("the graph makes it at least 1.5 times as fast", gain >= 1.5)?;
        promise("no gain beyond the best case", best_case.is_none_or(|best_case| gain <= best_case * 1.05))
    })
}
