//! Tables of the long report.
//!
//! The first line of a table names its columns and units. Rows keep the order of the model, the largest total
//! first. Only the name at the end of a row may be shortened, so that rows stay comparable line by line.

use std::fmt::Write;

use gpuwhy_trace::geometry::Limiter;
use profiler_core::leaf::Leaf;
use profiler_core::sorting::SortRows as _;

use super::{code_line, collectives, kernel_time};
use crate::run::{DeviceReport, KernelGeometry, Report, limits};
use crate::text_format::names::{short_names, short_path};
use crate::text_format::table::Table;
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
            limits::limits_table(limits).write(out, "");
            limits::kernel_table(device).write(out, "");
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
    source_rows(out, report);
    for note in &report.process.notes {
        wrapped(out, "note: ", note);
    }
}

/// Appends the named lines of source code with the statements around them.
fn source_rows(out: &mut Page, report: &Report) {
    let rows = report.source_rows();
    if !rows.is_empty() {
        let _ = writeln!(out, "\n== source lines (as they were when the program ran)");
    }
    for row in rows {
        let _ = writeln!(out, "{}:{}", short_path(&row.file), row.line);
        for (depth, (line, text)) in row.around.iter().enumerate() {
            code_line(out, "  ", *line, &format!("{}{text}", "  ".repeat(depth)));
        }
        code_line(out, "> ", row.line, &format!("{}{}", "  ".repeat(row.around.len()), row.text));
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
    leaves.sort_rows_by(|a, b| b.0.cmp(&a.0).then(a.2.cmp(&b.2)));
    let steady: u64 = device.steady_leaves.iter().sum();
    let mut table = Table::new("whole run:10|%:6|after start-up:13|%:6|cause (name in the JSON)");
    for (nanos, after, leaf) in leaves {
        let [of_run, of_steady] =
            [share(nanos, device.window_ns), share(after, steady)].map(|share| format!("{share:.2}"));
        let cause = format!("{} ({})", words::cause(leaf), leaf.name());
        table.row(&[&duration(nanos), &of_run, &duration(after), &of_steady, &cause]);
    }
    table.row(&[&duration(device.window_ns), &"", &duration(steady), &"", &"sum"]);
    table.write(out, "");
}

fn kernel_rows(out: &mut Page, device: &DeviceReport, limit: usize) {
    if limit == 0 {
        return;
    }
    let mut table = Table::new(
        "after start-up:16|whole run:10|count:9|mean:10|median:10|min:10|max:10|max occ %:9|limited:9|waves:7|SM %:5|\
         tail %:6|kernel",
    );
    let shown = &device.kernels[..device.kernels.len().min(limit)];
    let names = short_names(shown.iter().map(|row| row.name.as_str()), NAME_WIDTH);
    for (row, name) in shown.iter().zip(names) {
        let of = &row.durations;
        let [steady, total, mean, median, min, max] =
            [row.steady.1, of.total(), of.mean(), of.median(), of.min(), of.max()].map(duration);
        let [occupancy, limiter, waves, efficiency, tail] = geometry_cells(row.geometry.as_ref());
        let name = name + if row.communication { " (communication)" } else { "" };
        table.row(&[
            &steady,
            &total,
            &of.count(),
            &mean,
            &median,
            &min,
            &max,
            &occupancy,
            &limiter,
            &waves,
            &efficiency,
            &tail,
            &name,
        ]);
    }
    if let Some(rest) = device.kernels.get(limit..).filter(|rest| !rest.is_empty()) {
        let time = rest.iter().map(|row| row.durations.total()).fold(0, u64::saturating_add);
        let count: u64 = rest.iter().map(|row| row.durations.count()).sum();
        let steady = rest.iter().map(|row| row.steady.1).fold(0, u64::saturating_add);
        let more = format!("in {}", counted(rest.len() as u64, "more kernel"));
        table.row(&[&duration(steady), &duration(time), &count, &more]);
    }
    table.write(out, "");
}

/// Theoretical occupancy and its limiter, waves, multiprocessors with a block, loss in the last wave.
fn geometry_cells(geometry: Option<&KernelGeometry>) -> [String; 5] {
    let Some(of) = geometry else { return ["-"; 5].map(str::to_owned) };
    let limiter = match of.limiter {
        Limiter::SharedMemory => "shared",
        other => other.name(),
    };
    let [occupancy, efficiency, tail] =
        [of.theoretical_occupancy, of.sm_efficiency, of.tail_loss].map(|share| format!("{:.0}", share * 100.0));
    [occupancy, limiter.to_owned(), format!("{:.2}", of.waves), efficiency, tail]
}

fn copy_rows(out: &mut Page, device: &DeviceReport) {
    let mut table = Table::new("time:10|count:9|median:10|MB:12|GB/s:8|fixed:9|link %:6|limit:9|copy");
    for row in &device.copies {
        let rate = row.gigabytes_per_second();
        let dash = || "-".to_owned();
        let [total, median] = [row.durations.total(), row.durations.median()].map(duration);
        table.row(&[
            &total,
            &row.durations.count(),
            &median,
            &format!("{:.3}", row.bytes as f64 / 1e6),
            &format!("{rate:.2}"),
            &row.fit.map_or_else(dash, |fit| duration(fit.latency_ns.round() as u64)),
            &row.link_gigabytes_per_second.map_or_else(dash, |best| format!("{:.0}", rate / best * 100.0)),
            &row.class.name(),
            &words::copies(row.path, 2),
        ]);
    }
    table.write(out, "");
}

fn api_rows(out: &mut Page, report: &Report) {
    let mut table = Table::new("time:10|count:9|max:10|failed:7|CUDA call");
    for row in &report.api {
        let [time, max] = [row.total_ns, row.max_ns].map(duration);
        table.row(&[&time, &row.calls, &max, &row.failed, &shortened(&row.name, NAME_WIDTH)]);
    }
    table.write(out, "\n== host\n");
}
