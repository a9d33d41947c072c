//! What a flush brings, and what it withholds.
//!
//! Seen on an H200 with CUPTI 13.0 (recordings in `testing/fixtures/`): a flush takes the buffer that is being written
//! to out of use and hands it over when every record in it is complete. Otherwise that buffer stays with the library
//! until a later flush finds it complete, and records behind it go into a new one. A record takes its place in a buffer
//! when it begins, device work when its call is made: so one kernel that still runs, or one call that has not returned,
//! keeps back everything that was recorded around it.
//!
//! The real library has a buffer for each thread; here all share one, which withholds at least as much.
//!
//! While a program does not play on, its time stands still, but what it has begun would become complete: after a second
//! flush without play in between it counts as such.

use crate::filter::Filter;
use crate::layout;
use crate::loan::Loan;
use crate::player::{By, Delivery, Player};
use crate::session::Item;

/// A buffer out of use that still has something incomplete in it.
#[derive(Debug)]
pub(super) struct Withheld {
    /// The client's memory, if it had any to give.
    loan: Option<Loan>,
    /// Indices of the records, in the order of the recording; written when the buffer goes back.
    items: Vec<usize>,
    /// When the last of them is complete.
    complete: u64,
}

impl Player {
    pub(super) fn flush_alone(&self, delivery: &mut Delivery, forced: bool) {
        delivery.counts.flushes += 1;
        let now = self.clock.now();
        delivery.paused = delivery.paused.map(|flushes| flushes.saturating_add(1));
        let complete = if !forced && delivery.paused > Some(1) { u64::MAX } else { now };
        let filter = self.client().filter.clone();
        self.take_out_of_use(delivery, &filter, now);
        for withheld in std::mem::take(&mut delivery.withheld) {
            if forced || withheld.complete <= complete {
                self.release(delivery, withheld, By::Caller, now, complete);
            } else {
                delivery.withheld.push(withheld);
            }
        }
        self.hand_over(delivery, By::Caller, 0, 0);
        self.request_ahead(delivery);
    }

    /// The recorded client has flushed by now: what its flush brought comes also to one that hangs in its own.
    pub(super) fn release_complete(&self, delivery: &mut Delivery) {
        let now = self.clock.now();
        for withheld in std::mem::take(&mut delivery.withheld) {
            if withheld.complete <= now {
                self.release(delivery, withheld, By::Worker, now, now);
            } else {
                delivery.withheld.push(withheld);
            }
        }
    }

    /// Has a buffer lent if a record may take its place in one until the next step of the recording: on the real
    /// machine the thread that is about to record asks for it, so the client knows of the buffer before the record
    /// begins.
    pub(super) fn request_ahead(&self, delivery: &mut Delivery) {
        let Some(step) = self.session.steps().get(delivery.next_step) else { return };
        if delivery.open.is_some() || self.next_to_begin(delivery).is_none_or(|at| at > step.at) {
            return;
        }
        let order = self.session.by_creation().get(delivery.begun..).unwrap_or_default();
        let next = order.iter().filter_map(|&index| self.session.items().get(index));
        let buffers = {
            let client = self.client();
            let wanted = |item: &&Item| client.filter.wants(item.kind, item.function, item.decided);
            next.take_while(|item| item.decided <= step.at).find(wanted).and(client.buffers)
        };
        delivery.open = buffers.and_then(|buffers| self.request(delivery, buffers, false));
    }

    /// Whether something has begun that is in no buffer here: on the real machine it is in the one in use.
    pub(super) fn is_in_use(&self, delivery: &mut Delivery) -> bool {
        let now = self.clock.now();
        self.next_to_begin(delivery).is_some_and(|at| at <= now)
    }

    /// When the first record begins that was neither handed over nor is withheld.
    fn next_to_begin(&self, delivery: &mut Delivery) -> Option<u64> {
        let order = self.session.by_creation();
        while order.get(delivery.begun).is_some_and(|&index| delivery.done.get(index) == Some(&true)) {
            delivery.begun += 1;
        }
        order.get(delivery.begun).and_then(|&index| self.session.items().get(index)).map(|item| item.decided)
    }

    /// Everything that has begun and is not in a buffer yet goes into the one in use, and that out of use.
    fn take_out_of_use(&self, delivery: &mut Delivery, filter: &Filter, now: u64) {
        let order = self.session.by_creation().get(delivery.begun..).unwrap_or_default();
        let (mut items, mut complete, mut begun) = (Vec::new(), 0, 0);
        for &index in order {
            let Some(item) = self.session.items().get(index).filter(|item| item.decided <= now) else { break };
            begun += 1;
            if self.claim(delivery, filter, index) {
                items.push(index);
                complete = item.complete.max(complete);
            }
        }
        delivery.begun += begun;
        if !items.is_empty() {
            // Among themselves they keep the order in which the real library wrote them.
            items.sort_unstable();
            delivery.withheld.push(Withheld { loan: delivery.open.take(), items, complete });
        }
    }

    /// Hands a buffer over. What is not complete and has to go all the same goes without its end when it is device work
    /// that runs, and otherwise comes later.
    fn release(&self, delivery: &mut Delivery, withheld: Withheld, by: By, now: u64, complete: u64) {
        let in_use = std::mem::replace(&mut delivery.open, withheld.loan);
        for index in withheld.items {
            let Some(item) = self.session.items().get(index) else { continue };
            if item.complete <= complete {
                self.put(delivery, index, false);
            } else if layout::is_device_work(item.kind) && item.start != 0 && item.start <= now {
                self.put(delivery, index, true);
            } else if let Some(done) = delivery.done.get_mut(index) {
                *done = false;
            }
        }
        self.hand_over(delivery, by, 0, 0);
        delivery.open = in_use;
    }
}
