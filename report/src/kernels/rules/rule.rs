//! Definition of a rule, its input and its result.

use gpuwhy_trace::geometry::{Geometry, Multiprocessors};
use gpuwhy_trace::record::LaunchConfig;

use crate::kernels::{Figures, Peaks, Roofline};

/// Input of the rules.
#[derive(Clone, Debug)]
pub struct Evidence<'a> {
    /// Mangled name.
    pub name: &'a str,
    /// Shape and resources.
    pub launch: &'a LaunchConfig,
    /// The device's capability, major and minor.
    pub capability: [u32; 2],
    /// Measured figures.
    pub figures: &'a Figures,
    /// Rooflines.
    pub roofline: &'a Roofline,
    /// Peak rates of the device.
    pub peaks: Option<&'a Peaks>,
    /// How the grid fills the device.
    pub geometry: Option<&'a Geometry>,
    /// Resources of a multiprocessor.
    pub room: Option<&'a Multiprocessors>,
}

/// Result of a rule for a kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum Check {
    /// The rule applies.
    Applies {
        /// The finding, one sentence with the numbers.
        says: String,
        /// The remedy, one sentence.
        advice: &'static str,
        /// Maximum share of the kernel's time that would be saved, 0 to 1; `None` if unknown.
        local_gain: Option<f64>,
    },
    /// The rule was checked and does not apply.
    Clear,
    /// The input of the rule was not measured.
    CannotTell(&'static str),
}

/// One rule.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Stable name.
    pub name: &'static str,
    /// Value from which the rule applies, in the unit given by `source`.
    pub threshold: f64,
    /// Quantity compared with the threshold, and source of the threshold.
    pub source: &'static str,
    pub(super) check: fn(&Evidence<'_>, f64) -> Check,
}

impl Rule {
    /// Applies the rule to a kernel.
    pub fn check(&self, evidence: &Evidence<'_>) -> Check {
        (self.check)(evidence, self.threshold)
    }
}

/// A rule that applies, or that lacks its input.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Name of the rule.
    pub rule: &'static str,
    /// Its result; never [`Check::Clear`].
    pub check: Check,
}

impl Finding {
    /// The local gain; 0 if unknown.
    pub fn gain(&self) -> f64 {
        match self.check {
            Check::Applies { local_gain, .. } => local_gain.unwrap_or(0.0),
            _ => 0.0,
        }
    }
}

impl Evidence<'_> {
    /// Maximum gain from hiding latency: limited by the free issue slots and by the distance to the nearest
    /// roofline.
    pub(super) fn latency_limit(&self) -> Option<f64> {
        let (_, nearest) = self.figures.nearest_roof()?;
        let issued = self.figures.issued_per_cycle.unwrap_or(0.0);
        Some((1.0 - issued).min(1.0 - nearest).clamp(0.0, 1.0))
    }
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
