//! Steps of few repetitions around a copy between host and device, before an epoch of launches has passed.
//!
//! A slow program may be over after sixteen steps of fifty launches, which is too little for two epochs. Exact
//! repetition alone does not shorten the wait: the layers of a model repeat as exactly as its steps do. What the host
//! hands over or fetches, it hardly does once a layer, though; a batch or a loss comes once a step. When such a copy
//! comes at one distance five times, with the same launches in between each time, that distance is the period.
//!
//! A program that copies for each layer (weights kept on the host), or for each of more than four micro-batches before
//! an optimizer step, is cut there until the epochs know better. Not here: programs that copy nothing, and steps that
//! differ.

use std::collections::VecDeque;

use super::sequence::Sequence;

/// Repetitions without exception that make a period: as many as an epoch has of a known one.
const REPEATS: u64 = 4;
/// Fewest launches that must repeat, those of the shortest early epoch but one...
const FEWEST: u64 = 128;
/// ...and shortest distance: shorter ones end their epoch early anyway, and conversions of weights are such loops.
const SHORTEST: u64 = 9;
/// Longest distance: what is compared with must still be remembered.
const LONGEST: u64 = 8_192;
/// Copies that are remembered; a step that has more begins at one of its last. Bounds the work per copy.
const COPIES: usize = 32;

/// The newest copies between host and device, oldest first: what they do, and their number among the launches.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    copies: VecDeque<(u32, u64)>,
}

impl Exchanges {
    /// Launch `number`, the newest, copies between host and device.
    pub(super) fn copied(&mut self, symbol: u32, number: u64) {
        if self.copies.len() == COPIES {
            self.copies.pop_front();
        }
        self.copies.push_back((symbol, number));
    }

    /// The shortest distance from the newest copy to an equal one that has repeated itself since.
    pub(super) fn period(&self, sequence: &Sequence) -> Option<u32> {
        let &(symbol, newest) = self.copies.back()?;
        let equal = self.copies.iter().rev().skip(1).filter(|copy| copy.0 == symbol);
        let distance =
            equal.map(|copy| newest - copy.1).take_while(|&distance| distance <= LONGEST).find(|&distance| {
                let trials = (REPEATS * distance).max(FEWEST);
                let lag = distance as u32;
                (0..trials).all(|back| newest.checked_sub(back).and_then(|n| sequence.repeats(n, lag)) == Some(true))
            })?;
        // Weights that are copied one after the other are no steps: something must be done with what was copied.
        let copies = self.copies.iter().filter(|copy| copy.1 + distance > newest).count() as u64;
        (distance >= SHORTEST && copies < distance).then_some(distance as u32)
    }
}
