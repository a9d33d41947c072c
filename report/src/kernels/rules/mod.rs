//! What to do about a kernel: one rule for each thing that is commonly wrong.
//!
//! A rule has a threshold with its source, a check, a sentence and a gain. The gain is local: the part of the kernel's
//! time that would go, at most. Gains of rules do not add up, and each is an upper bound. What a rule needs and was not
//! measured makes it say so rather than stay silent. The thresholds marked "ncu" are those of the rule files that come
//! with NVIDIA Nsight Compute 2025.3 (BSD license), in our own words.

mod access;
mod fill;
mod roofs;
mod rule;

pub use rule::{Check, Evidence, Finding, Rule};

/// All rules.
pub fn all() -> Vec<Rule> {
    [roofs::RULES, fill::RULES, access::RULES].concat()
}

/// What rules say: those that apply first, the largest gain first; then those that cannot tell.
pub fn findings(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut found: Vec<_> = all()
        .into_iter()
        .map(|rule| Finding { rule: rule.name, check: rule.check(evidence) })
        .filter(|finding| finding.check != Check::Clear)
        .collect();
    found.sort_by(|a, b| {
        let unknown = |finding: &Finding| matches!(finding.check, Check::CannotTell(_));
        unknown(a).cmp(&unknown(b)).then(b.gain().total_cmp(&a.gain()))
    });
    found
}

#[cfg(test)]
mod tests;
