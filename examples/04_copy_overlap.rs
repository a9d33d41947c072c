//! Lesson 4: overlapping copies with computation. **Bottleneck: copy**; with pinned memory and two streams
//! **gpu_compute**.
//!
//! From pageable memory the driver copies through its own staging buffer while the host waits, and the device
//! waits for both. A copy from pinned memory is asynchronous; on a separate stream it overlaps with the
//! kernel that uses the previous batch.
#![expect(unsafe_code, reason = "launches kernels, allocates pinned memory")]

mod lesson;

use std::process::ExitCode;

use gpuwhy::Session;
use lesson::{Gpu, promise, promise_bottleneck, repeat, run};

/// Bytes per batch: copying takes more than a millisecond on any link.
const BYTES: usize = 64 << 20;
/// Device time per batch: longer than its copy.
const WORK_MICROS: f64 = 4_000.0;

fn main() -> ExitCode {
    run(|| {
        let session = Session::start()?;
        let gpu = Gpu::new()?;
        let mut batch = gpu.stream.alloc_zeros::<u8>(BYTES)?;
        let pageable = vec![1_u8; BYTES];
        let serial = repeat(1.5, || {
            gpu.stream.memcpy_htod(&pageable, &mut batch)?;
            gpu.launch(&gpu.stream, WORK_MICROS / 10.0)?;
            Ok(gpu.stream.synchronize()?)
        })?;
        promise_bottleneck(&session.finish()?, "copy")?;

        // SAFETY: every byte is written before it is read.
        let mut pinned = unsafe { gpu.context.alloc_pinned::<u8>(BYTES) }?;
        pinned.as_mut_slice()?.fill(1);
        let copies = gpu.context.new_stream()?;
        let mut batches = [copies.alloc_zeros::<u8>(BYTES)?, copies.alloc_zeros::<u8>(BYTES)?];
        copies.synchronize()?;
        let session = Session::start()?;
        let mut turn = 0;
        let overlapped = repeat(1.5, || {
            // The next batch is copied while the device works on the last one.
            turn = 1 - turn;
            copies.memcpy_htod(&pinned, &mut batches[turn])?;
            gpu.launch(&gpu.stream, WORK_MICROS)?;
            copies.synchronize()?;
            Ok(gpu.stream.synchronize()?)
        })?;
        let report = session.finish()?;
        promise_bottleneck(&report, "gpu_compute")?;
        let overlap = report.devices[0].copy_overlap;
        println!(
            "{serial:.0} and {overlapped:.0} batches/s; hidden {} ns, exposed {} ns",
            overlap.hidden_ns, overlap.exposed_ns
        );
        promise("nine tenths of copy time are hidden", overlap.hidden_ns >= 9 * overlap.exposed_ns)
    })
}
