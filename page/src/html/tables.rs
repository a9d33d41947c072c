//! Tables of kernels, copies, calls, and the source lines responsible for idle time. The largest rows; the
//! text has more.

use std::fmt::Write as _;

use gpuwhy_report::run::{KernelLines, Report};
use gpuwhy_report::text_format::{bytes, duration};
use gpuwhy_report::words;

use super::palette::ROWS;
use crate::escape::escaped;
use crate::sources::Excerpt;

pub(super) fn write(page: &mut String, report: &Report) {
    kernels(page, report);
    graphs(page, report);
    copies(page, report);
    calls(page, report);
    lines(page, report);
    call_lines(page, report);
    best_cases(page, report);
}

fn head(page: &mut String, title: &str, columns: &[&str]) {
    let _ = write!(page, "<section><h2>{title}</h2><table><thead><tr>");
    for (index, column) in columns.iter().enumerate() {
        let class = if index == 0 { "" } else { " class=\"n\"" };
        let _ = write!(page, "<th{class}>{column}</th>");
    }
    page.push_str("</tr></thead><tbody>\n");
}

fn row(page: &mut String, name: &str, cells: &[String]) {
    let _ = write!(page, "<tr><td class=\"name\">{}</td>", escaped(name));
    for cell in cells {
        let _ = write!(page, "<td class=\"n\">{}</td>", escaped(cell));
    }
    page.push_str("</tr>\n");
}

const END: &str = "</tbody></table></section>\n";

fn kernels(page: &mut String, report: &Report) {
    for device in report.devices.iter().filter(|device| !device.kernels.is_empty()).take(8) {
        let title = format!("Kernels of GPU {}: {} names", device.device.id, device.kernels.len());
        head(page, &title, &["Kernel", "After start-up", "Share", "Count", "Whole run", "Mean", "Longest"]);
        let all = device.kernels.iter().map(|kernel| kernel.steady.1).sum::<u64>().max(1);
        for kernel in device.kernels.iter().take(ROWS) {
            let durations = &kernel.durations;
            let share = format!("{:.1} %", kernel.steady.1 as f64 / all as f64 * 100.0);
            let mean = durations.total() / durations.count().max(1);
            let count = durations.count().to_string();
            row(
                page,
                &kernel.name,
                &[
                    duration(kernel.steady.1),
                    share,
                    count,
                    duration(durations.total()),
                    duration(mean),
                    duration(durations.max()),
                ],
            );
        }
        page.push_str(END);
    }
}

fn graphs(page: &mut String, report: &Report) {
    let Some(origins) = &report.graph_origins else { return };
    head(page, "Work of CUDA graphs by module", &["Captured in", "Operations", "Time", "Share"]);
    let all = origins.all().total_ns.max(1);
    for (work, _, name) in origins.parts(ROWS) {
        let share = format!("{:.1} %", work.total_ns as f64 / all as f64 * 100.0);
        row(page, &name, &[work.count.to_string(), duration(work.total_ns), share]);
    }
    page.push_str(END);
}

fn copies(page: &mut String, report: &Report) {
    if report.devices.iter().all(|device| device.copies.is_empty()) {
        return;
    }
    head(page, "Copies", &["Copies", "Count", "Bytes", "Time", "GB/s"]);
    for device in &report.devices {
        for copy in device.copies.iter().take(ROWS) {
            let count = copy.durations.count();
            let name = format!("GPU {}: {}", device.device.id, words::copies(copy.path, count));
            let rate = format!("{:.2}", copy.gigabytes_per_second());
            row(page, &name, &[count.to_string(), bytes(copy.bytes), duration(copy.durations.total()), rate]);
        }
    }
    page.push_str(END);
}

fn calls(page: &mut String, report: &Report) {
    if report.api.is_empty() {
        return;
    }
    head(page, "CUDA calls", &["Function", "Calls", "Failed", "Time", "Longest"]);
    for call in report.api.iter().take(ROWS) {
        let times = [call.total_ns, call.max_ns].map(duration);
        let [total, longest] = times;
        row(page, &call.name, &[call.calls.to_string(), call.failed.to_string(), total, longest]);
    }
    page.push_str(END);
}

fn lines(page: &mut String, report: &Report) {
    let Some(host) = report.host.as_ref().filter(|host| !host.lines.is_empty()) else { return };
    head(page, "Lines of code during which the GPU was idle", &["Line", "Doing", "Idle time", "Share"]);
    for line in host.lines.iter().take(ROWS) {
        let share = format!("{:.1} %", line.share * 100.0);
        row(page, &line.place(), &[words::activity(line.cause).to_owned(), duration(line.total_ns), share]);
    }
    page.push_str(END);
}

/// Appends the lines that launch, copy, wait and allocate, and the kernel time by launching line.
fn call_lines(page: &mut String, report: &Report) {
    if let Some(host) = report.host.as_ref().filter(|host| !host.calls.is_empty()) {
        head(
            page,
            "Lines of CUDA calls after start-up, by samples",
            &["Line", "Calls", "Share of such calls", "Samples"],
        );
        for line in &host.calls {
            let share = format!("{:.0} %", line.share * 100.0);
            row(page, &line.place(), &[line.calls.name().to_owned(), share, line.samples.to_string()]);
        }
        page.push_str(END);
    }
    if let Some(why) = report.kernel_lines.as_ref().and_then(KernelLines::left_out) {
        let _ = writeln!(page, "<h3>Kernel time by launching line</h3><p>{}</p>", escaped(&why));
    } else if let Some(lines) = report.kernel_lines.as_ref().filter(|lines| !lines.lines.is_empty()) {
        head(page, "Kernel time by launching line, an estimate", &["Line", "Time", "Share (95 % interval)", "Samples"]);
        for line in lines.lines.iter().take(ROWS) {
            let [low, high] =
                [line.time.low_ns, line.time.high_ns].map(|nanos| nanos / lines.kernel_ns.max(1) as f64 * 100.0);
            let share = format!("{:.1} % ({low:.1} to {high:.1})", line.share * 100.0);
            let time = duration(line.time.total_ns.round() as u64);
            row(page, &line.place.text(), &[time, share, line.time.samples.to_string()]);
        }
        page.push_str(END);
    }
}

/// Appends source lines around those that the report names.
pub(super) fn sources(page: &mut String, excerpts: &[Excerpt]) {
    if excerpts.is_empty() {
        return;
    }
    page.push_str("<section><h2>Source code</h2>\n");
    for excerpt in excerpts {
        let _ = write!(page, "<h3>{}:{}</h3><pre>", escaped(&excerpt.file), excerpt.line);
        for (number, row) in (excerpt.first..).zip(&excerpt.text) {
            let mark = if number == excerpt.line { '>' } else { ' ' };
            let _ = writeln!(page, "{}{number:>6}  {}", escaped(&mark.to_string()), escaped(row));
        }
        page.push_str("</pre>\n");
    }
    page.push_str("</section>\n");
}

fn best_cases(page: &mut String, report: &Report) {
    for device in &report.devices {
        let Some(what_if) = &device.what_if else { continue };
        let shown = words::worth_showing(what_if);
        if shown.is_empty() && what_if.refused.is_none() {
            continue;
        }
        let title = format!("What could be gained at most, GPU {}", device.device.id);
        head(page, &title, &["If", "A step then takes", "Best case"]);
        for best_case in shown {
            let gain = words::faster(best_case.speedup, best_case.interval);
            row(page, words::condition(best_case.kind), &[duration(best_case.step_ns), gain]);
        }
        page.push_str("</tbody></table>\n");
        if let Some(refused) = &what_if.refused {
            let _ = writeln!(page, "<p>The simulation is not used: {}</p>", escaped(&words::not_simulated(*refused)));
        }
        page.push_str("</section>\n");
    }
}
