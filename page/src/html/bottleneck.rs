//! The bottleneck with its evidence and advice, and the basis of the report.

use std::fmt::Write as _;

use gpuwhy_report::run::Report;
use gpuwhy_report::text_format::duration;

use crate::escape::escaped;

/// Appends the measured process, the bottleneck in a few words, and the first change with its gain.
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
    let _ = writeln!(page, "<h1>{}</h1>", escaped(&report.headline()));
    let _ = writeln!(page, "<p class=\"advice\"><b>What to do:</b> {}</p>", escaped(&bottleneck.recommendation));
    if let Some(row) = report.first_source() {
        let _ = writeln!(page, "<pre>{} | {}</pre>", row.line, escaped(&row.text));
    }
    if let Some(gain) = report.gain() {
        let _ = writeln!(page, "<p class=\"advice\">{}</p>", escaped(&gain));
    }
    for sentence in report.not_recorded() {
        let _ = writeln!(page, "<p>{}</p>", escaped(&sentence));
    }
    page.push_str("</header>\n");
}

/// Appends why this is the bottleneck, and what else can be changed.
pub(super) fn evidence(page: &mut String, report: &Report) {
    let bottleneck = &report.bottleneck;
    let _ = writeln!(page, "<section id=\"evidence\"><h2>Why</h2>\n<p>{}</p>", escaped(&report.conclusion()));
    let left_out = report.left_out();
    list(page, "evidence", bottleneck.evidence.iter().skip(1).map(String::as_str).chain(left_out.as_deref()));
    let (further, next) = (bottleneck.further_remedies(), bottleneck.next_fixes());
    let further = further.iter().map(|sentence| ("Also: ", sentence));
    let further: Vec<String> = further
        .chain(next.iter().map(|sentence| ("Next: ", sentence)))
        .map(|(lead, of)| format!("{lead}{of}"))
        .collect();
    list(page, "plan", further.iter().map(String::as_str));
    page.push_str("</section>\n");
}

/// Appends a list; nothing for none.
fn list<'a>(page: &mut String, class: &str, sentences: impl Iterator<Item = &'a str>) {
    let rows: String = sentences.map(|sentence| format!("<li>{}</li>\n", escaped(sentence))).collect();
    if !rows.is_empty() {
        let _ = writeln!(page, "<ul class=\"{class}\">\n{rows}</ul>");
    }
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
