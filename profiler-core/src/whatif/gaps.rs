//! Shortest gaps of a device before an operation of a stream that has no other dependency.
//!
//! Even if launches cost nothing, the device must fetch one operation after the other. That takes about a
//! microsecond, which is invisible between long kernels but half of the step between short ones. The time is
//! measured at operations that were launched long before: the gaps before them are caused by the device
//! itself.
//!
//! The tenth percentile of those gaps is used, because best cases must be achievable: longer gaps have
//! additional reasons (another engine, memory that is written back).
//!
//! Kernels that a CUDA graph launches follow each other ten times as fast, and that is how kernels are
//! launched if launches cost nothing. So in that scenario an operation after a kernel or memset waits for
//! less time, like a node of a graph.

use super::input::OperationClass;
use crate::thresholds::INTER_KERNEL_NANOS;

/// Width of a class, nanoseconds: two ticks of the clock of an H200.
const CLASS_NANOS: u64 = 64;
const CLASSES: usize = (INTER_KERNEL_NANOS / CLASS_NANOS) as usize + 1;
/// Minimum number of measured gaps.
const FEWEST: u64 = 16;
/// Default gap of a device without queued operations: kernels on an H200 under tracing are 0.9 to 1.0 us
/// apart.
const UNSEEN_NANOS: u64 = 900;

/// Gap between kernels of a CUDA graph, nanoseconds: the median of 11,099 in the recorded session
/// `graph_dense` on an H200, under tracing (64 to 128 from the 10th to the 90th percentile), and of the
/// kernels of a captured PyTorch model there. Under tracing a memset between them has 1.3 us before and 2.5
/// us after it. Without tracing, the steps of that model leave 1.3 us for all gaps of five operations, one of
/// them a memset, so the difference is tracing overhead and a best case must not include it.
const NODE_NANOS: u64 = 96;

/// Gaps before queued operations of one device. Copies have separate engines, which take longer.
#[derive(Clone, Debug, Default)]
pub(super) struct QueuedGaps {
    kernels: Gaps,
    copies: Gaps,
}

impl QueuedGaps {
    /// Adds a queued operation that started `nanos` after the end of the previous one.
    pub(super) fn add(&mut self, class: OperationClass, nanos: u64) {
        if class.is_copy() { self.copies.add(nanos) } else { self.kernels.add(nanos) }
    }

    /// Shortest gap to be expected before such an operation, nanoseconds.
    pub(super) fn before(&self, class: OperationClass) -> u64 {
        if class.is_copy() { self.copies.shortest() } else { self.kernels.shortest() }
    }
}

/// Rest of the `gap` between two operations other than copies if both become nodes of a graph, nanoseconds;
/// `usual` is the shortest gap to be expected in a stream. At most the difference between measured gaps of
/// streams and of graphs is saved: gaps that are usually longer have another reason.
pub(super) fn between_nodes(gap: u64, usual: u64) -> u64 {
    gap.saturating_sub(usual.min(UNSEEN_NANOS).saturating_sub(NODE_NANOS))
}

/// Rest of a `gap` without the tracing overhead `price`, nanoseconds. It is at least the rest of the `usual`
/// gap of the stream, or, between nodes of a graph, their gap under tracing.
pub(super) fn untraced(gap: u64, usual: u64, price: u64, node: bool) -> u64 {
    let least = if node { NODE_NANOS } else { usual.saturating_sub(price) };
    gap.saturating_sub(price).max(gap.min(least))
}

#[derive(Clone, Debug)]
struct Gaps {
    /// Number of gaps by length.
    classes: [u64; CLASSES],
    count: u64,
    /// Class with the tenth percentile, and the number of shorter gaps.
    class: usize,
    below: u64,
}

impl Default for Gaps {
    fn default() -> Self {
        Self { classes: [0; CLASSES], count: 0, class: 0, below: 0 }
    }
}

impl Gaps {
    /// A gap longer than [`INTER_KERNEL_NANOS`] has another dependency.
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
            let index = all.partition_point(|&known| known < nanos);
            all.insert(index, nanos);
            if all.len() as u64 >= FEWEST {
                assert_eq!(gaps.shortest(), all[all.len() / 10] / CLASS_NANOS * CLASS_NANOS, "{number}");
            } else {
                assert_eq!(gaps.shortest(), UNSEEN_NANOS);
            }
        }
    }
}
