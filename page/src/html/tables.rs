//! Tables of kernels, copies, calls, and the source lines responsible for idle time. The largest rows; the
//! text has more.

use std::fmt::Write as _;

use gpuwhy_report::run::Report;
use gpuwhy_report::text_format::{bytes, duration};
use gpuwhy_report::words;

use super::palette::ROWS;
use super::table::Table;
use crate::escape::escaped;
use crate::sources::Excerpt;

pub(super) fn write(page: &mut String, report: &Report) {
    kernels(page, report);
    operators(page, report);
    graphs(page, report);
    copies(page, report);
    calls(page, report);
    lines(page, report);
    call_lines(page, report);
    best_cases(page, report);
}

fn kernels(page: &mut String, report: &Report) {
    for device in report.devices.iter().filter(|device| !device.kernels.is_empty()).take(8) {
        let mut table = Table::new("Kernel:name|After start-up:n|Share:n|Count:n|Whole run:n|Mean:n|Longest:n");
        let all = device.kernels.iter().map(|kernel| kernel.steady.1).sum::<u64>().max(1);
        for kernel in device.kernels.iter().take(ROWS) {
            let (durations, steady) = (&kernel.durations, kernel.steady.1);
            let share = share(steady as f64 / all as f64);
            let [steady, total, mean, longest] =
                [steady, durations.total(), durations.total() / durations.count().max(1), durations.max()]
                    .map(duration);
            table.row(&[&kernel.name, &steady, &share, &durations.count(), &total, &mean, &longest]);
        }
        table.write_section(page, &format!("Kernels of GPU {}: {} names", device.device.id, device.kernels.len()));
    }
}

fn operators(page: &mut String, report: &Report) {
    let Some(operators) = &report.operators else { return };
    let mut table = Table::new(
        "Operator:name|Calls:n|CPU self:n|CPU total:n|GPU self:n|Share:n|GPU total:n|Memory:n|GFLOP:n|Peak:n",
    );
    for row in operators.rows.iter().take(ROWS) {
        let [own_host, host, own_device, device] =
            [row.own_host_ns, row.host_ns, row.own_device_ns, row.device_ns].map(duration);
        let part = share(row.own_device_ns as f64 / operators.device_ns.max(1) as f64);
        let flops = row.gflop().unwrap_or_default();
        let peak = row.peak_share.map_or_else(String::new, share);
        let memory = row.memory().unwrap_or_default();
        table.row(&[&row.label(), &row.calls, &own_host, &host, &own_device, &part, &device, &memory, &flops, &peak]);
    }
    table.write_section(page, &format!("Operators: {}", operators.rows.len()));
}

fn share(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn graphs(page: &mut String, report: &Report) {
    let Some(origins) = &report.graph_origins else { return };
    let mut table = Table::new("Captured in:name|Operations:n|Time:n|Share:n");
    let all = origins.all().total_ns.max(1);
    for (work, _, name) in origins.parts(ROWS) {
        table.row(&[&name, &work.count, &duration(work.total_ns), &share(work.total_ns as f64 / all as f64)]);
    }
    table.write_section(page, "Work of CUDA graphs by module");
}

fn copies(page: &mut String, report: &Report) {
    let mut table = Table::new("Copies:name|Count:n|Bytes:n|Time:n|GB/s:n");
    for device in &report.devices {
        for copy in device.copies.iter().take(ROWS) {
            let count = copy.durations.count();
            let name = format!("GPU {}: {}", device.device.id, words::copies(copy.path, count));
            let rate = format!("{:.2}", copy.gigabytes_per_second());
            table.row(&[&name, &count, &bytes(copy.bytes), &duration(copy.durations.total()), &rate]);
        }
    }
    table.write_section(page, "Copies");
}

fn calls(page: &mut String, report: &Report) {
    let mut table = Table::new("Function:name|Calls:n|Failed:n|Time:n|Longest:n");
    for call in report.api.iter().take(ROWS) {
        table.row(&[&call.name, &call.calls, &call.failed, &duration(call.total_ns), &duration(call.max_ns)]);
    }
    table.write_section(page, "CUDA calls");
}

fn lines(page: &mut String, report: &Report) {
    let mut table = Table::new("Line:name|Doing:n|Idle time:n|Share:n");
    for line in report.host.iter().flat_map(|host| &host.lines).take(ROWS) {
        let doing = words::activity(line.cause);
        table.row(&[&line.place(), &doing, &duration(line.total_ns), &share(line.share)]);
    }
    table.write_section(page, "Lines of code during which the GPU was idle");
}

/// Appends the lines that launch, copy, wait and allocate, and the kernel time by launching line.
fn call_lines(page: &mut String, report: &Report) {
    let mut table = Table::new("Line:name|Calls:n|Share of such calls:n|Samples:n");
    for line in report.host.iter().flat_map(|host| &host.calls) {
        let share = format!("{:.0} %", line.share * 100.0);
        table.row(&[&line.place(), &line.calls.name(), &share, &line.samples]);
    }
    table.write_section(page, "Lines of CUDA calls after start-up, by samples");
    let Some(lines) = &report.kernel_lines else { return };
    if let Some(why) = lines.left_out() {
        let _ = writeln!(page, "<h3>Kernel time by launching line</h3><p>{}</p>", escaped(&why));
        return;
    }
    let mut table = Table::new("Line:name|Time:n|Share (95 % interval):n|Samples:n");
    for line in lines.lines.iter().take(ROWS) {
        let [low, high] =
            [line.time.low_ns, line.time.high_ns].map(|nanos| nanos / lines.kernel_ns.max(1) as f64 * 100.0);
        let share = format!("{} ({low:.1} to {high:.1})", share(line.share));
        let time = duration(line.time.total_ns.round() as u64);
        table.row(&[&line.place.text(), &time, &share, &line.time.samples]);
    }
    table.write_section(page, "Kernel time by launching line, an estimate");
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
        let mut table = Table::new("If:name|A step then takes:n|Best case:n");
        for best_case in shown {
            let gain = words::faster(best_case.speedup, best_case.interval);
            table.row(&[&words::condition(best_case.kind), &duration(best_case.step_ns), &gain]);
        }
        let id = device.device.id;
        let before = format!("<section><h2>What could be gained at most, GPU {id}</h2><table>");
        table.write(page, &before, "</table>\n");
        if let Some(refused) = &what_if.refused {
            let _ = writeln!(page, "<p>The simulation is not used: {}</p>", escaped(&words::not_simulated(*refused)));
        }
        page.push_str("</section>\n");
    }
}
