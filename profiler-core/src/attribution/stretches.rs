//! The window cut where something new begins, so that the verdict can leave out start-up.
//!
//! A kernel that runs for the first time means that the program is still warming up: code is loaded, libraries choose
//! their algorithms, caches are filled. So a new stretch begins with each such kernel. Start-up ends with the last of
//! them within the first half of all operations: half the operations rather than half the time, because start-up is
//! long and does little, and what is new in the second half (another phase, a last evaluation) is not start-up.

use rustc_hash::FxHashMap;

use super::account::{Subject, Tally};
use super::host_lead::HostLead;
use super::join::Launch;
use super::leaf::{LEAF_COUNT, Leaf, Leaves};

/// Stretches that are told apart; beyond, the two neighbours with the fewest operations are joined.
const LIMIT: usize = 64;
/// Distinct causes of a stretch with a row of their own; further ones go to the row without subject.
const CAUSE_LIMIT: usize = 1_024;

/// Idle time by leaf and by what it is blamed on.
pub(super) type Causes = FxHashMap<(Leaf, Subject), Tally>;

/// From one new kernel to the next.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    /// When it began, nanoseconds on the clock of the trace.
    start: u64,
    /// Operations before it.
    operations_before: u64,
    pub(super) leaves: Leaves,
    pub(super) causes: Causes,
    lead: HostLead,
}

/// All stretches, which together are the window.
#[derive(Debug)]
pub(super) struct Stretches {
    rows: Vec<Stretch>,
    operations: u64,
}

impl Stretches {
    /// The first stretch, from `start`.
    pub(super) fn new(start: u64) -> Self {
        Self { rows: vec![Stretch::new(start, 0)], operations: 0 }
    }

    /// An operation begins at `at`, the end of what was entered so far; `novel`: for the first time.
    pub(super) fn operation(&mut self, at: u64, novel: bool) {
        if novel {
            match self.rows.last_mut() {
                Some(last) if last.operations_before == self.operations && last.start == at => {}
                _ => self.rows.push(Stretch::new(at, self.operations)),
            }
            if self.rows.len() > LIMIT {
                self.join_the_smallest();
            }
        }
        self.operations += 1;
    }

    /// Gives `nanos` of the newest stretch to `leaf`.
    pub(super) fn add(&mut self, leaf: Leaf, nanos: u64) {
        if let Some(last) = self.rows.last_mut() {
            last.leaves[leaf as usize] += nanos;
        }
    }

    /// Blames `nanos` of idle time in the newest stretch on `subject`.
    pub(super) fn blame(&mut self, leaf: Leaf, subject: Subject, nanos: u64) {
        let Some(last) = self.rows.last_mut() else { return };
        let full = last.causes.len() >= CAUSE_LIMIT && !last.causes.contains_key(&(leaf, subject));
        let subject = if full { Subject::None } else { subject };
        last.causes.entry((leaf, subject)).or_default().add(Tally { count: 1, total_ns: nanos, longest_ns: nanos });
    }

    /// An operation of the newest stretch is the first of `launch`; see [`HostLead`].
    pub(super) fn launched(&mut self, launch: &Launch, busy_until: u64) {
        if let Some(last) = self.rows.last_mut() {
            last.lead.add(launch, busy_until);
        }
    }

    /// Leads after start-up.
    pub(super) fn steady_lead(&self) -> HostLead {
        let mut lead = HostLead::default();
        self.steady().iter().for_each(|row| lead.merge(&row.lead));
        lead
    }

    /// Takes `from..to` from one leaf and gives it to another.
    pub(super) fn transfer(&mut self, was: Leaf, is: Leaf, from: u64, to: u64) {
        let mut end = to;
        for row in self.rows.iter_mut().rev() {
            let begin = row.start.max(from);
            if begin < end {
                // A joined neighbour may have moved the boundary: what is not there cannot be taken.
                let nanos = (end - begin).min(row.leaves[was as usize]);
                row.leaves[was as usize] -= nanos;
                row.leaves[is as usize] += nanos;
                end = begin;
            }
            if row.start <= from {
                break;
            }
        }
    }

    /// The stretches after start-up, oldest first.
    pub(super) fn steady(&self) -> &[Stretch] {
        let first = self.rows.iter().rposition(|row| row.operations_before <= self.operations / 2).unwrap_or(0);
        &self.rows[first..]
    }

    /// When start-up ended.
    pub(super) fn steady_start(&self) -> u64 {
        self.steady().first().map_or(0, |row| row.start)
    }

    /// Leaves after start-up.
    pub(super) fn steady_leaves(&self) -> Leaves {
        let mut leaves = [0; LEAF_COUNT];
        for row in self.steady() {
            for (sum, nanos) in leaves.iter_mut().zip(row.leaves) {
                *sum += nanos;
            }
        }
        leaves
    }

    fn join_the_smallest(&mut self) {
        let end = |index: usize| self.rows.get(index + 1).map_or(self.operations, |next| next.operations_before);
        let size = |index: usize| end(index + 1) - self.rows[index].operations_before;
        let Some(index) = (0..self.rows.len() - 1).min_by_key(|&index| size(index)) else { return };
        let Stretch { leaves, causes, lead, .. } = self.rows.remove(index + 1);
        let row = &mut self.rows[index];
        for (sum, nanos) in row.leaves.iter_mut().zip(leaves) {
            *sum += nanos;
        }
        row.lead.merge(&lead);
        for (key, tally) in causes {
            row.causes.entry(key).or_default().add(tally);
        }
    }
}

impl Stretch {
    fn new(start: u64, operations_before: u64) -> Self {
        Self { start, operations_before, leaves: [0; LEAF_COUNT], causes: Causes::default(), lead: HostLead::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A long start-up of few operations, then many.
    fn program() -> Stretches {
        let mut stretches = Stretches::new(0);
        stretches.operation(0, true);
        stretches.add(Leaf::HostCpu, 9_000);
        stretches.blame(Leaf::HostCpu, Subject::None, 9_000);
        stretches.operation(9_000, true);
        for step in 0..100 {
            stretches.add(Leaf::Compute, 10);
            // Something new shortly before the end, too.
            stretches.operation(9_010 + 10 * step, step == 90);
        }
        stretches
    }

    #[test]
    fn start_up_is_what_comes_before_the_last_new_kernel_of_the_first_half() {
        let stretches = program();
        assert_eq!(stretches.steady_start(), 9_000);
        assert_eq!(stretches.steady_leaves()[Leaf::HostCpu as usize], 0);
        assert_eq!(stretches.steady_leaves()[Leaf::Compute as usize], 1_000);
        assert!(stretches.steady().iter().all(|stretch| stretch.causes.is_empty()));
    }

    #[test]
    fn joining_keeps_every_nanosecond_and_the_large_stretches() {
        let mut stretches = program();
        for novelty in 0..1_000 {
            stretches.add(Leaf::Dispatch, 1);
            stretches.operation(20_000 + novelty, true);
        }
        assert!(stretches.rows.len() <= LIMIT);
        let total: u64 = stretches.rows.iter().flat_map(|row| row.leaves).sum();
        assert_eq!(total, 9_000 + 1_000 + 1_000);
        assert!(
            stretches.rows.iter().any(|row| row.leaves[Leaf::Compute as usize] == 910),
            "the 91 steps stay together"
        );
    }

    #[test]
    fn a_transfer_crosses_boundaries() {
        let mut stretches = Stretches::new(0);
        stretches.operation(0, true);
        stretches.add(Leaf::HostCpu, 100);
        stretches.operation(100, true);
        stretches.add(Leaf::HostCpu, 100);
        stretches.transfer(Leaf::HostCpu, Leaf::Compute, 50, 120);
        let compute: Vec<_> = stretches.rows.iter().map(|row| row.leaves[Leaf::Compute as usize]).collect();
        assert_eq!(compute, [50, 20]);
        let total: u64 = stretches.rows.iter().flat_map(|row| row.leaves).sum();
        assert_eq!(total, 200);
    }
}
