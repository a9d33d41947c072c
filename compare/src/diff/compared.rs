//! Criteria for two runs or two steps to be comparable, and differences of their numbers.

/// Below this similarity of what they execute, two runs are of different programs.
pub const SAME_PROGRAM: f64 = 0.5;

/// Steps with the same mixture of kernels whose sizes differ by this factor hold different numbers of
/// iterations.
const SAME_STEP: f64 = 1.5;
/// Minimum similarity of the executed kernels for the mixture of kernels to count as equal. Two runs of one
/// program that differ only in length were measured at 0.985.
const SAME_MIXTURE: f64 = 0.9;

/// True if steps with these numbers of operations, or these durations, can be comparable: not if runs with one mixture
/// of kernels differ by the factor `SAME_STEP`.
pub(crate) fn same_steps(a: u64, b: u64, similarity: f64) -> bool {
    similarity < SAME_MIXTURE || (a.max(b) as f64) < SAME_STEP * a.min(b) as f64
}

/// Returns `b - a`. Durations are far below 2^63 ns (292 years).
pub(crate) fn change(a: u64, b: u64) -> i64 {
    b.cast_signed().wrapping_sub(a.cast_signed())
}

/// Returns the elements that changed, the largest change first, otherwise in their order.
pub(crate) fn ranked<T: Copy>(all: &[T], change: impl Fn(T) -> i64) -> Vec<(T, i64)> {
    let mut changes: Vec<_> = all.iter().map(|&item| (item, change(item))).filter(|(_, nanos)| *nanos != 0).collect();
    changes.sort_by_key(|(_, nanos)| std::cmp::Reverse(nanos.unsigned_abs()));
    changes
}
