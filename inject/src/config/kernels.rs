//! Settings of the measurement of kernels.

use std::time::Duration;

use regex_lite::{Regex, RegexBuilder};

use crate::config::setting::Setting;
use crate::config::value::{on_or_off, or_off, parse_duration};
use crate::config::variable;

/// [`variable::KERNELS`]
pub const KERNELS: Setting<Option<usize>> = Setting {
    name: variable::KERNELS,
    default: "off",
    expected: "a number from 1 to 64, or `off`",
    meaning: "Measures so many kernels with the hardware counters of the GPU, while the program runs (`gpuwhy kernels`): those that \
                  take most time and are farthest from what the GPU can do. A launch that is measured waits some 20 ms. Kernels that \
                  communicate, cooperative ones, those of a second or longer and nodes of CUDA graphs are never measured.",
    parse: |text| or_off(text, |text| text.parse().ok().filter(|count| (1..=64).contains(count))),
};

/// Bytes of a compiled regular expression at most: it is kept, and searched with, in the program that is measured.
const LARGEST_REGEX: usize = 256 << 10;

/// [`variable::KERNEL_NAMES`]
pub const KERNEL_NAMES: Setting<Option<Regex>> = Setting {
    name: variable::KERNEL_NAMES,
    default: "all",
    expected: "a regular expression such as `gemm|softmax`, or `all`",
    meaning: "Only kernels whose name matches are measured: a regular expression in the syntax of the Rust crate `regex-lite`, which \
                  matches anywhere in a name. In names, `(`, `[`, `{` and `*` need a backslash.",
    parse: |text| match text {
        "all" => Some(None),
        _ => RegexBuilder::new(text).size_limit(LARGEST_REGEX).build().ok().map(Some),
    },
};

/// How long program counters are sampled with `on`.
const SOURCE_LENGTH: Duration = Duration::from_secs(1);

/// [`variable::KERNEL_SOURCE`]
pub const KERNEL_SOURCE: Setting<Option<Duration>> = Setting {
    name: variable::KERNEL_SOURCE,
    default: "off",
    expected: "`on`, `off`, or a duration from 50ms to 1m such as 2s",
    meaning: "`on` or a duration samples program counters in all kernels, once enough has run, for this long (`on`: 1s), so that \
                  `gpuwhy kernels --source` tells source lines. The first launches wait up to 0.4 s. Modules (cubins) of the \
                  program in which samples fall are kept in a folder beside the trace, 64 MiB at most.",
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
        let parse = KERNEL_NAMES.parse;
        assert!(parse("all").unwrap().is_none());
        for (pattern, yes, no) in [
            ("gemm", "sm90_gemm_bf16", "gem"),
            ("^(flash|soft)_[a-z]+$", "soft_bwd", "soft_1"),
            ("void f\\(int\\*\\)", "void f(int*)", "void f(int)"),
            ("vector<float>", "f<vector<float>>", "f<vector<int>>"),
        ] {
            let pattern = parse(pattern).unwrap().unwrap();
            assert!(pattern.is_match(yes) && !pattern.is_match(no), "{pattern}");
        }
        for bad in ["a(b", "*a", "[z-a]", "a\\", "(a{1000}){1000}", &"(".repeat(60)] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
