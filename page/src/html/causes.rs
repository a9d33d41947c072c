//! Time of each device by cause, as bars and tables that sum to its window, and its steps as a strip.

use std::fmt::Write as _;

use gpuwhy_report::run::{DeviceReport, Report};
use gpuwhy_report::text_format::duration;
use gpuwhy_report::words;
use profiler_core::leaf::{Cause, Leaf};

use super::palette::{ROWS, bar};
use super::table::{Table, marked};
use crate::escape::escaped;

/// Maximum number of steps in the strip, the newest.
const STEPS: usize = 64;
/// Maximum number of devices with a separate bar.
const DEVICES: usize = 64;

pub(super) fn write(page: &mut String, report: &Report) {
    for device in report.devices.iter().take(DEVICES) {
        let _ = writeln!(
            page,
            "<section><h2>Where the time of GPU {} {} went</h2>",
            device.device.id,
            escaped(&device.device.name)
        );
        let label = format!("Time of GPU {} by cause", device.device.id);
        bar(page, &device.leaves, device.leaves.iter().sum(), &label);
        leaf_table(page, device);
        steps(page, device);
        gaps(page, device);
        page.push_str("</section>\n");
    }
    if report.devices.is_empty() {
        page.push_str("<section><h2>Where the time went</h2><p>No GPU work was recorded.</p></section>\n");
    }
}

fn leaf_table(page: &mut String, device: &DeviceReport) {
    let mut table = Table::new("Cause:html|Cause|Time:n|Share:n|After start-up:n");
    let mut rows: Vec<Leaf> = Leaf::ALL.into_iter().filter(|&leaf| device.leaves[leaf as usize] > 0).collect();
    rows.sort_by_key(|&leaf| std::cmp::Reverse(device.leaves[leaf as usize]));
    for leaf in rows {
        let [nanos, steady] = [&device.leaves, &device.steady_leaves].map(|leaves| leaves[leaf as usize]);
        let share = format!("{:.1} %", nanos as f64 / device.window_ns.max(1) as f64 * 100.0);
        let cause = marked(leaf.cause(), words::bottleneck(leaf.cause()));
        table.row(&[&cause, &words::cause(leaf), &duration(nanos), &share, &duration(steady)]);
    }
    let sum = format!(
        "<tfoot><tr><th colspan=\"2\">Whole window</th><td class=\"n\">{}</td><td class=\"n\">100 %</td>\
         <td class=\"n\">{}</td></tr></tfoot></table>\n",
        duration(device.window_ns),
        duration(device.steady_leaves.iter().sum()),
    );
    table.write(page, "<table><caption>Time by cause; the rows sum to the whole</caption>", &sum);
}

/// Appends the newest steps as stacked columns.
fn steps(page: &mut String, device: &DeviceReport) {
    let Some(steps) = &device.steps else { return };
    let rows = &steps.rows[steps.rows.len().saturating_sub(STEPS)..];
    let Some(longest) = rows.iter().map(|row| row.duration()).max().filter(|&longest| longest > 0) else { return };
    let _ = write!(
        page,
        "<h3>Steps</h3><p>{} steps, median {}. The newest {}, each a column by cause:</p>\
         <svg class=\"steps\" viewBox=\"0 0 {} 100\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"Steps by cause\">",
        steps.seen,
        duration(steps.duration_percentile(50)),
        rows.len(),
        rows.len() * 10,
    );
    for (index, row) in rows.iter().enumerate() {
        let mut top = 100.0;
        for cause in Cause::ALL {
            let nanos = cause.total(&row.leaves);
            let height = nanos as f64 / longest as f64 * 100.0;
            top -= height;
            if nanos > 0 {
                let _ = write!(
                    page,
                    "<rect x=\"{}\" y=\"{top:.2}\" width=\"9\" height=\"{height:.2}\" class=\"f-{}\"><title>step: \
                     {}; {}: {}</title></rect>",
                    index * 10,
                    cause.name(),
                    duration(row.duration()),
                    words::bottleneck(cause),
                    duration(nanos),
                );
            }
        }
    }
    page.push_str("</svg>\n");
}

/// Appends the subjects of idle time.
fn gaps(page: &mut String, device: &DeviceReport) {
    if device.gaps.is_empty() {
        return;
    }
    let mut table = Table::new("Cause|Waits for:name|Gaps:n|Time:n|Longest:n");
    for row in device.gaps.iter().take(ROWS) {
        let subject = format!("{} {}", row.subject.kind().replace('_', " "), row.subject.name().unwrap_or_default());
        let [time, longest] = [row.totals.total_ns, row.totals.longest_ns].map(duration);
        table.row(&[&words::cause(row.leaf), &subject, &row.totals.count, &time, &longest]);
    }
    table.write(page, "<table><caption>Idle time after start-up by subject</caption>", "</table>\n");
}
