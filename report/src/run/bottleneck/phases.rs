//! Phases of a program that have different bottlenecks.

use gpuwhy_trace::record::Timestamp;
use profiler_core::leaf::{Cause, LEAF_COUNT, Leaves};

use crate::run::PhaseRow;
use crate::text_format::{duration, percent};
use crate::words;

/// Minimum part of the time for a phase to be named.
const NAMED: f64 = 0.1;
/// Largest difference of the shares of two phases with the same largest cause that count as one.
const ALIKE: f64 = 0.1;

/// Consecutive phases with the same largest cause.
#[derive(Clone, Copy, Debug)]
struct Stage {
    start: u64,
    end: u64,
    leaves: Leaves,
}

impl Stage {
    /// The largest cause and its share.
    fn largest(&self) -> (Cause, f64) {
        let total = self.leaves.iter().sum::<u64>().max(1) as f64;
        let share = |cause: Cause| cause.total(&self.leaves) as f64 / total;
        let all = Cause::ALL.into_iter().map(|cause| (cause, share(cause)));
        all.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((Cause::CannotTell, 0.0))
    }

    fn is_like(&self, other: &Self) -> bool {
        let ((cause, share), (other, of_other)) = (self.largest(), other.largest());
        cause == other && (share - of_other).abs() <= ALIKE
    }
}

/// Phases with different largest causes; none if one phase is nearly all of the time. Each phase is its start
/// and end on the clock of the trace, and its time by cause; `zero` is the start of tracing.
pub(super) fn phases(phases: &[(u64, u64, Leaves)], zero: Timestamp) -> Vec<PhaseRow> {
    let since = |at: u64| at.saturating_sub(zero.nanos());
    let mut stages: Vec<Stage> = Vec::new();
    for &(start, end, leaves) in phases {
        let new = Stage { start, end, leaves };
        match stages.last_mut().filter(|last| last.is_like(&new)) {
            Some(last) => {
                last.end = end;
                last.leaves = std::array::from_fn::<_, LEAF_COUNT, _>(|leaf| last.leaves[leaf] + leaves[leaf]);
            }
            None => stages.push(new),
        }
    }
    let length = |stage: &Stage| stage.end.saturating_sub(stage.start) as f64;
    let whole: f64 = stages.iter().map(length).sum();
    stages.retain(|stage| length(stage) >= NAMED * whole);
    let rows = stages.iter().map(|stage| {
        let (cause, share) = stage.largest();
        PhaseRow { begin_ns: since(stage.start), end_ns: since(stage.end), cause, share }
    });
    let rows: Vec<_> = rows.collect();
    let differ = rows.windows(2).any(|pair| pair[0].cause != pair[1].cause);
    if differ { rows } else { Vec::new() }
}

/// Sentence about phases; `None` without any.
pub(super) fn phases_sentence(rows: &[PhaseRow]) -> Option<String> {
    let named = rows.iter().map(|row| {
        let [begin, end] = [row.begin_ns, row.end_ns].map(duration);
        format!("{begin} to {end}: {} {}", words::bottleneck(row.cause), percent(row.share))
    });
    let named: Vec<_> = named.collect();
    (!named.is_empty())
        .then(|| format!("The program has phases, by time since the start of tracing: {}.", named.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_core::leaf::Leaf;

    fn phase(start: u64, end: u64, leaf: Leaf) -> (u64, u64, Leaves) {
        let mut leaves = [0; LEAF_COUNT];
        leaves[leaf as usize] = end - start;
        (start, end, leaves)
    }

    #[test]
    fn phases_with_different_causes_are_named_and_short_ones_are_not() {
        let second = 1_000_000_000;
        let zero = Timestamp::from_nanos(7 * second);
        let phase = |start, end, leaf| phase(zero.nanos() + start, zero.nanos() + end, leaf);
        let copies = phase(second, 2 * second, Leaf::CopyH2dPageable);
        let evaluation = phase(2 * second, 2 * second + second / 10, Leaf::HostCpu);
        let launches = phase(2 * second + second / 10, 3 * second, Leaf::LaunchApi);
        let rows = phases(&[copies, evaluation, launches], zero);
        let sentence = phases_sentence(&rows);
        let expected = "The program has phases, by time since the start of tracing: 1.00 s to 2.00 s: memory copies \
                        100 %; 2.10 s to 3.00 s: kernel launches 100 %.";
        assert_eq!(sentence.as_deref(), Some(expected));
        assert!(phases(&[copies, phase(2 * second, 3 * second, Leaf::CopyH2dPageable)], zero).is_empty());
        assert_eq!(phases_sentence(&phases(&[], zero)), None);
    }
}
