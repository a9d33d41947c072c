//! Lesson 2: the data takes longer to arrive than to be used. **Verdict: copy.**
//!
//! A step copies 64 MiB to the device and works on it for 200 us. The memory is pageable, so the driver copies it
//! once more on the host, and the host waits. `--pinned 1` takes page-locked memory: still `copy`, several times
//! faster.
#![expect(unsafe_code, reason = "launches kernels, takes page-locked memory")]

mod lesson;

use std::process::ExitCode;

use cudarc::driver::{CudaSlice, DriverError, HostSlice};
use lesson::Lesson;

/// Bytes of a copy: enough to take milliseconds, as a batch of images does.
const BYTES: usize = 64 << 20;
/// How long the device works on it.
const WORK_MICROS: f64 = 200.0;

fn main() -> ExitCode {
    lesson::run("copy_bound", &[("--pinned", 0.0)], |lesson| {
        let mut device = lesson.stream.alloc_zeros::<u8>(BYTES)?;
        if lesson.option("--pinned") == 0.0 {
            return steps(lesson, &vec![1_u8; BYTES], &mut device);
        }
        // SAFETY: every byte is written before it is read.
        let mut pinned = unsafe { lesson.context.alloc_pinned::<u8>(BYTES) }?;
        pinned.as_mut_slice()?.fill(1);
        steps(lesson, &pinned, &mut device)
    })
}

fn steps(
    lesson: &Lesson,
    host: &(impl HostSlice<u8> + ?Sized),
    device: &mut CudaSlice<u8>,
) -> Result<u64, DriverError> {
    let mut steps = 0;
    while lesson.goes_on() {
        lesson.stream.memcpy_htod(host, device)?;
        lesson.launch(&lesson.stream, WORK_MICROS)?;
        lesson.stream.synchronize()?;
        steps += 1;
    }
    Ok(steps)
}
