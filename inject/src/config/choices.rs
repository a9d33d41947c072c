//! Settings that are one of a few words.

use crate::config::value::{is_off, on_or_off, one_of};

/// What a record of a CUDA graph is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Graphs {
    /// A node.
    Nodes,
    /// A launch.
    Whole,
    /// A launch at first, and a node once those are known to be cheap.
    Auto,
}

impl Graphs {
    /// From its text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        one_of(text, &[("node", Self::Nodes), ("graph", Self::Whole), ("auto", Self::Auto)])
    }
}

/// Whether other tools can use CUPTI: `GPUWHY_CUPTI_SHARING`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CuptiSharing {
    /// This library keeps CUPTI to the end of the process.
    Exclusive,
    /// Other tools can use CUPTI: this library releases it, and pauses while another tool records.
    Yield,
}

impl CuptiSharing {
    /// From its text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        one_of(text, &[("exclusive", Self::Exclusive), ("yield", Self::Yield)])
    }
}

/// Whether host threads are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// As far as it is possible.
    Auto,
    /// The same, and what is not possible is said at once.
    On,
    /// Not at all.
    Off,
}

/// Whether stacks of host threads have native functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeStacks {
    /// As far as it is possible.
    Auto,
    /// The same, in programs with Python: the first thread of others need not be the one that launches.
    WithPython,
    /// Python functions alone.
    Off,
}

/// What is read of the devices themselves: `GPUWHY_GPU_METRICS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuMetrics {
    /// Python functions alone.
    Off,
    /// Gauges: power, temperature, clocks, memory, traffic.
    Gauges,
    /// Gauges, and samples of hardware counters where they are to be had.
    Auto,
    /// The same, and what is not to be had is said at once; at this rate, samples a second, where one is named.
    On(Option<u32>),
}

impl GpuMetrics {
    /// Slowest and fastest rates that can be named, samples a second. Below 10 a step has too few samples. At 10,000
    /// decoding takes 50 to 75 % of a core, and the fastest that one thread decoded was 15,000 (H200).
    const RATES: std::ops::RangeInclusive<u32> = 10..=10_000;

    /// From its text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            "gauges" => Some(Self::Gauges),
            _ if is_off(text) => Some(Self::Off),
            _ => match text.split_once(':') {
                Some((on, rate)) => {
                    let rate = rate.parse().ok().filter(|rate| Self::RATES.contains(rate))?;
                    (on_or_off(on)?).then_some(Self::On(Some(rate)))
                }
                None => on_or_off(text)?.then_some(Self::On(None)),
            },
        }
    }

    /// Whether hardware counters are wanted.
    #[must_use]
    pub const fn samples(self) -> bool {
        matches!(self, Self::Auto | Self::On(_))
    }
}

/// How much of the program's command line is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandLine {
    /// All but what looks like a secret.
    Full,
    /// The program without its arguments.
    Name,
    /// Nothing.
    Off,
}

impl Sampling {
    /// From its text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            _ => on_or_off(text).map(|on| if on { Self::On } else { Self::Off }),
        }
    }
}

impl NativeStacks {
    /// From its text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        one_of(text, &[("auto", Self::Auto)]).or_else(|| is_off(text).then_some(Self::Off))
    }
}

impl ReportStyle {
    /// From its text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        one_of(text, &[("summary", Self::Summary), ("1", Self::Summary), ("on", Self::Summary), ("full", Self::Full)])
            .or_else(|| is_off(text).then_some(Self::Off))
    }
}

impl CommandLine {
    /// From its text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        one_of(text, &[("full", Self::Full), ("name", Self::Name)]).or_else(|| is_off(text).then_some(Self::Off))
    }
}

/// How much is printed at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportStyle {
    /// Nothing.
    Off,
    /// Verdict, leaves, top kernels.
    Summary,
    /// Everything.
    Full,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_of_devices_may_name_a_rate() {
        assert_eq!(GpuMetrics::parse("on:500"), Some(GpuMetrics::On(Some(500))));
        assert_eq!(GpuMetrics::parse("on:10000"), Some(GpuMetrics::On(Some(10_000))));
        assert_eq!(GpuMetrics::parse("on"), Some(GpuMetrics::On(None)));
        assert_eq!(GpuMetrics::parse("gauges"), Some(GpuMetrics::Gauges));
        assert_eq!(
            [GpuMetrics::parse("auto"), GpuMetrics::parse("0")],
            [Some(GpuMetrics::Auto), Some(GpuMetrics::Off)]
        );
        for bad in ["on:0", "on:9", "on:10001", "on:", "off:100", "gauges:10", "fast", ""] {
            assert_eq!(GpuMetrics::parse(bad), None, "{bad}");
        }
    }
}
