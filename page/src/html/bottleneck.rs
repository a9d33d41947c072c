//! The bottleneck with its evidence and advice, and the basis of the report.

use std::fmt::Write as _;

use gpuwhy_report::run::Report;
use gpuwhy_report::text_format::duration;
use gpuwhy_report::words;
use profiler_core::leaf::Cause;

use crate::escape::escaped;

/// Appends the measured process and the conclusion.
pub(super) fn write(page: &mut String, report: &Report) {
    let process = &report.process;
    let missing = report.missing();
    let devices: Vec<&str> = report.devices.iter().map(|device| device.device.name.as_str()).collect();
    let (class, badge) = match missing.len() + report.completeness.damage.len() {
        0 => ("complete", "complete".to_owned()),
        count => ("incomplete", format!("incomplete: {count} {}", if count == 1 { "note" } else { "notes" })),
    };
    let _ = writeln!(
        page,
        "<header>\n<p class=\"run\"><span>{command}</span> <span>{devices}</span> <span>{observed}</span> \
         <a class=\"badge {class}\" href=\"#completeness\">{badge}</a></p>",
        command = escaped(&process.command.join(" ")),
        devices = escaped(&devices.join(", ")),
        observed = duration(report.shown_ns()),
    );
    let bottleneck = &report.bottleneck;
    let _ = writeln!(page, "<h1>{}</h1>", escaped(&report.conclusion()));
    if bottleneck.evidence.len() > 1 {
        page.push_str("<ul class=\"evidence\">\n");
        for sentence in bottleneck.evidence.iter().skip(1) {
            let _ = writeln!(page, "<li>{}</li>", escaped(sentence));
        }
        if let Some(sentence) = report.left_out() {
            let _ = writeln!(page, "<li>{}</li>", escaped(&sentence));
        }
        page.push_str("</ul>\n");
    }
    for sentence in report.not_recorded() {
        let _ = writeln!(page, "<p>{}</p>", escaped(&sentence));
    }
    let further = bottleneck.further_remedies();
    let first = if further.is_empty() { "" } else { "1. " };
    let _ = writeln!(page, "<p class=\"advice\"><b>What to do:</b> {first}{}</p>", escaped(&bottleneck.recommendation));
    if let Some(row) = report.first_source() {
        let _ = writeln!(page, "<pre>{} | {}</pre>", row.line, escaped(&row.text));
    }
    if !further.is_empty() {
        page.push_str("<ol class=\"plan\" start=\"2\">\n");
        for sentence in &further {
            let _ = writeln!(page, "<li>{}</li>", escaped(sentence));
        }
        page.push_str("</ol>\n");
    }
    if !bottleneck.plan.is_empty() {
        page.push_str("<ul class=\"plan\">\n");
        for (index, step) in bottleneck.plan.iter().enumerate() {
            let because = step.because.map(|because| format!(" ({because})")).unwrap_or_default();
            let then = step.then.filter(|cause| *cause != Cause::CannotTell);
            let then = then.map(|cause| format!(" Then the bottleneck is {}.", words::bottleneck(cause)));
            let _ = writeln!(
                page,
                "<li>Fix {}: {}{}: {}.{}</li>",
                index + 1,
                escaped(&words::capitalized(&step.action)),
                escaped(&because),
                step.gain(index == 0),
                then.unwrap_or_default(),
            );
        }
        page.push_str("</ul>\n");
    }
    page.push_str("</header>\n");
}

/// Appends missing or doubtful data, of the trace and of this page.
pub(super) fn completeness(page: &mut String, report: &Report, left_out: &[String]) {
    page.push_str("<section id=\"completeness\"><h2>Completeness</h2>\n");
    let missing = report.missing();
    let damage = &report.completeness.damage;
    if missing.is_empty() && damage.is_empty() {
        page.push_str("<p>Nothing is missing from the trace.</p>\n");
    }
    page.push_str("<ul>\n");
    for sentence in missing.iter().chain(damage).chain(left_out).chain(&report.process.notes) {
        let _ = writeln!(page, "<li>{}</li>", escaped(sentence));
    }
    page.push_str("</ul>\n<table><caption>Records</caption><tbody>\n");
    let from = &report.completeness;
    for (name, count) in [
        ("kernels", from.kernels),
        ("copies", from.copies),
        ("memsets", from.memsets),
        ("CUDA calls", from.api_calls),
        ("synchronizations", from.syncs),
        ("range events", from.ranges),
        ("host samples", from.samples),
        ("memory events", from.memory_events),
    ] {
        if count > 0 {
            let _ = writeln!(page, "<tr><th>{name}</th><td>{count}</td></tr>");
        }
    }
    page.push_str("</tbody></table></section>\n");
}
