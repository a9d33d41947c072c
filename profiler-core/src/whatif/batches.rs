//! Equal kernels with small grids that the host launches one after the other: which of them one larger grid could have
//! been.
//!
//! A grid of fewer blocks than the device has multiprocessors leaves the others without work for as long as it runs.
//! Where the same kernel with the same grid is launched right behind it, one launch of the blocks of both takes as long
//! as the longer of them while each block still has a multiprocessor to itself: that is how it ran, so its time was
//! measured. What it would share with a second block there (issue slots, shared memory) is in no record, so a batch
//! ends where the device has a block on each multiprocessor.
//!
//! Blocks share the second-level cache and the memory of the device wherever they are, and how many bytes they move is
//! in no record either. Nor is whether one kernel needs what the one before it computed. So this is a ceiling for
//! kernels that compute on their own, and may be far above what can be had for those bound by memory
//! (docs/design/attribution.md has both).

use super::input::{Call, CallClass, SmallGrid};
use super::worlds::{Clocks, WORLD_COUNT};
use crate::thresholds::DISPATCH_NANOS;

/// A stream takes about so many launches before the host has to wait.
const QUEUE: u32 = 1_024;

/// The kernels of one thread, as they are joined.
#[derive(Clone, Debug)]
pub(super) struct Batches {
    newest: Option<Batch>,
    /// Launches since the newest one that is no launch of its own in the worlds of this module.
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
    /// When that call returns, in every world; only those of this module are asked.
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
