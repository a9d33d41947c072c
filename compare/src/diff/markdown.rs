//! Markdown form of the comparison, for comments on changes: the answer, times, counts; the rest is folded away.
//!
//! It is a comment of others' numbers, so names are escaped: a kernel's name must not become a link or a mention.

use std::fmt::Write;

use super::rows::DiffRow;
use super::text::{self, WORTH_A_LINE};
use super::{DeviceDiff, Diff, StepChange};
use gpuwhy_report::text_format::{duration, markdown as escaped};
use gpuwhy_report::words;

/// Columns of a kernel's name.
const NAME: usize = 100;

pub(super) fn full(diff: &Diff, limit: usize, (name_a, name_b): (&str, &str)) -> String {
    let mut out = String::new();
    let (before, after) = diff.bottlenecks;
    let (before, after) = (words::bottleneck(before), words::bottleneck(after));
    for device in &diff.devices {
        let outcome = match device.outcome() {
            StepChange::Faster => "faster",
            StepChange::Slower => "slower",
            StepChange::Unchanged => "no change",
            StepChange::Inconclusive => "inconclusive",
        };
        let gpu = if diff.devices.len() > 1 { format!(" (GPU {})", device.ids.0) } else { String::new() };
        let _ = writeln!(out, "### gpuwhy: {outcome}{gpu}\n\n{}.\n", escaped(&text::headline(device)));
        let _ = writeln!(out, "| | A: {} | B: {} |\n|---|---|---|", escaped(name_a), escaped(name_b));
        let _ = writeln!(out, "| bottleneck | {before} | {after} |");
        if let Some(runs) = &device.runs {
            let list = |units: &[gpuwhy_report::run::unit::Representative]| {
                let mut times: Vec<_> = units.iter().map(|unit| unit.unit_ns).collect();
                times.sort_unstable();
                times.into_iter().map(duration).collect::<Vec<_>>().join(", ")
            };
            let _ = writeln!(out, "| typical step of each run | {} | {} |", list(&runs.a), list(&runs.b));
        }
        causes(&mut out, device);
        counts(&mut out, device);
        kernels(&mut out, device, limit);
    }
    if !diff.warnings.is_empty() {
        out.push('\n');
    }
    for warning in &diff.warnings {
        let _ = writeln!(out, "- {}", escaped(warning));
    }
    out
}

fn causes(out: &mut String, device: &DeviceDiff) {
    let (rows, rest) = text::cause_rows(device);
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n| time of a step by cause | A | B | change |\n|---|--:|--:|--:|");
    for row in &rows {
        let mark = if row.overlaps { " ~" } else { "" };
        let change = text::signed(row.change as f64);
        let _ = writeln!(out, "| {} | {} | {} | {change}{mark} |", row.name, duration(row.a), duration(row.b));
    }
    if rest != 0 {
        let _ = writeln!(out, "| all others | | | {} |", text::signed(rest as f64));
    }
    let (a, b) = (duration(device.a.unit_ns), duration(device.b.unit_ns));
    let _ = writeln!(out, "| **step** | {a} | {b} | {} |", text::signed(device.change_ns() as f64));
    if rows.iter().any(|row| row.overlaps) {
        let _ = writeln!(out, "\n~: runs of A and of B overlap in this cause.");
    }
}

fn counts(out: &mut String, device: &DeviceDiff) {
    if device.counts.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n| in each step | A | B | change |\n|---|--:|--:|--:|");
    for row in &device.counts {
        let change = match (row.is_equal(), row.is_changed()) {
            (true, _) => "same".to_owned(),
            (_, true) => format!("**{}**", text::count_change(row)),
            _ => "~".to_owned(),
        };
        let _ =
            writeln!(out, "| {} | {} | {} | {change} |", row.name, text::count(row, row.a), text::count(row, row.b));
    }
}

fn kernels(out: &mut String, device: &DeviceDiff, limit: usize) {
    let least = device.a.unit_ns.max(device.b.unit_ns) as f64 * WORTH_A_LINE;
    let shown = |row: &&DiffRow| row.is_changed() && row.change_ns().abs() >= least;
    let mut rows: Vec<_> = device.kernels.iter().chain(&device.copies).filter(shown).collect();
    rows.sort_by(|x, y| y.change_ns().abs().total_cmp(&x.change_ns().abs()));
    rows.truncate(limit);
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n<details><summary>Kernels and copies that changed (of the median runs)</summary>\n");
    let _ = writeln!(out, "| change of a step | | kernel |\n|--:|---|---|");
    for row in rows {
        let (what, name) = text::row_parts(row, NAME);
        let _ = writeln!(out, "| {} | {} | {} |", text::signed(row.change_ns()), escaped(&what), escaped(&name));
    }
    out.push_str("\n</details>\n");
}
