//! The newest launching calls, for their operations to find.
//!
//! An entry is large (one clock in every world), so the entries lie in a ring in the order of their calls and the
//! map by correlation id holds places only. Bounded: the oldest makes room, and an operation that comes later than that
//! is simulated as one whose launch is not known.
//!
//! Where the chosen worlds change, an entry takes the change over when it is looked for: most are never again, and a
//! step of some microseconds may be a turn of a set.

use super::device::Launch;
use super::scenario::SCENARIO_COUNT;
use super::worlds::{CHOSEN_COUNT, Clocks};
use crate::collections::correlation_map::Correlated;
use crate::record::CorrelationId;

/// Launching calls remembered (176 bytes each). A stream takes about a thousand launches before the host has to wait.
const LAUNCH_LIMIT: usize = 16_384;

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct Launches {
    places: Correlated<u32>,
    ring: Vec<Entry>,
    /// Place of the oldest once the ring is full.
    oldest: usize,
    /// Each chosen world begins as this named one.
    starts: [usize; CHOSEN_COUNT],
    /// How often the chosen worlds have changed, modulo 2^32.
    changes: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    correlation: CorrelationId,
    /// The changes of the chosen worlds that its clocks have taken over.
    changes: u32,
    launch: Launch,
}

impl Launches {
    /// Remembers a launching call. An older one with the same id is no longer found.
    pub(super) fn insert(&mut self, correlation: CorrelationId, launch: Launch) {
        let entry = Entry { correlation, changes: self.changes, launch };
        let place = if self.ring.len() < LAUNCH_LIMIT {
            self.ring.push(entry);
            self.ring.len() - 1
        } else {
            let place = self.oldest;
            let old = self.ring[place].correlation;
            if self.places.get(old.0) == Some(&(place as u32)) {
                self.places.remove(old.0);
            }
            self.ring[place] = entry;
            self.oldest = (place + 1) % LAUNCH_LIMIT;
            place
        };
        self.places.insert(correlation.0, place as u32);
    }

    pub(super) fn get(&mut self, correlation: CorrelationId) -> Option<&Launch> {
        let place = *self.places.get(correlation.0)? as usize;
        let Entry { changes, launch, .. } = self.ring.get_mut(place)?;
        if *changes != self.changes {
            *changes = self.changes;
            begin(&mut launch.entered, self.starts);
        }
        Some(launch)
    }

    /// From here on each chosen world is another one, which begins as the named one of `starts`.
    pub(super) fn change(&mut self, starts: [usize; CHOSEN_COUNT]) {
        self.starts = starts;
        self.changes = self.changes.wrapping_add(1);
    }
}

/// Has each chosen world begin as a named one. Those never change, so that the newest beginning is the whole one.
pub(super) fn begin(clocks: &mut Clocks, starts: [usize; CHOSEN_COUNT]) {
    for (place, start) in starts.into_iter().enumerate() {
        clocks[SCENARIO_COUNT + place] = clocks[start];
    }
}
