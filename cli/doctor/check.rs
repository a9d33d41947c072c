//! One check of `gpuwhy doctor` and how it ended.

use console::{StyledObject, style};
use serde::Serialize;

/// Exit code when a check failed.
pub const FAILED: u8 = 1;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// A profile is possible, with a limitation.
    Warn,
    /// A profile is not possible.
    Fail,
}

impl Status {
    /// As printed; four columns wide.
    pub fn shown(self) -> StyledObject<&'static str> {
        match self {
            Self::Ok => style("ok  ").green(),
            Self::Warn => style("warn").yellow(),
            Self::Fail => style("FAIL").red().bold(),
        }
    }
}

/// One line of the answer.
#[derive(Debug, Serialize)]
pub struct Check {
    /// What was looked at; stable, for scripts.
    pub name: &'static str,
    pub status: Status,
    /// What was found and what it means.
    pub finding: String,
    /// What to do; absent when there is nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Check {
    /// All is well.
    pub fn ok(name: &'static str, finding: impl Into<String>) -> Self {
        Self { name, status: Status::Ok, finding: finding.into(), advice: None }
    }

    /// A limitation.
    pub fn warn(name: &'static str, finding: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, status: Status::Warn, finding: finding.into(), advice: Some(advice.into()) }
    }

    /// No profile is possible.
    pub fn fail(name: &'static str, finding: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, status: Status::Fail, finding: finding.into(), advice: Some(advice.into()) }
    }
}
