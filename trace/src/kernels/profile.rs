//! What measuring one kernel came to.

use crate::record::{DeviceId, LaunchConfigId, Timestamp};

/// How measuring a kernel ended. The numbers are those of the trace; they are never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// All passes were measured.
    #[default]
    Measured,
    /// No launch of this shape, after the same launches, came within the time for it.
    NotLaunched,
    /// The time or the launches for it were over before all passes were measured.
    OutOfBudget,
    /// Other threads launched work into every pass.
    Disturbed,
    /// The library that counts refused: one of its numbers.
    Refused(u32),
    /// Something else holds the counters, inside this process or outside.
    Busy,
    /// The kernel was launched by a cooperative launch, or in another way that cannot be measured.
    Unsuitable,
    /// For a reason that a newer version knows.
    Unknown,
}

impl Outcome {
    /// Stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::NotLaunched => "not_launched",
            Self::OutOfBudget => "out_of_budget",
            Self::Disturbed => "disturbed",
            Self::Refused(_) => "refused",
            Self::Busy => "busy",
            Self::Unsuitable => "unsuitable",
            Self::Unknown => "unknown",
        }
    }
}

/// One kernel of one shape, measured. Where [`Outcome`] is not [`Measured`](Outcome::Measured), values of the groups of
/// metrics that were complete by then are there, or none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelProfile {
    /// Where it ran.
    pub device: DeviceId,
    /// Its name, shape and resources.
    pub config: LaunchConfigId,
    /// How it ended.
    pub outcome: Outcome,
    /// When the first pass began. Between this and [`end`](Self::end) the program was disturbed.
    pub begin: Timestamp,
    /// When the last pass ended.
    pub end: Timestamp,
    /// Passes that its metrics need.
    pub passes: u32,
    /// Launches that were measured, those of passes that were repeated included.
    pub launches: u32,
    /// Of those, launches whose pass was thrown away: another thread launched into it, or others of its launches have
    /// more of its time.
    pub discarded: u32,
    /// Time that measuring held the launching thread up, nanoseconds.
    pub stall_ns: u64,
    /// Metrics that this chip or library does not have.
    pub missing: Vec<String>,
    /// Metrics and their values, in the units of `unit`.
    pub values: Vec<(String, f64)>,
}

impl KernelProfile {
    /// The value of a metric; `None` when it was not measured or is no number.
    pub fn value(&self, metric: &str) -> Option<f64> {
        let found = self.values.iter().find(|(name, _)| name == metric);
        found.map(|&(_, value)| value).filter(|value| value.is_finite())
    }

    /// The value of a metric in percent as a share, 0 to 1 and a little more where the hardware counts more.
    pub fn share(&self, metric: &str) -> Option<f64> {
        Some(self.value(metric)? / 100.0)
    }
}
