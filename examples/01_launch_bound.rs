//! Lesson 1: more launches than work. **Verdict: launch.**
//!
//! Each kernel is over before the host has launched the next, so the device waits for the host thousands of times a
//! second. `--micros 50` makes each kernel long enough to hide that; the verdict is then `gpu_compute`.
#![expect(unsafe_code, reason = "launches kernels")]

mod lesson;

use std::process::ExitCode;

/// Between two waits for the device: often enough that the end is near the time asked for.
const LAUNCHES_A_BATCH: u64 = 1000;

fn main() -> ExitCode {
    lesson::run("launch_bound", &[("--micros", 0.0)], |lesson| {
        let micros = lesson.option("--micros");
        let mut steps = 0;
        while lesson.goes_on() {
            for _ in 0..LAUNCHES_A_BATCH {
                lesson.launch(&lesson.stream, micros)?;
            }
            lesson.stream.synchronize()?;
            steps += LAUNCHES_A_BATCH;
        }
        Ok(steps)
    })
}
