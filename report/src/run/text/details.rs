//! Details after the first screen, in sentences: how the numbers were derived, and further facts about each
//! GPU.

use std::fmt::Write;

use profiler_core::attribution::HostLead;
use profiler_core::leaf::{Leaf, WorkKind};
use profiler_core::sorting::SortRows as _;
use profiler_core::steps::{StepSource, Steps};
use profiler_core::thresholds::WORTH_SHARE;

use super::{cost, sections};
use crate::run::waits::awaited_sentence;
use crate::run::{ComputeSplit, DeviceReport, GridClass, Report, limits, untraced};
use crate::text_format::{Page, counted, duration, wrapped};
use crate::words;

/// Appends how the numbers were derived, and further facts.
pub(super) fn write(out: &mut Page, report: &Report) {
    let _ = writeln!(out, "\n== details");
    for sentence in &report.bottleneck.details {
        wrapped(out, "  - ", sentence);
    }
    for device in &report.devices {
        device_lines(out, device, &report.bottleneck.evidence);
    }
    sections::write(out, report);
    cost::lines(out, report);
}

fn device_lines(out: &mut Page, device: &DeviceReport, evidence: &[String]) {
    let _ = writeln!(out, "GPU {}:", device.device.id);
    let share = |nanos: u64| nanos as f64 / device.window_ns.max(1) as f64;
    if let Some(steps) = device.steps.as_ref().filter(|steps| steps.source != StepSource::Window) {
        wrapped(out, "  - ", &step_sentence(steps, device.step_meaning.noun() == "step"));
    }
    if let Some(sentence) = untraced::sentence(device) {
        wrapped(out, "  - ", &sentence);
    }
    if device.host_lead.launches() > 0 {
        wrapped(out, "  - ", &lead_sentence(&device.host_lead));
    }
    if !device.awaited.is_empty() {
        let parts: Vec<_> = device.awaited.iter().take(3).map(awaited_sentence).collect();
        wrapped(out, "  - ", &format!("Queued work waited for events of: {}.", parts.join(", ")));
    }
    if let Some(what_if) = &device.what_if {
        for line in words::what_if(what_if).lines() {
            wrapped(out, if line.contains(" faster") { "  - Best case: " } else { "  - Best cases are " }, line);
        }
    }
    if share(device.leaves[Leaf::Compute as usize]) >= WORTH_SHARE {
        compute_line(out, &device.compute);
    }
    // Do not repeat the evidence.
    for sentence in limits::details(device).into_iter().filter(|sentence| !evidence.contains(sentence)) {
        wrapped(out, "  - ", &sentence);
    }
    if device.copy_overlap.serial {
        let _ = writeln!(out, "  - Copies and kernels take turns: less than 10 % of the copy time overlaps kernels.");
    }
    let mut beneath = Vec::new();
    for (top, row) in WorkKind::ALL.into_iter().zip(&device.overlap) {
        for (under, &nanos) in WorkKind::ALL.into_iter().zip(row) {
            if share(nanos) >= 0.0005 {
                beneath.push(format!("{} overlapped by {} {:.1} %", work(under), work(top), share(nanos) * 100.0));
            }
        }
    }
    if !beneath.is_empty() {
        wrapped(out, "  - ", &format!("Overlap, as shares of the whole run: {}.", beneath.join(", ")));
    }
}

const fn work(work: WorkKind) -> &'static str {
    match work {
        WorkKind::Compute => "kernels",
        WorkKind::Communication => "communication",
        WorkKind::Copy => "copies",
        WorkKind::Memset => "memsets",
    }
}

/// Appends how the kernels' grids fill the device, as shares of kernel time; nothing without geometry.
fn compute_line(out: &mut Page, compute: &ComputeSplit) {
    let Some(geometry) = &compute.geometry else { return };
    let mut classes: Vec<_> = GridClass::ALL.into_iter().filter(|&class| compute.share(class) >= 0.005).collect();
    classes.sort_rows_by_key(|&class| std::cmp::Reverse(compute.time(class)));
    let parts: Vec<_> = classes
        .into_iter()
        .map(|class| {
            let what = match class {
                GridClass::Tiny => "in kernels under 10 us".to_owned(),
                GridClass::UnderFilled => {
                    format!("in kernels with fewer blocks than the {} SMs", compute.multiprocessors)
                }
                GridClass::Tail => "with a wasteful last wave".to_owned(),
                GridClass::LowOccupancy => "in full grids of low occupancy".to_owned(),
                GridClass::Full => "in full grids".to_owned(),
                GridClass::Unknown => "unknown".to_owned(),
            };
            format!("{:.0} % {what}", compute.share(class) * 100.0)
        })
        .collect();
    let line = format!(
        "Kernel time: {}; estimated SM efficiency {:.0} %, achieved occupancy {:.0} %.",
        parts.join(", "),
        geometry.sm_efficiency * 100.0,
        geometry.achieved_occupancy * 100.0,
    );
    wrapped(out, "  - ", &line);
}

/// Sentence about how far the host runs ahead, how often it is late, and how often a full queue blocks it.
fn lead_sentence(lead: &HostLead) -> String {
    let late = lead.late() as f64 / lead.launches().max(1) as f64 * 100.0;
    let mut line = match lead.median_ns() {
        0 => "The CPU does not run ahead of the GPU".to_owned(),
        median => format!("The CPU runs {} ahead of the GPU (median)", duration(median)),
    };
    let _ = write!(line, "; {late:.1} % of the launches found the GPU idle.");
    if lead.held_back() > 0 {
        let (calls, time) = (counted(lead.held_back(), "launch"), duration(lead.held_back_ns()));
        let _ = write!(line, " The queue was full: {calls} waited for space, {time} in total (harmless).");
    }
    line
}

/// Sentence about the variation of the step durations.
fn step_sentence(steps: &Steps, reported: bool) -> String {
    let [low, median, high] = [10, 50, 90].map(|percent| duration(steps.duration_percentile(percent)));
    let units = if reported { "Steps" } else { "Repeating units" };
    format!("{units} take {median} in the median; 10 % take {low} or less, 10 % take {high} or more.")
}
