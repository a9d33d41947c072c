//! Readings and operations that arrive before the first capture starts; they are passed to it.

use gpuwhy_trace::event::Event;

/// Maximum number of waiting counter events: as many as there are samples waiting for their records.
const COUNTERS: usize = 1 << 13;
/// Maximum number of waiting operations.
const OPERATIONS: usize = 1 << 14;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Early {
    events: Vec<Event>,
    counters: usize,
    operations: usize,
    /// Number of operations dropped because the buffer was full.
    dropped: u64,
}

impl Early {
    /// Keeps an event, if there is room.
    pub(super) fn keep(&mut self, event: &Event) {
        let (kept, most) = match event {
            Event::Collective(_) => (&mut self.operations, OPERATIONS),
            _ => (&mut self.counters, COUNTERS),
        };
        if *kept < most {
            *kept += 1;
            self.events.push(event.clone());
        } else {
            self.dropped += u64::from(matches!(event, Event::Collective(_)));
        }
    }

    /// Returns the kept events and the number of dropped operations.
    pub(super) fn take(&mut self) -> (Vec<Event>, u64) {
        let Self { events, dropped, .. } = std::mem::take(self);
        (events, dropped)
    }
}
