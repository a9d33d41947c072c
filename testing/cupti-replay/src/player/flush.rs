//! The records that a flush delivers, and those that it withholds.
//!
//! Seen on an H200 with CUPTI 13.0 (recordings in `testing/fixtures/`): a flush takes the current buffer out
//! of use and returns it if every record in it is complete. Otherwise that buffer stays with the library
//! until a later flush finds it complete, and later records go into a new one. A record reserves its space in
//! a buffer when it begins, device work when its call is made: so one kernel that still runs, or one call
//! that has not returned, holds back everything that was recorded around it.
//!
//! The real library has a buffer for each thread; here all threads share one, which withholds at least as
//! much.
//!
//! While play is paused, its time is stopped, but work in progress would complete: after a second flush
//! without play in between it counts as complete.

use crate::filter::Filter;
use crate::layout;
use crate::loan::Loan;
use crate::player::{By, Delivery, Player};
use crate::session::Item;

/// A buffer out of use that still contains an incomplete record.
#[derive(Debug)]
pub(super) struct Withheld {
    /// The client's memory, if it had a buffer to lend.
    loan: Option<Loan>,
    /// Indices of the records, in the order of the recording; written when the buffer is returned.
    items: Vec<usize>,
    /// Time at which the last record is complete.
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

    /// Returns withheld buffers that are complete. The recorded client has flushed by now, and a client that
    /// hangs in its own flush also receives the records of that flush.
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

    /// Requests a buffer if a record may need space in it before the next step of the recording: with the
    /// real library the thread that is about to record requests it, so the client knows about the buffer
    /// before the record begins.
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

    /// True if a record has begun that is in no buffer here: with the real library it is in the current one.
    pub(super) fn is_in_use(&self, delivery: &mut Delivery) -> bool {
        let now = self.clock.now();
        self.next_to_begin(delivery).is_some_and(|at| at <= now)
    }

    /// Start of the first record that was neither delivered nor withheld.
    fn next_to_begin(&self, delivery: &mut Delivery) -> Option<u64> {
        let order = self.session.by_creation();
        while order.get(delivery.begun).is_some_and(|&index| delivery.done.get(index) == Some(&true)) {
            delivery.begun += 1;
        }
        order.get(delivery.begun).and_then(|&index| self.session.items().get(index)).map(|item| item.decided)
    }

    /// Puts all records that have begun and have no buffer yet into the current one, and takes it out of use.
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
            // The records keep the order in which the real library wrote them.
            items.sort_unstable();
            delivery.withheld.push(Withheld { loan: delivery.open.take(), items, complete });
        }
    }

    /// Returns a buffer. An incomplete record that must be delivered anyway is delivered without its end if
    /// it is running device work, and later otherwise.
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
