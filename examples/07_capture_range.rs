//! Lesson 7: capturing only a part of a run, chosen by the program. **500 kernels of 2000** are in the
//! report.
//!
//! The program calls cuProfilerStart and cuProfilerStop, as it would for nsys, and needs no code from gpuwhy:
//! run it with `gpuwhy run -c cudaProfilerApi`. This example does so itself when it finds no profiler in its
//! process.
#![expect(unsafe_code, reason = "launches kernels, calls the profiler API")]

mod lesson;

use std::env;
use std::process::{Command, ExitCode};

use cudarc::driver::sys::{cuProfilerStart, cuProfilerStop};
use lesson::{Gpu, Outcome, promise, run};

fn main() -> ExitCode {
    run(|| if env::var_os("CUDA_INJECTION64_PATH").is_some() { work() } else { under_gpuwhy() })
}

fn work() -> Outcome {
    let gpu = Gpu::new()?;
    for part in 0..4 {
        if part == 2 {
            // SAFETY: takes no arguments; a context exists.
            unsafe { cuProfilerStart() }.result()?;
        }
        for _ in 0..500 {
            gpu.launch(&gpu.stream, 20.0)?;
        }
        if part == 2 {
            // SAFETY: as above.
            unsafe { cuProfilerStop() }.result()?;
        }
        gpu.stream.synchronize()?;
    }
    Ok(())
}

fn under_gpuwhy() -> Outcome {
    let program = env::current_exe()?;
    let binaries = program.parent().and_then(|examples| examples.parent()).ok_or("examples are next to gpuwhy")?;
    let trace = env::temp_dir().join(format!("gpuwhy-lesson-{}.gpuwhy", std::process::id()));
    let mut gpuwhy = Command::new(binaries.join("gpuwhy"));
    gpuwhy.args(["run", "-c", "cudaProfilerApi", "-o"]).arg(&trace).arg("--").arg(&program);
    let status = gpuwhy.status().map_err(|error| format!("gpuwhy: {error}; build it with cargo build --workspace"))?;
    if !status.success() {
        return Err(format!("the program ended with {status}").into());
    }
    let report = gpuwhy::open(&trace)?;
    std::fs::remove_file(&trace)?;
    println!("{report}");
    promise("500 kernels were captured", report.completeness.kernels == 500)
}
