//! Parts of the long report about the process: captures, launching threads, utilization.

use std::fmt::Write;

use gpuwhy_trace::record::{Timestamp, Trigger};
use profiler_core::attribution::host_cause::HostCause;
use profiler_core::sorting::SortRows as _;

use crate::run::{BurstRow, BurstTable, HostReport, Report, monitor};
use crate::text_format::{Page, counted, duration, wrapped};
use crate::words;

/// Captures in the text; the JSON lists all.
const CAPTURES_SHOWN: usize = 12;
/// Rows in the text, if the run is monitored in between, and else; the JSON lists all.
const BURSTS_SHOWN: usize = 12;
const BURSTS_SHOWN_ALONE: usize = 3;
/// Source lines of the launching threads.
const LINES_SHOWN: usize = 3;

/// Appends what does not depend on a device.
pub(super) fn write(out: &mut Page, report: &Report) {
    if let Some(host) = &report.host {
        host_lines(out, host);
    }
    if let Some(ranges) = &report.ranges {
        ranges.write(out);
    }
    utilization_lines(out, report);
}

/// Appends the lines of the text; none for a run without captures.
pub(super) fn captures(out: &mut Page, report: &Report) {
    if let Some(table) = &report.bursts {
        return burst_lines(out, report, table);
    }
    let table = &report.captures;
    // A run that is down to bursts has one capture until the first of them.
    let awaits_bursts = table.rows.len() == 1 && report.cost.is_some_and(|cost| cost.has_bursts());
    if table.rows.is_empty() || awaits_bursts {
        return;
    }
    let count = table.rows.len() as u64 + table.beyond_rows;
    match table.shown {
        Some(number) => {
            let _ =
                writeln!(out, "Captures: {count}; this is the report of number {number} (--capture shows another).");
        }
        None => {
            let _ = writeln!(out, "Captures: {count}; there is none with this number.");
        }
    }
    let skipped = table.rows.len().saturating_sub(CAPTURES_SHOWN);
    if skipped > 0 {
        let _ = writeln!(out, "  ... {skipped} earlier ones");
    }
    for row in table.rows.iter().skip(skipped) {
        let length = match row.end {
            Some(end) => duration(end.since(row.begin)),
            None => "being taken".to_owned(),
        };
        let bottleneck =
            row.bottleneck.map_or_else(String::new, |(cause, share)| format!(", {}", words::result(cause, share)));
        let after = duration(row.begin.since(report.process.start));
        let _ = writeln!(
            out,
            "  {:>3} by {}: {length} from {after} on, {}{bottleneck}",
            row.number,
            row.trigger.name(),
            counted(row.kernels, "kernel")
        );
    }
}

fn burst_lines(out: &mut Page, report: &Report, bursts: &BurstTable) {
    let count = report.cost.map_or(0, |cost| u64::from(cost.bursts)).max(bursts.rows.len() as u64);
    if count == 0 {
        return;
    }
    let recorded = duration(report.cost.map_or(0, |cost| cost.burst_ns));
    let all = counted(count, "burst");
    wrapped(out, "", &format!("Recorded in {all}, {recorded} of the run (--capture N shows one):"));
    let monitored = report.cost.is_some_and(|cost| cost.mode.monitors());
    let skipped = bursts.rows.len().saturating_sub(if monitored { BURSTS_SHOWN } else { BURSTS_SHOWN_ALONE });
    if skipped > 0 {
        let _ = writeln!(out, "  ... {skipped} earlier ones");
    }
    for row in bursts.rows.iter().skip(skipped) {
        wrapped(out, &format!("  {:>3}: ", row.number), &burst_sentence(row, report.process.start, monitored));
    }
}

fn burst_sentence(row: &BurstRow, start: Timestamp, monitored: bool) -> String {
    let why = match row.trigger {
        Trigger::Drift => "the step time changed",
        Trigger::Graph => "a CUDA graph was new",
        _ if monitored => "samples left the bottleneck open",
        _ => "the last one was long ago",
    };
    let (from, lasted) = (duration(row.begin.since(start)), duration(row.end.since(row.begin)));
    let result = words::result(row.cause, row.share);
    let steps = match row.steps {
        (0, _) => String::new(),
        (seen, median) => format!("; {} of {}", counted(seen, "step"), duration(median)),
    };
    format!("{lasted} from {from} on, as {why}: {result}{steps}.")
}

/// Appends the section of the long report.
fn host_lines(out: &mut Page, host: &HostReport) {
    let totals = &host.totals;
    if totals.samples == 0 && host.failed == 0 {
        return;
    }
    let percent = |nanos: u64| nanos as f64 / totals.covered_ns.max(1) as f64 * 100.0;
    let mut parts = vec![format!("running {:.1} %", percent(totals.on_cpu_ns))];
    if percent(totals.runnable_ns) >= 0.05 {
        parts.push(format!("waiting for a CPU core {:.1} %", percent(totals.runnable_ns)));
    }
    // Several causes are one activity in words.
    let mut waits: Vec<(u64, HostCause)> = Vec::new();
    for cause in HostCause::ALL {
        let nanos = totals.off_cpu_ns[cause as usize];
        match waits.iter_mut().find(|(_, of)| words::activity(*of) == words::activity(cause)) {
            Some((sum, _)) => *sum += nanos,
            None => waits.push((nanos, cause)),
        }
    }
    waits.sort_rows_by_key(|&(nanos, cause)| (std::cmp::Reverse(nanos), cause));
    for (nanos, cause) in waits.into_iter().take(4).filter(|&(nanos, _)| percent(nanos) >= 0.05) {
        parts.push(format!("{} {:.1} %", words::activity(cause), percent(nanos)));
    }
    let failed = if host.failed == 0 { String::new() } else { format!("; {} more failed", host.failed) };
    let samples = counted(totals.samples, "sample");
    wrapped(out, "CPU, launching threads over the whole run: ", &format!("{} ({samples}{failed})", parts.join(", ")));
    for row in host.lines.iter().filter(|row| row.is_evident()).take(LINES_SHOWN) {
        let cost = row.step_ns.map_or_else(|| duration(row.total_ns), |nanos| format!("{} a step", duration(nanos)));
        let share = row.share * 100.0;
        let doing = words::activity(row.cause);
        wrapped(out, "  - GPU idle for ", &format!("{cost} ({share:.1} %): {doing} {}", row.at_place()));
    }
}

/// Appends the utilization of the devices to a report with other content; nothing if the conclusion already
/// names it.
fn utilization_lines(out: &mut Page, report: &Report) {
    if report.devices.is_empty() {
        return;
    }
    for device in report.utilization.devices.iter().take(2) {
        wrapped(out, "Utilization: ", &monitor::device_sentence(device));
    }
}
