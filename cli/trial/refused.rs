//! Ends of `gpuwhy try` without an answer.

use std::error::Error;
use std::fmt;

/// Exit code when there was nothing to try, or no time per step.
pub const NOTHING: u8 = 1;
/// Exit code for a trace that cannot be read, or an unknown remedy.
pub const BAD_INPUT: u8 = 2;

/// The exit code and the reason, which is empty if it has been said.
#[derive(Debug)]
pub struct Refused(pub u8, pub String);

impl Refused {
    /// Gives errors this exit code.
    pub fn with(code: u8) -> impl Fn(anyhow::Error) -> Self {
        move |why| Self(code, format!("{why:#}"))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.1)
    }
}

impl Error for Refused {}
