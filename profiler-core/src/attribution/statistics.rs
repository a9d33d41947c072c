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
    times: CallTimes,
}

impl ApiTable {
    #[inline]
    pub(super) fn add(&mut self, function: ApiFunctionId, start: u64, nanos: u64, succeeded: bool) {
        let index = function.0 as usize;
        if index >= self.rows.len() {
            return self.add_first(function, start, nanos, succeeded);
        }
        self.rows[index].add(nanos, succeeded);
        self.times.add(index, start);
    }

    /// Adds a call of a function that has no row yet, or whose id is beyond the table.
    #[cold]
    fn add_first(&mut self, function: ApiFunctionId, start: u64, nanos: u64, succeeded: bool) {
        let index = function.0 as usize;
        if index < FUNCTIONS {
            self.rows.resize(index + 1, ApiStatistics::default());
            self.times.parts.resize(index + 1, [0; PARTS]);
            self.rows[index].add(nanos, succeeded);
            self.times.add(index, start);
        } else {
            self.beyond.entry(function).or_default().add(nanos, succeeded);
        }
    }

    /// Number of calls of a function that begin after `at`; all of a function beyond the table.
    pub(super) fn calls_after(&self, function: ApiFunctionId, at: u64) -> u64 {
        let all = || self.beyond.get(&function).map_or(0, |row| row.calls);
        self.times.parts.get(function.0 as usize).map_or_else(all, |parts| self.times.after(parts, at))
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = (ApiFunctionId, &ApiStatistics)> {
        let called = |(_, row): &(usize, &ApiStatistics)| row.calls > 0;
        let rows = self.rows.iter().enumerate().filter(called).map(|(index, row)| (ApiFunctionId(index as u32), row));
        rows.chain(self.beyond.iter().map(|(&function, row)| (function, row)))
    }
}

/// Equal parts of the time in which calls are counted.
const PARTS: usize = 64;
/// Binary logarithm of their first length, nanoseconds: 1 ms.
const FIRST_SHIFT: u32 = 20;

/// Calls over time, so that those of start-up, whose end is known later, can be left out: a part contains its share of
/// the calls.
#[derive(Debug)]
struct CallTimes {
    /// Start of the first part; the first call begins in it.
    origin: Option<u64>,
    /// Binary logarithm of the length of a part, nanoseconds.
    shift: u32,
    /// By function.
    parts: Vec<[u32; PARTS]>,
}

impl Default for CallTimes {
    fn default() -> Self {
        Self { origin: None, shift: FIRST_SHIFT, parts: Vec::new() }
    }
}

impl CallTimes {
    #[inline]
    fn add(&mut self, function: usize, start: u64) {
        let since = start.saturating_sub(*self.origin.get_or_insert(start));
        let mut part = (since >> self.shift) as usize;
        while part >= PARTS {
            self.join();
            part = (since >> self.shift) as usize;
        }
        let count = &mut self.parts[function][part];
        *count = count.saturating_add(1);
    }

    /// Makes parts twice as long.
    #[cold]
    fn join(&mut self) {
        self.shift += 1;
        for row in &mut self.parts {
            let joined = |part: usize| row.get(2 * part).map_or(0, |&first| first.saturating_add(row[2 * part + 1]));
            *row = std::array::from_fn(joined);
        }
    }

    fn after(&self, parts: &[u32; PARTS], at: u64) -> u64 {
        let since = at.saturating_sub(self.origin.unwrap_or(at));
        let first = usize::try_from(since >> self.shift).unwrap_or(PARTS);
        let rest = 1.0 - (since & ((1 << self.shift) - 1)) as f64 / (1_u64 << self.shift) as f64;
        let count = |part: usize| parts.get(part).map_or(0, |&count| u64::from(count));
        (count(first) as f64 * rest).round() as u64 + (first + 1..PARTS).map(count).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_from_a_time_on_that_is_known_later() {
        let mut table = ApiTable::default();
        // One function in the first second, another one in each millisecond of a minute.
        (0..1_000).for_each(|at| table.add(ApiFunctionId(3), 5_000 + at * 1_000_000, 10, true));
        (0..60_000).for_each(|at| table.add(ApiFunctionId(7), 5_000 + at * 1_000_000, 10, true));
        let after =
            |function, seconds: u64| table.calls_after(ApiFunctionId(function), 5_000 + seconds * 1_000_000_000);
        assert_eq!((after(3, 0), after(7, 0)), (1_000, 60_000));
        assert!(after(7, 20).abs_diff(40_000) <= 2, "{}", after(7, 20));
        assert_eq!((after(3, 20), after(7, 100), after(9, 0)), (0, 0, 0));
    }
}
