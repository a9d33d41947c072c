//! Lesson 1: a first session. **Bottleneck: gpu_compute.**
//!
//! Start the session before the first CUDA call, run, finish. The device runs kernels back to back, so only
//! faster kernels can speed up the program.
#![expect(unsafe_code, reason = "launches kernels")]

mod lesson;

use std::process::ExitCode;

use gpuwhy::Session;
use lesson::{Gpu, promise, promise_bottleneck, repeat, run};

/// Kernels between two synchronizations, each far longer than its launch.
const KERNELS: u32 = 100;

fn main() -> ExitCode {
    run(|| {
        let session = Session::start()?;
        let gpu = Gpu::new()?;
        let rate = repeat(1.0, || {
            for _ in 0..KERNELS {
                gpu.launch(&gpu.stream, 50.0)?;
            }
            Ok(gpu.stream.synchronize()?)
        })?;
        let report = session.finish()?;
        promise_bottleneck(&report, "gpu_compute")?;

        let spin = &report.devices[0].kernels[0];
        println!("{} x {}, median {} ns", spin.durations.count(), spin.name, spin.durations.median());
        let launched = (rate * f64::from(KERNELS)) as u64;
        promise("every kernel was recorded", spin.durations.count().abs_diff(launched) <= launched / 10)
    })
}
