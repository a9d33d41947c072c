//! Lesson 5: work side by side. **Verdict: gpu_compute.**
//!
//! Four streams (`--streams`) run kernels at the same time; a fifth begins a step when they have ended theirs, and
//! they wait for it, all by events on the device. The host only launches. Kernels overlap, so the sum of their times
//! is several times the time that passes: a profiler that adds them up sees a device busy more than 100 % of it.
#![expect(unsafe_code, reason = "launches kernels")]

mod lesson;

use std::process::ExitCode;

use cudarc::driver::DriverError;

/// Kernels of a stream in a step.
const KERNELS: usize = 5;
/// Longer than launching one takes on every stream, so that the device never waits for the host.
const KERNEL_MICROS: f64 = 50.0;
/// Steps between two waits of the host, which must not run ahead without end.
const STEPS_A_BATCH: u64 = 20;

fn main() -> ExitCode {
    lesson::run("multi_stream", &[("--streams", 4.0)], |lesson| {
        let workers = (0..lesson.option("--streams") as u64)
            .map(|_| lesson.context.new_stream())
            .collect::<Result<Vec<_>, DriverError>>()?;
        let mut steps = 0;
        while lesson.goes_on() {
            for _ in 0..STEPS_A_BATCH {
                lesson.launch(&lesson.stream, KERNEL_MICROS)?;
                for worker in &workers {
                    worker.join(&lesson.stream)?;
                }
                for _ in 0..KERNELS {
                    workers.iter().try_for_each(|worker| lesson.launch(worker, KERNEL_MICROS))?;
                }
                for worker in &workers {
                    lesson.stream.join(worker)?;
                }
            }
            lesson.stream.synchronize()?;
            steps += STEPS_A_BATCH;
        }
        Ok(steps)
    })
}
