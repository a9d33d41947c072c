//! The metrics that are sampled: one for each quantity, as many as fit into one pass on a chip.
//!
//! Chips differ in their metrics and in which of them fit together, so there is no list of chips. All
//! quantities are tried at once; if they need more than one pass, they are added one by one, the most
//! informative first. This needs no GPU. `testing/layout-check` has the results for released libraries.

use super::Counters;
use super::host::{Collection, Configuration, Host, MetricNames};
use crate::cupti::Error;

/// Quantity that a sampled metric measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quantity {
    /// Core clock in Hz.
    Clock,
    /// Active multiprocessors, percent.
    MultiprocessorsActive,
    /// Instruction issue rate, percent of the peak.
    Issue,
    /// Active tensor pipes, percent.
    Tensor,
    /// Device memory bandwidth, percent of the peak.
    Dram,
    /// L2 cache sectors, percent of the peak.
    L2,
    /// Data pipe of L1 and shared memory, percent of the peak.
    L1,
    /// Resident warps, percent of the maximum.
    WarpsActive,
    /// Bytes per second read from device memory.
    DramRead,
    /// Bytes per second written to device memory.
    DramWrite,
    /// Bytes per second read over PCI Express.
    PcieRead,
    /// Bytes per second written over PCI Express.
    PcieWrite,
    /// Bytes per second received over NVLink.
    NvlinkRead,
    /// Bytes per second sent over NVLink.
    NvlinkWrite,
    /// Active time of the engine that runs kernels, percent.
    EngineActive,
}

/// Required quantities: without them samples cannot be compared with kernels.
const ESSENTIAL: [Quantity; 2] = [Quantity::Clock, Quantity::MultiprocessorsActive];

/// Candidate metrics for each quantity, the best first; chips differ in their names. Metrics with `dramc__`
/// are left out: their percentages are fractions (H200, CUPTI 13.0).
const METRICS: &[(Quantity, &[&str])] = &[
    (Quantity::Clock, &["gpc__cycles_elapsed.avg.per_second"]),
    (Quantity::MultiprocessorsActive, &["sm__cycles_active.avg.pct_of_peak_sustained_elapsed"]),
    (Quantity::EngineActive, &["gr__cycles_active.avg.pct_of_peak_sustained_elapsed"]),
    (
        Quantity::Issue,
        &[
            "sm__inst_executed_realtime.avg.pct_of_peak_sustained_elapsed",
            "sm__inst_executed.avg.pct_of_peak_sustained_elapsed",
        ],
    ),
    (
        Quantity::Tensor,
        &[
            "sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed",
            "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
        ],
    ),
    (Quantity::Dram, &["gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"]),
    (Quantity::L2, &["lts__t_sectors.avg.pct_of_peak_sustained_elapsed"]),
    (Quantity::L1, &["l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed"]),
    (Quantity::WarpsActive, &["sm__warps_active_realtime.avg.pct_of_peak_sustained_elapsed"]),
    (Quantity::DramRead, &["dram__bytes_read.sum.per_second", "dram__bytes_op_read.sum.per_second"]),
    (Quantity::DramWrite, &["dram__bytes_write.sum.per_second", "dram__bytes_op_write.sum.per_second"]),
    (Quantity::PcieRead, &["pcie__read_bytes.sum.per_second"]),
    (Quantity::PcieWrite, &["pcie__write_bytes.sum.per_second"]),
    (Quantity::NvlinkRead, &["nvlrx__bytes.sum.per_second"]),
    (Quantity::NvlinkWrite, &["nvltx__bytes.sum.per_second"]),
];

/// Groups of quantities to sample in addition to those of the chip itself. Each is a separate unit that may
/// send no counters, and then no sample completes: NVLink on a host with one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Links {
    /// PCI Express.
    pub pcie: bool,
    /// NVLink.
    pub nvlink: bool,
    /// Active time of the engine that runs kernels; redundant if there are kernel records.
    pub engine: bool,
}

impl Links {
    /// The next smaller choice, for when no sample completes with this one.
    #[must_use]
    pub const fn without_one(self) -> Option<Self> {
        match self {
            Self { engine: true, .. } => Some(Self { engine: false, ..self }),
            Self { nvlink: true, .. } => Some(Self { nvlink: false, ..self }),
            Self { pcie: true, .. } => Some(Self { pcie: false, ..self }),
            _ => None,
        }
    }

    const fn want(self, quantity: Quantity) -> bool {
        match quantity {
            Quantity::PcieRead | Quantity::PcieWrite => self.pcie,
            Quantity::NvlinkRead | Quantity::NvlinkWrite => self.nvlink,
            Quantity::EngineActive => self.engine,
            _ => true,
        }
    }
}

/// A set that fits into one pass, ready for sampling.
#[derive(Debug)]
pub struct SampledSet {
    /// Quantities that its metrics measure, in the same order.
    pub quantities: Vec<Quantity>,
    /// Names of the metrics.
    pub names: MetricNames,
    /// Metrics of the chip, which compute the values of samples.
    pub host: Host,
    /// Configuration for the device.
    pub configuration: Configuration,
}

/// The largest set for a chip. `None` if not even the essential quantities fit into one pass.
///
/// # Errors
/// If CUPTI does not know the chip, or cannot compute metrics.
pub fn choose(counters: &'static Counters, chip: &str, links: Links) -> Result<Option<SampledSet>, Error> {
    let wanted: Vec<_> = METRICS.iter().filter(|(quantity, _)| links.want(*quantity)).collect();
    let everything: Vec<_> = wanted.iter().filter_map(|(quantity, names)| Some((*quantity, *names.first()?))).collect();
    if let Some(set) = one_pass(counters, chip, &everything)? {
        return Ok(Some(set));
    }
    let mut chosen: Vec<(Quantity, &str)> = Vec::new();
    let mut largest = None;
    for (quantity, names) in wanted {
        for name in *names {
            chosen.push((*quantity, *name));
            if let Some(set) = one_pass(counters, chip, &chosen)? {
                largest = Some(set);
                break;
            }
            chosen.pop();
        }
        if ESSENTIAL.contains(quantity) && !chosen.iter().any(|(found, _)| found == quantity) {
            return Ok(None);
        }
    }
    Ok(largest)
}

/// These metrics, if the chip has them and they fit into one pass.
fn one_pass(
    counters: &'static Counters,
    chip: &str,
    metrics: &[(Quantity, &str)],
) -> Result<Option<SampledSet>, Error> {
    let mut host = Host::open(counters, Collection::Samples, chip, None)?;
    let (quantities, names): (Vec<_>, Vec<_>) = metrics.iter().copied().unzip();
    let names = MetricNames::new(&names);
    // A chip that lacks one of the metrics refuses here, with different codes.
    let fitting = host.configure(&names).ok().filter(|configuration| configuration.passes() == 1);
    Ok(fitting.map(|configuration| SampledSet { quantities, names, host, configuration }))
}
