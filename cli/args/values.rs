//! Types of option values that several subcommands share.

use std::ffi::OsString;
use std::time::Duration;

use gpuwhy_inject::config;

/// A duration from 1s to 1h.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let allowed = Duration::from_secs(1)..=Duration::from_secs(3600);
    let time = config::parse_duration(text).filter(|time| allowed.contains(time));
    time.ok_or_else(|| "expected a duration from 1s to 1h".to_owned())
}

/// A finite number that is not negative.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok();
    let number = number.filter(|number| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "expected a number, such as 5 or 2.5%".to_owned())
}

/// Validates a value with the parser of libprof.so, which would otherwise continue with the default.
pub(super) fn value_of(
    variable: &'static str,
) -> impl Fn(&str) -> Result<String, String> + Clone + Send + Sync + 'static {
    move |text| match config::expected(variable, text) {
        None => Ok(text.to_owned()),
        Some(expected) => Err(format!("expected {expected}")),
    }
}

/// A variable with its value.
pub(super) fn variable(text: &str) -> Result<(OsString, OsString), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    pair.map(|(name, value)| (name.into(), value.into())).ok_or_else(|| "NAME=VALUE is expected".to_owned())
}
