//! What earlier gaps of a device tell about the next one: how often a wait for input ended them, and whether
//! a thread waits for others where they hand over to it.

use rustc_hash::FxHashMap;

/// Host gaps of one device that ended with an input batch, and those with a handover.
///
/// Samples are too sparse for short gaps, so a gap without a sample is split like the ones with samples. A
/// sample falls anywhere in a gap, so the fraction of samples that saw the data loader is the fraction of
/// such gaps spent loading.
#[derive(Debug, Default)]
pub(super) struct GapHistory {
    /// History of the last eight gaps with a host gap of more than 1 ms, newest in the lowest bit: set if an
    /// input copy ended it. The second number is the count of filled bits.
    long: (u8, u8),
    /// Recent gaps that contain a sample.
    gaps: u64,
    /// Number of these in which a sample saw a data loader.
    loading: u64,
    /// Input waits explained since they were last taken.
    pub(super) waits: Vec<InputWait>,
    /// By thread: samples before a handover that saw a wait for another thread, and those that did not.
    handovers: FxHashMap<u32, (u64, u64)>,
}

impl GapHistory {
    /// Gaps that count: at twice this number, the older half is forgotten.
    const NEWEST: u64 = 64;

    /// Records that a host gap of more than 1 ms ended with an input copy or without one. True if such copies
    /// end gaps so frequently that this one is a wait for input.
    pub(super) fn recurs(&mut self, input: bool) -> bool {
        let (bits, filled) = &mut self.long;
        *bits = (*bits << 1) | u8::from(input);
        *filled = (*filled + 1).min(8);
        let inputs = bits.count_ones() as u8;
        input && inputs >= 3 && inputs * 2 >= *filled
    }

    /// True if the thread waits for other threads in most of its gaps with a handover, `waited` included.
    pub(super) fn waits_for_threads(&mut self, thread: u32, waited: Option<bool>) -> bool {
        let (waits, other) = match waited {
            Some(waited) => {
                let (waits, other) = self.handovers.entry(thread).or_default();
                *waits += u64::from(waited);
                *other += u64::from(!waited);
                (*waits, *other)
            }
            None => self.handovers.get(&thread).copied().unwrap_or_default(),
        };
        waits > other
    }

    pub(super) fn seen(&mut self, loader: bool) {
        self.gaps += 1;
        self.loading += u64::from(loader);
        if self.gaps >= 2 * Self::NEWEST {
            (self.gaps, self.loading) = (self.gaps / 2, self.loading / 2);
        }
    }

    /// Part of `nanos` in such a gap that is loading; `None` until three gaps were seen.
    pub(super) fn part_of(&self, nanos: u64) -> Option<u64> {
        (self.gaps >= 3).then(|| (u128::from(nanos) * u128::from(self.loading) / u128::from(self.gaps)) as u64)
    }
}

/// Wait of a host thread for an input batch, in nanoseconds on the clock of the trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct InputWait {
    /// Index of the thread.
    pub(super) thread: u32,
    pub(super) start: u64,
    pub(super) end: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_of_gaps_that_is_loading_follows_the_newest_ones() {
        let mut gaps = GapHistory::default();
        let mut see = |count, loader| {
            (0..count).for_each(|_| gaps.seen(loader));
            gaps.part_of(1_280_000)
        };
        assert_eq!(see(2, true), None, "two prove nothing");
        assert_eq!(see(1, true), Some(1_280_000));
        assert_eq!(see(97, true), Some(1_280_000));
        // 100 of 127.
        assert_eq!(see(27, false), Some(1_280_000 * 100 / 127));
        // One more reaches twice the limit: half are forgotten, and the fraction stays.
        assert_eq!(see(1, false), Some(1_000_000));
        // 50 of 127, then 25 of 64.
        assert_eq!(see(63, false), Some(1_280_000 * 50 / 127));
        assert_eq!(see(1, false), Some(500_000));
        assert_eq!(see(63, true), Some(1_280_000 * (25 + 63) / 127));
    }
}
