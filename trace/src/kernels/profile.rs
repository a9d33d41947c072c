//! Measurements of one kernel.

use crate::record::{DeviceId, LaunchConfigId, Timestamp};

/// Outcome of measuring a kernel. The numbers are those of the trace and are never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// All passes were measured.
    #[default]
    Measured,
    /// No launch of this shape, following the same launches, occurred within the time limit.
    NotLaunched,
    /// The limit on time or launches was reached before all passes were measured.
    OutOfBudget,
    /// Other threads launched work during every pass.
    Disturbed,
    /// The counter library returned this error code.
    Refused(u32),
    /// The counters are in use by another tool, inside or outside this process.
    Busy,
    /// The kernel was launched cooperatively, or in another way that cannot be measured.
    Unsuitable,
    /// A reason of a newer version.
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

/// Measurements of one kernel with one shape. If [`Outcome`] is not [`Measured`](Outcome::Measured), only the
/// metric groups completed by then have values, or none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelProfile {
    /// Device it ran on.
    pub device: DeviceId,
    /// Name, shape and resources.
    pub config: LaunchConfigId,
    /// Outcome of the measurement.
    pub outcome: Outcome,
    /// Start of the first pass. The program was disturbed from then until [`end`](Self::end).
    pub begin: Timestamp,
    /// End of the last pass.
    pub end: Timestamp,
    /// Number of passes that the metrics require.
    pub passes: u32,
    /// Number of measured launches, including those of repeated passes.
    pub launches: u32,
    /// Measured launches whose pass was discarded: another thread launched work during it, or other launches
    /// account for more of the kernel's time.
    pub discarded: u32,
    /// Time for which measuring delayed the launching thread, nanoseconds.
    pub stall_ns: u64,
    /// Metrics that this chip or library does not support.
    pub missing: Vec<String>,
    /// Metrics and their values, in the units of `unit`.
    pub values: Vec<(String, f64)>,
}

impl KernelProfile {
    /// Value of a metric; `None` if it was not measured or is not a number.
    pub fn value(&self, metric: &str) -> Option<f64> {
        let found = self.values.iter().find(|(name, _)| name == metric);
        found.map(|&(_, value)| value).filter(|value| value.is_finite())
    }

    /// Value of a percentage metric as a fraction, 0 to 1, or slightly more if the hardware overcounts.
    pub fn share(&self, metric: &str) -> Option<f64> {
        Some(self.value(metric)? / 100.0)
    }
}
