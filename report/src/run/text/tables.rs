//! Tables of the long report.
//!
//! The first line of a table names its columns and units. Rows keep the order of the model, the largest total
//! first. Only the name at the end of a row may be shortened, so that rows stay comparable line by line.

use std::fmt::Write;

use gpuwhy_trace::geometry::Limiter;
use profiler_core::leaf::Leaf;

use super::{collectives, kernel_time};
use crate::run::{DeviceReport, KernelGeometry, Report, limits};
use crate::text_format::names::short_names;
use crate::text_format::{Page, counted, duration, shortened, wrapped};
use crate::words;

/// Maximum length of a name in a row. With the numbers before it a row takes at most 203 columns.
const NAME_WIDTH: usize = 80;

/// Appends the tables, with at most `kernels` rows for the kernels of a device.
pub(super) fn write(out: &mut Page, report: &Report, kernels: usize) {
    for device in &report.devices {
        let _ = writeln!(out, "\n== GPU {}", device.device.id);
        leaf_rows(out, device);
        if let Some(limits) = &device.limits {
            for line in limits::table_rows(limits).into_iter().chain(limits::kernel_rows(device)) {
                let _ = writeln!(out, "{line}");
            }
        }
        kernel_rows(out, device, kernels);
        copy_rows(out, device);
    }
    if kernels > 0 {
        kernel_time::write(out, report);
    }
    if let Some(joined) = &report.collectives {
        collectives::write(joined, out);
    }
    api_rows(out, report);
    for note in &report.process.notes {
        wrapped(out, "note: ", note);
    }
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64 * 100.0
}

/// Appends the complete run by leaf, start-up included, and the part after start-up.
fn leaf_rows(out: &mut Page, device: &DeviceReport) {
    let row = |leaf: Leaf| (device.leaves[leaf as usize], device.steady_leaves[leaf as usize], leaf);
    let mut leaves: Vec<_> = Leaf::ALL.into_iter().map(row).collect();
    leaves.retain(|&(nanos, ..)| nanos > 0);
    leaves.sort_by(|a, b| b.0.cmp(&a.0).then(a.2.cmp(&b.2)));
    let steady: u64 = device.steady_leaves.iter().sum();
    let _ =
        writeln!(out, "{:>10} {:>6} {:>13} {:>6}  cause (name in the JSON)", "whole run", "%", "after start-up", "%");
    for (nanos, after, leaf) in leaves {
        let _ = writeln!(
            out,
            "{:>10} {:>6.2} {:>13} {:>6.2}  {} ({})",
            duration(nanos),
            share(nanos, device.window_ns),
            duration(after),
            share(after, steady),
            words::cause(leaf),
            leaf.name()
        );
    }
    let _ = writeln!(out, "{:>10} {:>6} {:>13} {:>6}  sum", duration(device.window_ns), "", duration(steady), "");
}

fn kernel_rows(out: &mut Page, device: &DeviceReport, limit: usize) {
    if limit == 0 || device.kernels.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "{:>16} {:>10} {:>9} {:>10} {:>10} {:>10} {:>10} {:>9} {:>9} {:>7} {:>5} {:>6}  kernel",
        "after start-up",
        "whole run",
        "count",
        "mean",
        "median",
        "min",
        "max",
        "max occ %",
        "limited",
        "waves",
        "SM %",
        "tail %"
    );
    let shown = &device.kernels[..device.kernels.len().min(limit)];
    let names = short_names(shown.iter().map(|row| row.name.as_str()), NAME_WIDTH);
    for (row, name) in shown.iter().zip(names) {
        let of = &row.durations;
        let _ = writeln!(
            out,
            "{:>16} {:>10} {:>9} {:>10} {:>10} {:>10} {:>10} {}  {}{}",
            duration(row.steady.1),
            duration(of.total()),
            of.count(),
            duration(of.mean()),
            duration(of.median()),
            duration(of.min()),
            duration(of.max()),
            geometry_columns(row.geometry.as_ref()),
            name,
            if row.communication { " (communication)" } else { "" },
        );
    }
    if let Some(rest) = device.kernels.get(limit..).filter(|rest| !rest.is_empty()) {
        let time = rest.iter().map(|row| row.durations.total()).fold(0, u64::saturating_add);
        let count: u64 = rest.iter().map(|row| row.durations.count()).sum();
        let steady = duration(rest.iter().map(|row| row.steady.1).fold(0, u64::saturating_add));
        let more = counted(rest.len() as u64, "more kernel");
        let _ = writeln!(out, "{steady:>16} {:>10} {count:>9}  in {more}", duration(time));
    }
}

/// Theoretical occupancy and its limiter, waves, multiprocessors with a block, loss in the last wave.
fn geometry_columns(geometry: Option<&KernelGeometry>) -> String {
    let Some(of) = geometry else {
        return format!("{:>9} {:>9} {:>7} {:>5} {:>6}", "-", "-", "-", "-", "-");
    };
    let limiter = match of.limiter {
        Limiter::SharedMemory => "shared",
        other => other.name(),
    };
    format!(
        "{:>9.0} {limiter:>9} {:>7.2} {:>5.0} {:>6.0}",
        of.theoretical_occupancy * 100.0,
        of.waves,
        of.sm_efficiency * 100.0,
        of.tail_loss * 100.0,
    )
}

fn copy_rows(out: &mut Page, device: &DeviceReport) {
    if device.copies.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "{:>10} {:>9} {:>10} {:>12} {:>8} {:>9} {:>6} {:>9}  copy",
        "time", "count", "median", "MB", "GB/s", "fixed", "link %", "limit"
    );
    for row in &device.copies {
        let rate = row.gigabytes_per_second();
        let dash = || "-".to_owned();
        let _ = writeln!(
            out,
            "{:>10} {:>9} {:>10} {:>12.3} {:>8.2} {:>9} {:>6} {:>9}  {}",
            duration(row.durations.total()),
            row.durations.count(),
            duration(row.durations.median()),
            row.bytes as f64 / 1e6,
            rate,
            row.fit.map_or_else(dash, |fit| duration(fit.latency_ns.round() as u64)),
            row.link_gigabytes_per_second.map_or_else(dash, |best| format!("{:.0}", rate / best * 100.0)),
            row.class.name(),
            words::copies(row.path, 2),
        );
    }
}

fn api_rows(out: &mut Page, report: &Report) {
    if report.api.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n== host\n{:>10} {:>9} {:>10} {:>7}  CUDA call", "time", "count", "max", "failed");
    for row in &report.api {
        let _ = writeln!(
            out,
            "{:>10} {:>9} {:>10} {:>7}  {}",
            duration(row.total_ns),
            row.calls,
            duration(row.max_ns),
            row.failed,
            shortened(&row.name, NAME_WIDTH),
        );
    }
}
