//! What to do about a kernel: one rule for each thing that is commonly wrong.
//!
//! A rule has a threshold with its source, a check, a sentence and a gain. The gain is local: the part of the kernel's
//! time that would go, at most. Gains of rules do not add up, and each is an upper bound. What a rule needs and was not
//! measured makes it say so rather than stay silent. The thresholds marked "ncu" are those of the rule files that come
//! with NVIDIA Nsight Compute 2025.3 (BSD license), in our own words.

mod access;
mod fill;
mod roofs;

use super::{Figures, Peaks, Roofline};
use crate::geometry::{Geometry, Multiprocessors};
use crate::record::LaunchConfig;

/// What rules look at.
#[derive(Clone, Debug)]
pub struct Evidence<'a> {
    /// Name, shape and resources.
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
    check: fn(&Evidence<'_>, f64) -> Check,
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
    #[must_use]
    pub fn gain(&self) -> f64 {
        match self.check {
            Check::Applies { local_gain, .. } => local_gain.unwrap_or(0.0),
            _ => 0.0,
        }
    }
}

/// All rules.
#[must_use]
pub fn all() -> Vec<Rule> {
    [roofs::RULES, fill::RULES, access::RULES].concat()
}

/// What rules say: those that apply first, the largest gain first; then those that cannot tell.
#[must_use]
pub fn findings(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut found: Vec<_> = all()
        .into_iter()
        .map(|rule| Finding { rule: rule.name, check: (rule.check)(evidence, rule.threshold) })
        .filter(|finding| finding.check != Check::Clear)
        .collect();
    found.sort_by(|a, b| {
        let unknown = |finding: &Finding| matches!(finding.check, Check::CannotTell(_));
        unknown(a).cmp(&unknown(b)).then(b.gain().total_cmp(&a.gain()))
    });
    found
}

impl Evidence<'_> {
    /// What hiding latency can bring at most: the issue slots that are left, and what is left to the nearest roof.
    fn latency_limit(&self) -> Option<f64> {
        let (_, nearest) = self.figures.nearest_roof()?;
        let issued = self.figures.issued_per_cycle.unwrap_or(0.0);
        Some((1.0 - issued).min(1.0 - nearest).clamp(0.0, 1.0))
    }
}

/// A share in percent.
fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests;
