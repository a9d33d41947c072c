//! Comparison of two runs of one program: the changes, their size, and their significance.
//!
//! The durations of a representative step of each run are compared, and the difference is divided by cause.
//! Every nanosecond of a step has one leaf, so the differences of the leaves sum to the difference of the
//! steps exactly. When one of the runs has no steps, or the steps of the two are not comparable, the time of
//! equally many operations replaces a step, and there is no test of significance.
//!
//! If A contains simulated best cases, the one for the cost that B removed is compared with the step of B
//! ([`Prediction`]).
//!
//! One run of each program does not show how much its runs vary. With several of each, `run_test` compares the runs,
//! and those with the median step are compared in detail. Counts of a step vary with the program alone.
//!
//! The comparison explains by leaf, which is a cause as seen by the device, not a source line.

mod alignment;
mod alike;
mod caveats;
mod compared;
mod counts;
pub mod json;
mod limits;
mod markdown;
mod model;
mod pair;
mod places;
mod prediction;
mod rows;
mod run_test;
mod significance;
mod text;

pub use alignment::{MOST_EDITS, align};
pub use alike::{MOST_RUNS, NotAlike, alike};
pub use compared::SAME_PROGRAM;
pub(crate) use compared::{change, ranked, same_steps};
pub use counts::CountRow;
pub use limits::LimitChanges;
pub use model::{DeviceDiff, DeviceRuns, Diff, NotComparable, RUNS_DIFFER, Side, StepChange};
pub use places::{ChangedPlace, Fate, Places};
pub use prediction::Prediction;
pub(crate) use rows::in_common;
pub use rows::{DiffRow, LAUNCHES_SHARE, Launches, MODULES, ModuleRow, SLOWER_SHARE, Speed, Usage};
pub use run_test::{CHANCE, RunTest, fewest_runs};
pub use significance::{RankTest, mann_whitney};

use gpuwhy_report::run::Report;
use gpuwhy_report::run::unit::Representative;
use gpuwhy_report::text_format::Style;
use pair::{DiffRun, Units, UnitsOfRun};
use profiler_core::leaf::Cause;

impl Diff {
    /// Changes in one line per device.
    pub fn headlines(&self) -> Vec<String> {
        self.devices.iter().map(text::headline).collect()
    }

    /// Formats the comparison as text, with at most `rows` kernels; at most 100 columns.
    pub fn text(&self, rows: usize) -> String {
        self.text_within(rows, Style::default())
    }

    /// Like [`text`](Self::text), in this style.
    pub fn text_within(&self, rows: usize, style: Style) -> String {
        text::full(self, rows, style)
    }

    /// Formats the comparison as Markdown, with at most `rows` kernels. `names` are those of A and B.
    pub fn markdown(&self, rows: usize, names: (&str, &str)) -> String {
        markdown::full(self, rows, names)
    }
}

/// Compares two runs of one program.
///
/// # Errors
/// If they cannot be compared: a run without work, or runs of different programs.
pub fn compare(a: &Report, b: &Report) -> Result<Diff, NotComparable> {
    compare_runs(&[a], &[b])
}

/// Compares two programs, or two versions of one, by up to [`MOST_RUNS`] runs of each.
///
/// # Errors
/// If they cannot be compared: a side without runs or with too many, with a run twice, or with ranks of a job; a run
/// without work; runs of different programs.
pub fn compare_runs(a: &[&Report], b: &[&Report]) -> Result<Diff, NotComparable> {
    let similarity = similarity(a, b)?;
    let shared = a.iter().chain(b).map(|report| report.devices.len()).min().unwrap_or(0);
    let units: Vec<_> = (0..shared).map(|device| Units::of(&on(a, device), &on(b, device), similarity)).collect();
    let medians = (median(a.len(), &units, |units| &units.a), median(b.len(), &units, |units| &units.b));
    let (first, second) = (a[medians.0], b[medians.1]);
    let mut warnings = caveats::caveats(first, second);
    let (mut devices, mut sums) = (Vec::new(), [UnitsOfRun::default(); 2]);
    for (device, units) in units.into_iter().enumerate() {
        let (a, b) = (on(a, device), on(b, device));
        let (diff, sentences) = pair::compare(&a, &b, units, medians, similarity);
        warnings.extend(sentences);
        sums[0].add(&a[medians.0], &diff.a);
        sums[1].add(&b[medians.1], &diff.b);
        devices.push(diff);
    }
    let [before, after] = sums.map(|units| units.scale());
    let origins = first.graph_origins.as_ref().zip(second.graph_origins.as_ref());
    let modules = origins.map(|(a, b)| rows::modules(a, b, (before, after))).unwrap_or_default();
    let bottlenecks = (first.bottleneck.cause, second.bottleneck.cause);
    Ok(Diff { runs: (a.len(), b.len()), medians, bottlenecks, similarity, devices, modules, warnings })
}

/// The device with this index of each run.
fn on<'a>(runs: &[&'a Report], device: usize) -> Vec<DiffRun<'a>> {
    runs.iter().map(|report| DiffRun::new(report, &report.devices[device])).collect()
}

/// Smallest similarity of a run to the first one of its side, or of A.
fn similarity(a: &[&Report], b: &[&Report]) -> Result<f64, NotComparable> {
    let mut smallest = 1.0_f64;
    for (side, runs) in [(Side::A, a), (Side::B, b)] {
        if runs.iter().any(|report| report.bottleneck.cause == Cause::NoWork) {
            return Err(NotComparable::NoWork(side));
        }
        smallest = smallest.min(alike(runs).map_err(|why| NotComparable::NotAlike(side, why))?);
    }
    for run in b {
        let similarity = rows::similarity(&a[0].devices, &run.devices);
        if similarity < SAME_PROGRAM {
            return Err(NotComparable::DifferentPrograms(similarity));
        }
        smallest = smallest.min(similarity);
    }
    Ok(smallest)
}

/// Index of the run with the median unit, summed over devices; of two in the middle, the lower one.
fn median(runs: usize, units: &[Units], of: impl Fn(&Units) -> &[Representative]) -> usize {
    let total = |run: usize| units.iter().map(|units| of(units)[run].unit_ns).fold(0_u64, u64::saturating_add);
    let mut order: Vec<usize> = (0..runs).collect();
    order.sort_by_key(|&run| (total(run), run));
    order.get(runs.saturating_sub(1) / 2).copied().unwrap_or(0)
}
