//! Lesson 3: looking at every result. **Verdict: sync.**
//!
//! The host waits for each kernel before it launches the next, as `loss.item()` in every step does, so the device has
//! nothing to do while the host wakes up and launches. `--every 100` waits less often; the verdict is then
//! `gpu_compute`.
#![expect(unsafe_code, reason = "launches kernels")]

mod lesson;

use std::process::ExitCode;

/// Longer than a launch, so that launching alone would keep the device busy.
const KERNEL_MICROS: f64 = 20.0;

fn main() -> ExitCode {
    lesson::run("sync_bound", &[("--every", 1.0)], |lesson| {
        let every = (lesson.option("--every") as u64).max(1);
        let mut steps = 0;
        while lesson.goes_on() {
            for _ in 0..every {
                lesson.launch(&lesson.stream, KERNEL_MICROS)?;
            }
            lesson.stream.synchronize()?;
            steps += every;
        }
        Ok(steps)
    })
}
