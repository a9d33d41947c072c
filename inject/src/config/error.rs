//! Errors in the environment: an invalid value, or an unknown variable.
//!
//! Both are reported with the same text by libprof.so, which continues with the default, and by `gpuwhy run`,
//! before the program starts; an invalid value keeps `gpuwhy run` from starting it. A misspelled name would
//! silently have no effect, so every variable with our prefix must be known to some part of gpuwhy.

use std::ffi::OsStr;
use std::fmt;

use gpuwhy_report::text_format::edits;

use crate::config::{CAPTURE_RANGE, FOR_TESTS, MODE, NVTX_CAPTURE, VARIABLES, WARNED, WATCHER};

/// Prefix of all variables of gpuwhy.
const PREFIX: &str = "GPUWHY_";

/// Variables with this prefix that other parts read: the command line, the replay library, tests and scripts.
const READ_ELSEWHERE: &[&str] = &[
    "GPUWHY_BLESS",
    "GPUWHY_LIB",
    "GPUWHY_MUTATIONS",
    "GPUWHY_NSYS",
    "GPUWHY_NSYS_LIBS",
    "GPUWHY_REFERENCE_TRACES",
    "GPUWHY_REPLAY",
    "GPUWHY_REPLAY_COUNTERS",
    "GPUWHY_REPLAY_FAULT",
    "GPUWHY_REPLAY_REPEAT",
    "GPUWHY_REPLAY_SPEED",
    "GPUWHY_REPLAY_THEN",
    "GPUWHY_REPLAY_VERSION",
    "GPUWHY_SOAK",
    // Set by cargo for tests and examples: the version that `build.rs` found.
    "GPUWHY_VERSION",
    WARNED,
    WATCHER,
];

/// An error in a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingsError {
    /// The value is invalid.
    Value {
        /// Name of the variable.
        variable: &'static str,
        /// Value of the variable.
        value: String,
        /// Values that it accepts.
        expected: &'static str,
        /// Default that is used instead.
        default: &'static str,
    },
    /// There is no such variable.
    Name {
        /// Name that is set.
        name: String,
        /// Variable with the most similar name, probably the intended one.
        nearest: Option<&'static str>,
    },
    /// A file name pattern has an unknown placeholder.
    Placeholder {
        /// Name of the variable.
        variable: &'static str,
        /// Unknown placeholder.
        placeholder: String,
    },
    /// A named range is to be captured, but no name is set.
    RangeWithoutName,
    /// A capture is requested in mode auto, which chooses its own.
    CaptureWithAuto {
        /// Variable that requests it.
        variable: &'static str,
    },
}

impl SettingsError {
    /// Variable with the error.
    pub fn variable(&self) -> &str {
        match self {
            Self::Value { variable, .. } | Self::Placeholder { variable, .. } | Self::CaptureWithAuto { variable } => {
                variable
            }
            Self::Name { name, .. } => name,
            Self::RangeWithoutName => NVTX_CAPTURE,
        }
    }

    /// True if something else would be measured than requested. `gpuwhy run` then does not start the program.
    /// An unknown name is not serious: it may be meant for another version or another tool.
    pub fn is_serious(&self) -> bool {
        matches!(self, Self::Value { .. } | Self::RangeWithoutName | Self::CaptureWithAuto { .. })
    }
}

/// Joins the variables of `errors`, for [`WARNED`].
pub fn warned(errors: &[SettingsError]) -> String {
    errors.iter().map(SettingsError::variable).collect::<Vec<_>>().join(",")
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value { variable, value, expected, default } => {
                write!(f, "{variable}={value:?} is not understood: expected {expected}; the default is {default}")
            }
            Self::Name { name, nearest: Some(nearest) } => {
                write!(f, "{name} is no variable of gpuwhy and has no effect: did you mean {nearest}?")
            }
            Self::Name { name, nearest: None } => {
                write!(f, "{name} is no variable of gpuwhy and has no effect: docs/guide/environment.md lists them")
            }
            Self::Placeholder { variable, placeholder } => write!(
                f,
                "{variable}: {placeholder} is no placeholder and stays in the file name as it is (%p, %h, %q{{VAR}}; %% for a percent sign)"
            ),
            Self::CaptureWithAuto { variable } => write!(
                f,
                "{variable} has no effect with {MODE}=auto, which chooses what it records: use {MODE}=light for captures"
            ),
            Self::RangeWithoutName => write!(
                f,
                "-c nvtx needs -p RANGE[@DOMAIN], in the environment {CAPTURE_RANGE}=nvtx {NVTX_CAPTURE}=RANGE[@DOMAIN]"
            ),
        }
    }
}

/// Returns an error if `name` has our prefix and is unknown. A name that is not UTF-8 after the prefix is
/// unknown too.
pub(super) fn unknown(name: &OsStr) -> Option<SettingsError> {
    let name = name.to_string_lossy();
    let ours = VARIABLES.iter().chain(FOR_TESTS).map(|variable| variable.name);
    let known = || ours.clone().chain(READ_ELSEWHERE.iter().copied());
    if !name.starts_with(PREFIX) || known().any(|known| known == name) {
        return None;
    }
    Some(SettingsError::Name { nearest: nearest(&name.to_ascii_uppercase()), name: name.into_owned() })
}

/// Finds the variable with the fewest edits from `name`, if few enough for a typo: one, plus one for every
/// three letters after the prefix, but at most half of the letters. Names far longer than ours are skipped,
/// since the cost is quadratic.
fn nearest(name: &str) -> Option<&'static str> {
    let letters = name.len() - PREFIX.len();
    let ranked = VARIABLES.iter().map(|variable| (edits(name, variable.name), variable.name));
    let (edits, nearest) = (letters <= 64).then(|| ranked.min())??;
    (edits <= (1 + letters / 3).min(letters / 2)).then_some(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(name: &str) -> Option<String> {
        unknown(OsStr::new(name)).map(|error| error.to_string())
    }

    #[test]
    fn a_slip_is_answered_with_what_was_meant() {
        for (slip, meant) in [
            ("GPUWHY_LIFE", "GPUWHY_LIVE?"),
            ("GPUWHY_OUTPT", "GPUWHY_OUTPUT?"),
            ("GPUWHY_BUFFERMEMORY", "GPUWHY_BUFFER_MEMORY?"),
            ("GPUWHY_live", "GPUWHY_LIVE?"),
            ("GPUWHY_DEPENDENCYS", "GPUWHY_DEPENDENCIES?"),
        ] {
            let said = said(slip).unwrap_or_default();
            assert!(said.contains(slip) && said.ends_with(meant), "{said}");
        }
    }

    #[test]
    fn what_is_far_from_everything_gets_no_guess() {
        for name in ["GPUWHY_", "GPUWHY_FOO", "GPUWHY_QWXZJK", &format!("GPUWHY_{}", "A".repeat(10_000))] {
            assert!(said(name).unwrap_or_default().ends_with("lists them"), "{name}");
        }
    }

    #[test]
    fn what_is_known_or_not_ours_is_left_alone() {
        let ours = VARIABLES.iter().chain(FOR_TESTS).map(|variable| variable.name);
        for name in ours.chain(READ_ELSEWHERE.iter().copied()).chain(["PATH", "GPUWHYILER", "MY_GPUWHY_LIVE"]) {
            assert_eq!(said(name), None);
        }
    }
}
