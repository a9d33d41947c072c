//! Lesson 2: attributing work to parts of a program. **Bottleneck: gpu_compute**, and the range `large` has
//! five times the device time of `small`.
//!
//! Ranges nest per thread. The device work of a range is the work launched within it, whenever that ran.
//! Steps that the program names need not be detected.
#![expect(unsafe_code, reason = "launches kernels")]

mod lesson;

use std::process::ExitCode;

use gpuwhy::Session;
use lesson::{Gpu, promise, promise_bottleneck, run};

/// Number of times that the ranges are opened.
const STEPS: u64 = 300;

fn main() -> ExitCode {
    run(|| {
        let session = Session::start()?;
        let gpu = Gpu::new()?;
        for _ in 0..STEPS {
            session.step();
            {
                let _range = session.range("small");
                gpu.launch(&gpu.stream, 100.0)?;
            }
            let _range = session.range("large");
            for _ in 0..5 {
                gpu.launch(&gpu.stream, 100.0)?;
            }
        }
        let report = session.finish()?;
        promise_bottleneck(&report, "gpu_compute")?;
        print!("{}", report.range_tables());

        let ranges = report.ranges.as_ref().map_or(&[][..], |ranges| &ranges.rows);
        let of = |name: &str| ranges.iter().find(|row| row.message == name);
        let (Some(small), Some(large)) = (of("small"), of("large")) else {
            return promise("both ranges are in the report", false);
        };
        promise("each range was seen as often as it was opened", small.host.durations.count() == STEPS)?;
        let ratio = large.device_ns as f64 / small.device_ns.max(1) as f64;
        promise(&format!("`large` has 5 times the device time of `small`: {ratio:.2}"), (4.5..5.5).contains(&ratio))
    })
}
