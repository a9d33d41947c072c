//! Text report: a first screen that needs no manual, then the details, and one line for a run that is still
//! going.
//!
//! The first screen uses only plain words and shows each number once. Numbers that need explanation, and the
//! names of the JSON, are in the long report (`details`, `tables`).

mod collectives;
mod completeness;
mod cost;
mod details;
mod kernel_time;
mod live;
mod memory;
mod memory_blocks;
mod ranges;
mod sections;
mod serving;
mod shares;
mod tables;

use std::fmt::Write;

use profiler_core::leaf::Cause;
use profiler_core::steps::{RecognizedBy, StepKind, StepSource, Steps};
use profiler_core::whatif::{ScenarioKind, WORTH_DOING};

pub(super) use self::completeness::{missing, missing_end, monitored};
pub(super) use self::cost::given_up;
pub(super) use self::live::{is_starting_up, live_line};
use self::shares::share_line;
pub(super) use self::shares::{busy_share, judged, left_out, shares};
use super::bottleneck::{compared, copies_without_link, gain_ends};
use super::graph_origins::graph_parts;
use super::{Bottleneck, DeviceReport, Remedy, Report, RunPart, StepMeaning, untraced};
use crate::text_format::{Page, Paint, Style, counted, duration, percent, shortened, wrapped, wrapped_as};
use crate::words;

/// Lines of the first screen: those of a small terminal.
const LINES: usize = 24;
/// Sentences of evidence, besides that in the bottleneck's line, and further remedies: the first pair with which the
/// first screen has at most [`LINES`].
const SHOWN: [(usize, usize); 6] = [(4, 2), (3, 2), (2, 2), (2, 1), (1, 1), (1, 0)];
/// Number of GPUs with a separate line.
const DEVICES_SHOWN: usize = 8;

/// The first screen.
pub(super) fn short(report: &Report, style: Style) -> String {
    let mut text = String::new();
    for shown in SHOWN {
        let mut out = Page::new(style);
        first_screen(&mut out, report, shown);
        text = out.into_text();
        if text.lines().count() <= LINES {
            break;
        }
    }
    text
}

/// The first screen, the details, and every table with at most `kernels` rows for the kernels of a device.
pub(super) fn full(report: &Report, kernels: usize, style: Style) -> String {
    let mut page = Page::new(style);
    first_screen(&mut page, report, (usize::MAX, usize::MAX));
    if let Some(sentence) = report.bottleneck.without_gain() {
        wrapped(&mut page, "", &sentence);
    }
    details::write(&mut page, report);
    tables::write(&mut page, report, kernels);
    page.into_text()
}

fn first_screen(out: &mut Page, report: &Report, (evidence, remedies): (usize, usize)) {
    let room = out.columns().max(60) - 40;
    let command = shortened(&report.process.command.join(" "), room);
    let place = report.process.place().map(|place| format!(", {}", shortened(&place, 30))).unwrap_or_default();
    let observed = duration(report.shown_ns());
    wrapped(out, "gpuwhy: ", &format!("process {} ({command}){place}, {observed}", report.process.process_id));
    if let Some(RunPart { from_ns, to_ns, of_ns }) = report.part {
        let [from, to, of] = [from_ns, to_ns, of_ns].map(duration);
        wrapped(out, "part: ", &format!("from {from} to {to} after the start of tracing, of a run that ends at {of}"));
    }
    if let Some(others) = &report.other_processes {
        wrapped(out, "", &format!("{}.", words::capitalized(others)));
    }
    sections::captures(out, report);
    let bottleneck = &report.bottleneck;
    wrapped_as(out, Paint::Bold, "", &conclusion(report));
    let first_source = report.first_source();
    let mut is_shown = first_source.is_some();
    wrapped(out, "What to do: ", &bottleneck.recommendation);
    if let Some(row) = first_source {
        code_line(out, "            ", row.line, &row.text);
    }
    if let Some(gain) = gain(report) {
        wrapped(out, "            ", &gain);
    }
    for sentence in bottleneck.evidence.iter().skip(1).take(evidence) {
        wrapped(out, "  - ", sentence);
        if let Some(row) = report.source_in(sentence).filter(|_| !is_shown) {
            code_line(out, "    ", row.line, &row.text);
            is_shown = true;
        }
    }
    for sentence in bottleneck.further_remedies().iter().take(remedies) {
        wrapped(out, "Also: ", sentence);
    }
    plan_lines(out, bottleneck);
    for device in report.devices.iter().take(DEVICES_SHOWN) {
        share_line(out, report, device);
    }
    if let Some(sentence) = graph_parts(report) {
        wrapped(out, "", &sentence);
    }
    if let Some(sentence) = report.left_out() {
        wrapped(out, "", &sentence);
    }
    if report.devices.len() > DEVICES_SHOWN {
        let _ = writeln!(out, "... and {}", counted((report.devices.len() - DEVICES_SHOWN) as u64, "more GPU"));
    }
    if !serving::write(out, report)
        && let Some(device) = report.devices.iter().max_by_key(|device| device.window_ns)
        && let Some(steps) = &device.steps
    {
        let (lead, sentence) = step_sentence(steps, device);
        wrapped(out, lead, &sentence);
    }
    memory::write(out, report, if evidence == usize::MAX { DEVICES_SHOWN } else { 1 });
    if let Some(sentence) = untraced::line(report) {
        wrapped(out, "", &sentence);
    }
    if let Some(cost) = &report.cost {
        for sentence in given_up(cost, report) {
            wrapped(out, "", &sentence);
        }
    }
    completeness::write(out, report);
}

/// Appends a line of source code, cut to one line.
fn code_line(out: &mut Page, lead: &str, line: u32, text: &str) {
    let code = format!("{lead}{line} | {text}");
    let _ = writeln!(out, "{}", shortened(&code, out.columns()));
}

/// Appends what to do next.
fn plan_lines(out: &mut Page, bottleneck: &Bottleneck) {
    for sentence in bottleneck.next_fixes() {
        wrapped(out, "Next: ", &sentence);
    }
}

/// The bottleneck and its cost.
pub(super) fn conclusion(report: &Report) -> String {
    let bottleneck = &report.bottleneck;
    let why = bottleneck.evidence.first().map_or("", String::as_str);
    format!("{}. {why}", named(report))
}

/// The bottleneck, and its share in the time of the GPU that was busiest.
pub(super) fn headline(report: &Report) -> String {
    let Bottleneck { cause, share, .. } = report.bottleneck;
    let device = report.devices.iter().max_by_key(|device| device.window_ns);
    let of =
        device.filter(|_| !matches!(cause, Cause::NoWork | Cause::CannotTell)).map(|device| judged(report, device).0);
    match of {
        Some("after start-up") => format!("{}, {} of the time after start-up", named(report), percent(share)),
        Some(of @ ("recorded time" | "whole run")) => format!("{}, {} of the {of}", named(report), percent(share)),
        Some(of) => format!("{}, {} of {of}", named(report), percent(share)),
        None => named(report),
    }
}

/// The bottleneck by its name.
fn named(report: &Report) -> String {
    match report.bottleneck.cause {
        Cause::NoWork => "No GPU work".to_owned(),
        Cause::CannotTell => "No bottleneck found".to_owned(),
        // Then the advice is about what limits this program.
        Cause::OtherProcess if report.bottleneck.remedies.first().is_some_and(|first| first.id != "other_process") => {
            "Another process takes most of the GPU's time, but hardly delays this program".to_owned()
        }
        cause if report.is_watched() => format!("Probable bottleneck: {}", words::bottleneck(cause)),
        cause => format!("Bottleneck: {}", words::bottleneck(cause)),
    }
}

/// What the first change gains; where nothing predicts that, what the program would gain without the bottleneck.
pub(super) fn gain(report: &Report) -> Option<String> {
    let of_builds = (report.bottleneck.cause == Cause::KernelBuild).then(|| gain_ends(&report.devices)).flatten();
    Some(of_this_run(report)? + &of_builds.unwrap_or_default())
}

/// What the first change gains in a run like this one.
fn of_this_run(report: &Report) -> Option<String> {
    let bottleneck = &report.bottleneck;
    let first = bottleneck.remedies.iter().find(|remedy| remedy.is_advised());
    let of_remedy = first.and_then(Remedy::gain);
    let best = report.best_case(bottleneck.cause).filter(|best| best.is_worth_showing() && best.speedup.is_finite());
    let is_rough = report.devices.iter().filter_map(|device| device.what_if.as_ref()).any(|of| of.refused.is_some());
    if let (Some(first), Some(_)) = (first, bottleneck.made_possible())
        && first.measured.is_none()
        && first.speedup.is_none_or(|speedup| speedup < WORTH_DOING)
    {
        let alone = if first.speedup.is_some() { "Alone it gains little" } else { "What it gains alone is unknown" };
        return Some(format!("{alone}; it makes the CUDA graph possible."));
    }
    // That kernels could be faster is no gain of a change which only may do that.
    let best = best.filter(|best| best.kind != ScenarioKind::KernelsAtRoof || first.is_none());
    match (of_remedy, best) {
        (Some(gain), Some(best)) if first.is_some_and(|first| first.speedup == Some(best.speedup)) && !is_rough => {
            let why = compared(&best, bottleneck.cause, bottleneck.share);
            let why =
                why.map(|why| format!(" It saves {} of the time: {why}.", percent(best.saved()))).unwrap_or_default();
            Some(gain + &why)
        }
        (Some(gain), _) => Some(gain),
        (None, Some(best)) => {
            let gain = if is_rough { words::at_most(best.speedup) } else { words::gain(best.speedup, best.interval) };
            Some(format!("Best case, with the same operations: {gain} if {}.", words::condition(best.kind)))
        }
        (None, None) => without_best_case(report, report.best_case(bottleneck.cause).is_some()),
    }
}

/// Why no gain is shown.
fn without_best_case(report: &Report, is_small: bool) -> Option<String> {
    Some(match report.bottleneck.cause {
        Cause::Copy if !is_small && report.devices.iter().any(copies_without_link) => {
            "Gain unknown: pinned memory is faster, but nothing describes the link.".to_owned()
        }
        Cause::Copy if is_small => "Overlapping the copies with the kernels would gain nothing.".to_owned(),
        Cause::KernelBuild if !is_small => {
            let basis = report.bottleneck.basis.map(|basis| basis.share.high);
            format!("Gain: {}.", words::at_most_without(basis.unwrap_or(report.bottleneck.share)))
        }
        cause if is_small && cause != Cause::GpuCompute => {
            "Removing it alone gains nothing: something else is as late.".to_owned()
        }
        _ => return None,
    })
}

/// Label for the steps, and a sentence with their number, their lengths, and how they were found.
fn step_sentence(steps: &Steps, device: &DeviceReport) -> (&'static str, String) {
    let meaning = device.step_meaning;
    let lengths = lengths(steps, &device.step_kinds);
    let operations = match steps.period {
        Some(1) => "each runs the same GPU operation".to_owned(),
        Some(period) => format!("each runs the same {period} GPU operations"),
        None => "each runs the same GPU operations".to_owned(),
    };
    let found = match steps.source {
        StepSource::Annotated => "named by the program".to_owned(),
        StepSource::Iteration => "iterations of a server".to_owned(),
        StepSource::Anchor => "detected by an operation that runs once in each".to_owned(),
        StepSource::Period if meaning.contains.is_some() => {
            let all = meaning.steps();
            let (count, each) = (steps.seen * all, duration(steps.duration_percentile(50) / all));
            let reason = reason(meaning).replacen("Each", "Each of these", 1);
            let text = format!(
                "{count}, {each} on average, detected: the same {} GPU operations repeat{}.{reason}",
                steps.period.unwrap_or_default(),
                inside(steps, meaning)
            );
            return ("Steps: ", text);
        }
        StepSource::Period if meaning.recognized_by.is_some() => {
            let text = format!("{lengths}, detected: {operations}{}.{}", inside(steps, meaning), reason(meaning));
            return ("Steps: ", text);
        }
        StepSource::Period => {
            let text =
                format!("{lengths}: {operations}. It is unknown whether it is a step of the program or a part of one.");
            return ("Repeating units: ", text);
        }
        StepSource::Window => {
            return (
                "Steps: ",
                "none detected: no sequence of GPU operations repeats often and regularly enough.".to_owned(),
            );
        }
    };
    ("Steps: ", format!("{lengths}, {found}."))
}

/// Number of steps and their length. The median covers only the steps that are kept, or one kind of them.
fn lengths(steps: &Steps, kinds: &[StepKind]) -> String {
    let remembered = steps.rows.len() as u64;
    let of_the_last = if steps.seen > remembered { format!(" (of the last {remembered})") } else { String::new() };
    match kinds {
        [long, short] if long.name == "long" => {
            let (less, more) = (duration(short.median_ns), duration(long.median_ns));
            format!("{} of two kinds, medians {less} and {more}{of_the_last}", steps.seen)
        }
        _ => format!("{}, median {}{of_the_last}", steps.seen, duration(steps.duration_percentile(50))),
    }
}

/// Phrase for the unit that repeats within a step, if each launch is one operation.
fn inside(steps: &Steps, meaning: StepMeaning) -> String {
    let Some(inside) = meaning.inside.filter(|inside| steps.period.is_some_and(|period| period >= inside.all().into()))
    else {
        return String::new();
    };
    let group = if inside.launches == 1 { "one".to_owned() } else { format!("a group of {}", inside.launches) };
    format!(", including {group} that runs {} times in a row", inside.times)
}

const fn reason(meaning: StepMeaning) -> &'static str {
    match meaning.recognized_by {
        Some(RecognizedBy::Optimizer) => " Each contains an optimizer kernel, so it is a complete step.",
        Some(RecognizedBy::Input) => " Each contains a copy from the host, so it is a complete step.",
        Some(RecognizedBy::Graph) => " CUDA graphs launch most of them, so each is a complete step.",
        Some(RecognizedBy::Readback) => " Each contains a copy to the host, so it is a complete step.",
        Some(RecognizedBy::Wait) => " The CPU waits for the GPU once in each, so it is a complete step.",
        Some(RecognizedBy::Range | RecognizedBy::Tokens | RecognizedBy::Rare) | None => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_trace::record::Timestamp;
    use profiler_core::leaf::LEAF_COUNT;
    use profiler_core::steps::Step;

    #[test]
    fn a_median_is_said_of_the_steps_that_it_is_of() {
        let step = |at: u64| Step {
            start: Timestamp::from_nanos(at * 1_000),
            end: Timestamp::from_nanos(at * 1_000 + 1_000),
            operations: 1,
            leaves: [0; LEAF_COUNT],
            iteration: None,
        };
        let rows: Vec<Step> = (0..4).map(step).collect();
        let steps = |seen| Steps { source: StepSource::Period, period: Some(1), seen, rows: rows.clone() };
        assert_eq!(lengths(&steps(4), &[]), "4, median 1.0 us");
        assert_eq!(lengths(&steps(2_275), &[]), "2275, median 1.0 us (of the last 4)");
        let kind = |name, median_ns| StepKind {
            name,
            count: 2,
            total_ns: 2 * median_ns,
            median_ns,
            p99_ns: median_ns,
            leaves: [0; LEAF_COUNT],
            sequences: None,
            tokens: None,
        };
        let kinds = [kind("long", 38_000), kind("short", 11_000)];
        assert_eq!(lengths(&steps(4), &kinds), "4 of two kinds, medians 11.0 us and 38.0 us");
    }
}
