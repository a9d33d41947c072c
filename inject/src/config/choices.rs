//! Settings with a fixed set of words as values.

use crate::config::value::{is_off, on_or_off};

/// Granularity of the records of CUDA graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Graphs {
    /// One record per node; in bursts if that costs more than the budget.
    Auto,
    /// One record per node.
    Nodes,
    /// One record per launch.
    Whole,
}

/// Use of CUPTI by other tools: `GPUWHY_CUPTI_SHARING`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CuptiSharing {
    /// This library keeps CUPTI to the end of the process.
    Exclusive,
    /// Other tools can use CUPTI: this library releases it, and pauses while another tool records.
    Yield,
}

/// Sampling of host threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// If possible.
    Auto,
    /// If possible; failures are reported at once.
    On,
    /// Disabled.
    Off,
}

/// Native functions in the stacks of host threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeStacks {
    /// If possible.
    Auto,
    /// If possible, in programs with Python: in other programs the first thread need not be the one that
    /// launches.
    WithPython,
    /// Only Python functions.
    Off,
}

/// Readings of the devices themselves: `GPUWHY_GPU_METRICS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuMetrics {
    /// None.
    Off,
    /// NVML readings: power, temperature, clocks, memory, traffic.
    Gauges,
    /// NVML readings, and samples of GPU counters if they are available.
    Auto,
    /// As `Auto`, with failures reported at once; optionally at this rate, samples a second.
    On(Option<u32>),
}

impl GpuMetrics {
    /// Range of the rate, samples a second. Below 10, a step has too few samples. At 10,000, decoding takes
    /// 50 to 75 % of a core; the fastest rate that one thread decoded was 15,000 (H200).
    const RATES: std::ops::RangeInclusive<u32> = 10..=10_000;

    /// Parses the text of the setting.
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

    /// True if GPU counters are to be sampled.
    pub const fn samples(self) -> bool {
        matches!(self, Self::Auto | Self::On(_))
    }
}

/// Parts of the program's command line that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandLine {
    /// Everything except words that look like secrets.
    Full,
    /// The program without its arguments.
    Name,
    /// None.
    Off,
}

/// Length of the report that is printed at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportStyle {
    /// No report.
    Off,
    /// Bottleneck, causes, top kernels.
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
