//! Managed memory on one device: pages that moved, faults, and the time of kernels in which pages moved.
//!
//! Migrations come in any order between two flushes, and before the device's time that contains them is final.

use std::collections::VecDeque;

use gpuwhy_trace::record::{ManagedEvent, ManagedKind};

/// Migrations, and faults, that may wait for the device's time, 16 bytes each. Of further ones the time is left out.
const PENDING_LIMIT: usize = 1 << 17;

/// Pages that moved in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Number of migrations.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Moved {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Managed memory of one device, in sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ManagedTotals {
    /// Pages that moved to the device, from the host or from another device.
    pub to_device: Moved,
    /// Pages that moved from the device to the host.
    pub to_host: Moved,
    /// Page faults of the device.
    pub faults: u64,
    /// Time in which a kernel ran while pages moved, nanoseconds.
    pub in_kernels_ns: u64,
    /// Time in which a kernel ran while page faults of the device were not resolved, nanoseconds.
    pub faulting_ns: u64,
    /// Migrations and faults that are not in these times because too many came at once.
    pub without_time: u64,
}

impl ManagedTotals {
    /// True if migrations were recorded: gpuwhy itself records faults alone.
    pub fn has_moved(&self) -> bool {
        self.to_device.count + self.to_host.count > 0
    }
}

/// Intervals that wait until the device's time has passed them.
#[derive(Debug, Default)]
struct Intervals {
    pending: VecDeque<(u64, u64)>,
    sorted: bool,
}

impl Intervals {
    /// False if too many wait.
    fn add(&mut self, event: &ManagedEvent) -> bool {
        if event.start.nanos() == 0 || event.start >= event.end {
            return true;
        }
        if self.pending.len() >= PENDING_LIMIT {
            return false;
        }
        self.pending.push_back((event.start.nanos(), event.end.nanos()));
        self.sorted = false;
        true
    }

    /// Length of their union between `from` and `to`, nanoseconds; no earlier time follows.
    #[inline]
    fn within(&mut self, from: u64, to: u64) -> u64 {
        if self.pending.is_empty() { 0 } else { self.overlaps(from, to) }
    }

    #[inline(never)]
    fn overlaps(&mut self, from: u64, to: u64) -> u64 {
        if !std::mem::replace(&mut self.sorted, true) {
            self.pending.make_contiguous().sort_unstable();
        }
        let (mut sum, mut counted) = (0, from);
        while let Some(&(start, end)) = self.pending.front()
            && start < to
        {
            let (first, last) = (start.max(counted), end.min(to));
            sum += last.saturating_sub(first);
            counted = counted.max(last);
            if end > to {
                // Its rest belongs to what follows.
                self.pending[0] = (to, end);
                self.merge_first();
                break;
            }
            self.pending.pop_front();
        }
        sum
    }

    /// Joins the intervals that started before the first one, in whose time they are counted already, with it.
    fn merge_first(&mut self) {
        let Some((start, mut end)) = self.pending.pop_front() else { return };
        while let Some(&(next, last)) = self.pending.front()
            && next <= start
        {
            end = end.max(last);
            self.pending.pop_front();
        }
        self.pending.push_front((start, end));
    }
}

/// Managed memory of one device.
#[derive(Debug, Default)]
pub(crate) struct ManagedMemory {
    totals: ManagedTotals,
    migrations: Intervals,
    faults: Intervals,
}

impl ManagedMemory {
    pub(crate) fn add(&mut self, event: &ManagedEvent) {
        let intervals = match event.kind {
            ManagedKind::DeviceFault => {
                self.totals.faults = self.totals.faults.saturating_add(event.value);
                &mut self.faults
            }
            ManagedKind::HostToDevice | ManagedKind::DeviceToDevice => {
                self.totals.to_device.add(event.value);
                &mut self.migrations
            }
            ManagedKind::DeviceToHost => {
                self.totals.to_host.add(event.value);
                &mut self.migrations
            }
            _ => return,
        };
        self.totals.without_time += u64::from(!intervals.add(event));
    }

    /// A kernel ran from `from` to `to`; no earlier time follows.
    #[inline]
    pub(crate) fn computed(&mut self, from: u64, to: u64) {
        self.totals.in_kernels_ns += self.migrations.within(from, to);
        self.totals.faulting_ns += self.faults.within(from, to);
    }

    pub(crate) fn totals(&self) -> &ManagedTotals {
        &self.totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_trace::record::{DeviceId, Timestamp};

    fn migration(kind: ManagedKind, start: u64, end: u64) -> ManagedEvent {
        let [start, end] = [start, end].map(Timestamp::from_nanos);
        ManagedEvent { start, end, kind, destination: DeviceId(0), value: 10, ..ManagedEvent::default() }
    }

    #[test]
    fn the_union_of_migrations_counts_where_a_kernel_runs() {
        let mut managed = ManagedMemory::default();
        for (start, end) in [(150, 400), (10, 20), (90, 130), (120, 140), (160, 170), (390, 410), (500, 600)] {
            managed.add(&migration(ManagedKind::HostToDevice, start, end));
        }
        managed.computed(100, 200);
        assert_eq!(managed.totals().in_kernels_ns, 40 + 50);
        managed.computed(200, 300);
        managed.computed(350, 450);
        assert_eq!(managed.totals().in_kernels_ns, 90 + 100 + 60);
        managed.add(&migration(ManagedKind::DeviceToHost, 460, 520));
        managed.computed(450, 550);
        assert_eq!(managed.totals().in_kernels_ns, 250 + 90);
        managed.add(&migration(ManagedKind::DeviceFault, 1, 2));
        let totals = *managed.totals();
        assert_eq!((totals.to_device, totals.to_host.bytes, totals.faults), (Moved { count: 7, bytes: 70 }, 10, 10));
    }

    #[test]
    fn faults_have_a_time_of_their_own() {
        let mut managed = ManagedMemory::default();
        for (start, end) in [(90, 130), (120, 140), (190, 260)] {
            managed.add(&migration(ManagedKind::DeviceFault, start, end));
        }
        managed.computed(100, 200);
        managed.computed(250, 300);
        let totals = *managed.totals();
        assert_eq!((totals.faulting_ns, totals.in_kernels_ns, totals.faults), (40 + 10 + 10, 0, 30));
    }

    #[test]
    fn waiting_migrations_are_bounded() {
        let mut managed = ManagedMemory::default();
        (0..PENDING_LIMIT + 3).for_each(|_| managed.add(&migration(ManagedKind::HostToDevice, 1, 2)));
        assert_eq!((managed.migrations.pending.len(), managed.totals().without_time), (PENDING_LIMIT, 3));
        managed.computed(0, 5);
        assert!(managed.migrations.pending.is_empty() && managed.totals().in_kernels_ns == 1);
    }
}
