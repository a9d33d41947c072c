//! The host threads that are told apart, by their ids: a bounded number, however many a program starts and ends.
//!
//! A place is an index that launches, operations and the simulation refer to. When all are taken, a new thread gets
//! that of the thread that called last the longest time ago and for which nothing waits; should something wait for
//! every one, it shares a place until the next flush, and its calls are told from the other thread's by their times
//! only.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use super::host_samples::SampleTotals;
use super::join::Launches;
use super::threads::HostThread;
use crate::record::ThreadId;

/// Threads that are told apart. Programs have tens that use CUDA; servers start a new one for every request.
pub(super) const THREAD_LIMIT: usize = 4_096;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct ThreadTable {
    /// By place.
    pub(super) rows: Vec<HostThread>,
    ids: Vec<ThreadId>,
    places: FxHashMap<ThreadId, u32>,
    /// The place that was asked for last.
    asked: u32,
    /// Places of the threads for which nothing waited when a place was first wanted during the flush `quiet_at`, the
    /// one that called longest ago last.
    quiet: Vec<u32>,
    quiet_at: Option<u64>,
    /// Of launching threads that are forgotten.
    forgotten_samples: SampleTotals,
}

impl ThreadTable {
    /// The ids of the threads, by place.
    pub(super) fn ids(&self) -> &[ThreadId] {
        &self.ids
    }

    /// Where the thread is, during flush number `flush`.
    #[inline]
    pub(super) fn place(&mut self, id: ThreadId, launches: &Launches, flush: u64) -> u32 {
        // Records of a thread come together.
        if self.ids.get(self.asked as usize) != Some(&id) {
            self.asked = match self.places.get(&id) {
                Some(&place) => place,
                None => return self.add(id, launches, flush),
            };
        }
        self.asked
    }

    #[cold]
    #[inline(never)]
    fn add(&mut self, id: ThreadId, launches: &Launches, flush: u64) -> u32 {
        let place = if self.rows.len() < THREAD_LIMIT {
            self.rows.push(HostThread::default());
            self.ids.push(id);
            (self.rows.len() - 1) as u32
        } else if let Some(place) = self.take_quiet(launches, flush) {
            let old = std::mem::take(&mut self.rows[place]);
            if old.launches {
                self.forgotten_samples.add(old.samples.totals());
            }
            self.places.remove(&std::mem::replace(&mut self.ids[place], id));
            place as u32
        } else {
            return id.0 % THREAD_LIMIT as u32;
        };
        self.places.insert(id, place);
        place
    }

    /// Host samples at the threads that launched, summed.
    pub(super) fn sample_totals(&self) -> SampleTotals {
        let mut sum = self.forgotten_samples;
        // Where no launch was recorded, all that were looked at: the sampler chose them.
        let any = self.rows.iter().any(|thread| thread.launches);
        for thread in self.rows.iter().filter(|thread| thread.launches || !any) {
            sum.add(thread.samples.totals());
        }
        sum
    }

    /// The thread for which nothing waits that called last the longest time ago. All are looked at once a flush only.
    fn take_quiet(&mut self, launches: &Launches, flush: u64) -> Option<usize> {
        let Self { rows, ids, quiet, .. } = self;
        let is_quiet = |place: u32| rows[place as usize].is_placed() && launches.is_idle(place as usize);
        if self.quiet_at != Some(flush) {
            self.quiet_at = Some(flush);
            quiet.clear();
            quiet.extend((0..rows.len() as u32).filter(|&place| is_quiet(place)));
            quiet.sort_by_key(|&place| Reverse((rows[place as usize].newest_end(), ids[place as usize])));
        }
        while let Some(place) = quiet.pop() {
            if is_quiet(place) {
                return Some(place as usize);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribution::api::ApiClass;
    use crate::record::{ApiCall, ApiFunctionId, Timestamp};

    #[test]
    fn the_thread_that_called_longest_ago_makes_room() {
        let launches = Launches::default();
        let mut table = ThreadTable::default();
        let last = THREAD_LIMIT as u32;
        for id in 1..=last {
            let place = table.place(ThreadId(id), &launches, 0) as usize;
            let at = 1_000_000 - u64::from(id) * 10;
            table.rows[place].place(at, at + 5, ApiFunctionId(0), ApiClass::Other);
        }
        let end = Timestamp::from_nanos(9);
        table.rows[last as usize - 1].push(ApiCall { start: end, end, ..ApiCall::default() });
        assert_eq!(table.place(ThreadId(last + 1), &launches, 0), last - 2, "a call waits for the one before it");
        assert_eq!(table.rows[last as usize - 2].newest_end(), 0, "nothing is left of it");
        assert_eq!((table.rows.len(), table.places.len()), (THREAD_LIMIT, THREAD_LIMIT));
        assert_eq!(table.place(ThreadId(last), &launches, 0), last - 1);
    }

    #[test]
    fn when_something_waits_for_every_thread_a_place_is_shared_until_the_next_flush() {
        let launches = Launches::default();
        let mut table = ThreadTable::default();
        for id in 0..THREAD_LIMIT as u32 {
            let place = table.place(ThreadId(id), &launches, 0) as usize;
            table.rows[place].push(ApiCall::default());
        }
        let new = ThreadId(7 + THREAD_LIMIT as u32);
        assert_eq!(table.place(new, &launches, 0), 7);
        table.rows[9] = HostThread::default();
        assert_eq!(table.place(new, &launches, 0), 7);
        assert_eq!(table.place(new, &launches, 1), 9);
    }
}
