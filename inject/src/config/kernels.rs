//! Settings of the measurement of kernels.

use std::time::Duration;

use profiler_core::kernels::{Pattern, sets};

use crate::config::setting::Setting;
use crate::config::value::{is_off, or_off, parse_duration};
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

/// [`variable::KERNEL_NAMES`]
pub const KERNEL_NAMES: Setting<Option<Pattern>> = Setting {
    name: variable::KERNEL_NAMES,
    default: "all",
    expected: "a regular expression such as `gemm|softmax`, or `all`",
    meaning: "Only kernels whose name matches are measured: a regular expression with literals, `.`, `[a-z]`, `*`, `+`, `?`, `\\|`, \
                  groups, `^` and `$`.",
    parse: |text| if text == "all" { Some(None) } else { Pattern::new(text).ok().map(Some) },
};

/// [`variable::KERNEL_METRICS`]
pub const KERNEL_METRICS: Setting<Vec<Vec<String>>> = Setting {
    name: variable::KERNEL_METRICS,
    default: "full",
    expected: "sets (core, sol, memory, stalls, full) and names of metrics, separated by commas",
    meaning: "What is measured of a kernel: sets (`core`, `sol`, `memory`, `stalls`, `full`) and names of metrics, separated by \
                  commas. `gpuwhy kernels --query-metrics` lists them. They are measured in this order, a few at each launch; of a \
                  program that ends before, the first are there.",
    parse: sets::groups,
};

/// [`variable::KERNEL_LAUNCHES`]
pub const KERNEL_LAUNCHES: Setting<u32> = Setting {
    name: variable::KERNEL_LAUNCHES,
    default: "100",
    expected: "a number from 1 to 10000",
    meaning: "At most so many launches of a kernel are measured.",
    parse: |text| text.parse().ok().filter(|count| (1..=10_000).contains(count)),
};

/// [`variable::KERNEL_STALL`]
pub const KERNEL_STALL: Setting<Duration> = Setting {
    name: variable::KERNEL_STALL,
    default: "5s",
    expected: "a duration from 10ms to 10m such as 5s",
    meaning: "Measuring kernels may hold the program up for at most about this long in all.",
    parse: |text| {
        let range = Duration::from_millis(10)..=Duration::from_secs(600);
        parse_duration(text).filter(|limit| range.contains(limit))
    },
};

/// Why nobody samples program counters without having agreed to it.
pub const SOURCE_MAY_HANG: &str = "sampling program counters can hang the program for good: CUPTI can deadlock with a \
     program that launches while the sampling starts (seen on an H100 with CUPTI 13.0)";

/// What is asked for by `GPUWHY_KERNEL_SOURCE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceRequest {
    /// Nothing is sampled.
    Off,
    /// Sampling, without the word that says that the program may hang: refused.
    Refused,
    /// Sampling for so long.
    MayHang(Duration),
}

/// [`variable::KERNEL_SOURCE`]
pub const KERNEL_SOURCE: Setting<SourceRequest> = Setting {
    name: variable::KERNEL_SOURCE,
    default: "off",
    expected: "`off`, `may-hang`, or `may-hang:` with a duration from 50ms to 1m such as `may-hang:2s`",
    meaning: "`may-hang` or `may-hang:TIME` samples program counters in all kernels, once enough has run, for this long (1s), so \
                  that `gpuwhy kernels --source` tells source lines. **The program may hang for good**: CUPTI can deadlock with a \
                  program that launches while the sampling starts (seen on an H100 with CUPTI 13.0); so `on` and a bare duration are \
                  refused. The first launches wait up to 0.4 s. Modules (cubins) of the program in which samples fall are kept in a \
                  folder beside the trace, 64 MiB at most.",
    parse: |text| {
        let duration = |text| {
            parse_duration(text).filter(|time| (Duration::from_millis(50)..=Duration::from_secs(60)).contains(time))
        };
        match (text, text.strip_prefix("may-hang:")) {
            ("may-hang", _) => Some(SourceRequest::MayHang(Duration::from_secs(1))),
            (_, Some(time)) => duration(time).map(SourceRequest::MayHang),
            ("on", _) => Some(SourceRequest::Refused),
            _ if is_off(text) => Some(SourceRequest::Off),
            _ => duration(text).map(|_| SourceRequest::Refused),
        }
    },
};

/// What is measured of kernels.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelRequest {
    /// Kernels at most; 0: none is measured by ranges.
    pub most: usize,
    /// Which.
    pub names: Option<Pattern>,
    /// Metrics, in groups that are measured one after the other.
    pub groups: Vec<Vec<String>>,
    /// Launches of a kernel at most.
    pub launches: u32,
    /// How long the program may be held up, in all.
    pub stall: Duration,
    /// For how long program counters are sampled before; `None`: they are not.
    pub source: Option<Duration>,
}
