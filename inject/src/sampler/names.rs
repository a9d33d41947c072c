//! Names of the sampled threads, as the kernel has them.

use std::time::{Duration, Instant};

use host_sampler::process::Process;

use crate::sampler::pass::WatchedThread;
use crate::sampler::queue::SampleBatch;

/// Interval between two reads: a program may name a thread after its first call.
const RENEWAL: Duration = Duration::from_secs(1);
/// Maximum number of names of one run: a server may start a thread for each request.
const MAX: usize = 512;

/// Reads names when threads are first sampled, and again at intervals.
#[derive(Debug)]
pub(super) struct ThreadNames {
    due: Instant,
    told: usize,
}

impl ThreadNames {
    pub(super) fn new() -> Self {
        Self { due: Instant::now(), told: 0 }
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
                && self.told < MAX
            {
                self.told += 1;
                batch.names.push((watch.thread(), name));
            }
        }
    }
}
