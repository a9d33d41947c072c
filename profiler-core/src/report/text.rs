//! The report for people: a short form that fits a terminal, and one line for a run that is still going.
//!
//! Plain ASCII, at most 100 columns, no color: the caller knows whether there is a terminal.

use std::fmt::Write;

use super::waits::awaited_sentence;
use super::{ComputeSplit, CopyClass, DeviceReport, GridClass, Part, Report, captures, cost, monitor};
use crate::attribution::HostLead;
use crate::attribution::leaf::{Group, Leaf, Work};
use crate::process_info::End;
use crate::steps::{StepSource, Steps};
use crate::text_format::{Page, WIDTH, bytes, counted, duration, path_name, short_names, shortened, wrapped};
use crate::thresholds::WORTH_SHARE;
use crate::whatif::{WORTH_SHOWING, at_most};

/// The largest few; the rest is in the JSON.
const CEILINGS_SHOWN: usize = 3;

/// What a row of a kernel takes before the name.
const KERNEL_COLUMNS: usize = 40;

/// One line: the verdict with its share and ceiling, and how the whole time of all devices divides so far.
#[must_use]
pub fn live_line(report: &Report) -> String {
    let total: u64 = report.devices.iter().map(|device| device.window_ns).sum();
    let share = |group: Group| {
        let nanos: u64 = report.devices.iter().map(|device| group.total(&device.leaves)).sum();
        nanos as f64 / total.max(1) as f64 * 100.0
    };
    let mut parts: Vec<_> = Group::ALL.into_iter().map(|group| (share(group), group)).collect();
    parts.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (group, of_steady) = report.verdict.live;
    let mut line = format!("gpuwhy: {}", group.name());
    if report.is_watched() {
        let gauges = monitor::live_part(&report.gauges).unwrap_or_else(|| "watched".to_owned());
        let _ = write!(line, " | whole {}: {gauges}", duration(report.shown_ns()));
        return shortened(&line, WIDTH);
    }
    if of_steady > 0.0 && has_share(group) {
        let _ = write!(line, " {:.0} %", of_steady * 100.0);
    }
    if let Some(speedup) = report.ceiling(group) {
        let _ = write!(line, ", {} if fixed", at_most(speedup, 1));
    }
    let _ = write!(line, " | whole {}", duration(report.observed_ns));
    let parts = parts.into_iter().take(2).filter(|(percent, _)| *percent >= 1.0);
    let parts: Vec<_> = parts.map(|(percent, group)| format!("{} {percent:.0} %", group.name())).collect();
    if !parts.is_empty() {
        let _ = write!(line, ": {}", parts.join(", "));
    }
    shortened(&line, WIDTH)
}

/// Whether the share of a group says anything: without work all of nothing is without work.
fn has_share(group: Group) -> bool {
    !matches!(group, Group::NoWork | Group::CannotTell)
}

/// The short report.
#[must_use]
pub fn short(report: &Report, columns: usize) -> String {
    let mut out = Page::new(columns);
    write_short(&mut out, report);
    out.into_text()
}

pub(super) fn write_short(out: &mut Page, report: &Report) {
    let room = out.columns().max(60) - 40;
    let command = shortened(&report.process.command.join(" "), room);
    let place = report.process.place().map(|place| format!(", {}", shortened(&place, 30))).unwrap_or_default();
    let observed = duration(report.shown_ns());
    wrapped(out, "gpuwhy: ", &format!("process {} ({command}){place}, {observed}", report.process.process_id));
    if let Some(Part { from_ns, to_ns, of_ns }) = report.part {
        let [from, to, of] = [from_ns, to_ns, of_ns].map(duration);
        wrapped(out, "part: ", &format!("from {from} to {to} after the start, of a run of {of}"));
    }
    captures::lines(out, report);
    let verdict = &report.verdict;
    let share = if report.is_watched() {
        "watched: no share was measured".to_owned()
    } else {
        let of = if verdict.basis.is_some() { "a steady step" } else { "steady device time" };
        let gain = report.ceiling(verdict.group).filter(|&speedup| speedup >= WORTH_SHOWING);
        let gain = gain.map(|speedup| format!("; {} if fixed", at_most(speedup, 2))).unwrap_or_default();
        format!("{:.1} % of {of}{gain}", verdict.share * 100.0)
    };
    let share = if has_share(verdict.group) || report.is_watched() { format!(" ({share})") } else { String::new() };
    wrapped(out, "verdict: ", &format!("{}{share}", verdict.group.name()));
    for sentence in &verdict.evidence {
        wrapped(out, "  - ", sentence);
    }
    wrapped(out, "  > ", &verdict.recommendation);
    for device in report.devices.iter().take(2) {
        device_lines(out, device);
    }
    if report.devices.len() > 2 {
        let _ = writeln!(out, "... and {} more devices", report.devices.len() - 2);
    }
    if let Some(host) = &report.host {
        host.write(out);
    }
    if let Some(ranges) = &report.ranges {
        ranges.write(out);
    }
    if let Some(memory) = &report.memory {
        memory.write(out, report.process.start);
    }
    monitor::lines(out, report);
    cost::lines(out, report);
    completeness_lines(out, report);
}

fn device_lines(out: &mut Page, device: &DeviceReport) {
    let name = if device.device.name.is_empty() { "unknown device" } else { &device.device.name };
    let title = format!("device {} ({name}), window {}", device.device.id, duration(device.window_ns));
    let _ = writeln!(out, "{}", shortened(&title, out.columns()));
    let percent = |nanos: u64| nanos as f64 / device.window_ns.max(1) as f64 * 100.0;
    let mut leaves: Vec<_> = Leaf::ALL.into_iter().map(|leaf| (device.leaves[leaf as usize], leaf)).collect();
    leaves.retain(|&(nanos, _)| percent(nanos) >= 0.05);
    leaves.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    let parts: Vec<_> =
        leaves.iter().take(10).map(|&(nanos, leaf)| format!("{} {:.1} %", leaf.name(), percent(nanos))).collect();
    wrapped(out, "  ", &parts.join(", "));
    if percent(device.leaves[Leaf::Compute as usize]) >= WORTH_SHARE * 100.0 {
        compute_line(out, &device.compute);
    }
    if let Some(steps) = &device.steps {
        wrapped(out, "  steps: ", &step_line(steps));
    }
    if device.host_lead.launches() > 0 {
        wrapped(out, "  host lead: ", &lead_line(&device.host_lead));
    }
    if !device.awaited.is_empty() {
        let parts: Vec<_> = device.awaited.iter().take(3).map(awaited_sentence).collect();
        wrapped(out, "  waited behind events for: ", &parts.join(", "));
    }
    if let Some(what_if) = &device.what_if {
        for line in what_if.to_string().lines().take(CEILINGS_SHOWN) {
            wrapped(out, "  ", line);
        }
    }
    let largest = &device.kernels[..device.kernels.len().min(3)];
    let names =
        short_names(largest.iter().map(|row| row.name.as_str()), out.columns().saturating_sub(KERNEL_COLUMNS).max(20));
    for (row, name) in largest.iter().zip(names) {
        let of = &row.durations;
        let (total, count, median) = (duration(of.total()), of.count(), duration(of.median()));
        let _ = writeln!(out, "  {total:>9} x{count:<8} median {median:>9}  {name}");
    }
    for row in device.copies.iter().take(2) {
        let (total, count) = (duration(row.durations.total()), row.durations.count());
        let class = match row.class {
            CopyClass::Unknown => String::new(),
            class => format!(", {}", class.name()),
        };
        let (path, moved, rate) = (path_name(row.path), bytes(row.bytes), row.gigabytes_per_second());
        let text = format!("copy {path}, {moved}, {rate:.1} GB/s{class}");
        wrapped(out, &format!("  {total:>9} x{count:<8} "), &text);
    }
    if device.copy_overlap.serial {
        let _ = writeln!(out, "  copies and kernels take turns (under 10 % of copy time is beneath kernels)");
    }
    let mut beneath = Vec::new();
    for (top, row) in Work::ALL.into_iter().zip(&device.overlap) {
        for (under, &nanos) in Work::ALL.into_iter().zip(row) {
            if percent(nanos) >= 0.05 {
                beneath.push(format!("{} under {} {:.1} %", under.name(), top.name(), percent(nanos)));
            }
        }
    }
    if !beneath.is_empty() {
        wrapped(out, "  overlapped: ", &beneath.join(", "));
    }
}

/// How the grids of the kernels fill the device, as parts of the kernels' time; nothing without geometry.
fn compute_line(out: &mut Page, compute: &ComputeSplit) {
    let Some(geometry) = &compute.geometry else { return };
    let mut classes: Vec<_> = GridClass::ALL.into_iter().filter(|&class| compute.share(class) >= 0.005).collect();
    classes.sort_by_key(|&class| std::cmp::Reverse(compute.time(class)));
    let parts: Vec<_> = classes
        .into_iter()
        .map(|class| {
            let what = match class {
                GridClass::Tiny => "in kernels under 10 us".to_owned(),
                GridClass::UnderFilled => format!("under-filled (grid < {} SMs)", compute.multiprocessors),
                GridClass::Tail => "with a wasteful last wave".to_owned(),
                GridClass::LowOccupancy => "in full grids of low occupancy".to_owned(),
                GridClass::Full => "in full grids".to_owned(),
                GridClass::Unknown => "unknown".to_owned(),
            };
            format!("{:.0} % {what}", compute.share(class) * 100.0)
        })
        .collect();
    let line = format!(
        "{}; est. SM efficiency {:.0} %, occupancy {:.0} %",
        parts.join(", "),
        geometry.sm_efficiency * 100.0,
        geometry.achieved_occupancy * 100.0,
    );
    wrapped(out, "  compute: ", &line);
}

/// How far the host runs ahead, how often it comes late, and how often a full queue holds it back.
fn lead_line(lead: &HostLead) -> String {
    let late = lead.late() as f64 / lead.launches().max(1) as f64 * 100.0;
    let (median, least) = (duration(lead.median_ns()), duration(lead.min_ns()));
    let mut line = format!("median {median}, least {least}; {late:.1} % of launches came late");
    if lead.held_back() > 0 {
        let (calls, time) = (lead.held_back(), duration(lead.held_back_ns()));
        let _ = write!(line, "; {calls} launching calls, {time}, waited for room in the queue (back-pressure)");
    }
    line
}

/// How many steps, how they were found, and how long they took.
fn step_line(steps: &Steps) -> String {
    let found = match (steps.source, steps.period) {
        (StepSource::Annotated, _) => "named by the program".to_owned(),
        (StepSource::Period, Some(1)) => "found by period of 1 operation".to_owned(),
        (StepSource::Period, Some(period)) => format!("found by period of {period} operations"),
        (StepSource::Period, None) => "found by period".to_owned(),
        (StepSource::Anchor, _) => "found by an operation that comes once in each".to_owned(),
        (StepSource::Window, _) => "in windows of at least 1 s, as nothing repeats".to_owned(),
    };
    let [low, median, high] = [10, 50, 90].map(|percent| duration(steps.duration_percentile(percent)));
    format!("{} {found}, median {median} (p10 {low} .. p90 {high})", steps.seen)
}

/// Says only what is wrong; a complete trace takes one line.
/// How far the trace is whole, and how much may have come after that. A flush vouches for what was complete at the
/// one before it, and the process lived for less than another one, so it is twice the time between them.
fn what_an_abrupt_end_costs(report: &Report) -> String {
    let completeness = &report.completeness;
    let Some((until, interval)) = completeness.whole_until else { return String::new() };
    let whole = until.nanos().saturating_sub(report.process.start.nanos());
    let most = interval.saturating_mul(2);
    format!(
        ": all that was complete {} after the start is here, at most about {} after it is not",
        duration(whole),
        duration(most)
    )
}

fn completeness_lines(out: &mut Page, report: &Report) {
    let completeness = &report.completeness;
    let mut parts: Vec<String> = completeness.loss.sentences().collect();
    for (count, what, how) in [
        (completeness.bad_timestamps, "record", "without usable times"),
        (completeness.launches_without_activity, "launch", "without kernel"),
        (completeness.activities_without_launch, "operation", "without launch"),
        (completeness.clamped_clocks, "clamped clock", ""),
        (completeness.kernel_table_overflow, "kernel", "beyond the table"),
    ] {
        if count > 0 {
            parts.push(format!("{} {how}", counted(count, what)).trim_end().to_owned());
        }
    }
    if completeness.late_ns > 0 {
        parts.push(format!(
            "{} late, {} of it put right",
            duration(completeness.late_ns),
            duration(completeness.late_corrected_ns)
        ));
    }
    match completeness.end {
        End::Clean => {}
        End::Abrupt => parts.push(format!("no end was written{}", what_an_abrupt_end_costs(report))),
        End::TimedOut => parts.push("the wait at exit timed out".to_owned()),
    }
    let records = if report.is_watched() {
        "watched only, no device work is recorded".to_owned()
    } else {
        let (kernels, calls) = (counted(completeness.kernels, "kernel"), counted(completeness.api_calls, "API call"));
        let copies = if completeness.copies == 1 { "copy" } else { "copies" };
        format!("{kernels}, {} {copies}, {calls}", completeness.copies)
    };
    if parts.is_empty() {
        wrapped(out, "complete: ", &format!("{records}, nothing missing"));
    } else {
        wrapped(out, "incomplete: ", &format!("{records}; {}", parts.join(", ")));
    }
    for damage in completeness.damage.iter().take(3) {
        wrapped(out, "damage: ", damage);
    }
}
