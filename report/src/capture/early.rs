//! What comes before the first capture begins, which gets it.

use gpuwhy_trace::event::Event;

/// Events of counters that wait: as many as samples wait for their records.
const COUNTERS: usize = 1 << 13;
/// Events of communicators that wait.
const COLLECTIVES: usize = 1 << 14;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Early {
    events: Vec<Event>,
    counters: usize,
    collectives: usize,
    /// Events of communicators that found no room.
    dropped: u64,
}

impl Early {
    /// Keeps an event of counters or communicators, if there is room.
    pub(super) fn keep(&mut self, event: &Event) {
        let is_collective = matches!(event, Event::Collective(_));
        let (kept, most) =
            if is_collective { (&mut self.collectives, COLLECTIVES) } else { (&mut self.counters, COUNTERS) };
        if *kept < most {
            *kept += 1;
            self.events.push(event.clone());
        } else {
            self.dropped += u64::from(is_collective);
        }
    }

    /// What was kept, and how many events of communicators were not.
    pub(super) fn take(&mut self) -> (Vec<Event>, u64) {
        let Self { events, dropped, .. } = std::mem::take(self);
        (events, dropped)
    }
}
