//! Newest launches of one device, as symbols.
//!
//! Finding a period only needs past launches, so a ring is enough; it reaches its capacity only if a
//! program makes that many launches. Symbols are opaque here.

use std::ops::Range;

/// Number of launches that the ring keeps (8 bytes each, 512 KiB). Detectable periods are shorter.
pub(super) const CAPACITY: u32 = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SequenceItem {
    /// Equal for equivalent launches.
    pub(super) symbol: u32,
    /// Time from the return of the previous launch to this one, nanoseconds, at most 4.29 s.
    pub(super) pause: u32,
}

/// A ring of launches, numbered from 0.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    ring: Vec<SequenceItem>,
    count: u64,
}

impl Sequence {
    /// Adds a launch and returns its number.
    pub(super) fn push(&mut self, launched: SequenceItem) -> u64 {
        let number = self.count;
        if self.ring.len() < CAPACITY as usize {
            self.ring.push(launched);
        } else {
            self.ring[Self::slot(number)] = launched;
        }
        self.count += 1;
        number
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Number of the oldest launch in the ring.
    pub(super) fn oldest(&self) -> u64 {
        self.count.saturating_sub(u64::from(CAPACITY))
    }

    pub(super) fn get(&self, number: u64) -> Option<SequenceItem> {
        if number < self.oldest() || number >= self.count { None } else { self.ring.get(Self::slot(number)).copied() }
    }

    /// True if launch `number` equals the one `lag` before it. `None` if either is not in the ring.
    pub(super) fn repeats(&self, number: u64, lag: u32) -> Option<bool> {
        let before = self.get(number.checked_sub(u64::from(lag))?)?;
        Some(self.get(number)?.symbol == before.symbol)
    }

    /// True if the newest launch equals the one `lag` before it; false if that one is unknown.
    #[inline]
    pub(super) fn newest_repeats(&self, lag: u32) -> bool {
        let known = lag < CAPACITY && u64::from(lag) < self.count;
        known && {
            let newest = self.count - 1;
            self.ring[Self::slot(newest)].symbol == self.ring[Self::slot(newest - u64::from(lag))].symbol
        }
    }

    /// Number of launches in `numbers` that equal the one `lag` before them. All compared launches must be in
    /// the ring.
    pub(super) fn repeats_within(&self, numbers: Range<u64>, lag: u32) -> u32 {
        let (mut number, mut equal) = (numbers.start, 0);
        while number < numbers.end {
            let (slot, before) = (Self::slot(number), Self::slot(number - u64::from(lag)));
            // Stop where either of the two sequences reaches the end of the ring.
            let left = (numbers.end - number).min(u64::from(CAPACITY)) as usize;
            let length = left.min(self.ring.len() - slot.max(before));
            let pairs = self.ring[slot..slot + length].iter().zip(&self.ring[before..before + length]);
            equal += pairs.map(|(launched, before)| u32::from(launched.symbol == before.symbol)).sum::<u32>();
            number += length as u64;
        }
        equal
    }

    /// Launches in the ring from `from` on, oldest first.
    pub(super) fn since(&self, from: u64) -> impl Iterator<Item = SequenceItem> {
        (from.max(self.oldest())..self.count).map_while(|number| self.get(number))
    }

    fn slot(number: u64) -> usize {
        (number % u64::from(CAPACITY)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_are_remembered() {
        let mut sequence = Sequence::default();
        for number in 0..u64::from(CAPACITY) + 10 {
            assert_eq!(sequence.push(SequenceItem { symbol: number as u32, pause: 0 }), number);
        }
        assert_eq!(sequence.oldest(), 10);
        assert_eq!(sequence.get(9), None);
        assert_eq!(sequence.get(10).map(|launched| launched.symbol), Some(10));
        assert_eq!(sequence.get(u64::from(CAPACITY) + 10), None, "not launched yet");
        assert_eq!(sequence.since(u64::from(CAPACITY) + 7).count(), 3);
        assert_eq!(sequence.repeats(11, 2), None);
        assert_eq!(sequence.repeats(12, 2), Some(false));
    }

    #[test]
    fn repeats_are_counted_across_the_end_of_the_ring() {
        let mut sequence = Sequence::default();
        let count = 2 * u64::from(CAPACITY) + 300;
        for number in 0..count {
            sequence.push(SequenceItem { symbol: (number % 7 * (number % 50)) as u32, pause: 0 });
        }
        for (lag, back) in [(7, 1_000), (50, 400), (350, 350), (CAPACITY - 64, 64), (1, u64::from(CAPACITY) - 1)] {
            let numbers = count - back..count;
            let one_by_one = numbers.clone().filter(|&number| sequence.repeats(number, lag) == Some(true)).count();
            assert_eq!(sequence.repeats_within(numbers, lag), one_by_one as u32, "{lag}");
            assert_eq!(Some(sequence.newest_repeats(lag)), sequence.repeats(count - 1, lag), "{lag}");
        }
        assert_eq!(sequence.repeats_within(count - 350..count, 350), 350);
    }
}
