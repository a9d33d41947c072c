//! The threads with the most CUDA calls: counted by the collector, read by the sampler.

use std::array;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use gpuwhy_trace::record::ThreadId;
use rustc_hash::FxBuildHasher;

/// Maximum number of sampled threads. Programs launch from one or two threads; autograd adds one per device.
const MAX: usize = 8;
/// Maximum number of counted threads.
const MAX_COUNTED: usize = 1024;

/// The threads with the most CUDA calls, the most active first; 0 for unused entries.
#[derive(Debug)]
pub struct Launchers([AtomicU32; MAX]);

impl Launchers {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self(array::from_fn(|_| AtomicU32::new(0)))
    }

    /// Current threads.
    pub fn get(&self) -> Vec<u32> {
        // `Relaxed`: each entry is right or was a moment ago, and the entries are independent.
        self.0.iter().map(|thread| thread.load(Ordering::Relaxed)).filter(|&thread| thread != 0).collect()
    }
}

/// Number of calls of each thread; older calls count less.
#[derive(Debug, Default)]
pub struct CallCounter {
    calls: HashMap<u32, u64, FxBuildHasher>,
    /// Consecutive calls of one thread that are not in the table yet.
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

    /// Publishes the active threads to the sampler, and halves all counts.
    pub fn publish(&mut self, launchers: &Launchers) {
        self.add_pending();
        let mut order: Vec<_> = self.calls.iter().map(|(&thread, &calls)| (calls, thread)).collect();
        order.sort_unstable_by(|one, other| other.cmp(one));
        for (index, slot) in launchers.0.iter().enumerate() {
            slot.store(order.get(index).map_or(0, |&(_, thread)| thread), Ordering::Relaxed);
        }
        self.calls.retain(|_, calls| {
            *calls /= 2;
            *calls > 0
        });
        // A program that computes for a while without a call keeps its threads.
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
