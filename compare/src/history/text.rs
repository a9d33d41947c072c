//! Text form of a program's history.

use std::fmt::Write as _;

use profiler_core::leaf::Cause;

use super::{Judged, StepTrend, Unlike};
use crate::diff::{RUNS_DIFFER, StepChange};
use gpuwhy_report::history::Run;
use gpuwhy_report::text_format::{Page, Style, counted, date, duration, percent, shortened, wrapped};
use gpuwhy_report::words;

/// Width of the columns before the causes.
const FIXED: usize = 18 + 8 + 9 + 9 + 2 + 14;

/// Formats the newest `rows` of `runs`, which belong to one program and are sorted oldest first, and the
/// result for the newest.
pub fn text(runs: &[Run], judged: &[Judged], rows: usize, style: Style) -> String {
    let mut out = Page::new(style);
    let Some(newest) = runs.last() else { return String::new() };
    let gpus = newest.devices.len();
    let gpu = newest.devices.first().map_or("", |device| device.name.as_str());
    let gpu = if gpu.is_empty() { "GPU" } else { gpu };
    let gpu = if gpus > 1 { format!("{gpus} x {gpu}") } else { gpu.to_owned() };
    let hosts = runs.iter().any(|run| run.host != newest.host);
    let title = format!("{} on {}, {gpu} ({})", newest.program(), newest.host, counted(runs.len() as u64, "run"));
    let _ = writeln!(out, "{}", shortened(&title, out.columns()));
    let _ = writeln!(
        out,
        "{:<18}{:<8}{:>9}{:>9}  {:<14}{}causes of a step",
        "date (UTC)",
        "version",
        "step",
        "change",
        "bottleneck",
        if hosts { format!("{:<14}", "host") } else { String::new() }
    );
    for (run, judged) in runs.iter().zip(judged).skip(runs.len().saturating_sub(rows)) {
        let host = if hosts { format!("{:<14}", shortened(&run.host, 13)) } else { String::new() };
        let step = run.slowest().and_then(|(_, device)| device.step_ns).map_or("-".to_owned(), duration);
        let changed = judged.before.as_ref().map_or(String::new(), |(_, change)| shown(change));
        let room = out.columns().saturating_sub(FIXED + host.len()).max(20);
        let row = format!(
            "{:<18}{:<8}{step:>9}{changed:>9}  {:<14}{host}{}",
            date(run.start_ns),
            shortened(&run.version, 7),
            shortened(&run.bottleneck, 13),
            shortened(&largest(run), room)
        );
        let _ = writeln!(out, "{}", row.trim_end());
    }
    wrapped(&mut out, "", &sentence(runs, judged));
    out.into_text()
}

/// The change in a row; `=` if it could be chance.
fn shown(change: &StepTrend) -> String {
    if change.outcome() == StepChange::Unchanged { "=".to_owned() } else { format!("{:+.1} %", change.percent()) }
}

fn largest(run: &Run) -> String {
    let Some((_, device)) = run.slowest() else { return String::new() };
    let mut causes: Vec<&(Cause, u64)> = device.causes.iter().collect();
    causes.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let shown = causes.iter().take(3).map(|(cause, ns)| format!("{} {}", cause.name(), duration(*ns)));
    shown.collect::<Vec<_>>().join(", ")
}

/// Sentence about the newest run.
fn sentence(runs: &[Run], judged: &[Judged]) -> String {
    let Some(last) = judged.last() else { return String::new() };
    let Some((before, change)) = &last.before else {
        return match last.unlike {
            None => "This is the first run of the program that was kept.".to_owned(),
            Some(why) => format!("The newest run is not compared: {}.", because(why)),
        };
    };
    let since = runs.get(*before).map_or(String::new(), |run| date(run.start_ns));
    let steps = format!("{} -> {}", duration(change.before_ns), duration(change.after_ns));
    let by = change.percent().abs();
    let than = match change.outcome() {
        StepChange::Unchanged => return format!("No change since the run of {since} ({steps})."),
        StepChange::Faster => "faster",
        StepChange::Slower | StepChange::Inconclusive => "slower",
    };
    let lead = if last.outcome == StepChange::Inconclusive { "Inconclusive: the" } else { "The" };
    let all = match (last.outcome, last.held_against) {
        (StepChange::Inconclusive, 1) => format!(
            "It is the only earlier run like it: below {:.0} % of the longer step, a difference may not come from the \
             program.",
            RUNS_DIFFER * 1e2
        ),
        (StepChange::Inconclusive, count) => {
            format!(
                "It is {than} than some of the {count} runs before it, but not than all: runs may differ this much."
            )
        }
        (_, 1) => "It is the only earlier run like it.".to_owned(),
        (StepChange::Slower, count) => format!("Regression: it is slower than each of the {count} runs before it."),
        (_, count) => format!("It is faster than each of the {count} runs before it."),
    };
    format!("{lead} newest run is {by:.1} % {than} than that of {since} ({steps}): {}. {all}", moved(change))
}

/// The causes that changed a step, the largest first.
fn moved(change: &StepTrend) -> String {
    let shown = change.causes.iter().take(3).map(|&(cause, ns)| {
        let sign = if ns < 0 { '-' } else { '+' };
        format!("{} {sign}{}", words::bottleneck(cause), duration(ns.unsigned_abs()))
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn because(why: Unlike) -> String {
    match why {
        Unlike::Host => "the run before was on another host (--any-host compares them)".to_owned(),
        Unlike::Arguments => "the run before had other arguments (--any-arguments compares them)".to_owned(),
        Unlike::Devices => "the run before had other devices, or its job another number of processes".to_owned(),
        Unlike::Mode => "the run before was measured with another --mode".to_owned(),
        Unlike::Program(similarity) => {
            format!("only {} of its kernel executions are also those of the run before", percent(similarity))
        }
        Unlike::NoSteps => "it or the run before has too few steps that repeat".to_owned(),
        Unlike::Steps => "its steps hold another number of operations than those of the run before".to_owned(),
    }
}
