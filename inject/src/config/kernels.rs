//! Settings of the measurement of kernels.

use std::time::Duration;

use regex_lite::{Regex, RegexBuilder};

use crate::config::setting::Setting;
use crate::config::value::{on_or_off, or_off, parse_duration};
use crate::config::variable;

/// Bytes of a compiled regular expression at most: it is kept, and searched with, in the program that is measured.
const LARGEST_REGEX: usize = 256 << 10;

fn regex(text: &str) -> Result<Regex, regex_lite::Error> {
    RegexBuilder::new(text).size_limit(LARGEST_REGEX).build()
}

/// [`variable::KERNELS`]
pub const KERNELS: Setting<Option<(usize, Option<Regex>)>> = Setting {
    name: variable::KERNELS,
    default: "off",
    expected: "a number from 1 to 64, also with a regular expression such as 5:gemm|softmax, or `off`",
    meaning: "For authors of kernels: how many are [measured](kernels.md) with hardware counters while the \
              program runs, those that are worth it most. `5:gemm\\|softmax` chooses among those whose name \
              matches. A launch that is measured waits some 20 ms.",
    parse: |text| {
        or_off(text, |text| {
            let (count, names) = text.split_once(':').map_or((text, None), |(count, names)| (count, Some(names)));
            let count = count.parse().ok().filter(|count| (1..=64).contains(count))?;
            Some((count, names.map(regex).transpose().ok()?))
        })
    },
};

/// How long program counters are sampled with `on`.
const SOURCE_LENGTH: Duration = Duration::from_secs(1);

/// [`variable::KERNEL_SOURCE`]
pub const KERNEL_SOURCE: Setting<Option<Duration>> = Setting {
    name: variable::KERNEL_SOURCE,
    default: "off",
    expected: "`on`, `off`, or a duration from 50ms to 1m such as 2s",
    meaning: "For authors of kernels: `on` (1 s) or a duration samples program counters for [source \
              lines](kernels.md#source-lines). Only builds with the cargo feature `pc-sampling` have it. The first \
              launches wait up to 0.4 s. Modules of the program are kept in a folder beside the trace, 64 MiB at most.",
    parse: |text| match on_or_off(text) {
        Some(is_on) => Some(is_on.then_some(SOURCE_LENGTH)),
        None => {
            let range = Duration::from_millis(50)..=Duration::from_secs(60);
            parse_duration(text).filter(|length| range.contains(length)).map(Some)
        }
    },
};

/// What is measured of kernels.
#[derive(Clone, Debug)]
pub struct KernelRequest {
    /// Kernels at most; 0: none is measured by ranges.
    pub most: usize,
    /// Which.
    pub names: Option<Regex>,
    /// For how long program counters are sampled before; `None`: they are not.
    pub source: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kernels_are_matched_by_a_regular_expression() {
        let parse = |names: &str| (KERNELS.parse)(&format!("5:{names}"));
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
