//! Settings for measuring kernels.

use regex_lite::{Regex, RegexBuilder};

use crate::config::value::or_off;

/// Maximum size of a compiled regular expression, bytes: it is held and executed in the measured program.
const LARGEST_REGEX: usize = 256 << 10;

fn regex(text: &str) -> Result<Regex, regex_lite::Error> {
    RegexBuilder::new(text).size_limit(LARGEST_REGEX).build()
}

/// Parses [`KernelRequest`], or `off`.
pub fn parse_chosen(text: &str) -> Option<Option<KernelRequest>> {
    or_off(text, |text| {
        let (most, names) = text.split_once(':').map_or((text, None), |(most, names)| (most, Some(names)));
        let most = most.parse().ok().filter(|most| (1..=64).contains(most))?;
        Some(KernelRequest { most, names: names.map(regex).transpose().ok()? })
    })
}

/// Measurements of kernels that are requested.
#[derive(Clone, Debug)]
pub struct KernelRequest {
    /// Maximum number of kernels.
    pub most: usize,
    /// Pattern of the kernels' names.
    pub names: Option<Regex>,
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
            let pattern = parse(pattern).unwrap().unwrap().names.unwrap();
            assert!(pattern.is_match(yes) && !pattern.is_match(no), "{pattern}");
        }
        for bad in ["a(b", "*a", "[z-a]", "a\\", "(a{1000}){1000}", &"(".repeat(60)] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
