//! Source lines of calls: samples of the launching threads by kind of call, place and time.
//!
//! The line that copies, waits or launches is where a fix for those begins. Only samples after start-up may
//! count, and where that ends is known late, so samples are counted by slices of time.

use gpuwhy_trace::named;
use rustc_hash::FxHashMap;

use crate::api::ApiClass;
use crate::attribution::launch_places::PlaceId;

/// Slices of a run, and the length of the first ones in nanoseconds; it doubles when the run gets longer.
const SLICES: u64 = 64;
const SLICE_NANOS: u64 = 125_000_000;
/// Rows by kind, place and slice, 24 bytes each with their index.
const ROW_LIMIT: usize = 16_384;

named! {
    /// Kind of call that a sample fell into.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum CallKind: name {
        /// Launches kernels or graphs; includes the short time before the call in which it is prepared.
        Launch "launches",
        /// Copies; includes the same.
        Copy "copies",
        /// Sets memory; includes the same.
        Memset "memsets",
        /// Waits for the device.
        Wait "waits",
        /// Allocates or frees memory.
        Allocation "allocations",
    }
}

impl CallKind {
    pub(crate) const fn of(class: ApiClass) -> Option<Self> {
        match class {
            ApiClass::KernelLaunch | ApiClass::GraphLaunch => Some(Self::Launch),
            ApiClass::Copy | ApiClass::BlockingCopy => Some(Self::Copy),
            ApiClass::Memset => Some(Self::Memset),
            ApiClass::Synchronize | ApiClass::Query => Some(Self::Wait),
            ApiClass::Memory => Some(Self::Allocation),
            _ => None,
        }
    }

    /// True if such calls launch work, so that the time between two of them prepares the second.
    pub(crate) const fn launches(self) -> bool {
        matches!(self, Self::Launch | Self::Copy | Self::Memset)
    }
}

#[derive(Debug)]
pub(crate) struct CallLines {
    rows: FxHashMap<(CallKind, PlaceId, u8), u64>,
    /// Time of the first sample.
    first: Option<u64>,
    slice: u64,
}

impl Default for CallLines {
    fn default() -> Self {
        Self { rows: FxHashMap::default(), first: None, slice: SLICE_NANOS }
    }
}

impl CallLines {
    /// A sample taken at `at` fell into a call of this kind. With a full table it is not counted.
    pub(crate) fn add(&mut self, kind: CallKind, place: PlaceId, at: u64) {
        let since = at.saturating_sub(*self.first.get_or_insert(at));
        while since / self.slice >= SLICES {
            self.slice *= 2;
            for ((kind, place, slice), count) in std::mem::take(&mut self.rows) {
                *self.rows.entry((kind, place, slice / 2)).or_default() += count;
            }
        }
        let key = (kind, place, (since / self.slice) as u8);
        if self.rows.len() < ROW_LIMIT || self.rows.contains_key(&key) {
            *self.rows.entry(key).or_default() += 1;
        }
    }

    /// Samples by kind and place in the slices that are mostly after `from`.
    pub(crate) fn since(&self, from: u64) -> FxHashMap<(CallKind, PlaceId), u64> {
        let first = self.first.unwrap_or_default();
        let mut sums = FxHashMap::default();
        for (&(kind, place, slice), &count) in &self.rows {
            if first + u64::from(slice) * self.slice + self.slice / 2 >= from {
                *sums.entry((kind, place)).or_default() += count;
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_start_up_do_not_count_however_long_the_run_is() {
        const SECOND: u64 = 1_000_000_000;
        for length in [2u64, 20, 2_000] {
            let mut lines = CallLines::default();
            let place = |at: u64| PlaceId(u32::from(at >= length / 2));
            for at in 0..length * 10 {
                lines.add(CallKind::Copy, place(at / 10), at * SECOND / 10);
            }
            let after = lines.since(length / 2 * SECOND);
            let of = |place| after.get(&(CallKind::Copy, PlaceId(place))).copied().unwrap_or_default();
            let half = length * 5;
            assert!(of(0) <= half / 10 + 3 && of(1) >= half - half / 10 - 3, "{length}: {after:?}");
            assert!(lines.rows.len() <= 2 * SLICES as usize + 2);
            assert_eq!(lines.since(0).values().sum::<u64>(), length * 10);
        }
    }
}
