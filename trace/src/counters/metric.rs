//! Metrics of hardware samples: the code, unit and name of each.

use crate::named;

/// Maximum number of metrics in a set; they fit into one pass of a device with room to spare.
pub const METRIC_LIMIT: usize = 16;

named! {
    /// Unit of a metric's value.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Unit: name {
        /// Percent of the peak of the unit over the elapsed cycles of the sample, 0 to 100.
        Percent "percent",
        /// Events per second: bytes or cycles.
        PerSecond "per_second",
        /// Events per sample.
        Count "count",
    }
}

macro_rules! metrics {
    ($($(#[$doc:meta])* $code:literal $variant:ident $name:literal $unit:ident;)*) => {
        /// A sampled metric. Codes are stable because traces contain them. Each variant lists its CUPTI name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Metric {
            $($(#[$doc])* $variant = $code,)*
        }

        impl Metric {
            /// All metrics, by code.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Metric with this code; `None` if this version does not know it.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Stable name in reports, tables and exports.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Unit of the value.
            pub const fn unit(self) -> Unit {
                match self {
                    $(Self::$variant => Unit::$unit,)*
                }
            }
        }
    };
}

metrics! {
    /// A metric unknown to this version: its values are kept but have no meaning.
    0 Unknown "unknown" Count;
    /// Core clock, Hz: `gpc__cycles_elapsed.avg.per_second`.
    1 Clock "core_clock" PerSecond;
    /// SMs with at least one warp: `sm__cycles_active.avg.pct_of_peak_sustained_elapsed`.
    2 MultiprocessorsActive "sm_active" Percent;
    /// Warp instructions issued: `sm__inst_executed_realtime.avg.pct_of_peak_sustained_elapsed`.
    3 Issue "issue" Percent;
    /// Active tensor pipes: `sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed`.
    4 Tensor "tensor" Percent;
    /// Device memory bandwidth: `gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed`.
    5 Dram "dram" Percent;
    /// L2 cache sectors: `lts__t_sectors.avg.pct_of_peak_sustained_elapsed`.
    6 L2 "l2" Percent;
    /// Data pipe of L1 and shared memory: `l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed`.
    7 L1 "l1" Percent;
    /// Resident warps: `sm__warps_active_realtime.avg.pct_of_peak_sustained_elapsed`.
    8 WarpsActive "warps_active" Percent;
    /// Bytes read from device memory: `dram__bytes_read.sum.per_second`.
    9 DramRead "dram_read" PerSecond;
    /// Bytes written to device memory: `dram__bytes_write.sum.per_second`.
    10 DramWrite "dram_write" PerSecond;
    /// Bytes received by the device over PCI Express: `pcie__read_bytes.sum.per_second`.
    11 PcieRead "pcie_read" PerSecond;
    /// Bytes sent by the device over PCI Express: `pcie__write_bytes.sum.per_second`.
    12 PcieWrite "pcie_write" PerSecond;
    /// Bytes received by the device over NVLink: `nvlrx__bytes.sum.per_second`.
    13 NvlinkRead "nvlink_read" PerSecond;
    /// Bytes sent by the device over NVLink: `nvltx__bytes.sum.per_second`.
    14 NvlinkWrite "nvlink_write" PerSecond;
    /// Activity of the engine that runs kernels: `gr__cycles_active.avg.pct_of_peak_sustained_elapsed`.
    15 EngineActive "engine_active" Percent;
}

/// The metrics of a set, in the order of a sample's values. At most [`METRIC_LIMIT`], each once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetricList {
    list: [Metric; METRIC_LIMIT],
    len: u8,
}

impl MetricList {
    /// Creates a list without repeated metrics and those beyond [`METRIC_LIMIT`]. Unknown metrics keep their
    /// positions.
    pub fn new(metrics: &[Metric]) -> Self {
        let mut list = Self { list: [Metric::Clock; METRIC_LIMIT], len: 0 };
        for &metric in metrics {
            if (metric == Metric::Unknown || list.position(metric).is_none()) && (list.len as usize) < METRIC_LIMIT {
                list.list[list.len as usize] = metric;
                list.len += 1;
            }
        }
        list
    }

    /// The metrics as a slice.
    pub fn as_slice(&self) -> &[Metric] {
        &self.list[..self.len as usize]
    }

    /// Index of the value of `metric` in a sample.
    pub fn position(&self, metric: Metric) -> Option<usize> {
        self.as_slice().iter().position(|&known| known == metric)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_are_each_their_own() {
        for (index, &metric) in Metric::ALL.iter().enumerate() {
            assert_eq!(Metric::from_code(metric as u8), Some(metric));
            assert!(Metric::ALL[..index].iter().all(|other| other.name() != metric.name()), "{metric:?}");
        }
        assert_eq!(Metric::from_code(255), None);
        assert!(Metric::ALL.len() <= METRIC_LIMIT, "a set may hold them all");
    }

    #[test]
    fn a_list_holds_each_metric_once() {
        let list = MetricList::new(&[Metric::Issue, Metric::Clock, Metric::Issue]);
        assert_eq!(list.as_slice(), [Metric::Issue, Metric::Clock]);
        assert_eq!(list.position(Metric::Clock), Some(1));
        assert_eq!(list.position(Metric::Dram), None);
    }
}
