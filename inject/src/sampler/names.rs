//! Names of the sampled threads, as the kernel has them.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use host_sampler::process::Process;

use crate::sampler::pass::WatchedThread;
use crate::shared::samples::SampleBatch;

/// Interval between two reads: a program may name a thread after its first call.
const RENEWAL: Duration = Duration::from_secs(1);
/// Maximum number of names of one run: a server may start a thread for each request.
const MAX: usize = 512;

/// Reads names when threads are first sampled, and again at intervals.
#[derive(Debug)]
pub(super) struct ThreadNames {
    due: Instant,
    /// Threads and hashes of their names that have been added: a thread may be chosen again and again.
    told: HashSet<(u32, u64)>,
}

impl ThreadNames {
    pub(super) fn new() -> Self {
        Self { due: Instant::now(), told: HashSet::new() }
    }

    /// Adds new names to `batch`. A name that a thread has only inherited from the first one, and that of the
    /// first one, is the name of the program.
    pub(super) fn renew(&mut self, watched: &mut [WatchedThread], process: &Process, batch: &mut SampleBatch) {
        let due = Instant::now() >= self.due;
        if due {
            self.due = Instant::now() + RENEWAL;
        } else if watched.iter().all(WatchedThread::is_named) {
            return;
        }
        let of_program = process.name().unwrap_or_default();
        for watch in watched.iter_mut().filter(|watch| due || !watch.is_named()) {
            if let Some(name) = watch.new_name()
                && name != of_program
                && !name.is_empty()
                && watch.thread() != process.id()
                && self.is_new(watch.thread(), &name)
            {
                batch.names.push((watch.thread(), name));
            }
        }
    }

    /// True the first time for a thread and a name, unless there have been too many.
    fn is_new(&mut self, thread: u32, name: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        self.told.len() < MAX && self.told.insert((thread, hasher.finish()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_names_take_no_room() {
        let mut names = ThreadNames::new();
        assert!(names.is_new(1, "loader"));
        (0..2 * MAX).for_each(|_| assert!(!names.is_new(1, "loader")));
        assert!(names.is_new(1, "renamed") && names.is_new(2, "loader"));
        let new = (10..).map_while(|thread| names.is_new(thread, "request").then_some(())).count();
        assert_eq!(new, MAX - 3, "bounded");
    }
}
