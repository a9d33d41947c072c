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
//! The comparison covers two reports, not two programs: one run of each does not show how much runs vary. It
//! explains by leaf, which is a cause as seen by the device, not a source line.

mod alignment;
mod caveats;
mod compared;
#[cfg(feature = "serde")]
pub mod json;
mod limits;
mod model;
mod pair;
mod places;
mod prediction;
mod rows;
mod significance;
mod text;
mod unit;

pub use alignment::{MOST_EDITS, align};
pub use compared::SAME_PROGRAM;
pub(crate) use compared::same_steps;
pub use limits::LimitChanges;
pub use model::{DeviceDiff, Diff, NotComparable, RUNS_DIFFER, Side, StepChange, within_runs};
pub use places::{ChangedPlace, Fate, Places};
pub use prediction::Prediction;
pub use rows::{DiffRow, LAUNCHES_SHARE, Launches, SLOWER_SHARE, Speed, Usage};
pub use significance::{RankTest, SIGNIFICANCE, mann_whitney};
pub use unit::{Basis, FEWEST_STEPS, OPERATIONS, Representative, WARM_UP_STEPS};
pub(crate) use unit::{comparable, durations, representative};

use crate::run::Report;
use crate::text_format::Style;
use pair::DiffRun;
use profiler_core::attribution::leaf::Cause;

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
}

/// Compares two runs of one program.
///
/// # Errors
/// If they cannot be compared: a run without work, or runs of different programs.
pub fn compare(a: &Report, b: &Report) -> Result<Diff, NotComparable> {
    for (side, report) in [(Side::A, a), (Side::B, b)] {
        if report.bottleneck.cause == Cause::NoWork {
            return Err(NotComparable::NoWork(side));
        }
    }
    let similarity = rows::similarity(&a.devices, &b.devices);
    if similarity < SAME_PROGRAM {
        return Err(NotComparable::DifferentPrograms(similarity));
    }
    let mut warnings = caveats::caveats(a, b);
    let mut devices = Vec::new();
    for (first, second) in a.devices.iter().zip(&b.devices) {
        let (first, second) = (DiffRun::new(a, first), DiffRun::new(b, second));
        let (diff, sentences) = pair::compare(&first, &second, similarity);
        warnings.extend(sentences);
        devices.push(diff);
    }
    Ok(Diff { similarity, devices, warnings })
}
