//! The report as static HTML: readable without scripts, and on paper.

mod bottleneck;
mod causes;
mod diff;
mod palette;
mod ranks;
mod step_operations;
mod table;
mod tables;

use std::io::{self, Write};

use gpuwhy_report::run::Report;
use gpuwhy_report::text_format::Style;

use crate::escape::escaped;
use crate::sources::Excerpt;

pub(crate) use self::diff::diff;
pub(crate) use self::palette::mark;
use self::palette::{ROWS, patterns};
pub(crate) use self::ranks::ranks;

/// The page's own script and style with their SHA-256, as Base64.
const SCRIPT: &str = include_str!("../../assets/page.js");
const STYLE: &str = include_str!("../../assets/page.css");
const SCRIPT_HASH: &str = include_str!("../../assets/page.js.sha256");
const STYLE_HASH: &str = include_str!("../../assets/page.css.sha256");

/// Writes everything before the data: the head, and `body`, which is shown if no script runs.
pub(crate) fn begin(out: &mut dyn Write, title: &str, body: &str) -> io::Result<()> {
    // The policy allows no source of network requests, so the page cannot make any.
    writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         script-src 'sha256-{script}'; style-src 'sha256-{style}'; img-src data: blob:; base-uri 'none'; \
         form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{patterns}\n{body}",
        script = SCRIPT_HASH.trim_end(),
        style = STYLE_HASH.trim_end(),
        title = escaped(title),
        patterns = patterns(),
    )
}

/// Writes everything after the data.
pub(crate) fn end(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "<script>{SCRIPT}</script>\n</body>\n</html>")
}

/// Writes a page without script and data.
pub(crate) fn whole(out: &mut dyn Write, title: &str, body: &str) -> io::Result<()> {
    begin(out, title, body)?;
    writeln!(out, "</body>\n</html>")
}

/// Renders the report about one run.
pub(crate) fn report(report: &Report, left_out: &[String], sources: &[Excerpt]) -> String {
    let mut page = String::new();
    bottleneck::write(&mut page, report);
    page.push_str("<main>\n<div id=\"app\"></div>\n");
    bottleneck::evidence(&mut page, report);
    page.push_str("<div id=\"answer\">\n");
    causes::write(&mut page, report);
    tables::write(&mut page, report);
    tables::sources(&mut page, sources);
    bottleneck::completeness(&mut page, report, left_out);
    let text = report.full_within(ROWS, Style::default()) + &report.range_tables();
    let lines: Vec<String> = text.lines().map(escaped).collect();
    page.push_str("<section class=\"raw\"><h2>The report as text</h2>\n<pre>");
    page.push_str(&lines.join("\n"));
    page.push_str("</pre></section>\n</div>\n</main>\n");
    page
}
