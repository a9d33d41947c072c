//! What a rule is, what it looks at and what it says.

use gpuwhy_trace::geometry::{Geometry, Multiprocessors};
use gpuwhy_trace::record::LaunchConfig;

use crate::kernels::{Figures, Peaks, Roofline};

/// What rules look at.
#[derive(Clone, Debug)]
pub struct Evidence<'a> {
    /// Mangled name.
    pub name: &'a str,
    /// Shape and resources.
    pub launch: &'a LaunchConfig,
    /// The device's capability, major and minor.
    pub capability: [u32; 2],
    /// What was measured.
    pub figures: &'a Figures,
    /// Roofs.
    pub roofline: &'a Roofline,
    /// Peaks of the device.
    pub peaks: Option<&'a Peaks>,
    /// How the grid fills the device.
    pub geometry: Option<&'a Geometry>,
    /// Room of a multiprocessor.
    pub room: Option<&'a Multiprocessors>,
}

/// What a rule says about a kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum Check {
    /// It applies.
    Applies {
        /// What was found, one sentence with the numbers.
        says: String,
        /// What to do, one sentence.
        advice: &'static str,
        /// The part of the kernel's time that would go at most, 0 to 1; `None` where nothing tells.
        local_gain: Option<f64>,
    },
    /// It was checked and does not apply.
    Clear,
    /// What it needs was not measured.
    CannotTell(&'static str),
}

/// One rule.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Stable name.
    pub name: &'static str,
    /// From where on it applies, in the unit that its description gives.
    pub threshold: f64,
    /// What the threshold is about and where it is from.
    pub source: &'static str,
    pub(super) check: fn(&Evidence<'_>, f64) -> Check,
}

impl Rule {
    /// What it says about a kernel.
    pub fn check(&self, evidence: &Evidence<'_>) -> Check {
        (self.check)(evidence, self.threshold)
    }
}

/// A rule that applies, or that cannot tell.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Name of the rule.
    pub rule: &'static str,
    /// What it says; never [`Check::Clear`].
    pub check: Check,
}

impl Finding {
    /// The local gain; 0 where it is not known.
    pub fn gain(&self) -> f64 {
        match self.check {
            Check::Applies { local_gain, .. } => local_gain.unwrap_or(0.0),
            _ => 0.0,
        }
    }
}

impl Evidence<'_> {
    /// What hiding latency can bring at most: the issue slots that are left, and what is left to the nearest roof.
    pub(super) fn latency_limit(&self) -> Option<f64> {
        let (_, nearest) = self.figures.nearest_roof()?;
        let issued = self.figures.issued_per_cycle.unwrap_or(0.0);
        Some((1.0 - issued).min(1.0 - nearest).clamp(0.0, 1.0))
    }
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
