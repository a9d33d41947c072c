//! What waits for a flush mark, for an earlier record or for the watermark, and what gives way when too much does.
//!
//! A flush mark says that nothing earlier will come. A trace may lack them (damage, or CUPTI does not return from a
//! flush), and rows of constant columns take no bytes in a file, so the number of records is no limit either. Then the
//! older half is entered as if a mark had come: bounded memory goes before exact order. What comes too late for it is
//! counted as late, what was launched by a call that has not come as launched by none.

use super::Attributor;
use super::limits::WAITING_LIMIT;
use super::sweep::Timeline;
use super::threads::HostThread;
use crate::dictionary::Dictionary;
use crate::thresholds::CLOCK_SLACK_NANOS;

impl Attributor {
    /// A record was pushed.
    #[inline]
    pub(super) fn waits(&mut self, dictionary: &Dictionary) {
        self.waiting += 1;
        if self.waiting > WAITING_LIMIT {
            self.count_waiting();
            if self.waiting > WAITING_LIMIT / 2 {
                self.enter_older_half(dictionary);
            }
        }
    }

    /// Counts what still waits: records that never do have been counted as well.
    pub(super) fn count_waiting(&mut self) {
        self.waiting = self.waiting_begins().count();
    }

    /// Enters the older half of what waits, complete or not.
    #[cold]
    #[inline(never)]
    fn enter_older_half(&mut self, dictionary: &Dictionary) {
        let mut begins: Vec<u64> = self.waiting_begins().collect();
        let middle = begins.len() / 2;
        if middle > 0 {
            let (_, &mut at, _) = begins.select_nth_unstable(middle);
            // An operation may be shown so much later than it begins; see `launch_order`.
            self.pass(at.saturating_add(CLOCK_SLACK_NANOS + 1), dictionary);
        }
        self.count_waiting();
    }

    /// Enters everything that begins before `until`.
    fn pass(&mut self, until: u64, dictionary: &Dictionary) {
        self.newest_flush = self.newest_flush.max(until);
        self.memory.advance(until);
        self.place_calls(until, until, dictionary);
        self.place_ranges(until);
        self.join_begun(until);
        self.launches.oldest_waiting(until);
        self.advance(until);
        self.flush += 1;
    }

    /// When everything that waits begins. Events of memory have a limit of their own.
    fn waiting_begins(&self) -> impl Iterator<Item = u64> {
        let arrivals = self.arrivals.places().map(|place| self.operations[place].start);
        let operations = self.timelines.iter().flat_map(Timeline::begins);
        let calls = self.threads.rows.iter().flat_map(HostThread::pending_begins);
        arrivals.chain(operations).chain(calls).chain(self.ranges.waiting())
    }
}
