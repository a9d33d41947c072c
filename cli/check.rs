//! `gpuwhy check`: checks traces against limits, or lists the [`history`].
//!
//! The rules are library code ([`gpuwhy::Expectations`]); this module sets the order of files, the output
//! formats and the exit codes.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use anyhow::{Result, bail};
use gpuwhy::{Judgment, Report};
use gpuwhy_compare::diff::alike;
use gpuwhy_import::{Input, Request};
use gpuwhy_report::text_format::{markdown, printable};
use serde::Serialize;

use crate::args::check::{CheckArgs, Format};
use crate::{history, inputs, message, progress, terminal};

/// Exit code when a limit does not hold.
const FAILED: u8 = 1;
/// Exit code when a trace could not be read.
pub const UNREADABLE: u8 = 2;
/// Exit code when a report is incomplete and there is no other problem.
const NOT_JUDGED: u8 = 3;
/// Version of the JSON schema.
const SCHEMA: u32 = 2;

#[derive(Serialize)]
struct CheckJson<'a> {
    schema_version: u32,
    trace: &'a str,
    passed: bool,
    incomplete: Option<&'a str>,
    bottleneck: &'static str,
    bottleneck_share: f64,
    rules: Vec<RuleJson<'a>>,
}

#[derive(Serialize)]
struct RuleJson<'a> {
    rule: &'a str,
    passed: bool,
    failure: Option<&'a str>,
    inconclusive: Option<&'a str>,
}

/// Prints the limits that hold and those that do not, and returns the exit code. Reports unreadable traces on stderr.
/// Fails when no limit is given, the baseline cannot be read, a folder has no traces, or stdout cannot be written.
pub fn run(args: &CheckArgs) -> Result<u8> {
    if let Some(program) = &args.history.history {
        return history::run(program.as_deref(), &args.history, args.json);
    }
    if args.limits.blesses_nothing() {
        bail!("--bless stores what --step-within, --kernel-within and --module-within compare, and none is given");
    }
    let Some(rules) = args.limits.rules() else {
        bail!("no limit is given, so nothing would be checked; `gpuwhy check --help` lists them");
    };
    args.limits.baseline().map_or(Ok(()), |baseline| baseline.check())?;
    let (mut failed, mut unreadable, mut incomplete) = (false, false, false);
    let mut show = |name: &str, runs: &[&Report]| -> Result<()> {
        let judgment = rules.judge_runs(runs);
        incomplete |= judgment.incomplete.is_some();
        failed |= judgment.rules.iter().any(|rule| rule.failure.is_some());
        Ok(io::stdout().write_all(render(args.format(), name, runs[0], &judgment)?.as_bytes())?)
    };
    let mut runs = Vec::new();
    let files = inputs::expanded(&args.files)?;
    for file in &files {
        let request = Request { capture: args.capture, ..Request::default() };
        match Input::open(file).and_then(|input| progress::report(input, request)) {
            Err(error) => {
                message::say(&error.to_string());
                unreadable = true;
            }
            Ok(report) if args.capture.is_some() && report.captures.shown != args.capture => {
                message::say(&format!("{}: there is no capture {}", file.display(), args.capture.unwrap_or(0)));
                unreadable = true;
            }
            Ok(report) if args.runs => runs.push(report),
            Ok(report) => show(&file.display().to_string(), &[&report])?,
        }
    }
    if args.runs && !unreadable {
        let runs: Vec<&Report> = runs.iter().collect();
        alike(&runs)?;
        let first = files[0].display();
        let name = if runs.len() == 1 { first.to_string() } else { format!("{first} and {} more", runs.len() - 1) };
        show(&name, &runs)?;
    }
    Ok(match (unreadable, failed, incomplete) {
        (true, ..) => UNREADABLE,
        (_, true, _) => FAILED,
        (.., true) => NOT_JUDGED,
        _ => 0,
    })
}

fn render(format: Format, name: &str, report: &Report, judgment: &Judgment) -> Result<String> {
    let trace = printable(name);
    let mut out = String::new();
    match format {
        Format::Json => {
            let document = CheckJson {
                schema_version: SCHEMA,
                trace: &trace,
                passed: passed(judgment),
                incomplete: judgment.incomplete.as_deref(),
                bottleneck: report.bottleneck.cause.name(),
                bottleneck_share: report.bottleneck.share,
                rules: judgment.rules.iter().map(RuleJson::from).collect(),
            };
            out.push_str(&terminal::json(&document)?);
        }
        Format::Text => {
            writeln!(out, "{trace}")?;
            for (mark, text) in lines(judgment) {
                writeln!(out, "  {:4}  {}", mark, printable(&text))?;
            }
        }
        Format::Markdown => {
            writeln!(out, "### gpuwhy check: {}\n\n| | limit |\n|---|---|", markdown(name))?;
            for (mark, text) in lines(judgment) {
                writeln!(out, "| {mark} | {} |", markdown(&text))?;
            }
            out.push('\n');
        }
        Format::Github => {
            let failures = judgment.rules.iter().filter_map(|rule| rule.failure.as_deref());
            let failures = failures.chain(judgment.incomplete.as_deref()).map(|text| ("error", text.to_owned()));
            let open = judgment.rules.iter().filter_map(|rule| rule.inconclusive.as_deref());
            let open: Vec<_> = open.map(|why| ("warning", format!("inconclusive, {why}"))).collect();
            let all_hold = passed(judgment) && open.is_empty();
            for (level, text) in failures.chain(open) {
                // Escapes %, CR and LF for workflow commands of the GitHub runner.
                let text = format!("{trace}: {text}").replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
                writeln!(out, "::{level} title=gpuwhy check::{}", printable(&text))?;
            }
            if all_hold {
                writeln!(out, "::notice title=gpuwhy check::{trace}: all {} limits hold", judgment.rules.len())?;
            }
        }
    }
    Ok(out)
}

fn passed(judgment: &Judgment) -> bool {
    judgment.incomplete.is_none() && judgment.rules.iter().all(|rule| rule.failure.is_none())
}

/// Each limit with its mark.
fn lines(judgment: &Judgment) -> Vec<(&'static str, String)> {
    let incomplete = judgment.incomplete.iter().map(|text| ("NONE", text.clone()));
    let rules = judgment.rules.iter().map(|rule| match (&rule.failure, &rule.inconclusive) {
        (Some(failure), _) => ("FAIL", format!("{}: {failure}", rule.rule)),
        (None, Some(why)) => ("open", format!("{}: inconclusive, {why}", rule.rule)),
        (None, None) => ("ok", rule.rule.clone()),
    });
    incomplete.chain(rules).collect()
}

impl<'a> From<&'a gpuwhy::JudgedRule> for RuleJson<'a> {
    fn from(from: &'a gpuwhy::JudgedRule) -> Self {
        Self {
            rule: &from.rule,
            passed: from.failure.is_none(),
            failure: from.failure.as_deref(),
            inconclusive: from.inconclusive.as_deref(),
        }
    }
}
