//! Host threads by id, in bounded number.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gpuwhy_trace::record::ThreadId;
use rustc_hash::FxHashMap;

use super::building::Building;
use super::launches::Launches;
use super::samples::SampleTotals;
use super::threads::HostThread;
use crate::attribution::host_cause::{GapSamples, HostCause};
use crate::attribution::stacks::LineId;

/// Maximum number of threads. Programs have tens that use CUDA; servers start a new one for every request.
pub(crate) const THREAD_LIMIT: usize = 4_096;

/// Host threads by id: a bounded number, regardless of how many a program starts and ends.
///
/// Launches, operations and the simulation refer to a thread by its index. When all are taken, a new
/// thread reuses the index of the thread with the oldest last call that has no pending work. If every thread
/// has pending work, the new thread shares an index until the next flush, and its calls can be separated from
/// the other thread's only by their times.
#[derive(Debug, Default)]
pub(crate) struct ThreadTable {
    /// By index.
    pub(crate) rows: Vec<HostThread>,
    /// Places of threads that hand over to others: few of all that a server starts.
    pub(crate) hand_over: Vec<u32>,
    /// When threads built kernels.
    pub(crate) building: Building,
    ids: Vec<ThreadId>,
    indices: FxHashMap<ThreadId, u32>,
    /// The index that was requested last.
    asked: u32,
    /// Indices of the threads that had no pending work when one was first needed during the flush
    /// `quiet_at`; the thread with the oldest call comes last.
    quiet: Vec<u32>,
    quiet_at: Option<u64>,
    /// Samples of launching threads that are forgotten.
    forgotten_samples: SampleTotals,
}

impl ThreadTable {
    /// Thread ids by index.
    pub(crate) fn ids(&self) -> &[ThreadId] {
        &self.ids
    }

    /// Place of the thread during flush number `flush`.
    #[inline]
    pub(crate) fn index_of(&mut self, id: ThreadId, launches: &Launches, flush: u64) -> u32 {
        // Records of a thread come in runs.
        if self.ids.get(self.asked as usize) != Some(&id) {
            self.asked = match self.indices.get(&id) {
                Some(&index) => index,
                None => return self.add(id, launches, flush),
            };
        }
        self.asked
    }

    #[cold]
    #[inline(never)]
    fn add(&mut self, id: ThreadId, launches: &Launches, flush: u64) -> u32 {
        let index = if self.rows.len() < THREAD_LIMIT {
            self.rows.push(HostThread::default());
            self.ids.push(id);
            (self.rows.len() - 1) as u32
        } else if let Some(index) = self.take_quiet(launches, flush) {
            let old = std::mem::take(&mut self.rows[index]);
            self.hand_over.retain(|&other| other as usize != index);
            if old.launches > 0 {
                self.forgotten_samples.add(old.samples.totals());
            }
            self.indices.remove(&std::mem::replace(&mut self.ids[index], id));
            index as u32
        } else {
            return id.0 % THREAD_LIMIT as u32;
        };
        self.indices.insert(id, index);
        index
    }

    /// Time within `start..end` at which a thread other than `index` that launches work returned from its last
    /// call; `start` if there is none. A thread that waited outside CUDA may have waited for that one.
    pub(crate) fn handover(&self, index: u32, start: u64, end: u64) -> u64 {
        let others = self.hand_over.iter().filter(|&&other| other != index);
        let returned = others.filter_map(|&other| self.rows[other as usize].handed_over_until(end));
        returned.fold(start, u64::max)
    }

    pub(crate) fn get(&self, id: ThreadId) -> Option<&HostThread> {
        self.indices.get(&id).map(|&index| &self.rows[index as usize])
    }

    /// Places of the threads that launch. If no launch was recorded, all sampled threads: the sampler chose them.
    fn launching(&self) -> impl Iterator<Item = (u32, &HostThread)> {
        let any = self.rows.iter().any(|thread| thread.launches > 0);
        (0..).zip(&self.rows).filter(move |(_, thread)| thread.launches > 0 || !any)
    }

    /// Sum of the host samples of launching threads.
    pub(crate) fn sample_totals(&self) -> SampleTotals {
        let mut sum = self.forgotten_samples;
        self.launching().for_each(|(_, thread)| sum.add(thread.samples.totals()));
        sum
    }

    /// See [`Attributor::sampled_activities`](crate::attribution::Attributor::sampled_activities).
    pub(crate) fn sampled_activities(&self, from: u64) -> BTreeMap<(HostCause, LineId, u32), GapSamples> {
        let mut sums: BTreeMap<_, GapSamples> = BTreeMap::new();
        for (index, thread) in self.launching() {
            for (cause, line, samples, nanos) in thread.samples.activities(from).filter(|row| row.3 > 0) {
                sums.entry((cause, line, index)).or_default().add(GapSamples { samples, nanos });
            }
        }
        sums
    }

    /// Takes the thread with the oldest last call among those without pending work. All threads are scanned
    /// at most once per flush.
    fn take_quiet(&mut self, launches: &Launches, flush: u64) -> Option<usize> {
        let Self { rows, ids, quiet, .. } = self;
        let is_quiet = |index: u32| rows[index as usize].is_placed() && launches.is_idle(index as usize);
        if self.quiet_at != Some(flush) {
            self.quiet_at = Some(flush);
            quiet.clear();
            quiet.extend((0..rows.len() as u32).filter(|&index| is_quiet(index)));
            quiet.sort_by_key(|&index| Reverse((rows[index as usize].newest_end(), ids[index as usize])));
        }
        while let Some(index) = quiet.pop() {
            if is_quiet(index) {
                return Some(index as usize);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ApiClass;
    use gpuwhy_trace::record::{ApiCall, ApiFunctionId, Timestamp};

    #[test]
    fn the_thread_that_called_longest_ago_makes_room() {
        let launches = Launches::default();
        let mut table = ThreadTable::default();
        let last = THREAD_LIMIT as u32;
        for id in 1..=last {
            let index = table.index_of(ThreadId(id), &launches, 0) as usize;
            let at = 1_000_000 - u64::from(id) * 10;
            table.rows[index].place(at, at + 5, ApiFunctionId(0), ApiClass::Other);
        }
        let end = Timestamp::from_nanos(9);
        table.rows[last as usize - 1].push(ApiCall { start: end, end, ..ApiCall::default() });
        assert_eq!(table.index_of(ThreadId(last + 1), &launches, 0), last - 2, "a call waits for the one before it");
        assert_eq!(table.rows[last as usize - 2].newest_end(), 0, "nothing is left of it");
        assert_eq!((table.rows.len(), table.indices.len()), (THREAD_LIMIT, THREAD_LIMIT));
        assert_eq!(table.index_of(ThreadId(last), &launches, 0), last - 1);
    }

    #[test]
    fn when_something_waits_for_every_thread_a_place_is_shared_until_the_next_flush() {
        let launches = Launches::default();
        let mut table = ThreadTable::default();
        for id in 0..THREAD_LIMIT as u32 {
            let index = table.index_of(ThreadId(id), &launches, 0) as usize;
            table.rows[index].push(ApiCall::default());
        }
        let new = ThreadId(7 + THREAD_LIMIT as u32);
        assert_eq!(table.index_of(new, &launches, 0), 7);
        table.rows[9] = HostThread::default();
        assert_eq!(table.index_of(new, &launches, 0), 7);
        assert_eq!(table.index_of(new, &launches, 1), 9);
    }
}
