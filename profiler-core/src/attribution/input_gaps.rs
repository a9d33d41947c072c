//! How much of the host gaps before input batches is data loading, as far as samples tell.

/// What samples saw in the newest host gaps that an input batch ended. Samples are too sparse for short gaps: a gap without a
/// sample is split like the ones with samples. A sample falls anywhere in a gap, so the part of the samples that saw the data
/// loader is the part of such gaps that is loading.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InputGaps {
    gaps: u64,
    /// How many of them a sample saw in a data loader.
    loading: u64,
}

impl InputGaps {
    /// Gaps that count: from twice as many on, the older half is forgotten.
    const NEWEST: u64 = 64;

    pub(super) fn seen(&mut self, loader: bool) {
        self.gaps += 1;
        self.loading += u64::from(loader);
        if self.gaps >= 2 * Self::NEWEST {
            (self.gaps, self.loading) = (self.gaps / 2, self.loading / 2);
        }
    }

    /// How much of `nanos` in such a gap is loading; `None` until three were seen.
    pub(super) fn part_of(self, nanos: u64) -> Option<u64> {
        (self.gaps >= 3).then(|| (u128::from(nanos) * u128::from(self.loading) / u128::from(self.gaps)) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_of_gaps_that_is_loading_follows_the_newest_ones() {
        let mut gaps = InputGaps::default();
        let mut see = |count, loader| {
            (0..count).for_each(|_| gaps.seen(loader));
            gaps.part_of(1_280_000)
        };
        assert_eq!(see(2, true), None, "two prove nothing");
        assert_eq!(see(1, true), Some(1_280_000));
        assert_eq!(see(97, true), Some(1_280_000));
        // 100 of 127.
        assert_eq!(see(27, false), Some(1_280_000 * 100 / 127));
        // One more makes twice as many as count: half of them are forgotten, and the part stays.
        assert_eq!(see(1, false), Some(1_000_000));
        // 50 of 127, then 25 of 64.
        assert_eq!(see(63, false), Some(1_280_000 * 50 / 127));
        assert_eq!(see(1, false), Some(500_000));
        assert_eq!(see(63, true), Some(1_280_000 * (25 + 63) / 127));
    }
}
