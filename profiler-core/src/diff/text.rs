//! The comparison for people: what changed in one line, then the tables behind it.
//!
//! Plain ASCII, at most 100 columns, no colour.

use std::fmt::Write;

use super::rows::{Launches, Row, Speed, Usage};
use super::unit::{Basis, Representative};
use super::{DeviceDiff, Diff, Outcome, Prediction};
use crate::steps::StepSource;

const WIDTH: usize = 100;
/// Where the text of a row begins.
const INDENT: usize = 17;
/// Changes smaller than this share of the larger unit are left out of the text.
const WORTH_A_LINE: f64 = 0.001;

/// What changed, in one line.
pub(super) fn headline(diff: &DeviceDiff) -> String {
    let (a, b) = (diff.a.unit_ns, diff.b.unit_ns);
    let what = match diff.basis {
        Basis::Step => "B's step".to_owned(),
        Basis::Operations => format!("B's time for {} operations", diff.b.operations),
    };
    let chance = diff.test.map_or_else(|| "not tested".to_owned(), |test| chance(test.p));
    let times = format!("({} -> {}, {chance})", duration(a as f64), duration(b as f64));
    let mut line = match diff.outcome() {
        Outcome::Faster => format!("{what} is {} faster {times}", factor(a, b)),
        Outcome::Slower => format!("{what} is {} slower {times}", factor(b, a)),
        Outcome::Unchanged => return format!("{what} has not changed {times}"),
    };
    let worth = diff.change_ns().unsigned_abs() / 20;
    let parts: Vec<_> = diff
        .leaves
        .iter()
        .take_while(|(_, nanos)| nanos.unsigned_abs() >= worth)
        .take(3)
        .map(|(leaf, nanos)| format!("{} {}", leaf.name(), signed(*nanos as f64)))
        .collect();
    if !parts.is_empty() {
        let _ = write!(line, ": {}", parts.join(", "));
    }
    line
}

/// Everything, with at most `limit` kernels for each device.
pub(super) fn full(diff: &Diff, limit: usize) -> String {
    let mut out = String::new();
    for device in &diff.devices {
        let (a, b) = device.ids;
        if diff.devices.len() > 1 || a != b {
            let _ = writeln!(out, "device {a} of A, device {b} of B");
        }
        wrapped(&mut out, "", &headline(device));
        let _ = writeln!(out, "  A: {}", measured(&device.a));
        let _ = writeln!(out, "  B: {}", measured(&device.b));
        if let Some(test) = device.test {
            let percent = test.larger * 100.0;
            let _ = writeln!(out, "  A step of B takes longer than one of A in {percent:.1} % of all pairs.");
        }
        if let Some(prediction) = &device.prediction {
            wrapped(&mut out, "  ", &predicted(prediction));
        }
        leaf_table(&mut out, device);
        row_table(&mut out, "kernels", &device.kernels, limit, device);
        row_table(&mut out, "copies", &device.copies, limit, device);
    }
    let _ = writeln!(out, "{:.1} % of kernel executions agree by name.", diff.similarity * 100.0);
    for warning in &diff.warnings {
        wrapped(&mut out, "note: ", warning);
    }
    out
}

/// The ceiling and what came of it; beyond the ceiling with the leaves that shrank besides.
fn predicted(prediction: &Prediction) -> String {
    let mut line = format!(
        "predicted at most {:.2}x ({} -> {}) without {}; got {:.2}x ({})",
        prediction.predicted_speedup,
        duration(prediction.step_ns as f64),
        duration(prediction.predicted_step_ns as f64),
        prediction.group.name(),
        prediction.got_speedup,
        duration(prediction.got_step_ns as f64)
    );
    let beyond = prediction.beyond_ns();
    if beyond == 0 {
        return line;
    }
    let besides = prediction.others.iter().filter(|(_, nanos)| *nanos < 0 && nanos.unsigned_abs() >= beyond / 20);
    let besides: Vec<_> =
        besides.take(3).map(|(leaf, nanos)| format!("{} {}", leaf.name(), signed(*nanos as f64))).collect();
    let _ = if besides.is_empty() {
        write!(
            line,
            ", beyond the ceiling though nothing else shrank; the base replay is within {:.1} %",
            prediction.base_error * 100.0
        )
    } else {
        write!(line, ", beyond the ceiling because more than that changed: {}", besides.join(", "))
    };
    line
}

/// What a representative rests on.
fn measured(unit: &Representative) -> String {
    let Some((source, median)) = unit.source.zip(unit.median_ns) else {
        return format!("{} for {} operations", duration(unit.unit_ns as f64), unit.operations);
    };
    format!(
        "mean {} over {} of {} steps ({}), median {}, {} operations",
        duration(unit.unit_ns as f64),
        unit.averaged,
        unit.considered,
        source_name(source),
        duration(median as f64),
        unit.operations
    )
}

fn leaf_table(out: &mut String, device: &DeviceDiff) {
    let (a, b) = (&device.a, &device.b);
    let least = a.unit_ns.max(b.unit_ns) as f64 * WORTH_A_LINE;
    let _ = writeln!(out, "  {:<20}{:>12}{:>12}{:>13}", "cause", "A", "B", "change");
    let mut rest = device.change_ns();
    for &(leaf, nanos) in device.leaves.iter().filter(|(_, nanos)| nanos.unsigned_abs() as f64 >= least) {
        let (in_a, in_b) = (a.leaves[leaf as usize], b.leaves[leaf as usize]);
        leaf_line(out, leaf.name(), &duration(in_a as f64), &duration(in_b as f64), nanos);
        rest -= nanos;
    }
    if rest != 0 {
        leaf_line(out, "(all others)", "", "", rest);
    }
    leaf_line(out, "sum", &duration(a.unit_ns as f64), &duration(b.unit_ns as f64), device.change_ns());
}

fn leaf_line(out: &mut String, name: &str, a: &str, b: &str, nanos: i64) {
    let _ = writeln!(out, "  {name:<20}{a:>12}{b:>12}{:>13}", signed(nanos as f64));
}

fn row_table(out: &mut String, title: &str, rows: &[Row], limit: usize, device: &DeviceDiff) {
    let least = device.a.unit_ns.max(device.b.unit_ns) as f64 * WORTH_A_LINE;
    let changed: Vec<_> =
        rows.iter().filter(|row| row.is_changed() && row.change_ns().abs() >= least).take(limit).collect();
    let others = rows.len() - changed.len();
    if changed.is_empty() {
        let _ = writeln!(out, "  {title}: none of {} changed noticeably", rows.len());
        return;
    }
    let _ = writeln!(out, "  {title} (start-up counts as well):");
    for row in changed {
        let _ = writeln!(out, "  {:>width$}  {}", signed(row.change_ns()), row_text(row), width = INDENT - 4);
    }
    if others > 0 {
        let _ = writeln!(out, "  {others} others changed less or not at all");
    }
}

fn row_text(row: &Row) -> String {
    let usage = |usage: &Usage| format!("{:.1} x {}", usage.per_unit, duration(usage.mean_ns));
    let mut what = match row.launches {
        Launches::Added => format!("added, {}", usage(&row.b)),
        Launches::Removed => format!("removed, {}", usage(&row.a)),
        Launches::More => format!("more, {} -> {}", usage(&row.a), usage(&row.b)),
        Launches::Fewer => format!("fewer, {} -> {}", usage(&row.a), usage(&row.b)),
        Launches::Same => String::new(),
    };
    let speed = match row.speed {
        Speed::Slower => "slower",
        Speed::Faster => "faster",
        Speed::Same => "",
    };
    match (what.is_empty(), speed.is_empty()) {
        (_, true) => {}
        (true, false) => what = format!("{speed}, {} -> {}", usage(&row.a), usage(&row.b)),
        (false, false) => what = format!("{speed} and {what}"),
    }
    // A name that does not fit beside the figures has a line of its own: what tells kernels apart is often its end.
    let name = shortened(&row.name, WIDTH - INDENT);
    if INDENT + name.chars().count() + 2 + what.chars().count() > WIDTH {
        format!("{what}\n{:INDENT$}{name}", "")
    } else {
        format!("{name}  {what}")
    }
}

/// Stable name of how steps were found.
pub(super) fn source_name(source: StepSource) -> &'static str {
    match source {
        StepSource::Annotated => "annotated",
        StepSource::Period => "period",
        StepSource::Anchor => "anchor",
        StepSource::Window => "window",
    }
}

fn chance(p: f64) -> String {
    if p < 0.001 { "p < 0.001".to_owned() } else { format!("p = {p:.3}") }
}

/// How many times `longer` is as long as `shorter`.
fn factor(longer: u64, shorter: u64) -> String {
    if shorter == 0 {
        return "infinitely".to_owned();
    }
    let factor = longer as f64 / shorter as f64;
    if factor < 1.095 { format!("{:.1} %", (factor - 1.0) * 100.0) } else { format!("{factor:.2}x") }
}

fn signed(nanos: f64) -> String {
    format!("{}{}", if nanos < 0.0 { '-' } else { '+' }, duration(nanos.abs()))
}

fn duration(nanos: f64) -> String {
    match nanos {
        ..999.5 => format!("{nanos:.0} ns"),
        ..999.95e3 => format!("{:.1} us", nanos / 1e3),
        ..999.95e6 => format!("{:.1} ms", nanos / 1e6),
        _ => format!("{:.2} s", nanos / 1e9),
    }
}

/// The first `width` characters, the last of them `~` when something is missing.
fn shortened(name: &str, width: usize) -> String {
    if name.chars().count() <= width {
        return name.to_owned();
    }
    name.chars().take(width.saturating_sub(1)).chain(['~']).collect()
}

/// Breaks `text` at spaces, indenting what follows the first line by the width of `lead`.
fn wrapped(out: &mut String, lead: &str, text: &str) {
    let mut line = lead.to_owned();
    let mut is_empty = true;
    for word in text.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(out, "{line}");
            line = " ".repeat(lead.chars().count().max(2));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    let _ = writeln!(out, "{line}");
}
