//! Contents of a comparison.

use std::cmp::Ordering;
use std::error::Error;
use std::fmt;

use gpuwhy_trace::record::DeviceId;
use profiler_core::leaf::{Cause, Leaf};

use super::alike::NotAlike;
use super::compared::SAME_PROGRAM;
use super::counts::CountRow;
use super::limits::LimitChanges;
use super::places::Places;
use super::prediction::Prediction;
use super::rows::{DiffRow, ModuleRow};
use super::run_test::RunTest;
use super::significance::RankTest;
use gpuwhy_report::run::unit::{Basis, Representative};
use gpuwhy_report::run::{MemoryOfDevice, ServingKind};

/// Relative difference, of the longer unit, that two runs of one unchanged program may show: a host, its
/// clocks and its other load change between runs. On shared hosts single runs scattered by 10 to 30 %.
pub const RUNS_DIFFER: f64 = 0.3;

/// One of the two programs.
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

/// Reason not to compare two runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NotComparable {
    /// A run launched no device work.
    NoWork(Side),
    /// They execute different kernels. Contains the similarity, 0 to 1.
    DifferentPrograms(f64),
    /// The traces of a side are not runs of one program.
    NotAlike(Side, NotAlike),
}

impl fmt::Display for NotComparable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAlike(side, why) => write!(f, "{side}: {why}"),
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

impl Error for NotComparable {}

/// Differences between two runs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Diff {
    /// Number of runs of A and of B.
    pub runs: (usize, usize),
    /// Indices of the runs of A and B that are compared in detail: those with the median step, the lower one of two in
    /// the middle.
    pub medians: (usize, usize),
    /// Bottlenecks of these two.
    pub bottlenecks: (Cause, Cause),
    /// Share of kernel executions, by name, common to both runs, 0 to 1; of several, the smallest.
    pub similarity: f64,
    /// Devices of both runs, paired in the order of their ordinals.
    pub devices: Vec<DeviceDiff>,
    /// Work of CUDA graphs by module in one unit of all devices, the largest change first; empty unless the origins
    /// are known in both runs.
    pub modules: Vec<ModuleRow>,
    /// Reasons why the comparison is less fair or less certain, one sentence each.
    pub warnings: Vec<String>,
}

/// The units of all runs on one device.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeviceRuns {
    /// Those of A.
    pub a: Vec<Representative>,
    /// Those of B.
    pub b: Vec<Representative>,
    /// Their test.
    pub test: RunTest,
}

impl DeviceRuns {
    /// True for more than one run each.
    pub fn are_several(&self) -> bool {
        self.a.len() + self.b.len() > 2
    }

    /// True if the runs of A and those of B overlap in a part of the unit.
    pub(super) fn overlap(&self, part: impl Fn(&Representative) -> u64) -> bool {
        let range = |runs: &[Representative]| {
            let parts = || runs.iter().map(&part);
            (parts().min().unwrap_or(0), parts().max().unwrap_or(0))
        };
        let (a, b) = (range(&self.a), range(&self.b));
        a.0 <= b.1 && b.0 <= a.1
    }
}

/// Differences between two runs on one device of each.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeviceDiff {
    /// The devices, in A and in B.
    pub ids: (DeviceId, DeviceId),
    /// Unit of the comparison.
    pub basis: Basis,
    /// One unit of A.
    pub a: Representative,
    /// One unit of B.
    pub b: Representative,
    /// Rank test of the step durations: shows that the two recordings differ, not that the programs do.
    /// `None` when steps are not compared, and for several runs.
    pub test: Option<RankTest>,
    /// All runs; `None` if a unit takes no time.
    pub runs: Option<DeviceRuns>,
    /// Iterations of a server in A and in B, of the kinds that both have.
    pub iterations: Vec<(ServingKind, ServingKind)>,
    /// Memory of the device in A and in B, if both are known.
    pub memory: Option<(MemoryOfDevice, MemoryOfDevice)>,
    /// Counts of one step; empty unless all runs have steps that repeat.
    pub counts: Vec<CountRow>,
    /// True if both runs or none have host samples. Otherwise the time of the CPU outside CUDA is divided in different
    /// ways.
    pub same_sampling: bool,
    /// Leaves that changed, the largest change first. They sum to [`change_ns`](Self::change_ns) exactly.
    pub leaves: Vec<(Leaf, i64)>,
    /// Causes that changed, the largest change first. They sum to [`change_ns`](Self::change_ns) exactly.
    pub causes: Vec<(Cause, i64)>,
    /// Changes in the limits of computation; `None` unless both runs have hardware counter samples.
    pub limits: Option<LimitChanges>,
    /// Kernels, the largest change of time in one unit first.
    pub kernels: Vec<DiffRow>,
    /// Copies, the largest change of time in one unit first.
    pub copies: Vec<DiffRow>,
    /// Changes by position in the step, or the reason why only names can be compared.
    pub places: Result<Places, String>,
    /// Prediction for B by the simulation of A, if there is one and the step changed.
    pub prediction: Option<Prediction>,
}

/// Change in the duration of one unit, as far as one run of each shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StepChange {
    /// B takes less time.
    Faster,
    /// B takes more time.
    Slower,
    /// Equal, or the steps of the two recordings do not differ by the test.
    Unchanged,
    /// As much as runs of one program may differ: by less than [`RUNS_DIFFER`] for one run each, within the interval of
    /// [`RunTest`] for several.
    Inconclusive,
}

impl StepChange {
    /// The direction from one time to another.
    pub(crate) fn between(before: u64, after: u64) -> Self {
        match after.cmp(&before) {
            Ordering::Less => Self::Faster,
            Ordering::Equal => Self::Unchanged,
            Ordering::Greater => Self::Slower,
        }
    }
}

impl DeviceDiff {
    /// Change of the duration of one unit, nanoseconds; negative when B takes less.
    pub fn change_ns(&self) -> i64 {
        self.b.unit_ns.cast_signed().wrapping_sub(self.a.unit_ns.cast_signed())
    }

    /// What the durations and times by cause are of: `one step`, or a number of operations.
    pub fn unit(&self) -> String {
        match self.basis {
            Basis::Step => "one step".to_owned(),
            Basis::Operations => format!("{} GPU operations", self.b.operations),
        }
    }

    /// Outcome for the duration: that of the runs, but unchanged if the steps of one run each do not differ.
    pub fn outcome(&self) -> StepChange {
        match &self.runs {
            _ if self.test.is_some_and(|test| test.is_chance()) => StepChange::Unchanged,
            Some(runs) => runs.test.outcome(),
            None => StepChange::between(self.a.unit_ns, self.b.unit_ns),
        }
    }
}
