//! Counts and durations by kernel name, launch configuration, copy path and API function, in bounded memory.
//!
//! These describe each operation independently of concurrent ones; they do not sum to the window. They are
//! updated as records arrive, so they need no order and are complete even when the timeline is not.
//!
//! The effect of a launch configuration on a device (occupancy, waves) is not computed here: the device's
//! description may come after its first kernels, and integer counts are the same in every order of delivery.

use gpuwhy_trace::record::{ApiFunctionId, CopyKind, LaunchConfigId, MemoryKind, NameId};
use rustc_hash::FxHashMap;

use crate::leaf::Leaf;
pub use crate::quantile::Durations;

/// Distinct kernel names kept per device. Large programs have hundreds, just-in-time compilers thousands;
/// beyond this, kernels share one row. At 1 KiB per row (durations that spread over 14 powers of two; 4 KiB
/// for all 64) this bounds the table to 16 MiB.
const KERNEL_LIMIT: usize = 16_384;

/// Launch configurations counted per device, by id (32 bytes each, 2 MiB). Dynamic shapes make many; kernels
/// whose configuration has a higher id are of unknown geometry.
const CONFIG_LIMIT: usize = 65_536;

/// API functions with an id used as index; CUDA has some 1,500 in total.
const FUNCTIONS: usize = 4_096;

/// A kernel shorter than this is tiny: launching one costs the host 5 to 10 us, so a stream of tiny kernels
/// runs at the rate of the host, and the start and end of the grid are a large part of each.
pub const TINY_NANOS: u64 = 10_000;

/// Direction and memory of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CopyPath {
    /// Direction.
    pub kind: CopyKind,
    /// Memory read from.
    pub source: MemoryKind,
    /// Memory written to.
    pub destination: MemoryKind,
}

impl CopyPath {
    /// Leaf of a copy while no more valuable operation runs. A host end that is neither pageable nor pinned (managed
    /// memory, not reported) has a separate leaf: it supports no advice.
    pub const fn leaf(self) -> Leaf {
        match (self.kind, self.source, self.destination) {
            (CopyKind::HostToDevice, MemoryKind::Pageable, _) => Leaf::CopyH2dPageable,
            (CopyKind::HostToDevice, MemoryKind::Pinned, _) => Leaf::CopyH2dPinned,
            (CopyKind::HostToDevice, ..) => Leaf::CopyH2dOther,
            (CopyKind::DeviceToHost, _, MemoryKind::Pageable) => Leaf::CopyD2hPageable,
            (CopyKind::DeviceToHost, _, MemoryKind::Pinned) => Leaf::CopyD2hPinned,
            (CopyKind::DeviceToHost, ..) => Leaf::CopyD2hOther,
            (CopyKind::DeviceToDevice, ..) => Leaf::CopyD2d,
            (CopyKind::PeerToPeer, ..) => Leaf::CopyP2p,
            (CopyKind::Unknown | CopyKind::HostToHost, ..) => Leaf::CopyOther,
        }
    }
}

/// Statistics of the kernels of one name.
#[derive(Clone, Debug, Default)]
pub struct KernelStatistics {
    /// True if the name is that of a communication kernel.
    pub communication: bool,
    /// Durations.
    pub durations: Durations,
    /// Part of their time in kernels launched by CUDA graphs, nanoseconds.
    pub graph_ns: u64,
}

impl KernelStatistics {
    #[inline]
    fn add(&mut self, nanos: u64, graph: bool) {
        self.durations.add(nanos);
        if graph {
            self.graph_ns = self.graph_ns.saturating_add(nanos);
        }
    }
}

/// Counts of the kernels of one launch configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConfigTotals {
    /// Number of launches.
    pub count: u64,
    /// Sum of their durations, nanoseconds.
    pub total_ns: u64,
    /// Part of it in kernels shorter than [`TINY_NANOS`].
    pub tiny_ns: u64,
}

/// Statistics of the copies of one path.
#[derive(Clone, Debug, Default)]
pub struct CopyStatistics {
    /// Bytes moved.
    pub bytes: u64,
    /// Durations.
    pub durations: Durations,
    /// By size: row `i` has copies of at least `2^i` bytes and less than twice that. At most 64 rows; empty
    /// copies are in none.
    pub octaves: Vec<OctaveTotals>,
}

/// Counts of copies of similar size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OctaveTotals {
    /// Number of copies.
    pub count: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Sum of their durations, nanoseconds.
    pub total_ns: u64,
}

/// Statistics of the calls of one API function.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApiStatistics {
    /// Calls not made by another API call.
    pub calls: u64,
    /// Calls that did not return success.
    pub failed: u64,
    /// Time in them, nanoseconds.
    pub total_ns: u64,
    /// Longest call, nanoseconds.
    pub max_ns: u64,
}

impl ApiStatistics {
    #[inline]
    fn add(&mut self, nanos: u64, succeeded: bool) {
        self.calls += 1;
        self.failed += u64::from(!succeeded);
        self.total_ns = self.total_ns.saturating_add(nanos);
        self.max_ns = self.max_ns.max(nanos);
    }
}

/// Statistics of one device.
#[derive(Debug, Default)]
pub struct DeviceStatistics {
    kernels: Vec<(NameId, KernelStatistics)>,
    places: FxHashMap<NameId, u32>,
    other_kernels: KernelStatistics,
    kernel_table_overflow: u64,
    /// Each with the index in `kernels` of its newest kernel.
    configs: Vec<(ConfigTotals, u32)>,
    copies: FxHashMap<CopyPath, CopyStatistics>,
}

impl DeviceStatistics {
    /// Kernels by name; `None` is the shared row of kernels beyond the table.
    pub fn kernels(&self) -> impl Iterator<Item = (Option<NameId>, &KernelStatistics)> {
        let other = (self.other_kernels.durations.count() > 0).then_some((None, &self.other_kernels));
        self.kernels.iter().map(|(name, row)| (Some(*name), row)).chain(other)
    }

    /// Launch configurations that ran. Their sum may be less than that of [`kernels`](Self::kernels).
    pub fn configs(&self) -> impl Iterator<Item = (LaunchConfigId, &ConfigTotals)> {
        let all = self.configs.iter().enumerate().map(|(index, (totals, _))| (LaunchConfigId(index as u32), totals));
        all.filter(|(_, totals)| totals.count > 0)
    }

    /// Copies by path.
    pub fn copies(&self) -> impl Iterator<Item = (CopyPath, &CopyStatistics)> {
        self.copies.iter().map(|(&path, row)| (path, row))
    }

    /// Number of kernels (not names) in the shared row.
    pub fn kernel_table_overflow(&self) -> u64 {
        self.kernel_table_overflow
    }

    pub(super) fn add_kernel(
        &mut self,
        config: LaunchConfigId,
        (name, communication): (NameId, bool),
        graph: bool,
        nanos: u64,
    ) {
        let index = config.0 as usize;
        if index < CONFIG_LIMIT && self.configs.len() <= index {
            self.configs.resize(index + 1, (ConfigTotals::default(), 0));
        }
        let mut newest = 0;
        if let Some((totals, place)) = self.configs.get_mut(index) {
            totals.count += 1;
            totals.total_ns = totals.total_ns.saturating_add(nanos);
            if nanos < TINY_NANOS {
                totals.tiny_ns = totals.tiny_ns.saturating_add(nanos);
            }
            newest = *place;
        }
        // A configuration nearly always has the same name as before.
        if let Some((known, row)) = self.kernels.get_mut(newest as usize)
            && *known == name
        {
            row.add(nanos, graph);
            return;
        }
        let Some(place) = self.find_or_add_kernel(name, communication) else {
            self.kernel_table_overflow += 1;
            self.other_kernels.add(nanos, graph);
            return;
        };
        self.kernels[place as usize].1.add(nanos, graph);
        if let Some((_, newest)) = self.configs.get_mut(index) {
            *newest = place;
        }
    }

    fn find_or_add_kernel(&mut self, name: NameId, communication: bool) -> Option<u32> {
        if let Some(&place) = self.places.get(&name) {
            return Some(place);
        }
        if self.kernels.len() >= KERNEL_LIMIT {
            return None;
        }
        let place = self.kernels.len() as u32;
        self.kernels.push((name, KernelStatistics { communication, ..KernelStatistics::default() }));
        self.places.insert(name, place);
        Some(place)
    }

    /// Counts a copy. Paths are pairs of small enumerations, so the table is bounded.
    pub(super) fn add_copy(&mut self, path: CopyPath, bytes: u64, nanos: u64) {
        let row = self.copies.entry(path).or_default();
        row.bytes = row.bytes.saturating_add(bytes);
        row.durations.add(nanos);
        add_to_octaves(&mut row.octaves, bytes, nanos);
    }
}

/// Adds a copy to the row of its size.
pub(super) fn add_to_octaves(octaves: &mut Vec<OctaveTotals>, bytes: u64, nanos: u64) {
    let Some(octave) = bytes.checked_ilog2().map(|octave| octave as usize) else { return };
    if octaves.len() <= octave {
        octaves.resize(octave + 1, OctaveTotals::default());
    }
    octaves[octave].add(&OctaveTotals { count: 1, bytes, total_ns: nanos });
}

impl OctaveTotals {
    /// Adds other copies.
    pub fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
    }
}

/// API calls by function.
#[derive(Debug, Default)]
pub(super) struct ApiTable {
    /// Indexed by id; ids are assigned to the functions of a program in order.
    rows: Vec<ApiStatistics>,
    /// Functions with ids beyond those of any real program.
    beyond: FxHashMap<ApiFunctionId, ApiStatistics>,
}

impl ApiTable {
    #[inline]
    pub(super) fn add(&mut self, function: ApiFunctionId, nanos: u64, succeeded: bool) {
        let index = function.0 as usize;
        if index >= self.rows.len() {
            return self.add_first(function, nanos, succeeded);
        }
        self.rows[index].add(nanos, succeeded);
    }

    /// Adds a call of a function that has no row yet, or whose id is beyond the table.
    #[cold]
    fn add_first(&mut self, function: ApiFunctionId, nanos: u64, succeeded: bool) {
        let index = function.0 as usize;
        if index < FUNCTIONS {
            self.rows.resize(index + 1, ApiStatistics::default());
            self.rows[index].add(nanos, succeeded);
        } else {
            self.beyond.entry(function).or_default().add(nanos, succeeded);
        }
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = (ApiFunctionId, &ApiStatistics)> {
        let called = |(_, row): &(usize, &ApiStatistics)| row.calls > 0;
        let rows = self.rows.iter().enumerate().filter(called).map(|(index, row)| (ApiFunctionId(index as u32), row));
        rows.chain(self.beyond.iter().map(|(&function, row)| (function, row)))
    }
}
