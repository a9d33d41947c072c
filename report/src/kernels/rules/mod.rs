//! Remedies for a kernel: one rule for each common problem.
//!
//! A rule has a threshold with its source, a check, a sentence and a gain. The gain is local: the maximum
//! share of the kernel's time that would be saved. Gains of rules do not add up, and each is an upper bound.
//! A rule whose input was not measured reports that rather than staying silent. The thresholds marked "ncu"
//! are those of the rule files that come with NVIDIA Nsight Compute 2025.3 (BSD license), in our own words.

mod access;
mod fill;
mod roofs;
mod rule;

use profiler_core::sorting::SortRows as _;

pub use rule::{Check, Evidence, Finding, Rule};

/// All rules.
pub fn all() -> Vec<Rule> {
    [roofs::RULES, fill::RULES, access::RULES].concat()
}

/// Returns the findings: first the rules that apply, the largest gain first; then those without the required
/// input.
pub fn findings(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut found: Vec<_> = all()
        .into_iter()
        .map(|rule| Finding { rule: rule.name, check: rule.check(evidence) })
        .filter(|finding| finding.check != Check::Clear)
        .collect();
    found.sort_rows_by(|a, b| {
        let unknown = |finding: &Finding| matches!(finding.check, Check::CannotTell(_));
        unknown(a).cmp(&unknown(b)).then(b.gain().total_cmp(&a.gain()))
    });
    found
}

#[cfg(test)]
mod tests;
