//! Which metrics are sampled: one name for each quantity, as many as fit one pass on a chip.
//!
//! Chips differ in what they count and in what fits together, so nothing is listed by chip: first everything is tried
//! at once, and where that takes more than one pass the quantities are added one by one, the most telling first. This
//! needs no GPU. `testing/layout-check` has what comes of it with released libraries.

use super::Counters;
use super::host::{Collection, Configuration, Host, Names};
use crate::cupti::Error;

/// What a sampled metric tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quantity {
    /// Core clock, Hz.
    Clock,
    /// Multiprocessors with work, percent.
    MultiprocessorsActive,
    /// Instructions issued, percent of the peak.
    Issue,
    /// Tensor pipes at work, percent.
    Tensor,
    /// Bandwidth of device memory, percent of the peak.
    Dram,
    /// Sectors of the L2 cache, percent of the peak.
    L2,
    /// Data pipe of L1 and shared memory, percent of the peak.
    L1,
    /// Resident warps, percent of the most there can be.
    WarpsActive,
    /// Bytes read from device memory, a second.
    DramRead,
    /// Bytes written to device memory, a second.
    DramWrite,
    /// Bytes read over PCI Express, a second.
    PcieRead,
    /// Bytes written over PCI Express, a second.
    PcieWrite,
    /// Bytes received over NVLink, a second.
    NvlinkRead,
    /// Bytes sent over NVLink, a second.
    NvlinkWrite,
    /// The engine that runs kernels at work, percent.
    EngineActive,
}

/// What cannot be missing: without it samples cannot be compared with kernels.
const ESSENTIAL: [Quantity; 2] = [Quantity::Clock, Quantity::MultiprocessorsActive];

/// Names by which a chip may know a quantity, the best first. Those with `dramc__` are left out: their percentages are
/// fractions (H200, CUPTI 13.0).
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

/// Which groups of quantities are wanted beside those of the chip itself. Each is a unit of its own that may send
/// nothing, and then no sample completes: NVLink on a machine with one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Links {
    /// PCI Express.
    pub pcie: bool,
    /// NVLink.
    pub nvlink: bool,
    /// The engine that runs kernels: how long it worked, which is not needed beside records of kernels.
    pub engine: bool,
}

impl Links {
    /// The next smaller choice, when no sample completes with this one.
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

/// A set that fits one pass, ready to be sampled.
#[derive(Debug)]
pub struct SampledSet {
    /// What its metrics tell, in their order.
    pub quantities: Vec<Quantity>,
    /// Their names.
    pub names: Names,
    /// The chip's metrics, which give values to samples.
    pub host: Host,
    /// For the device.
    pub configuration: Configuration,
}

/// The largest set for a chip. `None` when not even the essential quantities fit one pass.
///
/// # Errors
/// When CUPTI does not know the chip, or cannot compute metrics at all.
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

/// These metrics, if the chip has them and they fit one pass.
fn one_pass(
    counters: &'static Counters,
    chip: &str,
    metrics: &[(Quantity, &str)],
) -> Result<Option<SampledSet>, Error> {
    let mut host = Host::open(counters, Collection::Samples, chip, None)?;
    let (quantities, names): (Vec<_>, Vec<_>) = metrics.iter().copied().unzip();
    let names = Names::new(&names);
    // A chip without one of them is refused here, with different codes.
    let fitting = host.configure(&names).ok().filter(|configuration| configuration.passes() == 1);
    Ok(fitting.map(|configuration| SampledSet { quantities, names, host, configuration }))
}
