//! Ranges in the long report, and their tables, which have the columns of the reports of these names in Nsight Systems
//! (`nsys stats`).

use std::fmt::Write;

use profiler_core::attribution::RangeStyle;
use profiler_core::sorting::SortRows as _;

use crate::run::{RangeRow, RangesReport};
use crate::text_format::table::Table;
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
            rows.sort_rows_by_key(|row| std::cmp::Reverse(row.host.durations.total()));
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
        let mut table = Table::new(
            "Total Proj (ns):15|Total Range (ns):16|Instances:9|Proj Avg (ns):13|Proj Med (ns):13|Proj Min (ns):13|\
             Proj Max (ns):13|Proj StdDev:14|Total Ops:10|Avg GPU Ops:11|Avg Range Lvl:13|Avg Num Child:13|Style:<8|Range",
        );
        for row in self.rows.iter().filter(|row| row.operations > 0) {
            let of = &row.projected.durations;
            let (total, count, operations) = (of.total(), of.count(), row.operations);
            let means = [operations as f64 / count.max(1) as f64, row.mean_level, row.mean_children];
            let [operations_each, level, children] = means.map(|mean| format!("{mean:.1}"));
            table.row(&[
                &total,
                &row.host.durations.total(),
                &count,
                &of.mean(),
                &of.median(),
                &of.min(),
                &of.max(),
                &format!("{:.1}", row.projected.deviation()),
                &operations,
                &operations_each,
                &level,
                &children,
                &style_name(row.style),
                &shortened(&row.name(), NAME_WIDTH),
            ]);
        }
        table.write(out, "\n** nvtx_gpu_proj_sum\n");
    }

    fn kernel_table(&self, out: &mut Page) {
        let mut table = Table::new(
            "NVTX Inst:9|Kern Inst:9|Total Time (ns):15|Avg (ns):11|Med (ns):11|Min (ns):11|Max (ns):11|Style:<8|\
             NVTX Range / Kernel Name",
        );
        for row in &self.rows {
            let (instances, style) = (row.projected.durations.count(), style_name(row.style));
            for (kernel, of) in &row.kernels {
                let name = format!("{} / {}", shortened(&row.name(), 40), shortened(kernel, NAME_WIDTH));
                let [total, mean, median, min, max] = [of.total(), of.mean(), of.median(), of.min(), of.max()];
                table.row(&[&instances, &of.count(), &total, &mean, &median, &min, &max, &style, &name]);
            }
        }
        table.write(out, "\n** nvtx_kern_sum\n");
    }

    fn idle_table(&self, out: &mut Page) {
        let mut table = Table::new("Busy (ns):15|Idle (ns):15|range: causes");
        for row in self.rows.iter().filter(|row| row.idle_ns() > 0) {
            let parts: Vec<_> =
                row.causes().iter().take(4).map(|&(leaf, nanos)| format!("{} {nanos}", leaf.name())).collect();
            let causes = format!("{}: {}", shortened(&row.name(), NAME_WIDTH), parts.join(", "));
            table.row(&[&row.device_ns, &row.idle_ns(), &causes]);
        }
        table.write(out, "\n** idle GPU time in ranges\n");
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
    let all = rows.iter().map(|row| row.host.durations.total()).fold(0, u64::saturating_add);
    let style = if with_style { "Style    " } else { "" };
    let mut table = Table::new(&format!(
        "Time (%):8|Total Time (ns):15|Instances:9|Avg (ns):13|Med (ns):13|Min (ns):13|Max (ns):13|StdDev (ns):14|{style}Range"
    ));
    for row in rows {
        let of = &row.host.durations;
        let [total, count, mean, median, min, max] =
            [of.total(), of.count(), of.mean(), of.median(), of.min(), of.max()];
        let share = format!("{:.1}", total as f64 / all.max(1) as f64 * 100.0);
        let deviation = format!("{:.1}", row.host.deviation());
        let (style, name) = (style_name(row.style), shortened(&row.name(), NAME_WIDTH));
        let name = if with_style { format!("{style:<8} {name}") } else { name };
        table.row(&[&share, &total, &count, &mean, &median, &min, &max, &deviation, &name]);
    }
    table.write(out, &format!("\n** {title}\n"));
}

/// Nsight Systems' name of the style.
fn style_name(style: RangeStyle) -> &'static str {
    match style {
        RangeStyle::PushPop => "PushPop",
        RangeStyle::StartEnd => "StartEnd",
    }
}
