//! Calls that could be one: launches of equal kernels with small grids, small copies, and readbacks with
//! their waits.
//!
//! **Small grids.** A grid with fewer blocks than the device has multiprocessors leaves the others idle while
//! it runs. If the same kernel with the same grid is launched directly after it, one launch with the blocks
//! of both takes as long as the longer of them, as long as each block still has a multiprocessor to itself:
//! that is how it ran, so its time was measured. Resources that it would share with a second block there
//! (issue slots, shared memory) are in no record, so a batch ends when the device has a block on each
//! multiprocessor.
//!
//! Blocks share the L2 cache and the device memory regardless of their multiprocessor, and the bytes they
//! move are in no record either. Nor are data dependencies between the kernels. So this is a best case for
//! compute-bound kernels, and may be far above the achievable gain for memory-bound ones
//! (docs/design/attribution.md has both).
//!
//! **Readbacks.** A framework reads a value with two calls: a copy to the host, and a wait directly after it
//! (`.item()`: `cudaMemcpyAsync` and `cudaStreamSynchronize`). If the host reads no value, both are removed,
//! along with the host time before the copy and between the copy and the wait: the short host gaps before
//! them, as the host gap before a launch is the framework's cost of that launch.
//!
//! **Small copies.** A copy costs its call and its latency regardless of its size. If small copies in one
//! direction follow each other with no other launch in between, one copy of all their bytes has those costs
//! once. Of the waits after joined copies one remains, until the one copy has moved all bytes.

use gpuwhy_trace::record::{DeviceId, StreamId};

use super::input::{Call, CallClass, MOST_BYTES, Operation, SmallGrid, Transfer};
use super::variants::{Clocks, VARIANT_COUNT};
use crate::thresholds::DISPATCH_NANOS;

/// Approximate number of launches that a stream queues before the host has to wait.
const QUEUE: u32 = 1_024;

/// Kernels of one thread, joined into batches.
#[derive(Clone, Debug)]
pub(super) struct Batches {
    newest: Option<Batch>,
    /// Launches since the newest one that is part of another launch when grids are joined.
    since_joined: u32,
}

impl Default for Batches {
    fn default() -> Self {
        Self { newest: None, since_joined: QUEUE }
    }
}

/// Kernels that could have been one grid.
#[derive(Clone, Debug)]
struct Batch {
    grid: SmallGrid,
    kernels: u32,
    /// Real time of entry of the call that launches the batch.
    leader: u64,
    /// Return of that call in every scenario; used only for those in which grids are joined.
    returned: Clocks,
}

impl Batches {
    /// The thread enters `call`, which launches `grid`, `host_gap` nanoseconds after it returned from the
    /// previous one. Returns the entry of the call that launches the kernel instead, and the return times of
    /// that call.
    pub(super) fn enter(&mut self, call: &Call, grid: Option<SmallGrid>, host_gap: u64) -> Option<(u64, Clocks)> {
        if host_gap > DISPATCH_NANOS {
            self.newest = None;
        }
        if call.class == CallClass::Other {
            return None;
        }
        if let (Some(batch), Some(grid)) = (&mut self.newest, grid)
            && batch.grid == grid
            && batch.kernels < grid.fit
        {
            batch.kernels += 1;
            self.since_joined = 0;
            return Some((batch.leader, batch.returned));
        }
        self.since_joined = self.since_joined.saturating_add(1);
        self.newest =
            grid.map(|grid| Batch { grid, kernels: 1, leader: call.start, returned: [f64::MAX; VARIANT_COUNT] });
        None
    }

    /// The thread returns from `call` at `clocks`.
    pub(super) fn leave(&mut self, call: &Call, clocks: &Clocks) {
        if let Some(batch) = self.newest.as_mut().filter(|batch| batch.leader == call.start) {
            batch.returned = *clocks;
        }
    }

    /// Applies `change` to the stored clocks.
    pub(super) fn change_clocks(&mut self, change: &mut impl FnMut(&mut Clocks)) {
        if let Some(batch) = &mut self.newest {
            change(&mut batch.returned);
        }
    }

    /// True if a full queue has room in the scenario of this module, because a launch that waits for it does
    /// not exist there.
    pub(super) fn leave_room(&self) -> bool {
        self.since_joined < QUEUE
    }
}

/// Minimum bandwidth of a link, bytes per nanosecond: 10 GB/s, as PCI Express of generation 3 with 16 lanes
/// has.
const LINK_BYTES: u64 = 10;
/// Duration of a small copy on the device, nanoseconds: copies of 4 bytes to pinned memory take 1.2 to 2 us
/// on an H200.
pub(super) const SMALL_COPY_NANOS: u64 = 2_000;

/// Time that a small copy adds to the copy that it is joined with, nanoseconds.
pub(super) fn joined_nanos(operation: &Operation) -> u64 {
    (u64::from(operation.bytes) / LINK_BYTES).min(operation.end.saturating_sub(operation.start))
}

/// Copies of one thread.
#[derive(Clone, Debug, Default)]
pub(super) struct CopyCalls {
    /// True if the newest call that launches or waits made a readback.
    behind_readback: bool,
    /// True if that call made a larger read, or waited for one.
    behind_read: bool,
    newest: Option<Joined>,
    pub(super) open: CopyCall,
}

/// Relation of an outermost call to copies.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CopyCall {
    /// True if it makes a readback, is the wait after one, or lies between the two.
    pub(super) of_readback: bool,
    /// True if it makes a copy to the host that is larger than a readback.
    pub(super) large_read: bool,
    /// True if it is the first that launches or waits after such a copy and the wait for it.
    pub(super) after_read: bool,
    /// True if it makes a copy that is joined with an earlier one, or waits directly after one.
    pub(super) joined: bool,
}

/// Copies that could have been one.
#[derive(Clone, Debug)]
struct Joined {
    device: DeviceId,
    stream: StreamId,
    to_host: bool,
    /// Real time of entry of the call that makes it.
    leader: u64,
    /// Return of the newest call that is part of it, in every scenario; used only for those in which copies
    /// are joined.
    returned: Clocks,
    /// True if the newest copy is not the first.
    followed: bool,
}

impl CopyCalls {
    /// The thread enters `call`, which makes `copy`, `host_gap` nanoseconds after it returned from the
    /// previous one. Returns the entry of the call that makes the copy instead, and the return times of that
    /// call.
    pub(super) fn enter(&mut self, call: &Call, copy: Option<Transfer>, host_gap: u64) -> Option<(u64, Clocks)> {
        if host_gap > DISPATCH_NANOS {
            (self.behind_readback, self.newest) = (false, None);
        }
        self.open = CopyCall::default();
        let waits = call.class == CallClass::Wait && copy.is_none();
        if call.class == CallClass::Other {
            self.open.of_readback = self.behind_readback && call.end - call.start <= DISPATCH_NANOS;
            return None;
        }
        let readback = copy.is_some_and(|copy| copy.is_readback());
        self.open.of_readback = readback || (waits && self.behind_readback);
        self.open.large_read = copy.is_some_and(|copy| copy.is_large_read());
        self.behind_readback = readback;
        self.open.after_read = self.behind_read;
        self.behind_read = self.open.large_read || (self.behind_read && waits && host_gap <= DISPATCH_NANOS);
        let Some(copy) = copy.filter(|copy| copy.bytes < MOST_BYTES) else {
            if !waits {
                self.newest = None;
            }
            // The wait after the first copy stays; those after the other copies are removed with them.
            let joined = self.newest.as_ref().filter(|joined| joined.followed)?;
            self.open.joined = true;
            return Some((joined.leader, joined.returned));
        };
        let Transfer { device, stream, to_host, .. } = copy;
        if let Some(joined) = &mut self.newest
            && (joined.device, joined.stream, joined.to_host) == (device, stream, to_host)
        {
            joined.followed = true;
            self.open.joined = true;
            return Some((joined.leader, joined.returned));
        }
        let returned = [f64::MAX; VARIANT_COUNT];
        self.newest = Some(Joined { device, stream, to_host, leader: call.start, returned, followed: false });
        None
    }

    /// The thread returns from `call` at `clocks`.
    pub(super) fn leave(&mut self, call: &Call, clocks: &Clocks) {
        if let Some(joined) = self.newest.as_mut().filter(|_| call.class != CallClass::Other) {
            joined.returned = *clocks;
        }
    }

    /// Applies `change` to the stored clocks.
    pub(super) fn change_clocks(&mut self, change: &mut impl FnMut(&mut Clocks)) {
        if let Some(joined) = &mut self.newest {
            change(&mut joined.returned);
        }
    }
}
