//! Lesson 5: one block too many. **Bottleneck: gpu_compute** in each case; the grid uses the device in the
//! ways `under_filled`, `tail` and `full`.
//!
//! A busy device is not necessarily full. Two blocks of 1024 threads fit on a multiprocessor. One block more
//! than all multiprocessors hold forms a second wave alone, while the rest of the device is idle.
#![expect(unsafe_code, reason = "launches kernels")]

mod lesson;

use std::process::ExitCode;

use gpuwhy::Session;
use gpuwhy::report::run::GridClass;
use lesson::{Gpu, promise, promise_bottleneck, repeat, run};

/// Two such blocks fill a multiprocessor.
const THREADS: u32 = 1024;

fn main() -> ExitCode {
    run(|| {
        let mut session = Some(Session::start()?);
        let gpu = Gpu::new()?;
        let wave = 2 * gpu.multiprocessors;
        for (class, blocks) in [
            (GridClass::UnderFilled, gpu.multiprocessors / 4),
            (GridClass::Tail, wave + 1),
            (GridClass::Full, 8 * wave),
        ] {
            let session = session.take().map_or_else(Session::start, Ok)?;
            repeat(0.7, || {
                for _ in 0..100 {
                    gpu.launch_grid(&gpu.stream, 50.0, blocks, THREADS)?;
                }
                Ok(gpu.stream.synchronize()?)
            })?;
            let report = session.finish()?;
            promise_bottleneck(&report, "gpu_compute")?;
            let split = &report.devices[0].compute;
            let most = GridClass::ALL.into_iter().max_by_key(|&class| split.time(class));
            if let Some(geometry) = split.geometry {
                println!("{blocks} blocks: {:.2} waves, tail loss {:.0} %", geometry.waves, geometry.tail_loss * 1e2);
            }
            promise(&format!("{blocks} blocks are {}", class.name()), most == Some(class))?;
        }
        Ok(())
    })
}
