//! Calls that could be one: launches of equal kernels with small grids, small copies, and readbacks with their waits.
//!
//! **Small grids.** A grid of fewer blocks than the device has multiprocessors leaves the others without work for as
//! long as it runs. Where the same kernel with the same grid is launched right behind it, one launch of the blocks of
//! both takes as long as the longer of them while each block still has a multiprocessor to itself: that is how it ran,
//! so its time was measured. What it would share with a second block there (issue slots, shared memory) is in no
//! record, so a batch ends where the device has a block on each multiprocessor.
//!
//! Blocks share the second-level cache and the memory of the device wherever they are, and how many bytes they move is
//! in no record either. Nor is whether one kernel needs what the one before it computed. So this is a ceiling for
//! kernels that compute on their own, and may be far above what can be had for those bound by memory
//! (docs/design/attribution.md has both).
//!
//! **Readbacks.** A framework reads a value in two calls: a copy to the host, and a wait right behind it (`.item()`:
//! `cudaMemcpyAsync` and `cudaStreamSynchronize`). Where the host reads nothing, both are gone, and with them the
//! host's way to the copy and from there to the wait: the short host gaps before them, as the host gap before a launch
//! is what a framework needs for it.
//!
//! **Small copies.** A copy costs its call and its latency whatever its size. Where small copies in one direction
//! follow each other with no other launch between them, one copy of all their bytes has those costs once. Of the waits
//! behind joined copies one remains, until the one copy has moved all bytes.

use gpuwhy_trace::record::{DeviceId, StreamId};

use super::input::{Call, CallClass, MOST_BYTES, Operation, SmallGrid, Transfer};
use super::worlds::{Clocks, WORLD_COUNT};
use crate::thresholds::DISPATCH_NANOS;

/// A stream takes about so many launches before the host has to wait.
const QUEUE: u32 = 1_024;

/// The kernels of one thread, as they are joined.
#[derive(Clone, Debug)]
pub(super) struct Batches {
    newest: Option<Batch>,
    /// Launches since the newest one that is no launch of its own in which grids are joined.
    since_joined: u32,
}

impl Default for Batches {
    fn default() -> Self {
        Self { newest: None, since_joined: QUEUE }
    }
}

/// Kernels that one grid could have been.
#[derive(Clone, Debug)]
struct Batch {
    grid: SmallGrid,
    kernels: u32,
    /// When the call that launches all of it was entered, really.
    leader: u64,
    /// When that call returns, in every world; only those in which grids are joined are asked.
    returned: Clocks,
}

impl Batches {
    /// The thread enters `call`, which launches `grid`, `host_gap` nanoseconds after it returned from the one before.
    /// Gives when the call was entered that launches the kernel in its place, and when that returns.
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
            grid.map(|grid| Batch { grid, kernels: 1, leader: call.start, returned: [f64::MAX; WORLD_COUNT] });
        None
    }

    /// The thread returns from `call` at `clocks`.
    pub(super) fn leave(&mut self, call: &Call, clocks: &Clocks) {
        if let Some(batch) = self.newest.as_mut().filter(|batch| batch.leader == call.start) {
            batch.returned = *clocks;
        }
    }

    /// Shows the clocks that are kept to `change`.
    pub(super) fn change_clocks(&mut self, change: &mut impl FnMut(&mut Clocks)) {
        if let Some(batch) = &mut self.newest {
            change(&mut batch.returned);
        }
    }

    /// Whether a queue that is full has room in the world of this module, because a launch that waits in it is none
    /// there.
    pub(super) fn leave_room(&self) -> bool {
        self.since_joined < QUEUE
    }
}

/// What a link carries in a nanosecond at least, bytes: 10 GB/s, as PCI Express of generation 3 with 16 lanes does.
const LINK_BYTES: u64 = 10;
/// How long a small copy takes on the device, nanoseconds: copies of 4 bytes to page-locked memory take 1.2 to 2 us on
/// an H200.
pub(super) const SMALL_COPY_NANOS: u64 = 2_000;

/// What a small copy that is joined with another one adds to it, nanoseconds.
pub(super) fn joined_nanos(operation: &Operation) -> u64 {
    (u64::from(operation.bytes) / LINK_BYTES).min(operation.end.saturating_sub(operation.start))
}

/// The copies of one thread.
#[derive(Clone, Debug, Default)]
pub(super) struct CopyCalls {
    /// The newest call that launches or waits made a readback.
    behind_readback: bool,
    newest: Option<Joined>,
    pub(super) open: CopyCall,
}

/// What an outermost call has to do with copies.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CopyCall {
    /// It makes a readback, or leads from there to the wait behind it, or is that wait.
    pub(super) of_readback: bool,
    /// It makes a copy to the host that is larger than a readback.
    pub(super) large_read: bool,
    /// It makes a copy that is joined with an earlier one, or waits right behind one.
    pub(super) joined: bool,
}

/// Copies that one could have been.
#[derive(Clone, Debug)]
struct Joined {
    device: DeviceId,
    stream: StreamId,
    to_host: bool,
    /// When the call that makes it was entered, really.
    leader: u64,
    /// When the newest call that is a part of it returned, in every world; only those in which copies are joined are
    /// asked.
    returned: Clocks,
    /// The newest copy is not the first.
    followed: bool,
}

impl CopyCalls {
    /// The thread enters `call`, which makes `copy`, `host_gap` nanoseconds after it returned from the one before.
    /// Gives when the call was entered that makes the copy in its place, and when that returns.
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
        let Some(copy) = copy.filter(|copy| copy.bytes < MOST_BYTES) else {
            if !waits {
                self.newest = None;
            }
            // The wait behind the first copy stays, and those behind the others go with them.
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
        let returned = [f64::MAX; WORLD_COUNT];
        self.newest = Some(Joined { device, stream, to_host, leader: call.start, returned, followed: false });
        None
    }

    /// The thread returns from `call` at `clocks`.
    pub(super) fn leave(&mut self, call: &Call, clocks: &Clocks) {
        if let Some(joined) = self.newest.as_mut().filter(|_| call.class != CallClass::Other) {
            joined.returned = *clocks;
        }
    }

    /// Shows the clocks that are kept to `change`.
    pub(super) fn change_clocks(&mut self, change: &mut impl FnMut(&mut Clocks)) {
        if let Some(joined) = &mut self.newest {
            change(&mut joined.returned);
        }
    }
}
