//! How soon a device goes on when the next operation of a stream waits for nothing else.
//!
//! A program whose launches cost nothing still has its device fetch one operation after the other. That takes about a
//! microsecond, which nobody notices between long kernels and which is half of the step between short ones. How long it
//! takes is read off the operations that were launched long before: the gaps in front of them are the device's own.
//!
//! Of those gaps the tenth percentile counts, because ceilings are to be reached: longer ones have other reasons as
//! well (another engine, memory that is written back).
//!
//! Kernels that a CUDA graph launches follow each other ten times as soon, and where launches cost nothing that is how
//! they are launched. So there what comes behind a kernel or memset waits for as much less as a node of a graph would.

use super::input::OperationClass;
use crate::thresholds::INTER_KERNEL_NANOS;

/// Width of a class, nanoseconds: two ticks of the clock of an H200.
const CLASS_NANOS: u64 = 64;
const CLASSES: usize = (INTER_KERNEL_NANOS / CLASS_NANOS) as usize + 1;
/// Gaps that must have been seen.
const FEWEST: u64 = 16;
/// The gap of a device on which nothing was ever queued: kernels on an H200 under tracing are 0.9 to 1.0 us apart.
const UNSEEN_NANOS: u64 = 900;

/// Kernels of a CUDA graph are this far apart, nanoseconds: the median of 11,099 in the recorded session `graph_dense`
/// on an H200, under tracing (64 to 128 from the 10th to the 90th percentile), and of the kernels of a captured PyTorch
/// model there. Under tracing a memset between them has 1.3 us before and 2.5 us behind it; that model's steps without
/// tracing leave 1.3 us for all gaps of five operations, one of them a memset, so that is tracing's and a ceiling must
/// not have it.
const NODE_NANOS: u64 = 96;

/// Gaps in front of queued operations of one device. Copies have engines of their own, which take longer.
#[derive(Clone, Debug, Default)]
pub(super) struct QueuedGaps {
    kernels: Gaps,
    copies: Gaps,
}

impl QueuedGaps {
    /// An operation that was queued began `nanos` after the one before it had ended.
    pub(super) fn add(&mut self, class: OperationClass, nanos: u64) {
        if class.is_copy() { self.copies.add(nanos) } else { self.kernels.add(nanos) }
    }

    /// The shortest that can be expected before such an operation, nanoseconds.
    pub(super) fn before(&self, class: OperationClass) -> u64 {
        if class.is_copy() { self.copies.shortest() } else { self.kernels.shortest() }
    }
}

/// What of the `gap` between two operations that are no copies remains when both are nodes of a graph, nanoseconds;
/// `usual` is the shortest that can be expected in a stream. No more is saved than between what was seen of streams and
/// of graphs: where gaps are usually longer, they are so for another reason.
pub(super) fn between_nodes(gap: u64, usual: u64) -> u64 {
    gap.saturating_sub(usual.min(UNSEEN_NANOS).saturating_sub(NODE_NANOS))
}

/// What of a `gap` of which tracing is `price` remains without tracing, nanoseconds. It does not become shorter than
/// what is left of the `usual` gap of the stream, nor, between the nodes of a graph, than those are apart under
/// tracing.
pub(super) fn untraced(gap: u64, usual: u64, price: u64, node: bool) -> u64 {
    let least = if node { NODE_NANOS } else { usual.saturating_sub(price) };
    gap.saturating_sub(price).max(gap.min(least))
}

#[derive(Clone, Debug)]
struct Gaps {
    /// How many there are of each length.
    classes: [u64; CLASSES],
    count: u64,
    /// The class that has the tenth percentile, and how many gaps are in shorter ones.
    class: usize,
    below: u64,
}

impl Default for Gaps {
    fn default() -> Self {
        Self { classes: [0; CLASSES], count: 0, class: 0, below: 0 }
    }
}

impl Gaps {
    /// What lasted longer than [`INTER_KERNEL_NANOS`] waited for something else.
    fn add(&mut self, nanos: u64) {
        if nanos > INTER_KERNEL_NANOS {
            return;
        }
        let class = (nanos / CLASS_NANOS) as usize;
        self.classes[class] += 1;
        self.count += 1;
        self.below += u64::from(class < self.class);
        let rank = self.count / 10;
        while self.below > rank {
            self.class -= 1;
            self.below -= self.classes[self.class];
        }
        while self.below + self.classes[self.class] <= rank {
            self.below += self.classes[self.class];
            self.class += 1;
        }
    }

    fn shortest(&self) -> u64 {
        if self.count < FEWEST { UNSEEN_NANOS } else { self.class as u64 * CLASS_NANOS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_waits_for_what_a_queued_kernel_waits_for_besides_its_launch() {
        assert_eq!(between_nodes(640, 640), NODE_NANOS);
        assert_eq!(between_nodes(5_000, 640), 5_000 - 640 + NODE_NANOS);
        assert_eq!(between_nodes(3_200, 3_200), 3_200 - 900 + NODE_NANOS);
        assert_eq!(between_nodes(500, 1_024), 0);
        assert_eq!(between_nodes(64, 64), 64, "nodes of a graph already");
    }

    #[test]
    fn without_tracing_a_gap_keeps_what_a_queued_operation_needs() {
        assert_eq!(untraced(900, 900, 216, false), 684);
        assert_eq!(untraced(5_000, 900, 216, false), 4_784);
        assert_eq!(untraced(500, 900, 216, false), 500, "shorter than what others need without tracing");
        assert_eq!(untraced(700, 900, 216, false), 684);
        assert_eq!(untraced(96, 96, 1_150, true), 96);
        assert_eq!(untraced(64, 64, 1_150, true), 64);
        assert_eq!(untraced(2_500, 96, 1_150, true), 1_350);
        assert_eq!(untraced(2_500, 96, 0, true), 2_500);
        assert_eq!(untraced(100, 100, 5_000, false), 0);
    }

    #[test]
    fn the_tenth_percentile_is_followed() {
        let mut gaps = Gaps::default();
        let mut all = Vec::new();
        let mut state = 1u64;
        for number in 0..5_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // First long ones, then short ones, then both.
            let base = if number < 1_000 { 6_000 } else { 800 };
            let nanos = base + (state >> 33) % 3_000;
            gaps.add(nanos);
            gaps.add(INTER_KERNEL_NANOS + 1);
            let place = all.partition_point(|&known| known < nanos);
            all.insert(place, nanos);
            if all.len() as u64 >= FEWEST {
                assert_eq!(gaps.shortest(), all[all.len() / 10] / CLASS_NANOS * CLASS_NANOS, "{number}");
            } else {
                assert_eq!(gaps.shortest(), UNSEEN_NANOS);
            }
        }
    }
}
