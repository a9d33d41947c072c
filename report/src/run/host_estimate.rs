//! Estimate of what threads did in host gaps without a sample.
//!
//! Gaps are often shorter than the sampling interval, so most of them have no sample. Gaps of one thread that
//! end before the same operation have about the same length, so a sample is as likely to fall into one as
//! into another: what samples saw in some of them stands for all of them. Such gaps are a stratum
//! ([`Stratum`]), and the estimate is a post-stratified one (W. G. Cochran, "Sampling Techniques", 3rd edition,
//! 1977, section 5A.9). A stratum with few samples is joined with the others of its thread.

use std::collections::BTreeMap;

use profiler_core::attribution::host_cause::HostCause;
use profiler_core::attribution::{GapSamples, LineId, Seen, Stratum};
use profiler_core::leaf::{Cause, Leaf, Leaves};

use super::{DeviceReport, HostReport};

/// Minimum number of samples for an estimate of the gaps without a sample: of a stratum, and of all of a cause.
const FEWEST_OF_STRATUM: u64 = 3;
const FEWEST: u64 = 10;

/// Activity of a thread at a line; of one without lines, the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ActivityKey {
    pub(super) cause: HostCause,
    pub(super) line: LineId,
    /// Index of the thread; 0 if the line is known.
    pub(super) thread: u32,
}

/// Sampled and estimated time of an activity.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ActivityTime {
    pub(super) samples: u64,
    /// Idle time that these samples explain, nanoseconds.
    pub(super) sampled_ns: u64,
    /// The same plus its part of the gaps without a sample, nanoseconds.
    pub(super) total_ns: u64,
    /// Variance of the total, nanoseconds squared.
    pub(super) variance: f64,
}

impl ActivityTime {
    pub(super) fn add(&mut self, other: Self) {
        self.samples += other.samples;
        self.sampled_ns += other.sampled_ns;
        self.total_ns += other.total_ns;
        self.variance += other.variance;
    }
}

/// What is known about the gaps of one or more strata.
#[derive(Clone, Debug, Default)]
struct Pool {
    seen: BTreeMap<ActivityKey, GapSamples>,
    unseen_ns: u64,
}

impl Pool {
    fn samples(&self) -> u64 {
        self.seen.values().map(|time| time.samples).sum()
    }

    fn add(&mut self, other: &Self) {
        for (&key, &time) in &other.seen {
            self.seen.entry(key).or_default().add(time);
        }
        self.unseen_ns += other.unseen_ns;
    }

    /// Divides `unseen` nanoseconds as the samples here divide. The variance is that of a share in so many
    /// independent samples.
    fn divide(&self, unseen: u64, totals: &mut BTreeMap<ActivityKey, ActivityTime>) {
        let (samples, sum) = (self.samples().max(1), self.seen.values().map(|time| time.nanos).sum::<u64>());
        for (&key, time) in &self.seen {
            let (unseen, part) = (unseen as f64, time.nanos as f64 / sum.max(1) as f64);
            let total = totals.entry(key).or_default();
            total.total_ns += (unseen * part) as u64;
            total.variance += unseen * unseen * part * (1.0 - part) / samples as f64;
        }
    }
}

/// Idle time by activity, from that of each stratum.
pub(super) fn estimate(rows: &[(Stratum, Seen, GapSamples)]) -> BTreeMap<ActivityKey, ActivityTime> {
    let mut totals: BTreeMap<ActivityKey, ActivityTime> = BTreeMap::new();
    for cause in [Cause::HostCpu, Cause::KernelBuild, Cause::DataLoading] {
        // A gap without a sample counts as CPU work, also if the thread waited for requests.
        let of_cause = |leaf: Leaf| leaf.cause() == cause || (cause == Cause::HostCpu && leaf == Leaf::NoWork);
        let mut strata: BTreeMap<Stratum, Pool> = BTreeMap::new();
        for &(stratum, seen, time) in rows {
            match seen {
                Seen::Nothing(leaf) if of_cause(leaf) => strata.entry(stratum).or_default().unseen_ns += time.nanos,
                Seen::Activity(cause, line) if of_cause(cause.leaf()) => {
                    let thread = if line == LineId::NONE { stratum.thread } else { 0 };
                    let key = ActivityKey { cause, line, thread };
                    strata.entry(stratum).or_default().seen.entry(key).or_default().add(time);
                    let total = totals.entry(key).or_default();
                    total.samples += time.samples;
                    total.sampled_ns += time.nanos;
                    total.total_ns += time.nanos;
                }
                _ => {}
            }
        }
        if strata.values().map(Pool::samples).sum::<u64>() < FEWEST {
            continue;
        }
        // Of each thread: all strata, and those with few samples.
        let mut threads: BTreeMap<u32, (Pool, Pool)> = BTreeMap::new();
        for (stratum, pool) in &strata {
            let (all, few) = threads.entry(stratum.thread).or_default();
            all.add(pool);
            if pool.samples() < FEWEST_OF_STRATUM {
                few.add(pool);
            } else {
                pool.divide(pool.unseen_ns, &mut totals);
            }
        }
        for (all, few) in threads.values() {
            let like = if few.samples() < FEWEST_OF_STRATUM { all } else { few };
            if like.samples() >= FEWEST_OF_STRATUM {
                like.divide(few.unseen_ns, &mut totals);
            }
        }
    }
    totals
}

/// Divides the time of CPU work outside of CUDA as the estimate does, in every sum of a device: a gap without a sample
/// counts as `host_cpu` in the accounts, whatever the thread did. Sums stay the same.
pub(super) fn divide(devices: &mut [DeviceReport], host: &HostReport) {
    let outside = |leaves: &Leaves| leaves[Leaf::HostCpu as usize] + leaves[Leaf::HostBlocked as usize];
    let all: u64 = devices.iter().map(|device| outside(&device.steady_leaves)).sum();
    let blocked = host.causes.iter().filter(|row| row.cause.leaf() == Leaf::HostBlocked);
    let part = blocked.map(|row| row.total_ns).sum::<u64>() as f64 / all.max(1) as f64;
    let idle = host.between.unseen_idle_ns() as f64 / all.max(1) as f64;
    for device in devices {
        let steady = device.steady_leaves;
        let set = |leaves: &mut Leaves| {
            let whole = outside(leaves);
            leaves[Leaf::HostBlocked as usize] = ((whole as f64 * part) as u64).min(whole);
            let rest = whole - leaves[Leaf::HostBlocked as usize];
            let no_work = ((whole as f64 * idle) as u64).min(rest);
            leaves[Leaf::NoWork as usize] += no_work;
            leaves[Leaf::HostCpu as usize] = rest - no_work;
        };
        set(&mut device.steady_leaves);
        // Nothing is known about start-up.
        for leaf in [Leaf::HostCpu, Leaf::HostBlocked, Leaf::NoWork].map(|leaf| leaf as usize) {
            device.leaves[leaf] = device.leaves[leaf].saturating_sub(steady[leaf]) + device.steady_leaves[leaf];
        }
        device.typical.iter_mut().for_each(|typical| set(&mut typical.leaves));
        let rows = device.steps.iter_mut().flat_map(|steps| &mut steps.rows).chain(&mut device.windows);
        rows.for_each(|row| set(&mut row.leaves));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_core::attribution::Subject;

    const CODE: Seen = Seen::Activity(HostCause::Code, LineId::NONE);

    fn totals(rows: &[(u32, Seen, u64, u64)]) -> Vec<(u64, u64)> {
        let rows: Vec<_> = rows
            .iter()
            .map(|&(thread, seen, samples, nanos)| {
                (Stratum { thread, before: Subject::None }, seen, GapSamples { samples, nanos })
            })
            .collect();
        estimate(&rows).values().map(|time| (time.samples, time.total_ns)).collect()
    }

    #[test]
    fn samples_stand_for_the_gaps_of_their_stratum() {
        let unseen = Seen::Nothing(Leaf::HostCpu);
        // Long gaps of one thread, a third of them sampled; short gaps of another, one in fifty.
        let rows = [(1, CODE, 20, 2_000), (1, unseen, 0, 4_000), (2, CODE, 10, 10), (2, unseen, 0, 490)];
        assert_eq!(totals(&rows), [(20, 6_000), (10, 500)]);
        // Too few samples in all: only what they saw.
        assert_eq!(totals(&[(1, CODE, 9, 900), (1, unseen, 0, 4_000)]), [(9, 900)]);
        // A thread without samples stays not sampled.
        assert_eq!(totals(&[(1, CODE, 20, 2_000), (2, unseen, 0, 4_000)]), [(20, 2_000)]);
        // Loading that no sample saw is not other work.
        assert_eq!(totals(&[(1, CODE, 20, 2_000), (1, Seen::Nothing(Leaf::DataLoading), 0, 4_000)]), [(20, 2_000)]);
    }
}
