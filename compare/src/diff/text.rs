//! Text form of the comparison: the change in one line, followed by the tables.
//!
//! Causes have plain words; the table of causes also shows their names in the JSON.

use std::fmt::Write;

use profiler_core::counters::roofs::LimitTimes;
use profiler_core::leaf::Leaf;

use super::compared::change;
use super::counts::{BYTES, CountRow};
use super::rows::{DiffRow, Launches, Speed, Usage};
use super::run_test::{CHANCE, RunTest, fewest_runs};
use super::{DeviceDiff, DeviceRuns, Diff, Fate, LimitChanges, Prediction, RUNS_DIFFER, StepChange};
use gpuwhy_report::run::unit::{Basis, Representative};
use gpuwhy_report::run::{MemoryOfDevice, ServingKind};
use gpuwhy_report::text_format::names::short_name;
use gpuwhy_report::text_format::{Page, Paint, Style, bytes, counted, duration, shortened, wrapped, wrapped_as};
use gpuwhy_report::words::{self, about};

/// Column at which the text of a row starts.
const INDENT: usize = 17;
/// Column at which the names of the table of causes start.
const NAMES: usize = 39;
/// Changes smaller than this share of the larger unit are omitted from the text.
pub(super) const WORTH_A_LINE: f64 = 0.001;
/// Changes of a limit smaller than this share of the computation are omitted from the text: divisions of the
/// same samples at 200 Hz and 1 kHz differed by 1.6 points (docs/design/counters.md).
const LIMIT_WORTH_A_LINE: f64 = 0.016;

/// The answer, the largest changes, and what the runs show.
pub(super) fn headline(diff: &DeviceDiff) -> String {
    let changes = diff.largest_changes().map(|changes| format!(": {changes}"));
    change_alone(diff) + &changes.unwrap_or_default() + &shown(diff)
}

impl DeviceDiff {
    /// How much B's step changed, if it did, and how sure that is.
    pub fn answer(&self) -> String {
        change_alone(self) + &shown(self)
    }

    /// At most three causes with the largest changes; `None` if the step has not changed.
    pub fn largest_changes(&self) -> Option<String> {
        let worth = self.change_ns().unsigned_abs() / 20;
        let overlaps = |leaf: Leaf| several(self).is_some_and(|runs| runs.overlap(|unit| unit.leaves[leaf as usize]));
        let parts: Vec<_> = self
            .leaves
            .iter()
            .take_while(|(_, nanos)| nanos.unsigned_abs() >= worth)
            .filter(|(leaf, _)| !overlaps(*leaf) && (self.same_sampling || !by_samples(*leaf)))
            .take(3)
            .map(|(leaf, nanos)| format!("{} {}", words::cause(*leaf), signed(*nanos as f64)))
            .collect();
        (self.outcome() != StepChange::Unchanged && !parts.is_empty()).then(|| parts.join(", "))
    }
}

fn change_alone(diff: &DeviceDiff) -> String {
    let (a, b) = (diff.a.unit_ns, diff.b.unit_ns);
    let what = match diff.basis {
        Basis::Step => "B's step".to_owned(),
        Basis::Operations => format!("B's time for {}", diff.unit()),
    };
    let times = format!("({} -> {})", duration(a), duration(b));
    let outcome = diff.outcome();
    let lead = if outcome == StepChange::Inconclusive { "Inconclusive: " } else { "" };
    let mut line = match outcome {
        StepChange::Unchanged => return format!("{what} has not changed {times}"),
        _ if b < a => format!("{lead}{what} is {} faster {times}", factor(a, b)),
        _ => format!("{lead}{what} is {} slower {times}", factor(b, a)),
    };
    if outcome == StepChange::Inconclusive && several(diff).is_none() {
        let _ = write!(line, ", but single runs of one program differ by up to {:.2}x", 1.0 / (1.0 - RUNS_DIFFER));
    }
    line
}

/// What several runs show about the change, as a further sentence.
fn shown(diff: &DeviceDiff) -> String {
    let runs = several(diff).filter(|_| diff.outcome() != StepChange::Unchanged);
    runs.map(|runs| format!(". {}", shown_by(runs))).unwrap_or_default()
}

fn several(diff: &DeviceDiff) -> Option<&DeviceRuns> {
    diff.runs.as_ref().filter(|runs| runs.are_several())
}

/// True if host samples decide between this leaf and others.
fn by_samples(leaf: Leaf) -> bool {
    use Leaf::{DataLoading, Dispatch, HostBlocked, HostCpu, KernelBuild};
    matches!(leaf, Dispatch | HostCpu | HostBlocked | DataLoading | KernelBuild)
}

/// What the runs of both sides show about the ratio of their units.
fn shown_by(runs: &DeviceRuns) -> String {
    let (m, n, test) = (runs.a.len(), runs.b.len(), &runs.test);
    let RunTest { p, smallest_p, .. } = *test;
    let Some((low, high)) = test.interval else {
        let fewest = fewest_runs();
        return match test.outcome() {
            StepChange::Inconclusive => format!(
                "{m} and {n} runs are too few: even without any overlap p is {}, and {CHANCE} is needed. Record {fewest} or \
                 more of each",
                probability(smallest_p)
            ),
            _ => format!(
                "Every run of B differs from every run of A by more than {:.0} %, but {m} and {n} runs give no interval: \
                 that takes {fewest} of each",
                RUNS_DIFFER * 1e2
            ),
        };
    };
    format!(
        "With {:.0} % confidence it takes {low:.3} to {high:.3} times as long ({m} and {n} runs, p = {})",
        (test.confidence * 1e2).floor(),
        probability(p)
    )
}

fn probability(p: f64) -> String {
    if p < 0.001 {
        "0.001 or less".to_owned()
    } else {
        format!("{p:.3}").trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

/// Iterations of one kind in A and in B: `decode: p50 9.1 ms -> 8.2 ms, p99 12.4 ms -> 11.0 ms, 1373 -> 1520 tokens/s`.
fn iterations((a, b): &(ServingKind, ServingKind)) -> String {
    let [p50, p99] = [|of: &ServingKind| of.kind.median_ns, |of: &ServingKind| of.kind.p99_ns]
        .map(|of| format!("{} -> {}", duration(of(a)), duration(of(b))));
    let rates = a.tokens_per_second.zip(b.tokens_per_second).map(|(a, b)| format!(", {a:.0} -> {b:.0} tokens/s"));
    format!("{}: p50 {p50}, p99 {p99}{}", a.kind.name, rates.unwrap_or_default())
}

/// What differs between the memory of A and of B; `None` if nothing does to the digits shown.
fn memory((a, b): &(MemoryOfDevice, MemoryOfDevice)) -> Option<String> {
    let peaks = a.peak_used_bytes.map(bytes).zip(b.peak_used_bytes.map(bytes)).filter(|(a, b)| a != b);
    let peak = peaks.map(|(a, b)| format!("Memory in use at the peak: {a} -> {b}."));
    let growth = [a, b].map(|of| match of.growth_per_step {
        Some(growth) => bytes(growth.bytes as u64),
        None if of.growth_judged => "none".to_owned(),
        None => "unknown".to_owned(),
    });
    let grows = a.growth_per_step.or(b.growth_per_step).filter(|_| growth[0] != growth[1]);
    let growth = grows.map(|_| format!("Growth of memory a step: {}.", growth.join(" -> ")));
    let sentences: Vec<_> = [peak, growth].into_iter().flatten().collect();
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// Formats everything, with at most `limit` kernels per device.
pub(super) fn full(diff: &Diff, limit: usize, style: Style) -> String {
    let mut page = Page::new(style);
    let out = &mut page;
    for device in &diff.devices {
        let (a, b) = device.ids;
        let ids = format!("GPU {a} of A, GPU {b} of B");
        if diff.devices.len() > 1 {
            let _ = writeln!(out, "{ids}");
        }
        wrapped_as(out, Paint::Bold, "", &device.answer());
        if let Some(changes) = device.largest_changes() {
            wrapped(out, "  Largest changes: ", &changes);
        }
        for kinds in &device.iterations {
            wrapped(out, "  ", &iterations(kinds));
        }
        if let Some(sentence) = device.memory.as_ref().and_then(memory) {
            wrapped(out, "  ", &sentence);
        }
        if diff.devices.len() == 1 && a != b {
            let _ = writeln!(out, "  {ids}");
        }
        let runs = several(device);
        wrapped(out, "  A: ", &(runs.map_or(String::new(), |runs| all_runs(&runs.a)) + &measured(&device.a)));
        wrapped(out, "  B: ", &(runs.map_or(String::new(), |runs| all_runs(&runs.b)) + &measured(&device.b)));
        if let Some(test) = device.test {
            let percent = test.larger * 100.0;
            let _ = writeln!(out, "  Of all pairs of steps, B's takes longer in {percent:.1} %.");
        }
        if let Some(prediction) = &device.prediction {
            wrapped(out, "  ", &prediction.sentences());
        }
        leaf_table(out, device);
        count_table(out, &device.counts);
        if let Some(limits) = &device.limits {
            limit_table(out, limits);
        }
        row_table(out, "kernels", &device.kernels, limit, device);
        row_table(out, "copies", &device.copies, limit, device);
        place_table(out, device, limit);
    }
    module_table(out, diff, limit);
    let _ = writeln!(out, "{:.1} % of the kernel launches have the same names in A and B.", diff.similarity * 100.0);
    for warning in &diff.warnings {
        wrapped(out, "note: ", warning);
    }
    page.into_text()
}

impl Prediction {
    /// Prediction of A and measured result, in words; if the result is better, with the other causes that
    /// became shorter.
    pub fn sentences(&self) -> String {
        let mut text = format!(
            "Predicted from A: {} faster without {} (a typical step: {} -> {}). Measured: {:.2}x ({}).",
            about(self.predicted_speedup, None),
            words::bottleneck(self.cause),
            duration(self.step_ns),
            duration(self.predicted_step_ns),
            self.actual_speedup,
            duration(self.actual_step_ns)
        );
        let beyond = self.over_best_case_ns();
        if beyond == 0 {
            return text;
        }
        let besides = self.others.iter().filter(|(_, nanos)| *nanos < 0 && nanos.unsigned_abs() >= beyond / 20);
        let besides: Vec<_> =
            besides.take(3).map(|(leaf, nanos)| format!("{} {}", words::cause(*leaf), signed(*nanos as f64))).collect();
        text.push_str(" That is more than predicted: ");
        let _ = if besides.is_empty() {
            write!(
                text,
                "no other cause became shorter, and the simulation of A is {:.1} % off.",
                self.base_error * 100.0
            )
        } else {
            write!(text, "other causes became shorter too ({}).", besides.join(", "))
        };
        text
    }
}

pub(super) fn measured(unit: &Representative) -> String {
    let Some((source, median)) = unit.source.zip(unit.median_ns) else {
        return format!("{} for {}", duration(unit.unit_ns), counted(unit.operations, "GPU operation"));
    };
    format!(
        "mean {} over {} of {} steps ({}), median {}, {}",
        duration(unit.unit_ns),
        unit.averaged,
        unit.considered,
        source.name(),
        duration(median),
        counted(unit.operations, "GPU operation")
    )
}

/// Number of runs and their shortest and longest unit.
pub(super) fn all_runs(runs: &[Representative]) -> String {
    let units = || runs.iter().map(|run| run.unit_ns);
    match (runs.len(), units().min(), units().max()) {
        (2.., Some(least), Some(most)) => {
            format!("{} runs of {} to {}; the median run: ", runs.len(), duration(least), duration(most))
        }
        _ => "1 run: ".to_owned(),
    }
}

/// A row of the table of causes.
pub(super) struct CauseRow {
    pub(super) name: String,
    pub(super) a: u64,
    pub(super) b: u64,
    pub(super) change: i64,
    /// True if runs of A and of B overlap in it.
    pub(super) overlaps: bool,
}

/// Causes whose change is worth a line, the largest first, and the change of the others. The time that only host
/// samples divide is one row if one run lacks them.
pub(super) fn cause_rows(device: &DeviceDiff) -> (Vec<CauseRow>, i64) {
    let (a, b) = (&device.a, &device.b);
    let least = a.unit_ns.max(b.unit_ns) as f64 * WORTH_A_LINE;
    let joined: Vec<Leaf> = Leaf::ALL.into_iter().filter(|&leaf| !device.same_sampling && by_samples(leaf)).collect();
    let row = |name: String, leaves: &[Leaf]| {
        let sum = |unit: &Representative| leaves.iter().map(|&leaf| unit.leaves[leaf as usize]).sum::<u64>();
        let overlaps = several(device).is_some_and(|runs| runs.overlap(sum));
        CauseRow { name, a: sum(a), b: sum(b), change: change(sum(a), sum(b)), overlaps }
    };
    let single = device.leaves.iter().filter(|(leaf, _)| !joined.contains(leaf));
    let single = single.map(|&(leaf, _)| row(format!("{} ({})", words::cause(leaf), leaf.name()), &[leaf]));
    let together = (!joined.is_empty()).then(|| row("the CPU outside CUDA, in sum".to_owned(), &joined));
    let mut rows: Vec<_> = single.chain(together).filter(|row| row.change.unsigned_abs() as f64 >= least).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.change.unsigned_abs()));
    let rest = device.change_ns() - rows.iter().map(|row| row.change).sum::<i64>();
    (rows, rest)
}

fn leaf_table(out: &mut Page, device: &DeviceDiff) {
    let _ = writeln!(out, "  {:>10}{:>12}{:>13}  cause (name in the JSON)", "A", "B", "change");
    let (rows, rest) = cause_rows(device);
    for row in &rows {
        let name = if row.overlaps { format!("~ {}", row.name) } else { row.name.clone() };
        leaf_line(out, &name, &duration(row.a), &duration(row.b), row.change);
    }
    if rest != 0 {
        leaf_line(out, "all others", "", "", rest);
    }
    leaf_line(out, "sum", &duration(device.a.unit_ns), &duration(device.b.unit_ns), device.change_ns());
    if rows.iter().any(|row| row.overlaps) {
        let _ = writeln!(out, "  ~ runs of A and of B overlap here");
    }
}

/// Appends the counts of a step that differ, and names those that are the same in all runs.
fn count_table(out: &mut Page, counts: &[CountRow]) {
    let (equal, other): (Vec<_>, Vec<_>) = counts.iter().partition(|row| row.is_equal());
    if !other.is_empty() {
        let _ = writeln!(out, "  {:>10}{:>12}{:>13}  in each step", "A", "B", "change");
    }
    for row in other {
        let change = if row.is_changed() { count_change(row) } else { "~".to_owned() };
        let _ = writeln!(out, "  {:>10}{:>12}{change:>13}  {}", count(row, row.a), count(row, row.b), row.name);
    }
    if !equal.is_empty() {
        let equal: Vec<_> = equal.iter().map(|row| format!("{} {}", row.name, count(row, row.a))).collect();
        wrapped(out, "  ", &format!("The same in each step: {}.", equal.join(", ")));
    }
}

/// A count, or the fewest and the most of the runs.
pub(super) fn count(row: &CountRow, (least, most): (f64, f64)) -> String {
    let one = |value: f64| amount(row, value);
    if least < most { format!("{}-{}", one(least), one(most)) } else { one(least) }
}

/// The change of a count, with its sign.
pub(super) fn count_change(row: &CountRow) -> String {
    let change = row.change();
    format!("{}{}", if change < 0.0 { '-' } else { '+' }, amount(row, change.abs()))
}

fn amount(row: &CountRow, value: f64) -> String {
    match value {
        _ if row.name == BYTES => bytes(value.round() as u64),
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}

/// Appends a table like that of the causes, for the limits of computation.
fn limit_table(out: &mut Page, limits: &LimitChanges) {
    let sum = |times: &LimitTimes| times.iter().sum::<u64>();
    let (a, b) = (sum(&limits.a), sum(&limits.b));
    let change = change(a, b);
    let least = a.max(b) as f64 * LIMIT_WORTH_A_LINE;
    let _ = writeln!(out, "  {:>10}{:>12}{:>13}  what limits computation (name in the JSON)", "A", "B", "change");
    let mut rest = change;
    for &(limit, nanos) in limits.changes.iter().filter(|(_, nanos)| nanos.unsigned_abs() as f64 >= least) {
        let [in_a, in_b] = [&limits.a, &limits.b].map(|times| duration(times[limit as usize]));
        leaf_line(out, &format!("{} ({})", words::limit(limit), limit.name()), &in_a, &in_b, nanos);
        rest -= nanos;
    }
    if rest != 0 {
        leaf_line(out, "all others", "", "", rest);
    }
    leaf_line(out, "sum, computing (compute)", &duration(a), &duration(b), change);
}

fn leaf_line(out: &mut Page, name: &str, a: &str, b: &str, nanos: i64) {
    let _ = writeln!(out, "  {a:>10}{b:>12}{:>13}  {name}", signed(nanos as f64));
}

fn row_table(out: &mut Page, title: &str, rows: &[DiffRow], limit: usize, device: &DeviceDiff) {
    let least = device.a.unit_ns.max(device.b.unit_ns) as f64 * WORTH_A_LINE;
    let changed: Vec<_> =
        rows.iter().filter(|row| row.is_changed() && row.change_ns().abs() >= least).take(limit).collect();
    let others = rows.len() - changed.len();
    if changed.is_empty() {
        let _ = writeln!(out, "  {title}: none of {} changed noticeably", rows.len());
        return;
    }
    let _ = writeln!(out, "  {title} (start-up included):");
    for row in changed {
        let _ = writeln!(
            out,
            "  {:>width$}  {}",
            signed(row.change_ns()),
            row_text(row, out.columns()),
            width = INDENT - 4
        );
    }
    if others > 0 {
        let _ = writeln!(out, "  {} changed less or not at all", counted(others as u64, "other"));
    }
}

/// Appends the work of CUDA graphs by module in one unit. No test separates a change from chance.
fn module_table(out: &mut Page, diff: &Diff, limit: usize) {
    let unit = |device: &DeviceDiff| device.a.unit_ns.max(device.b.unit_ns);
    let least = diff.devices.iter().map(unit).max().unwrap_or(0) as f64 * WORTH_A_LINE;
    let rows: Vec<_> = diff.modules.iter().filter(|row| row.change_ns().abs() >= least).take(limit).collect();
    let others = diff.modules.len() - rows.len();
    if diff.modules.is_empty() {
        return;
    }
    if rows.is_empty() {
        let _ = writeln!(out, "  work of CUDA graphs by module: none of {others} changed noticeably");
        return;
    }
    let _ =
        writeln!(out, "  {:>10}{:>12}{:>13}  work of CUDA graphs by module (start-up included)", "A", "B", "change");
    for row in rows {
        let [a, b] = [&row.a, &row.b].map(|usage| duration(usage.unit_ns.round() as u64));
        let name = shortened(&row.name, out.columns() - NAMES);
        leaf_line(out, &name, &a, &b, row.change_ns().round() as i64);
    }
    if others > 0 {
        let _ = writeln!(out, "  {} changed less or not at all", counted(others as u64, "other"));
    }
}

/// Appends the changes by position in the step, or the reason why they are unknown.
fn place_table(out: &mut Page, device: &DeviceDiff, limit: usize) {
    let places = match &device.places {
        Ok(places) => places,
        Err(reason) => {
            wrapped(out, "  ", &format!("compared by name only, not by position in the step: {reason}"));
            return;
        }
    };
    let (in_a, in_b) = places.operations;
    let least = device.a.unit_ns.max(device.b.unit_ns) as f64 * WORTH_A_LINE;
    let rows: Vec<_> = places.changed.iter().filter(|row| row.change_ns().abs() >= least).take(limit).collect();
    let _ = writeln!(out, "  by position in the step ({} of {in_a} and {in_b} GPU operations match):", places.aligned);
    for row in &rows {
        let nanos = |nanos: f64| duration(nanos.round() as u64);
        let what = match row.fate {
            Fate::Added => format!("added, {}, number {} of B", nanos(row.b_ns), row.at_b),
            Fate::Removed => format!("removed, {}, number {} of A", nanos(row.a_ns), row.at_a),
            Fate::Slower => format!("slower, {} -> {}, number {} of A", nanos(row.a_ns), nanos(row.b_ns), row.at_a),
            Fate::Faster => format!("faster, {} -> {}, number {} of A", nanos(row.a_ns), nanos(row.b_ns), row.at_a),
        };
        let name = short_name(&row.name, out.columns().saturating_sub(INDENT + what.len() + 2).max(20));
        let _ = writeln!(out, "  {:>width$}  {what}  {name}", signed(row.change_ns()), width = INDENT - 4);
    }
    let others = places.changed.len() - rows.len();
    if others > 0 {
        let _ = writeln!(out, "  {} changed less", counted(others as u64, "place"));
    } else if rows.is_empty() {
        let _ = writeln!(out, "  no place changed");
    }
}

/// Change of a kernel or copy, and its short name.
pub(super) fn row_parts(row: &DiffRow, columns: usize) -> (String, String) {
    let usage = |usage: &Usage| format!("{:.1} x {}", usage.per_unit, duration(usage.mean_ns.round() as u64));
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
    (what, short_name(&row.name, columns - INDENT))
}

fn row_text(row: &DiffRow, columns: usize) -> String {
    // A name that does not fit next to the figures gets a separate line, because kernel names often differ at
    // the end.
    let (what, name) = row_parts(row, columns);
    if INDENT + name.chars().count() + 2 + what.chars().count() > columns {
        format!("{what}\n{:INDENT$}{name}", "")
    } else {
        format!("{name}  {what}")
    }
}

/// `longer` as a multiple of `shorter`.
fn factor(longer: u64, shorter: u64) -> String {
    if shorter == 0 {
        return "infinitely".to_owned();
    }
    let factor = longer as f64 / shorter as f64;
    if factor < 1.095 { format!("{:.1} %", (factor - 1.0) * 100.0) } else { format!("{factor:.2}x") }
}

pub(super) fn signed(nanos: f64) -> String {
    format!("{}{}", if nanos < 0.0 { '-' } else { '+' }, duration(nanos.abs().round() as u64))
}

#[cfg(test)]
mod tests {
    use gpuwhy_report::run::GrowthPerStep;

    use super::*;

    #[test]
    fn memory_is_compared_where_it_is_known() {
        let of = |peak_used_bytes, growth: Option<f64>, growth_judged| MemoryOfDevice {
            peak_used_bytes,
            growth_per_step: growth.map(|bytes| GrowthPerStep { bytes, low: 1.0, high: 9e9, steps_until_full: None }),
            growth_judged,
            ..MemoryOfDevice::default()
        };
        let (small, large) = (of(Some(2_665_349_120), None, true), of(Some(3_100_000_000), Some(3.1e6), true));
        assert_eq!(memory(&(small.clone(), small.clone())), None);
        let expected = "Memory in use at the peak: 2.7 GB -> 3.1 GB. Growth of memory a step: none -> 3.1 MB.";
        assert_eq!(memory(&(small, large.clone())).as_deref(), Some(expected));
        let expected = "Growth of memory a step: 3.1 MB -> unknown.";
        assert_eq!(memory(&(large, of(None, None, false))).as_deref(), Some(expected));
    }
}
