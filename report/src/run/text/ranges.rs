//! Ranges in the long report, and their tables, which have the columns of the reports of these names in Nsight Systems
//! (`nsys stats`).

use std::fmt::Write;

use profiler_core::attribution::RangeStyle;

use crate::run::{RangeRow, RangesReport};
use crate::text_format::{Page, counted, duration, shortened, wrapped};
use crate::words;

/// Number of ranges in the long report outside the tables.
const SHOWN: usize = 3;
/// Maximum length of a name in a row.
const NAME_WIDTH: usize = 60;

impl RangesReport {
    /// Appends the section of the long report.
    pub(in crate::run) fn write(&self, out: &mut Page) {
        for row in self.rows.iter().take(SHOWN) {
            wrapped(out, "Range ", &row.sentence());
        }
        if self.rows.len() > SHOWN {
            let _ =
                writeln!(out, "... and {} (report --ranges)", counted((self.rows.len() - SHOWN) as u64, "more range"));
        }
        let counts = &self.counts;
        let parts: Vec<_> = [
            (counts.unmatched, "range end", "without a start"),
            (self.open, "range", "still open"),
            (counts.table_overflow, "range", "without a row"),
            (counts.kernel_overflow, "kernel", "without a row"),
            (counts.evicted, "GPU operation", "too late to be placed"),
        ]
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, what, how)| format!("{} {how}", counted(count, what)))
        .collect();
        if !parts.is_empty() {
            wrapped(out, "Ranges: ", &parts.join(", "));
        }
    }

    /// Appends the tables, with the names and columns of Nsight Systems.
    pub(in crate::run) fn tables(&self, out: &mut Page) {
        let host = |style: Option<RangeStyle>| {
            let mut rows: Vec<_> =
                self.rows.iter().filter(|row| style.is_none_or(|style| row.style == style)).collect();
            rows.retain(|row| row.host.durations.count() > 0);
            rows.sort_by_key(|row| std::cmp::Reverse(row.host.durations.total()));
            rows
        };
        host_table(out, "nvtx_sum", &host(None), true);
        host_table(out, "nvtx_pushpop_sum", &host(Some(RangeStyle::PushPop)), false);
        host_table(out, "nvtx_startend_sum", &host(Some(RangeStyle::StartEnd)), false);
        self.projection_table(out);
        self.kernel_table(out);
        self.idle_table(out);
    }

    fn projection_table(&self, out: &mut Page) {
        let rows: Vec<_> = self.rows.iter().filter(|row| row.operations > 0).collect();
        if rows.is_empty() {
            return;
        }
        let _ = writeln!(
            out,
            "\n** nvtx_gpu_proj_sum\n{:>15} {:>16} {:>9} {:>13} {:>13} {:>13} {:>13} {:>14} {:>10} {:>11} {:>13} {:>13}  \
             Style    Range",
            "Total Proj (ns)",
            "Total Range (ns)",
            "Instances",
            "Proj Avg (ns)",
            "Proj Med (ns)",
            "Proj Min (ns)",
            "Proj Max (ns)",
            "Proj StdDev",
            "Total Ops",
            "Avg GPU Ops",
            "Avg Range Lvl",
            "Avg Num Child"
        );
        for row in rows {
            let of = &row.projected.durations;
            let _ = writeln!(
                out,
                "{:>15} {:>16} {:>9} {:>13} {:>13} {:>13} {:>13} {:>14.1} {:>10} {:>11.1} {:>13.1} {:>13.1}  {:<8} {}",
                of.total(),
                row.host.durations.total(),
                of.count(),
                of.mean(),
                of.median(),
                of.min(),
                of.max(),
                row.projected.deviation(),
                row.operations,
                row.operations as f64 / of.count().max(1) as f64,
                row.mean_level,
                row.mean_children,
                style_name(row.style),
                shortened(&row.name(), NAME_WIDTH),
            );
        }
    }

    fn kernel_table(&self, out: &mut Page) {
        if self.rows.iter().all(|row| row.kernels.is_empty()) {
            return;
        }
        let _ = writeln!(
            out,
            "\n** nvtx_kern_sum\n{:>9} {:>9} {:>15} {:>11} {:>11} {:>11} {:>11}  Style    NVTX Range / Kernel Name",
            "NVTX Inst", "Kern Inst", "Total Time (ns)", "Avg (ns)", "Med (ns)", "Min (ns)", "Max (ns)"
        );
        for row in &self.rows {
            for (kernel, of) in &row.kernels {
                let _ = writeln!(
                    out,
                    "{:>9} {:>9} {:>15} {:>11} {:>11} {:>11} {:>11}  {:<8} {} / {}",
                    row.projected.durations.count(),
                    of.count(),
                    of.total(),
                    of.mean(),
                    of.median(),
                    of.min(),
                    of.max(),
                    style_name(row.style),
                    shortened(&row.name(), 40),
                    shortened(kernel, NAME_WIDTH),
                );
            }
        }
    }

    fn idle_table(&self, out: &mut Page) {
        if self.rows.iter().all(|row| row.idle_ns() == 0) {
            return;
        }
        let _ = writeln!(out, "\n** idle GPU time in ranges\n{:>15} {:>15}  range: causes", "Busy (ns)", "Idle (ns)");
        for row in self.rows.iter().filter(|row| row.idle_ns() > 0) {
            let parts: Vec<_> =
                row.causes().iter().take(4).map(|&(leaf, nanos)| format!("{} {nanos}", leaf.name())).collect();
            let name = shortened(&row.name(), NAME_WIDTH);
            let _ = writeln!(out, "{:>15} {:>15}  {name}: {}", row.device_ns, row.idle_ns(), parts.join(", "));
        }
    }
}

impl RangeRow {
    fn sentence(&self) -> String {
        let (host, projected) = (&self.host.durations, &self.projected.durations);
        let name = shortened(&self.name(), NAME_WIDTH);
        let mut text =
            format!("{name}: {}, median {} on the CPU", counted(host.count(), "time"), duration(host.median()));
        if projected.count() > 0 {
            let _ = write!(text, " and {} on the GPU", duration(projected.median()));
        }
        if let Some(&(leaf, nanos)) = self.causes().first() {
            let each = |total: u64| duration(total / (host.count().max(1)));
            let (idle, cause) = (each(self.idle_ns()), words::cause(leaf));
            let _ = write!(text, "; GPU idle in it for {idle} on average, most of it {cause} ({})", each(nanos));
        }
        text
    }
}

fn host_table(out: &mut Page, title: &str, rows: &[&RangeRow], with_style: bool) {
    if rows.is_empty() {
        return;
    }
    let all = rows.iter().map(|row| row.host.durations.total()).fold(0, u64::saturating_add);
    let _ = writeln!(
        out,
        "\n** {title}\n{:>8} {:>15} {:>9} {:>13} {:>13} {:>13} {:>13} {:>14}  {}Range",
        "Time (%)",
        "Total Time (ns)",
        "Instances",
        "Avg (ns)",
        "Med (ns)",
        "Min (ns)",
        "Max (ns)",
        "StdDev (ns)",
        if with_style { "Style    " } else { "" },
    );
    for row in rows {
        let of = &row.host.durations;
        let style = if with_style { format!("{:<8} ", style_name(row.style)) } else { String::new() };
        let _ = writeln!(
            out,
            "{:>8.1} {:>15} {:>9} {:>13} {:>13} {:>13} {:>13} {:>14.1}  {style}{}",
            of.total() as f64 / all.max(1) as f64 * 100.0,
            of.total(),
            of.count(),
            of.mean(),
            of.median(),
            of.min(),
            of.max(),
            row.host.deviation(),
            shortened(&row.name(), NAME_WIDTH),
        );
    }
}

/// Nsight Systems' name of the style.
fn style_name(style: RangeStyle) -> &'static str {
    match style {
        RangeStyle::PushPop => "PushPop",
        RangeStyle::StartEnd => "StartEnd",
    }
}
