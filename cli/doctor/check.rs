//! One check of `gpuwhy doctor` and its result.

use console::{StyledObject, style};
use serde::Serialize;

/// Exit code when a check failed.
pub const FAILED: u8 = 1;

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// No problem.
    Ok,
    /// Profiling is possible, with a limitation.
    Warn,
    /// Profiling is not possible.
    Fail,
}

impl Status {
    /// Status as printed; four columns wide.
    pub fn shown(self) -> StyledObject<&'static str> {
        match self {
            Self::Ok => style("ok  ").green(),
            Self::Warn => style("warn").yellow(),
            Self::Fail => style("FAIL").red().bold(),
        }
    }
}

/// One line of the output.
#[derive(Debug, Serialize)]
pub struct Check {
    /// Name of the check; stable, for scripts.
    pub name: &'static str,
    pub status: Status,
    /// Finding and its meaning.
    pub finding: String,
    /// Recommended action; `None` when no action is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Check {
    /// Result without a problem.
    pub fn ok(name: &'static str, finding: impl Into<String>) -> Self {
        Self { name, status: Status::Ok, finding: finding.into(), advice: None }
    }

    /// Result with a limitation.
    pub fn warn(name: &'static str, finding: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, status: Status::Warn, finding: finding.into(), advice: Some(advice.into()) }
    }

    /// Result that rules out profiling.
    pub fn fail(name: &'static str, finding: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, status: Status::Fail, finding: finding.into(), advice: Some(advice.into()) }
    }
}
