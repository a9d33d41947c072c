//! Settings for measuring kernels.

use std::time::Duration;

use regex_lite::{Regex, RegexBuilder};

use crate::config::value::{on_or_off, or_off, parse_duration};

/// Maximum size of a compiled regular expression, bytes: it is held and executed in the measured program.
const LARGEST_REGEX: usize = 256 << 10;

fn regex(text: &str) -> Result<Regex, regex_lite::Error> {
    RegexBuilder::new(text).size_limit(LARGEST_REGEX).build()
}

/// Number of kernels to measure, and a pattern of their names.
pub type Chosen = (usize, Option<Regex>);

/// Parses [`Chosen`], or `off`.
pub fn parse_chosen(text: &str) -> Option<Option<Chosen>> {
    or_off(text, |text| {
        let (count, names) = text.split_once(':').map_or((text, None), |(count, names)| (count, Some(names)));
        let count = count.parse().ok().filter(|count| (1..=64).contains(count))?;
        Some((count, names.map(regex).transpose().ok()?))
    })
}

/// Duration of PC sampling with `on`.
const SOURCE_LENGTH: Duration = Duration::from_secs(1);

/// Parses the duration of PC sampling.
pub fn parse_source(text: &str) -> Option<Option<Duration>> {
    match on_or_off(text) {
        Some(is_on) => Some(is_on.then_some(SOURCE_LENGTH)),
        None => {
            let range = Duration::from_millis(50)..=Duration::from_secs(60);
            parse_duration(text).filter(|length| range.contains(length)).map(Some)
        }
    }
}

/// Measurements of kernels that are requested.
#[derive(Clone, Debug)]
pub struct KernelRequest {
    /// Maximum number of kernels; 0: none is measured by ranges.
    pub most: usize,
    /// Pattern of the kernels' names.
    pub names: Option<Regex>,
    /// Duration of PC sampling, which comes first; `None` disables it.
    pub source: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kernels_are_matched_by_a_regular_expression() {
        let parse = |names: &str| parse_chosen(&format!("5:{names}"));
        for (pattern, yes, no) in [
            ("gemm", "sm90_gemm_bf16", "gem"),
            ("^(flash|soft)_[a-z]+$", "soft_bwd", "soft_1"),
            ("void f\\(int\\*\\)", "void f(int*)", "void f(int)"),
            ("vector<float>", "f<vector<float>>", "f<vector<int>>"),
        ] {
            let pattern = parse(pattern).unwrap().unwrap().1.unwrap();
            assert!(pattern.is_match(yes) && !pattern.is_match(no), "{pattern}");
        }
        for bad in ["a(b", "*a", "[z-a]", "a\\", "(a{1000}){1000}", &"(".repeat(60)] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
