//! Lesson 8: reading a trace file on a machine without a GPU. **Bottleneck: sync** for the recorded session
//! that is played when no file is given.
//!
//! `cargo run --example 08_trace_without_gpu -- gpuwhy-4711.gpuwhy`; traces of torch.profiler work too.
#![allow(unsafe_code, reason = "the shared module launches kernels; this lesson does not")]

mod lesson;

use std::env;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use gpuwhy::Leaf;
use gpuwhy::report::words::faster;
use lesson::{Outcome, promise, promise_bottleneck, run};

fn main() -> ExitCode {
    run(|| match env::args_os().nth(1) {
        Some(trace) => look(&gpuwhy::open(trace)?),
        None => {
            let report = gpuwhy::open(played()?)?;
            look(&report)?;
            promise_bottleneck(&report, "sync")?;
            promise("nothing was lost", report.completeness.launches_without_activity == 0)
        }
    })
}

/// Prints the three largest parts of each device's time, and the possible gain.
fn look(report: &gpuwhy::Report) -> Outcome {
    for device in &report.devices {
        let mut leaves = Leaf::ALL.to_vec();
        leaves.sort_by_key(|&leaf| std::cmp::Reverse(device.leaves[leaf as usize]));
        for &leaf in &leaves[..3] {
            let share = device.leaves[leaf as usize] as f64 / device.window_ns.max(1) as f64;
            println!("{}: {} {:.1} %", device.device.name, leaf.name(), share * 1e2);
        }
        for best_case in device.what_if.iter().flat_map(|what_if| &what_if.best_cases) {
            println!("without {}: {}", best_case.kind.name(), faster(best_case.speedup, best_case.interval));
        }
    }
    Ok(())
}

/// The trace of a recorded session, played by `gpuwhy demo`.
fn played() -> Result<PathBuf, Box<dyn std::error::Error>> {
    let program = env::current_exe()?;
    let binaries = program.parent().and_then(|examples| examples.parent()).ok_or("examples are next to gpuwhy")?;
    let folder = env::temp_dir().join(format!("gpuwhy-lesson-{}", std::process::id()));
    let mut demo = Command::new(binaries.join("gpuwhy"));
    demo.args(["demo", "--fast", "sync_item", "--output"]).arg(&folder);
    let output = demo.output().map_err(|error| format!("gpuwhy: {error}; build it with cargo build --workspace"))?;
    let found = std::fs::read_dir(&folder).ok().and_then(|files| {
        files.flatten().map(|file| file.path()).find(|path| path.extension().is_some_and(|e| e == "gpuwhy"))
    });
    found.ok_or_else(|| format!("the demo left no trace: {}", String::from_utf8_lossy(&output.stderr)).into())
}
