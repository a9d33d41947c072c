//! Two runs of one program: what changed, by how much, and whether it could be chance.
//!
//! The durations of a representative step of each run are compared, and the difference is divided by cause. Every
//! nanosecond of a step has one leaf, so the differences of the leaves sum to the difference of the steps exactly.
//! When one of the runs has no steps, or the steps of the two are not the same thing, the time of equally many
//! operations takes the place of a step, and there is no test of significance.
//!
//! Where A carries replayed ceilings, the one for what B got rid of stands beside what B reached ([`Prediction`]).
//!
//! It compares two reports, not two programs: one run of each says nothing about how much runs differ. It explains
//! by leaf, which is a cause as the device sees it, not a line of source.

mod alignment;
mod caveats;
#[cfg(feature = "serde")]
pub mod json;
mod pair;
mod places;
mod prediction;
mod rows;
mod significance;
mod text;
mod unit;

use std::error::Error;
use std::fmt;

pub use places::{ChangedPlace, Fate, Places};
pub use prediction::Prediction;
pub use rows::{LAUNCHES_SHARE, Launches, Row, SLOWER_SHARE, Speed, Usage};
pub use significance::{RankTest, SIGNIFICANCE, mann_whitney};
pub use unit::{Basis, FEWEST_STEPS, OPERATIONS, Representative, WARM_UP_STEPS};

use crate::attribution::leaf::{Group, Leaf};
use crate::record::DeviceId;
use crate::report::Report;
use crate::text_format::Style;
use pair::Run;

/// Below this similarity of what they execute, two runs are of different programs.
pub const SAME_PROGRAM: f64 = 0.5;

/// One of the two runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first.
    A,
    /// The second.
    B,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::A => "A",
            Self::B => "B",
        })
    }
}

/// Why two runs are not compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Refusal {
    /// A run asked nothing of a device.
    NoWork(Side),
    /// They execute different kernels. Carries the similarity, 0 to 1.
    DifferentPrograms(f64),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoWork(side) => write!(f, "{side} asked nothing of the device for (nearly) all of the time"),
            Self::DifferentPrograms(similarity) => write!(
                f,
                "A and B are different programs: {:.0} % of their kernel executions agree by name, {:.0} % must",
                similarity * 100.0,
                SAME_PROGRAM * 100.0
            ),
        }
    }
}

impl Error for Refusal {}

/// How two runs differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Diff {
    /// The part of kernel executions that the runs have in common by name, 0 to 1.
    pub similarity: f64,
    /// Devices of both runs, paired in the order of their ordinals.
    pub devices: Vec<DeviceDiff>,
    /// What makes the comparison less fair or less sure, a sentence each.
    pub warnings: Vec<String>,
}

/// How two runs differ on one device of each.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceDiff {
    /// The devices, in A and in B.
    pub ids: (DeviceId, DeviceId),
    /// What one unit is.
    pub basis: Basis,
    /// One unit of A.
    pub a: Representative,
    /// One unit of B.
    pub b: Representative,
    /// The rank test of the durations of the steps; `None` when steps are not compared.
    pub test: Option<RankTest>,
    /// Leaves that changed, the largest change first. They sum to [`change_ns`](Self::change_ns) exactly.
    pub leaves: Vec<(Leaf, i64)>,
    /// Groups that changed, likewise.
    pub groups: Vec<(Group, i64)>,
    /// Kernels, the largest change of time in one unit first.
    pub kernels: Vec<Row>,
    /// Copies, likewise.
    pub copies: Vec<Row>,
    /// What changed by place in the step, or why only names can be compared.
    pub places: Result<Places, String>,
    /// What the replay of A foretold of B, if it did.
    pub prediction: Option<Prediction>,
}

/// What became of the duration of one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// B takes less time.
    Faster,
    /// B takes more time.
    Slower,
    /// Equal, or the test says that it could be chance.
    Unchanged,
}

impl DeviceDiff {
    /// Change of the duration of one unit, nanoseconds; negative when B takes less.
    #[must_use]
    pub fn change_ns(&self) -> i64 {
        self.b.unit_ns.cast_signed().wrapping_sub(self.a.unit_ns.cast_signed())
    }

    /// What became of the duration. Without steps there is no test, and every difference counts.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let is_chance = self.test.is_some_and(|test| test.p >= SIGNIFICANCE);
        match self.change_ns() {
            0 => Outcome::Unchanged,
            _ if is_chance => Outcome::Unchanged,
            ..0 => Outcome::Faster,
            1.. => Outcome::Slower,
        }
    }

    /// By how much B is slower, in per cent of A; 0 unless the outcome is [`Outcome::Slower`].
    #[must_use]
    pub fn slower_percent(&self) -> f64 {
        match self.outcome() {
            Outcome::Slower => self.change_ns() as f64 / self.a.unit_ns.max(1) as f64 * 100.0,
            Outcome::Faster | Outcome::Unchanged => 0.0,
        }
    }
}

impl Diff {
    /// What changed, in one line for each device.
    #[must_use]
    pub fn headlines(&self) -> Vec<String> {
        self.devices.iter().map(text::headline).collect()
    }

    /// The comparison for people, with at most `rows` kernels; at most 100 columns.
    #[must_use]
    pub fn text(&self, rows: usize) -> String {
        self.text_within(rows, Style::default())
    }

    /// As [`text`](Self::text), in this style.
    #[must_use]
    pub fn text_within(&self, rows: usize, style: Style) -> String {
        text::full(self, rows, style)
    }

    /// By how much B is slower on the device where it lost most, in per cent of A; see
    /// [`DeviceDiff::slower_percent`].
    #[must_use]
    pub fn slower_percent(&self) -> f64 {
        self.devices.iter().map(DeviceDiff::slower_percent).fold(0.0, f64::max)
    }
}

/// Compares two runs of one program.
///
/// # Errors
///
/// When they cannot be compared: a run without work, or runs of different programs.
pub fn compare(a: &Report, b: &Report) -> Result<Diff, Refusal> {
    for (side, report) in [(Side::A, a), (Side::B, b)] {
        if report.verdict.group == Group::NoWork {
            return Err(Refusal::NoWork(side));
        }
    }
    let similarity = rows::similarity(&a.devices, &b.devices);
    if similarity < SAME_PROGRAM {
        return Err(Refusal::DifferentPrograms(similarity));
    }
    let mut warnings = caveats::caveats(a, b);
    let mut devices = Vec::new();
    for (first, second) in a.devices.iter().zip(&b.devices) {
        let (first, second) = (Run::new(a, first), Run::new(b, second));
        let (diff, sentence) = pair::compare(&first, &second, similarity);
        warnings.extend(sentence);
        devices.push(diff);
    }
    Ok(Diff { similarity, devices, warnings })
}
