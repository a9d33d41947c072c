//! `gpuwhy report`: prints reports of traces.
//!
//! Opening a trace and wording its report are library code ([`gpuwhy::open`], [`gpuwhy::Report`]); this
//! module only sets the order of files, streams and exit codes.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use gpuwhy::Report;
use gpuwhy_import::{Input, OpenError, Request};
use gpuwhy_page::Options;
use gpuwhy_report::history::Measured;
use gpuwhy_report::run::operators::OperatorsBy;
use gpuwhy_report::text_format::{Style, printable};
use serde_json::{Map, Value, json};

use crate::args::report::ReportArgs;
use crate::{explain, history, inputs, message, page, progress, terminal};

/// Exit code when a report was made from an incomplete trace.
const DAMAGED: u8 = 1;
/// Exit code when a trace could not be read.
pub const UNREADABLE: u8 = 2;

/// Rows of operators without --full and --top.
const OPERATORS: usize = 20;

/// Report stored in the trace of a long run, if it matches the request and knows all gains that were `measured` since.
/// Reading the complete file reports any damage.
fn kept(args: &ReportArgs, input: &Input, measured: &[Measured]) -> Option<String> {
    // The stored report has the default width and no color.
    if terminal::style().width < Style::default().width
        || args.recompute
        || args.top.is_some()
        || window(args).is_some()
        || args.json
        || args.history
        || args.price.is_some()
        || args.capture.is_some()
        || args.pid.is_some()
        || args.operators.is_some()
    {
        return None;
    }
    let answer = input.stored_report()?;
    if answer.gpuwhy_version != env!("CARGO_PKG_VERSION") {
        return None;
    }
    if !measured.is_empty() {
        let process = input.process()?;
        if measured.iter().any(|gain| gain.is_of(&process.command, &process.host)) {
            return None;
        }
    }
    let text = if args.full { answer.full } else { answer.summary };
    let text = if args.ranges { text + &answer.ranges } else { text };
    // The trace, and therefore its stored report, may come from an untrusted source.
    Some(text.lines().flat_map(|line| [printable(line), "\n".into()]).collect())
}

/// Prints the reports and returns the worst exit code. Files that cannot be read are reported on stderr, and
/// the others are printed. Fails when stdout cannot be written, or a folder has no traces.
pub fn run(args: &ReportArgs) -> Result<u8> {
    if let Some(words) = &args.explain {
        return explain::run(&words.join(" "));
    }
    let mut worst = 0;
    let measured = history::measured();
    let style = terminal::style();
    let files = inputs::expanded(&args.files)?;
    if let Some(to) = args.page.target(&args.files)? {
        let [file] = &files[..] else {
            bail!(
                "a page is about one trace, and {} are named; write a page for each of them, or \
                   that of the ranks of a job with `gpuwhy merge`",
                files.len()
            );
        };
        let options = Options { measured, ..args.page.options(args.capture) };
        let outcome = page::report(file, (args.pid, args.operators.unwrap_or_default()), &options, &to)?;
        return Ok(if outcome.damage.is_empty() && outcome.has_end { 0 } else { DAMAGED });
    }
    for file in &files {
        let input = Input::open(file);
        if let Some(text) = input.as_ref().ok().and_then(|input| kept(args, input, &measured)) {
            // Words and numbers of another version may differ from what --json and pages have.
            let why =
                "this is the report that gpuwhy stored at the end of the run; --recompute makes it from the records";
            message::say(&format!("{}: {why}", file.display()));
            let title = if files.len() > 1 { format!("== {}\n", file.display()) } else { String::new() };
            io::stdout().write_all((title + &text).as_bytes())?;
            continue;
        }
        match input.and_then(|input| report(input, args)) {
            Err(error) => {
                message::say(&format!("{error}{}", grouping(args, file)));
                worst = UNREADABLE;
            }
            Ok(mut report) => {
                report.apply_measured(&measured);
                if let Some(first) = report.completeness.damage.first() {
                    message::say(&format!("{}: damaged: {first}; reporting what can be read", file.display()));
                    worst = worst.max(DAMAGED);
                } else if report.missing_end().is_some() {
                    worst = worst.max(DAMAGED);
                }
                if let Some(wished) = args.capture.filter(|_| report.captures.shown != args.capture) {
                    message::say(&no_capture(&report, wished, file));
                    worst = worst.max(UNREADABLE);
                    continue;
                }
                if args.history {
                    history::add(&report, file);
                }
                let mut text = String::new();
                if args.json {
                    text.push_str(&json_line(&report, args)?);
                } else {
                    if files.len() > 1 {
                        writeln!(text, "== {}", file.display())?;
                    }
                    text.push_str(&match (args.top, args.full) {
                        (Some(kernels), _) => report.full_within(kernels, style),
                        (None, true) => report.full_within(usize::MAX, style),
                        (None, false) => report.summary_within(style),
                    });
                    if let Some((per_hour, unit)) = &args.price {
                        text.push_str(&report.price_text(*per_hour, unit, style));
                    }
                    if args.ranges {
                        text.push_str(&report.range_tables());
                    }
                    if let Some(operators) = &report.operators {
                        let rows = if args.full { usize::MAX } else { args.top.unwrap_or(OPERATORS) };
                        text.push_str(&operators.table(rows, style));
                    }
                }
                io::stdout().write_all(text.as_bytes())?;
            }
        }
    }
    Ok(worst)
}

/// What to write instead, if a missing file has the name of a grouping of operators: `--operators shapes`.
fn grouping(args: &ReportArgs, file: &Path) -> String {
    let is_grouping = |by: &OperatorsBy| file == Path::new(by.name()) && !file.exists();
    let meant = OperatorsBy::ALL.into_iter().find(is_grouping).filter(|_| args.operators.is_some());
    meant.map_or_else(String::new, |by| format!("; to group operators, write --operators={}", by.name()))
}

/// The report as a line of JSON. Without `--price`, the fields are in the order of the documentation.
fn json_line(report: &Report, args: &ReportArgs) -> Result<String> {
    let Some((per_hour, unit)) = &args.price else { return terminal::json(report) };
    let mut document = serde_json::to_value(report)?;
    document["price"] = price(report, *per_hour, unit);
    terminal::json(&document)
}

/// JSON value for `--price`.
fn price(report: &Report, per_hour: f64, unit: &str) -> Value {
    let priced = report.priced(per_hour);
    let causes: Map<_, _> = priced.causes.iter().map(|&(group, cost)| (group.name().to_owned(), cost.into())).collect();
    let fixes: Vec<_> = priced
        .fixes
        .iter()
        .map(|fix| json!({"action": fix.action, "saved_a_day": fix.a_day, "low": fix.interval.0, "high": fix.interval.1}))
        .collect();
    json!({"an_hour": per_hour, "unit": unit, "a_day": priced.a_day, "causes_a_day": causes, "fixes": fixes})
}

/// Error message for a missing capture `wished`, with a list of the existing captures.
pub fn no_capture(report: &Report, wished: u32, file: &Path) -> String {
    let file = file.display();
    match (report.captures.rows.first(), report.captures.rows.last()) {
        (Some(first), Some(last)) => {
            format!("{file}: there is no capture {wished}; the trace has captures {} to {}", first.number, last.number)
        }
        _ => format!("{file}: there is no capture {wished}: this run was measured as a whole"),
    }
}

/// Makes the requested report.
fn report(input: Input, args: &ReportArgs) -> Result<Report, OpenError> {
    progress::report(
        input,
        Request { pid: args.pid, capture: args.capture, window: window(args), operators: args.operators },
    )
}

/// The part of the run to report, relative to its start.
fn window(args: &ReportArgs) -> Option<(Duration, Duration)> {
    let is_asked_for = args.from.is_some() || args.to.is_some();
    is_asked_for.then(|| (args.from.unwrap_or(Duration::ZERO), args.to.unwrap_or(Duration::MAX)))
}
