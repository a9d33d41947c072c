//! Queue from the sampler to the collector, in step with the flush marks.
//!
//! A flush mark means that everything before it has been delivered. So the flusher empties the queue before
//! it sends a mark, and later samples with a time before the mark are rejected. Only the sampler and the
//! flusher ever take the lock, and neither holds it for long.

use std::mem;
use std::sync::Arc;

use gpuwhy_trace::record::{HostSample, Timestamp};
use host_sampler::python::Frame;
use parking_lot::Mutex;

/// Maximum number of samples that wait for the flusher: eight threads at a thousand a second for half a
/// second.
const MAX_WAITING: usize = 4096;

/// A sample of a thread, with its complete stack.
#[derive(Clone, Debug)]
pub struct QueuedSample {
    /// The sample, without a stack id yet.
    pub sample: HostSample,
    /// Stack, innermost frame first; empty if there is none.
    pub frames: Arc<[Frame]>,
    /// Native functions from a moment before, if `frames` has none; see [`HostSample::earlier`].
    pub earlier: Arc<[Frame]>,
}

#[derive(Debug, Default)]
pub struct SampleBatch {
    /// Kernel ids of threads, and their names.
    pub names: Vec<(u32, String)>,
    pub samples: Vec<QueuedSample>,
    /// Number of samples that failed or came too late.
    pub failed: u64,
}

/// Samples that wait for the next flush mark. Locked only on threads of this library. A panic under the lock
/// may lose samples, and leaves the rest valid.
#[derive(Debug, Default)]
pub struct SampleQueue(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    batch: SampleBatch,
    /// The last flush mark.
    mark: Timestamp,
    is_closed: bool,
}

impl SampleQueue {
    /// Adds samples and leaves `batch` empty. Returns `false` if they will not be fetched any more.
    pub fn put(&self, batch: &mut SampleBatch) -> bool {
        let mut waiting = self.0.lock();
        waiting.batch.failed += mem::take(&mut batch.failed);
        waiting.batch.names.append(&mut batch.names);
        for queued in batch.samples.drain(..) {
            if queued.sample.at > waiting.mark && waiting.batch.samples.len() < MAX_WAITING {
                waiting.batch.samples.push(queued);
            } else {
                waiting.batch.failed += 1;
            }
        }
        !waiting.is_closed
    }

    /// Takes the waiting samples; samples not later than `mark` are rejected from now on.
    pub fn take(&self, mark: Timestamp) -> SampleBatch {
        let mut waiting = self.0.lock();
        waiting.mark = waiting.mark.max(mark);
        mem::take(&mut waiting.batch)
    }

    /// Takes the waiting samples for the last time.
    pub fn close(&self) -> SampleBatch {
        self.0.lock().is_closed = true;
        self.take(Timestamp::from_nanos(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(times: impl IntoIterator<Item = u64>) -> SampleBatch {
        let queued = |at| QueuedSample {
            sample: HostSample { at: Timestamp::from_nanos(at), ..HostSample::default() },
            frames: Arc::new([]),
            earlier: Arc::new([]),
        };
        SampleBatch { samples: times.into_iter().map(queued).collect(), ..SampleBatch::default() }
    }

    #[test]
    fn what_comes_after_its_mark_is_refused_and_counted() {
        let queue = SampleQueue::default();
        assert!(queue.put(&mut batch([10, 20])));
        let taken = queue.take(Timestamp::from_nanos(15));
        assert_eq!((taken.samples.len(), taken.failed), (2, 0));
        assert!(queue.put(&mut batch([14, 15, 16])));
        let taken = queue.take(Timestamp::from_nanos(30));
        assert_eq!((taken.samples.len(), taken.failed), (1, 2));
        assert!(queue.put(&mut batch([40])));
        assert_eq!(queue.close().samples.len(), 1);
        assert!(!queue.put(&mut batch([50])));
        assert_eq!(queue.close().failed, 1);
    }

    #[test]
    fn what_waits_is_bounded() {
        let queue = SampleQueue::default();
        assert!(queue.put(&mut batch(1..=10_000)));
        let taken = queue.take(Timestamp::ZERO);
        assert_eq!((taken.samples.len(), taken.failed), (MAX_WAITING, 10_000 - MAX_WAITING as u64));
    }
}
