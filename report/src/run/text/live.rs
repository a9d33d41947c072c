//! One line for a run that is still going.

use std::fmt::Write;

use gpuwhy_trace::process_info::End;
use profiler_core::leaf::Cause;
use profiler_core::steps::StepSource;
use profiler_core::whatif::{ScenarioKind, WORTH_SHOWING};

use super::shares::busy_share;
use crate::run::{Report, limits, monitor};
use crate::text_format::{duration, percent, shortened};
use crate::words::{self, about};

/// Maximum number of characters of the line.
const LONGEST: usize = 120;
/// A run without steps counts as starting up until this much time after its start-up phase is known,
/// nanoseconds. The name of the bottleneck does not change for the same time.
const STARTING_UP: u64 = 5_000_000_000;

/// Formats time, step, and bottleneck: `gpuwhy [12.4 s] step 4.9 ms | GPU busy 14 % | bottleneck: kernel
/// launches (62 % of each step), about 4.1x faster without`.
pub(in crate::run) fn live_line(report: &Report) -> String {
    let mut line = format!("gpuwhy [{}] ", seconds(report.shown_ns()));
    let (cause, share) = report.bottleneck.live;
    let serving = report.serving().map(|serving| serving.live_part() + " | ").unwrap_or_default();
    if report.is_watched() {
        line.push_str(&serving);
        line.push_str(&monitor::live_part(report).unwrap_or_else(|| "monitored".to_owned()));
        if cause != Cause::CannotTell {
            let _ = write!(line, " | probable bottleneck: {}", words::bottleneck(cause));
        }
        return with_memory(line, report);
    }
    if report.devices.is_empty() {
        return line + "no GPU work yet";
    }
    if is_starting_up(report) {
        return line + "starting up";
    }
    let longest = report.devices.iter().max_by_key(|device| device.window_ns);
    let steps = longest.and_then(|device| device.steps.as_ref()).filter(|steps| steps.source != StepSource::Window);
    if !serving.is_empty() {
        line.push_str(&serving);
    } else if let Some(steps) = steps {
        let _ = write!(line, "{} {} | ", noun(report), duration(steps.duration_percentile(50)));
    }
    let _ = write!(line, "GPU busy {} | ", percent(busy_share(report)));
    match cause {
        Cause::NoWork => line.push_str("no GPU work"),
        Cause::CannotTell => line.push_str("no bottleneck"),
        cause => {
            let _ = write!(line, "bottleneck: {} ({}", words::bottleneck(cause), percent(share));
            match report.bottleneck.basis {
                Some(_) => drop(write!(line, " of each {}", noun(report))),
                None => line.push_str(" of the time"),
            }
            if let Some(limit) = limits::live_part(&report.devices).filter(|_| cause == Cause::GpuCompute) {
                let _ = write!(line, "; {limit}");
            }
            line.push(')');
            let without = ScenarioKind::without(cause);
            let gain = report.best_case(cause).filter(|best_case| Some(best_case.kind) == without);
            if let Some(gain) = gain.filter(|gain| gain.speedup >= WORTH_SHOWING) {
                let _ = write!(line, ", {} faster without", about(gain.speedup, gain.interval));
            }
        }
    }
    with_memory(line, report)
}

/// Appends the memory in use on the fullest device, if there is room.
fn with_memory(line: String, report: &Report) -> String {
    let fullest = report.memory_states().into_iter().max_by_key(|of| of.used_bytes);
    let memory = fullest.map(|of| format!(" | {}", of.text())).unwrap_or_default();
    let has_room = line.chars().count() + memory.len() <= LONGEST;
    if has_room { line + &memory } else { shortened(&line, LONGEST) }
}

/// Noun for the steps of the device with the longest window.
fn noun(report: &Report) -> &'static str {
    let longest = report.devices.iter().max_by_key(|device| device.window_ns);
    longest.map_or("step", |device| device.step_meaning.noun())
}

/// True if the current behavior does not yet predict the run: it has no steps, and has not run for long.
pub(in crate::run) fn is_starting_up(report: &Report) -> bool {
    let warm = report.devices.iter().map(|device| device.steady_leaves.iter().sum::<u64>()).max().unwrap_or(0);
    report.completeness.end == End::Abrupt && report.bottleneck.basis.is_none() && warm < STARTING_UP
}

/// Formats a time of the run: `12.4 s`.
fn seconds(nanos: u64) -> String {
    format!("{:.1} s", nanos as f64 / 1e9)
}
