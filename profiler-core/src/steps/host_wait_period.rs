//! Steps around a short unit that repeats, told by where the host waits for the device.
//!
//! The layers of a decoder, or the time steps of a recurrent network, may launch the same again and again with nothing
//! in between, so that no launch says where a step begins. A host that synchronizes once a step says so. When a
//! function that waits is called at equal distances eight times in a row, with the same launches in between each time,
//! and a unit of few launches repeats at least twice within that distance, the distance is the step.
//!
//! Not here: units that hold an input copy, an optimizer or a CUDA graph. Those are steps, and a host that waits every
//! hundred of them reads a loss or takes the time.

use super::sequence::Sequence;

/// Equal distances in a row that make a period, as for graphs.
const REPEATS: u32 = 8;
/// Longest distance, in launches: what is compared with must still be remembered.
const LONGEST: u64 = 8_192;
/// Longest unit, in launches. Layers of transformers have 10 to 60; a longer unit may well be the step.
pub(super) const LONGEST_UNIT: u32 = 64;
/// Functions that are followed at a time: CUDA has six that wait.
const FUNCTIONS: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Beat {
    function: u32,
    number: u64,
    distance: u64,
    repeats: u32,
}

/// The waits of the host for one device.
#[derive(Debug, Default)]
pub(super) struct WaitBeats {
    beats: Vec<Beat>,
}

impl WaitBeats {
    /// The host called `function`, which waits, before launch `number`. Gives the distance from the call before, if
    /// that came often enough.
    pub(super) fn waited(&mut self, function: u32, number: u64) -> Option<u32> {
        let Some(beat) = self.beats.iter_mut().find(|beat| beat.function == function) else {
            if self.beats.len() < FUNCTIONS {
                self.beats.push(Beat { function, number, distance: 0, repeats: 0 });
            }
            return None;
        };
        let distance = number - beat.number;
        if distance == 0 {
            return None;
        }
        beat.repeats = if distance == beat.distance { beat.repeats.saturating_add(1) } else { 1 };
        (beat.number, beat.distance) = (number, distance);
        (beat.repeats >= REPEATS && distance <= LONGEST).then_some(distance as u32)
    }

    /// Whether the host waits once in each `period` launches.
    pub(super) fn comes_each(&self, period: u32) -> bool {
        self.beats.iter().any(|beat| beat.repeats >= REPEATS && beat.distance == u64::from(period))
    }
}

/// Whether the newest launches repeat those `distance` before them without exception, as often as the waits did.
pub(super) fn repeats_exactly(distance: u32, sequence: &Sequence) -> bool {
    let (newest, trials) = (sequence.count(), u64::from(REPEATS - 1) * u64::from(distance));
    let known = newest.checked_sub(trials).filter(|&from| from >= sequence.oldest() + u64::from(distance));
    known.is_some_and(|from| u64::from(sequence.repeats_within(from..newest, distance)) == trials)
}
