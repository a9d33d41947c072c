//! Kernels that the host built or loaded while the device waited, over the operations of a run.
//!
//! Programs load kernels when they launch them first, which is over soon. One that builds kernels for each new
//! shape never stops, so the report says how many builds are in the second half of the operations after start-up: half
//! of the operations, because builds take most of the time.

/// Entries (24 bytes each); when they are full, adjacent ones are joined.
const LIMIT: usize = 2_048;

/// Builds that end at about the same time.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Number of operations of the device before.
    operations: u64,
    count: u64,
    nanos: u64,
}

/// Log of builds and loads, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Builds(Vec<Entry>);

/// Kernels that were built or loaded after start-up while the device waited. Each build is a host gap of over 100 us
/// in a compiler or before a call that loads kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct KernelBuilds {
    /// Number of builds.
    pub count: u64,
    /// Idle time of the device in them, and in calls that load kernels without building any, nanoseconds.
    pub total_ns: u64,
    /// Builds in the second half of the operations after start-up.
    pub later_count: u64,
    /// Idle time in the second half, nanoseconds.
    pub later_ns: u64,
    /// Idle time after the first quarter, nanoseconds.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub beyond_ns: u64,
    /// Operations after start-up, and those of them before the last build.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub until: (u64, u64),
}

impl Builds {
    /// Adds `nanos` of idle time after that many operations; `built` if that is a build.
    pub(super) fn push(&mut self, operations: u64, nanos: u64, built: bool) {
        if self.0.len() >= LIMIT {
            let joined = |pair: &[Entry]| {
                pair.iter().copied().reduce(|first, second| Entry {
                    count: first.count + second.count,
                    nanos: first.nanos + second.nanos,
                    ..second
                })
            };
            self.0 = self.0.chunks(2).filter_map(joined).collect();
        }
        self.0.push(Entry { operations, count: u64::from(built), nanos });
    }

    /// The builds after the first `start` of `end` operations.
    pub(super) fn within(&self, start: u64, end: u64) -> KernelBuilds {
        let middle = start.midpoint(end);
        let mut builds = KernelBuilds::default();
        for entry in self.0.iter().filter(|entry| entry.operations > start) {
            if entry.count > 0 {
                builds.until = (end - start, entry.operations - start);
            }
            builds.count += entry.count;
            builds.total_ns += entry.nanos;
            builds.beyond_ns += if entry.operations > start.midpoint(middle) { entry.nanos } else { 0 };
            if entry.operations > middle {
                builds.later_count += entry.count;
                builds.later_ns += entry.nanos;
            }
        }
        builds
    }

    /// Idle time in builds and loads after the first `start` and before the operation `end`, nanoseconds.
    pub(super) fn nanos_between(&self, start: u64, end: u64) -> u64 {
        self.0.iter().filter(|entry| entry.operations > start && entry.operations <= end).map(|entry| entry.nanos).sum()
    }
}

impl KernelBuilds {
    /// Smallest part of the time of builds after the beginning for them to last: half of it is in the second half if
    /// they are regular.
    const LASTING: u64 = 5;
    /// Fewest builds in the second half for those after the first quarter to count.
    const LATER: u64 = 3;

    /// True if kernels are still built in the second half of the operations, and not only at the beginning.
    pub fn last(&self) -> bool {
        let later = if self.later_count >= Self::LATER { self.beyond_ns } else { self.later_ns };
        self.later_count > 0 && later.saturating_mul(Self::LASTING) >= self.total_ns
    }

    /// Adds the builds of another device.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.later_count += other.later_count;
        self.later_ns += other.later_ns;
        self.beyond_ns += other.beyond_ns;
        self.until = (self.until.0 + other.until.0, self.until.1 + other.until.1);
    }

    /// Part of the operations after start-up until the last build, 0 to 1.
    pub fn ends(&self) -> f64 {
        self.until.1 as f64 / self.until.0.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_half_of_the_operations_shows_whether_builds_last() {
        let mut builds = Builds::default();
        builds.push(50, 40, true);
        builds.push(200, 30, true);
        builds.push(300, 5, false);
        builds.push(900, 20, true);
        let found = builds.within(100, 1_000);
        assert_eq!(
            found,
            KernelBuilds { count: 2, total_ns: 55, later_count: 1, later_ns: 20, beyond_ns: 20, until: (900, 800) }
        );
        assert!(found.last());
        assert!(!builds.within(100, 2_000).last(), "none in the second half");
        assert!(!KernelBuilds { later_ns: 10, ..found }.last(), "few");
    }

    #[test]
    fn many_builds_are_joined_and_counted() {
        let mut builds = Builds::default();
        (0..10_000).for_each(|at| builds.push(at, 2, true));
        let found = builds.within(0, 10_000);
        assert!(builds.0.len() <= LIMIT);
        assert_eq!((found.count, found.total_ns), (10_000, 20_000));
        assert!(found.later_count.abs_diff(5_000) <= 16, "{found:?}");
    }
}
