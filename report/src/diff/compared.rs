//! When two runs, or two steps, are the same thing, and by how much numbers of them differ.

/// Below this similarity of what they execute, two runs are of different programs.
pub const SAME_PROGRAM: f64 = 0.5;

/// Steps of one mixture of kernels whose sizes differ by this factor hold different numbers of iterations.
pub(super) const SAME_STEP: f64 = 1.5;
/// From this similarity of what runs on, the mixture of kernels is the same. Two runs of one program that differ in
/// length only were measured at 0.985.
const SAME_MIXTURE: f64 = 0.9;

/// Whether steps of so many operations can be the same thing: not when runs of one mixture of kernels differ by a
/// factor.
pub(crate) fn same_steps(a: u64, b: u64, similarity: f64) -> bool {
    similarity < SAME_MIXTURE || (a.max(b) as f64) < SAME_STEP * a.min(b) as f64
}

/// `b - a`. Durations are far below 2^63 ns (292 years).
pub(super) fn change(a: u64, b: u64) -> i64 {
    b.cast_signed().wrapping_sub(a.cast_signed())
}

/// Those that changed, the largest change first, then in their own order.
pub(super) fn ranked<T: Copy>(all: &[T], change: impl Fn(T) -> i64) -> Vec<(T, i64)> {
    let mut changes: Vec<_> = all.iter().map(|&item| (item, change(item))).filter(|(_, nanos)| *nanos != 0).collect();
    changes.sort_by_key(|(_, nanos)| std::cmp::Reverse(nanos.unsigned_abs()));
    changes
}
