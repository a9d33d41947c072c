//! Which threads call CUDA most: counted by the collector, read by the sampler.

use std::array;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use gpuwhy_trace::record::ThreadId;
use rustc_hash::FxBuildHasher;

/// Threads that are sampled at most. Programs launch from one or two threads, autograd adds one for each device.
const MAX: usize = 8;
/// Threads counted at most.
const MAX_COUNTED: usize = 1024;

/// The threads that call CUDA most, the most active first; 0 where there are fewer.
#[derive(Debug)]
pub struct Launchers([AtomicU32; MAX]);

impl Launchers {
    /// Nobody yet.
    pub fn new() -> Self {
        Self(array::from_fn(|_| AtomicU32::new(0)))
    }

    /// The threads of now.
    pub fn get(&self) -> Vec<u32> {
        // `Relaxed`: each is right or was a moment ago, and no two belong together.
        self.0.iter().map(|thread| thread.load(Ordering::Relaxed)).filter(|&thread| thread != 0).collect()
    }
}

/// Calls of each thread, of which the older count less.
#[derive(Debug, Default)]
pub struct CallCounter {
    calls: HashMap<u32, u64, FxBuildHasher>,
    /// Calls in a row by one thread, not yet in the table.
    last: (u32, u64),
}

impl CallCounter {
    /// Counts a call.
    pub fn count(&mut self, thread: ThreadId) {
        if self.last.0 != thread.0 {
            self.add_pending();
            self.last.0 = thread.0;
        }
        self.last.1 += 1;
    }

    fn add_pending(&mut self) {
        let (thread, calls) = std::mem::take(&mut self.last);
        if calls > 0 && (self.calls.len() < MAX_COUNTED || self.calls.contains_key(&thread)) {
            *self.calls.entry(thread).or_default() += calls;
        }
    }

    /// Tells the sampler who is active, and forgets half.
    pub fn publish(&mut self, launchers: &Launchers) {
        self.add_pending();
        let mut order: Vec<_> = self.calls.iter().map(|(&thread, &calls)| (calls, thread)).collect();
        order.sort_unstable_by(|one, other| other.cmp(one));
        for (index, place) in launchers.0.iter().enumerate() {
            place.store(order.get(index).map_or(0, |&(_, thread)| thread), Ordering::Relaxed);
        }
        self.calls.retain(|_, calls| {
            *calls /= 2;
            *calls > 0
        });
        // A program that computes for a while without a call is still the same program.
        if self.calls.is_empty()
            && let Some(&(_, thread)) = order.first()
        {
            self.calls.insert(thread, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_active_come_first_and_the_last_one_stays() {
        let (launchers, mut calls) = (Launchers::new(), CallCounter::default());
        assert!(launchers.get().is_empty());
        for thread in 1..=20 {
            (0..thread * 10).for_each(|_| calls.count(ThreadId(thread)));
        }
        calls.publish(&launchers);
        assert_eq!(launchers.get(), [20, 19, 18, 17, 16, 15, 14, 13]);
        (0..5000).for_each(|_| calls.count(ThreadId(3)));
        calls.publish(&launchers);
        assert_eq!(launchers.get()[..2], [3, 20]);
        (0..100).for_each(|_| calls.publish(&launchers));
        assert_eq!(launchers.get(), [3]);
    }
}
