//! Kernel tables of the long report: by library, by line, by what captured CUDA graphs, and by range.

use std::cmp::Reverse;
use std::fmt::Write;

use profiler_core::attribution::GraphWork;
use profiler_core::sorting::SortRows as _;

use crate::launch_site::LaunchSite;
use crate::run::graph_origins::PARTS;
use crate::run::{GraphOrigins, GraphRangeTable, KernelLines, LibraryRow, RangeRow, Report};
use crate::text_format::names::short_names;
use crate::text_format::table::Table;
use crate::text_format::{Page, counted, duration, percent, shortened, wrapped};

/// Rows of a table, and the maximum lengths of names.
const SHOWN: usize = 10;
const NAME_WIDTH: usize = 60;
const KERNEL_WIDTH: usize = 44;
const PATH_WIDTH: usize = 100;
const MODULE_WIDTH: usize = 80;

/// Appends the kernel tables of the long report: by library, by line, and by range if the program named
/// any.
pub(super) fn write(out: &mut Page, report: &Report) {
    library_table(out, &report.kernel_libraries);
    if let Some(lines) = &report.kernel_lines {
        line_table(out, lines);
    }
    if let Some(origins) = &report.graph_origins {
        graph_tables(out, origins);
    }
    range_table(out, report);
}

fn library_table(out: &mut Page, rows: &[LibraryRow]) {
    let mut table = Table::new("time:10|%:6|count:9|kernels:7|library: largest kernel");
    let shown = &rows[..rows.len().min(SHOWN)];
    let kernels = short_names(shown.iter().map(|row| row.largest.as_str()), NAME_WIDTH);
    for (row, kernel) in shown.iter().zip(kernels) {
        let library = shortened(row.library.as_deref().unwrap_or("unknown or the program's own"), 40);
        let (time, share) = (duration(row.total_ns), share(row.share));
        table.row(&[&time, &share, &row.count, &row.names, &format!("{library}: {kernel}")]);
    }
    table.write(out, "\n== kernel time by library (estimate by kernel name)\n");
    rest(out, rows.len() as u64, "more library or file", "more libraries or files");
}

fn share(share: f64) -> String {
    format!("{:.2}", share * 100.0)
}

/// Cells of work: time, share of the time of all, count.
fn work_cells(work: GraphWork, all_ns: u64) -> (String, String, u64) {
    (duration(work.total_ns), share(work.total_ns as f64 / all_ns.max(1) as f64), work.count)
}

fn line_table(out: &mut Page, lines: &KernelLines) {
    if let Some(why) = lines.left_out() {
        let _ = writeln!(out, "\n== kernel time by line");
        wrapped(out, "", &why);
        return;
    }
    let mut table = Table::new("time:10|%:6|95 % interval:15|samples:7|launched at: largest kernel");
    let shown = &lines.lines[..lines.lines.len().min(SHOWN)];
    let kernels = short_names(shown.iter().map(|row| row.largest.as_str()), KERNEL_WIDTH);
    let percent = |nanos: f64| nanos / lines.kernel_ns.max(1) as f64 * 100.0;
    for (row, kernel) in shown.iter().zip(kernels) {
        let interval = format!("{:.1} to {:.1}", percent(row.time.low_ns), percent(row.time.high_ns));
        let (time, place) = (duration(row.time.total_ns as u64), format!("{}: {kernel}", row.place.text()));
        table.row(&[&time, &share(row.share), &interval, &row.time.samples, &place]);
    }
    let title = format!(
        "\n== kernel time by line (estimate, {}; {} of {} not sampled)\n",
        counted(lines.samples, "sample"),
        duration(lines.not_sampled_ns),
        duration(lines.kernel_ns)
    );
    table.write(out, &title);
    rest(out, lines.distinct_lines, "more line", "more lines");
}

/// Kernels by range: exact, because the range of each launch is known.
fn range_table(out: &mut Page, report: &Report) {
    let rows = report.ranges.iter().flat_map(|ranges| &ranges.rows);
    let total = |row: &RangeRow| row.kernels.iter().fold(0u64, |sum, (_, of)| sum.saturating_add(of.total()));
    let mut rows: Vec<_> = rows.map(|row| (total(row), row)).filter(|&(nanos, _)| nanos > 0).collect();
    rows.sort_rows_by_key(|&(nanos, _)| Reverse(nanos));
    let all = report.kernel_libraries.iter().fold(0u64, |sum, row| sum.saturating_add(row.total_ns));
    let mut table = Table::new("time:10|%:6|count:9|range: largest kernel");
    for (nanos, row) in rows.iter().take(SHOWN) {
        let count: u64 = row.kernels.iter().map(|(_, of)| of.count()).sum();
        let kernel = short_names(row.kernels.iter().take(1).map(|(name, _)| name.as_str()), KERNEL_WIDTH).concat();
        let name = format!("{}: {kernel}", shortened(&row.name(), NAME_WIDTH));
        table.row(&[&duration(*nanos), &share(*nanos as f64 / all.max(1) as f64), &count, &name]);
    }
    table.write(out, "\n== kernel time by range (exact; includes nested ranges)\n");
    rest(out, rows.len() as u64, "more range", "more ranges");
}

fn rest(out: &mut Page, count: u64, one: &str, several: &str) {
    let more = count.saturating_sub(SHOWN as u64);
    if more > 0 {
        let _ = writeln!(out, "... and {more} {}", if more == 1 { one } else { several });
    }
}

fn graph_tables(out: &mut Page, origins: &GraphOrigins) {
    if origins.all().count > 0 {
        origins.write_nodes(out);
        origins.write_per_replay(out);
    }
    if let Some(ranges) = &origins.ranges {
        ranges.write(out, origins.all().total_ns);
    }
    origins.write_whole(out);
}

impl GraphRangeTable {
    fn write(&self, out: &mut Page, all_ns: u64) {
        let mut table = Table::new("time:10|%:6|count:9|captured in");
        let mut line = |work: GraphWork, name: &str| {
            let (time, share, count) = work_cells(work, all_ns);
            table.row(&[&time, &share, &count, &name]);
        };
        for row in self.rows.iter().take(SHOWN) {
            let domain = if row.domain.is_empty() { String::new() } else { format!("{}:", row.domain) };
            line(row.work, &format!("{domain}{}", shortened(&row.path.join(" > "), PATH_WIDTH)));
        }
        for (work, name) in [(self.outside, "outside ranges"), (self.unknown, "unknown")] {
            if work.count > 0 {
                line(work, name);
            }
        }
        table.write(out, "\n== work of CUDA graphs by range (exact; ranges open at capture)\n");
        rest(out, self.distinct_rows, "more range", "more ranges");
    }
}

impl GraphOrigins {
    fn write_whole(&self, out: &mut Page) {
        let mut table = Table::new("time:10|launches:9|nodes:6|captured at: nodes");
        for row in self.whole.iter().take(SHOWN) {
            let place = row.place.as_ref().map_or_else(|| "unknown line".to_owned(), LaunchSite::text);
            let percent_of = |nodes: u64| percent(nodes as f64 / row.nodes.max(1) as f64);
            let shown = row.parts.iter().take(PARTS);
            let mut parts: Vec<_> =
                shown.map(|part| format!("{} {}", part.captured_in, percent_of(part.nodes))).collect();
            if row.unknown_nodes > 0 {
                parts.push(format!("unknown {}", percent_of(row.unknown_nodes)));
            }
            let parts = format!("{place}: {}", parts.join(", "));
            table.row(&[&duration(row.work.total_ns), &row.work.count, &row.nodes, &parts]);
        }
        let title = "CUDA graphs recorded as a whole (%: of a graph's nodes; how its time is divided is unknown)";
        table.write(out, &format!("\n== {title}\n"));
        rest(out, self.distinct_whole, "more graph", "more graphs");
    }

    fn write_nodes(&self, out: &mut Page) {
        let (all, counts) = (self.all(), &self.counts);
        let mut table = Table::new("time:10|%:6|count:9|idle before:11|captured in");
        for (work, idle, name) in self.parts(SHOWN) {
            let (time, share, count) = work_cells(work, all.total_ns);
            table.row(&[&time, &share, &count, &idle.map(duration).unwrap_or_default(), &name]);
        }
        let (placed, operations) = (counts.with_place.count, counted(all.count, "operation"));
        let title = format!("\n== work of CUDA graphs by module (exact; {placed} of {operations} have a line)\n");
        table.write(out, &title);
        rest(out, self.modules.len() as u64, "more module", "more modules");
        if self.unplaced_idle_before_ns > 0 {
            let idle = duration(self.unplaced_idle_before_ns);
            let _ = writeln!(out, "{idle} were idle before operations without a line");
        }
        if counts.updates > 0 {
            let calls = counted(counts.updates, "call");
            let _ = writeln!(
                out,
                "{calls} of cudaGraphExecUpdate put other nodes into graphs: lines are those of the first capture"
            );
        }
        let mut table = Table::new("time:10|%:6|count:9|captured at: kernel");
        let shown = &self.rows[..self.rows.len().min(SHOWN)];
        let kernels = short_names(shown.iter().map(|row| row.kernel.as_deref().unwrap_or("copies")), KERNEL_WIDTH);
        for (row, kernel) in shown.iter().zip(kernels) {
            let (time, share, count) = work_cells(row.work, all.total_ns);
            table.row(&[&time, &share, &count, &format!("{}: {kernel}", row.place.text())]);
        }
        table.write(out, "\n== work of CUDA graphs by line (exact)\n");
        rest(out, self.distinct_rows, "more row", "more rows");
    }

    /// Appends the time of modules in one replay.
    fn write_per_replay(&self, out: &mut Page) {
        let mut table = Table::new("time:10|replays:9|module");
        for row in self.per_replay.iter().take(SHOWN) {
            table.row(&[&duration(row.mean_ns), &row.replays, &shortened(&row.module, MODULE_WIDTH)]);
        }
        let title = "modules in a replay of a CUDA graph (mean of recorded ones; with the modules that they call)";
        table.write(out, &format!("\n== {title}\n"));
        rest(out, self.per_replay.len() as u64, "more module", "more modules");
    }
}
