//! Readings and operations that come before the first capture begins, which gets them.

use gpuwhy_trace::collective::CollectiveEvent;
use gpuwhy_trace::event::Event;

/// Events of counters that wait: as many as samples wait for their records.
const COUNTERS: usize = 1 << 13;
/// Operations that wait.
const OPERATIONS: usize = 1 << 14;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Early {
    events: Vec<Event>,
    counters: usize,
    operations: usize,
    /// Operations that found no room.
    dropped: u64,
}

impl Early {
    /// Keeps an event of counters or an operation, if there is room. Communicators are in the preamble.
    pub(super) fn keep(&mut self, event: &Event) {
        let (kept, most) = match event {
            Event::Collective(CollectiveEvent::Communicator(_)) => return,
            Event::Collective(CollectiveEvent::Operation(_)) => (&mut self.operations, OPERATIONS),
            _ => (&mut self.counters, COUNTERS),
        };
        if *kept < most {
            *kept += 1;
            self.events.push(event.clone());
        } else {
            self.dropped += u64::from(matches!(event, Event::Collective(_)));
        }
    }

    /// What was kept, and how many operations were not.
    pub(super) fn take(&mut self) -> (Vec<Event>, u64) {
        let Self { events, dropped, .. } = std::mem::take(self);
        (events, dropped)
    }
}
