//! Text form of a program's history.

use std::fmt::Write as _;

use profiler_core::attribution::leaf::Cause;

use super::{Judged, Run, StepTrend, Unlike};
use crate::diff::{RUNS_DIFFER, StepChange};
use crate::text_format::{Page, Style, counted, duration, percent, shortened, wrapped};
use crate::words;

/// Width of the columns before the causes.
const FIXED: usize = 18 + 8 + 9 + 9 + 2 + 14;

/// Formats a time in UTC, to the minute, such as `2026-11-23 09:41`; uses the algorithm `civil_from_days` of
/// Howard Hinnant ("chrono-compatible low-level date algorithms", 2013).
pub fn date(nanos: u64) -> String {
    let minutes = nanos / 60_000_000_000;
    let (days, minute) = (minutes / 1_440 + 719_468, minutes % 1_440);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", minute / 60, minute % 60)
}

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
    match change.outcome() {
        StepChange::Unchanged => "=".to_owned(),
        StepChange::Faster | StepChange::Slower | StepChange::Inconclusive => format!("{:+.1} %", change.percent()),
    }
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
    match change.outcome() {
        StepChange::Unchanged => {
            format!("No change since the run of {since} ({steps}).")
        }
        StepChange::Faster => {
            format!("The newest run is {by:.1} % faster than that of {since} ({steps}): {}.", moved(change))
        }
        StepChange::Slower | StepChange::Inconclusive => {
            let all = match (last.regression, last.held_against) {
                (true, 1) => "It is the only earlier run like it".to_owned(),
                (true, count) => format!("Regression: it is slower than each of the {count} runs before it"),
                (false, 1) => format!(
                    "It is the only earlier run like it: below {:.0} % of the longer step, a difference may not come from \
                     the program",
                    RUNS_DIFFER * 1e2
                ),
                (false, _) => "Not slower than each of the runs before that, so runs may differ this much".to_owned(),
            };
            format!("The newest run is {by:.1} % slower than that of {since} ({steps}): {}. {all}.", moved(change))
        }
    }
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

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds: u64| date(seconds * 1_000_000_000);
        assert_eq!(at(0), "1970-01-01 00:00");
        assert_eq!(at(951_782_399), "2000-02-28 23:59");
        assert_eq!(at(951_782_400), "2000-02-29 00:00");
        assert_eq!(at(951_868_800), "2000-03-01 00:00");
        assert_eq!(at(1_767_225_599), "2025-12-31 23:59");
        assert_eq!(date(u64::MAX), "2554-07-21 23:34");
    }
}
