//! From the sampler to the collector, in step with the flush marks.
//!
//! A flush mark says that everything before it has been delivered, so the flusher empties the outbox before it sends
//! one, and what comes later with a time before the mark is refused. Only the sampler and the flusher ever take the
//! lock, and neither does anything slow under it.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use host_sampler::python::Frame;
use profiler_core::record::{HostSample, Timestamp};

/// Looks that wait for the flusher at most: eight threads at a thousand a second for half a second.
const MAX_WAITING: usize = 4096;

/// A look at a thread, with its stack in full.
#[derive(Clone, Debug)]
pub struct Look {
    /// The look, still without a stack.
    pub sample: HostSample,
    /// The stack, innermost first; empty when there is none.
    pub frames: Arc<[Frame]>,
}

/// Looks on their way.
#[derive(Debug, Default)]
pub struct Batch {
    /// What was seen.
    pub looks: Vec<Look>,
    /// Looks that gave nothing or came too late.
    pub failed: u64,
}

/// Where looks wait for the next flush mark.
#[derive(Debug, Default)]
pub struct Outbox(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    batch: Batch,
    /// The last flush mark.
    mark: Timestamp,
    is_closed: bool,
}

impl Outbox {
    /// Adds looks and leaves `batch` empty. Answers `false` when nobody will fetch them any more.
    pub fn put(&self, batch: &mut Batch) -> bool {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.batch.failed += mem::take(&mut batch.failed);
        for look in batch.looks.drain(..) {
            if look.sample.at > waiting.mark && waiting.batch.looks.len() < MAX_WAITING {
                waiting.batch.looks.push(look);
            } else {
                waiting.batch.failed += 1;
            }
        }
        !waiting.is_closed
    }

    /// Takes what waits; whatever is not later than `mark` is refused from now on.
    pub fn take(&self, mark: Timestamp) -> Batch {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.mark = waiting.mark.max(mark);
        mem::take(&mut waiting.batch)
    }

    /// Takes what waits, for the last time.
    pub fn close(&self) -> Batch {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_closed = true;
        self.take(Timestamp::from_nanos(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(times: impl IntoIterator<Item = u64>) -> Batch {
        let look = |at| Look {
            sample: HostSample { at: Timestamp::from_nanos(at), ..HostSample::default() },
            frames: Arc::new([]),
        };
        Batch { looks: times.into_iter().map(look).collect(), failed: 0 }
    }

    #[test]
    fn what_comes_after_its_mark_is_refused_and_counted() {
        let outbox = Outbox::default();
        assert!(outbox.put(&mut batch([10, 20])));
        let taken = outbox.take(Timestamp::from_nanos(15));
        assert_eq!((taken.looks.len(), taken.failed), (2, 0));
        assert!(outbox.put(&mut batch([14, 15, 16])));
        let taken = outbox.take(Timestamp::from_nanos(30));
        assert_eq!((taken.looks.len(), taken.failed), (1, 2));
        assert!(outbox.put(&mut batch([40])));
        assert_eq!(outbox.close().looks.len(), 1);
        assert!(!outbox.put(&mut batch([50])));
        assert_eq!(outbox.close().failed, 1);
    }

    #[test]
    fn what_waits_is_bounded() {
        let outbox = Outbox::default();
        assert!(outbox.put(&mut batch(1..=10_000)));
        let taken = outbox.take(Timestamp::ZERO);
        assert_eq!((taken.looks.len(), taken.failed), (MAX_WAITING, 10_000 - MAX_WAITING as u64));
    }
}
