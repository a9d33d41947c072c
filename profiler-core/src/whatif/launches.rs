//! The newest launching calls, for their operations to find.
//!
//! An entry is large (one clock in every world), so the entries lie in a ring in the order of their calls and the
//! map by correlation id holds places only. Bounded: the oldest makes room, and an operation that comes later than that
//! is simulated as one whose launch is not known.

use super::device::Launch;
use super::worlds::Clocks;
use crate::collections::correlation_map::Correlated;
use crate::record::CorrelationId;

/// Launching calls remembered (176 bytes each). A stream takes about a thousand launches before the host has to wait.
const LAUNCH_LIMIT: usize = 16_384;

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct Launches {
    places: Correlated<u32>,
    ring: Vec<(CorrelationId, Launch)>,
    /// Place of the oldest once the ring is full.
    oldest: usize,
}

impl Launches {
    /// Remembers a launching call. An older one with the same id is no longer found.
    pub(super) fn insert(&mut self, correlation: CorrelationId, launch: Launch) {
        let place = if self.ring.len() < LAUNCH_LIMIT {
            self.ring.push((correlation, launch));
            self.ring.len() - 1
        } else {
            let place = self.oldest;
            let old = self.ring[place].0;
            if self.places.get(old.0) == Some(&(place as u32)) {
                self.places.remove(old.0);
            }
            self.ring[place] = (correlation, launch);
            self.oldest = (place + 1) % LAUNCH_LIMIT;
            place
        };
        self.places.insert(correlation.0, place as u32);
    }

    pub(super) fn get(&self, correlation: CorrelationId) -> Option<&Launch> {
        self.ring.get(*self.places.get(correlation.0)? as usize).map(|(_, launch)| launch)
    }

    /// Shows the clocks of all launches to `change`.
    pub(super) fn change_clocks(&mut self, change: &mut impl FnMut(&mut Clocks)) {
        self.ring.iter_mut().for_each(|(_, launch)| change(&mut launch.entered));
    }
}
