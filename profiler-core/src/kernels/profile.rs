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
    #[must_use]
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

    /// One sentence for people, with what to do; `None` when the kernel was measured.
    #[must_use]
    pub fn sentence(self) -> Option<String> {
        Some(match self {
            Self::Measured => return None,
            Self::NotLaunched => {
                "it was not launched again with this shape and after the same launches; let the program run longer, or choose it with --kernel"
                    .to_owned()
            }
            Self::OutOfBudget => {
                "the time or launches for it were over before all passes were measured; fewer kernels (--top) leave more time for each"
                    .to_owned()
            }
            Self::Disturbed => "other threads launched work into every pass; profile it from one thread".to_owned(),
            Self::Refused(code) => refused(code),
            Self::Busy => "another tool on this GPU holds its counters (ncu, nsys, or DCGM: `dcgmi profile --pause`); \
                           end it and repeat"
                .to_owned(),
            Self::Unsuitable => "it is launched cooperatively or in a way that cannot be measured".to_owned(),
            Self::Unknown => "for a reason that a newer version of gpuwhy knows".to_owned(),
        })
    }
}

impl Outcome {
    /// As [`sentence`](Self::sentence), where program counters of a device were to be sampled.
    #[must_use]
    pub fn window_sentence(self) -> Option<String> {
        match self {
            Self::NotLaunched => Some(
                "the program ended before enough had run, no module was loaded after gpuwhy began, or nothing ran while \
                 program counters were sampled"
                    .to_owned(),
            ),
            Self::Disturbed => Some(
                "other threads were inside CUDA calls whenever sampling was to begin, or at its end; sample it while \
                 fewer threads call CUDA"
                    .to_owned(),
            ),
            outcome => outcome.sentence(),
        }
    }
}

/// What a number of `CUptiResult` means here.
fn refused(code: u32) -> String {
    match code {
        35 => "this user may not read the counters; run as root, or load the driver with \
               NVreg_RestrictProfilingToAdminUsers=0"
            .to_owned(),
        26 => "something on this machine holds the counters of the GPU; end it and repeat".to_owned(),
        17 => "this GPU does not have one of the metrics; choose another --set".to_owned(),
        33 | 40..=45 => {
            format!(
                "counters cannot be read in this environment, such as MIG, MPS, vGPU or confidential computing ({code})"
            )
        }
        code => format!("CUPTI refused (error {code}) and does not say why; repeat it alone on this GPU"),
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
    /// Metrics and their values, in the units of [`unit`](super::sets::unit).
    pub values: Vec<(String, f64)>,
}

impl KernelProfile {
    /// The value of a metric; `None` when it was not measured or is no number.
    #[must_use]
    pub fn value(&self, metric: &str) -> Option<f64> {
        let found = self.values.iter().find(|(name, _)| name == metric);
        found.map(|&(_, value)| value).filter(|value| value.is_finite())
    }

    /// The value of a metric in percent as a share, 0 to 1 and a little more where the hardware counts more.
    #[must_use]
    pub fn share(&self, metric: &str) -> Option<f64> {
        Some(self.value(metric)? / 100.0)
    }
}
