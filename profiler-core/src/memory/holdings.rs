//! Recorded allocations and releases in time order, summed by device and kind.
//!
//! Only allocations made while measuring count. Earlier ones are unknown; releasing one is counted but
//! changes no sum. This requires a table of the addresses in use, which is bounded. An allocation that does
//! not fit is added to the sum, but its release is not recognized, so the sum stays too high. Those are
//! counted too.
//!
//! Memory from a pool (`cudaMallocAsync`) counts when it is handed out. The size of the pool itself is a
//! separate number in the events. Variables of modules lie in the module's memory and are only counted.

use std::collections::BTreeMap;

use gpuwhy_trace::record::{CorrelationId, DeviceId, MemoryEvent, MemoryKind, MemoryOperation, NameId, Timestamp};
use rustc_hash::FxHashMap;

/// Maximum number of live allocations whose release is recognized (some 40 bytes each, 10 MB).
const HELD_LIMIT: usize = 1 << 18;
/// Maximum number of (device, kind) pairs; more can only come from damaged ordinals.
const PLACE_LIMIT: usize = 1024;

/// Device and kind of memory. Host memory belongs to the device whose context allocated it.
pub type MemoryOwner = (DeviceId, MemoryKind);

/// Memory of one kind on one device, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holding {
    /// In use after the newest event.
    pub current: u64,
    /// Peak use.
    pub peak: u64,
    /// When the peak was first reached.
    pub peak_at: Timestamp,
    /// The call that reached the peak; 0 if it was memory of a module.
    pub peak_call: CorrelationId,
    /// Number of allocations.
    pub allocations: u64,
    /// Number of releases of memory that was allocated while measuring.
    pub releases: u64,
    /// Sum of all allocations.
    pub allocated: u64,
    /// The largest allocation.
    pub largest: u64,
    /// Peak size of the pools of this process, in use or not.
    pub pool_peak: u64,
}

/// All memory in use.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    places: BTreeMap<MemoryOwner, Holding>,
    /// Owner and size by address. Addresses are unique within a process.
    held: FxHashMap<u64, (MemoryOwner, u64)>,
    pools: FxHashMap<u64, (DeviceId, u64)>,
    /// Number of variables of modules, and their bytes, by device.
    variables: BTreeMap<DeviceId, (u64, u64)>,
    unknown_releases: u64,
    table_overflow: u64,
}

impl Holdings {
    /// Processes the next event. Returns its owner and the memory now in use there; `None` if nothing
    /// changed.
    pub fn take(&mut self, event: &MemoryEvent) -> Option<(MemoryOwner, Holding)> {
        if event.pool != 0 {
            self.pool(event);
        }
        if event.name != NameId::UNKNOWN {
            if event.operation == MemoryOperation::Allocation {
                self.variable(event);
            }
            return None;
        }
        match event.operation {
            MemoryOperation::Allocation => self.allocate(event),
            MemoryOperation::Release => self.release(event),
            _ => None,
        }
    }

    fn variable(&mut self, event: &MemoryEvent) {
        if self.variables.len() < PLACE_LIMIT || self.variables.contains_key(&event.device) {
            let (count, bytes) = self.variables.entry(event.device).or_default();
            *count += 1;
            *bytes = bytes.saturating_add(event.bytes);
        }
    }

    fn allocate(&mut self, event: &MemoryEvent) -> Option<(MemoryOwner, Holding)> {
        let place = (event.device, event.kind);
        if self.held.len() < HELD_LIMIT {
            self.held.insert(event.address, (place, event.bytes));
        } else {
            self.table_overflow += 1;
        }
        let holding = self.holding(place)?;
        holding.allocations += 1;
        holding.allocated = holding.allocated.saturating_add(event.bytes);
        holding.largest = holding.largest.max(event.bytes);
        holding.current = holding.current.saturating_add(event.bytes);
        if holding.current > holding.peak {
            holding.peak = holding.current;
            (holding.peak_at, holding.peak_call) = (event.at, event.correlation);
        }
        Some((place, *holding))
    }

    fn release(&mut self, event: &MemoryEvent) -> Option<(MemoryOwner, Holding)> {
        let Some((place, bytes)) = self.held.remove(&event.address) else {
            self.unknown_releases += 1;
            return None;
        };
        let holding = self.holding(place)?;
        holding.releases += 1;
        holding.current = holding.current.saturating_sub(bytes);
        Some((place, *holding))
    }

    fn pool(&mut self, event: &MemoryEvent) {
        if event.operation == MemoryOperation::PoolDestroyed {
            self.pools.remove(&event.pool);
            return;
        }
        if self.pools.len() >= PLACE_LIMIT && !self.pools.contains_key(&event.pool) {
            return;
        }
        self.pools.insert(event.pool, (event.device, event.pool_bytes));
        let of_device = self.pools.values().filter(|(device, _)| *device == event.device);
        let total = of_device.fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        if let Some(holding) = self.holding((event.device, MemoryKind::Device)) {
            holding.pool_peak = holding.pool_peak.max(total);
        }
    }

    fn holding(&mut self, place: MemoryOwner) -> Option<&mut Holding> {
        if self.places.len() >= PLACE_LIMIT && !self.places.contains_key(&place) {
            return None;
        }
        Some(self.places.entry(place).or_default())
    }

    /// All owners with their memory, by device and kind.
    pub fn rows(&self) -> impl Iterator<Item = (MemoryOwner, &Holding)> {
        self.places.iter().map(|(&place, holding)| (place, holding))
    }

    /// Memory of one owner.
    pub fn get(&self, place: MemoryOwner) -> Option<&Holding> {
        self.places.get(&place)
    }

    /// True if there was no event.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty() && self.variables.is_empty()
    }

    /// Number of variables of modules that were loaded on a device, and their bytes; `None` if nothing was recorded.
    pub fn module_variables(&self, device: DeviceId) -> Option<(u64, u64)> {
        (!self.is_empty()).then(|| self.variables.get(&device).copied().unwrap_or_default())
    }

    /// Memory of a device that allocations hold, bytes; `None` if nothing was recorded, and if they come from pools,
    /// which hold more.
    pub(super) fn on_device(&self, device: DeviceId) -> Option<u64> {
        let known = !self.is_empty() && self.pools.is_empty();
        known.then(|| self.get((device, MemoryKind::Device)).map_or(0, |holding| holding.current))
    }

    /// Releases of memory with no known allocation.
    pub const fn unknown_releases(&self) -> u64 {
        self.unknown_releases
    }

    /// Allocations that did not fit into the table: their releases will count as unknown.
    pub const fn table_overflow(&self) -> u64 {
        self.table_overflow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(operation: MemoryOperation, nanos: u64, address: u64, bytes: u64) -> MemoryEvent {
        MemoryEvent {
            at: Timestamp::from_nanos(nanos),
            operation,
            kind: MemoryKind::Device,
            correlation: CorrelationId(nanos as u32),
            address,
            bytes,
            ..MemoryEvent::default()
        }
    }

    #[test]
    fn the_peak_is_where_most_was_held_first() {
        let mut holdings = Holdings::default();
        for (operation, at, address, bytes) in [
            (MemoryOperation::Allocation, 10, 0x100, 4),
            (MemoryOperation::Allocation, 20, 0x200, 6),
            (MemoryOperation::Release, 30, 0x100, 4),
            (MemoryOperation::Allocation, 40, 0x100, 4),
        ] {
            holdings.take(&event(operation, at, address, bytes));
        }
        let (place, holding) = holdings.rows().next().unwrap();
        assert_eq!(place, (DeviceId(0), MemoryKind::Device));
        assert_eq!((holding.current, holding.peak, holding.peak_at.nanos()), (10, 10, 20));
        assert_eq!((holding.allocations, holding.releases, holding.allocated, holding.largest), (3, 1, 14, 6));
        assert_eq!(holding.peak_call, CorrelationId(20));
    }

    #[test]
    fn a_release_of_something_older_changes_nothing() {
        let mut holdings = Holdings::default();
        holdings.take(&event(MemoryOperation::Allocation, 10, 0x100, 4));
        assert_eq!(holdings.take(&event(MemoryOperation::Release, 20, 0x900, 4)), None);
        assert_eq!(holdings.unknown_releases(), 1);
        // A release counts with the size that was allocated, not with its own.
        let (_, after) = holdings.take(&event(MemoryOperation::Release, 30, 0x100, 9)).unwrap();
        assert_eq!((after.current, after.peak), (0, 4));
    }

    #[test]
    fn pools_are_added_up_while_they_exist() {
        let mut holdings = Holdings::default();
        let pool = |operation, pool, pool_bytes| MemoryEvent { operation, pool, pool_bytes, ..MemoryEvent::default() };
        holdings.take(&pool(MemoryOperation::PoolCreated, 1, 32));
        holdings.take(&pool(MemoryOperation::PoolCreated, 2, 10));
        holdings.take(&pool(MemoryOperation::PoolDestroyed, 1, 0));
        holdings.take(&pool(MemoryOperation::PoolTrimmed, 2, 20));
        assert_eq!(holdings.rows().next().unwrap().1.pool_peak, 42);
        holdings.take(&pool(MemoryOperation::PoolCreated, 3, u64::MAX));
        assert_eq!(holdings.rows().next().unwrap().1.pool_peak, u64::MAX, "sums stay within their type");
    }

    #[test]
    fn allocations_beyond_the_table_are_counted() {
        let mut holdings = Holdings::default();
        for address in 0..=HELD_LIMIT as u64 {
            holdings.take(&event(MemoryOperation::Allocation, 1, address, 1));
        }
        assert_eq!(holdings.table_overflow(), 1);
        assert_eq!(holdings.rows().next().unwrap().1.current, HELD_LIMIT as u64 + 1);
    }
}
