//! Words from one thread to another, without a lock and without waiting.
//!
//! A range event happens in the middle of the program's work, so the writing side never waits: an event that
//! does not fit is refused. Memory is allocated in segments as the writer first reaches them, and stays for
//! the ring's next round. A model checker tries all interleavings of the two sides (`testing/model`).

use crate::sync::{AtomicBool, AtomicU64, OnceLock, Ordering, RING_SEGMENT as SEGMENT, RING_SEGMENTS as SEGMENTS};

/// Words of a ring: 2 MiB, or some 65 thousand events. At the default of ten drains a second that is enough
/// for 600 thousand events a second from one thread; beyond that the collector is woken at half a ring.
pub const WORDS: u64 = SEGMENT * SEGMENTS as u64;

/// Result of an attempt to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Not written: there is no room, or no memory.
    Refused,
    /// Written.
    Written,
    /// Written, and the ring is now half full: time to read.
    Half,
}

impl Fill {
    /// True if it was written.
    pub fn is_written(self) -> bool {
        self != Self::Refused
    }
}

type Segment = Box<[AtomicU64]>;

/// A ring with one writer and one reader at a time. Writers take turns; there is one reader for the process.
///
/// `written` belongs to the writer and `read` to the reader; each counts words since the start. `Release` on
/// a side's own counter and `Acquire` on the other's: a thread that sees a word counted sees the word, or
/// sees it free.
#[derive(Debug)]
pub struct Ring {
    router: [OnceLock<Segment>; SEGMENTS],
    written: AtomicU64,
    read: AtomicU64,
    /// True if a thread writes here. `Acquire` when it comes and `Release` when it goes: the next one
    /// continues where it stopped.
    taken: AtomicBool,
}

impl Ring {
    /// Creates an empty ring without memory.
    pub fn new() -> Self {
        Self {
            router: [const { OnceLock::new() }; SEGMENTS],
            written: AtomicU64::new(0),
            read: AtomicU64::new(0),
            taken: AtomicBool::new(false),
        }
    }

    /// Makes the calling thread the writer, unless there is one.
    pub fn take(&self) -> bool {
        !self.taken.swap(true, Ordering::Acquire)
    }

    /// Releases the ring; called by its writer at its end.
    pub fn leave(&self) {
        self.taken.store(false, Ordering::Release);
    }

    /// Writes all of `head` and `text`, the latter padded to complete words, or fails. For the writer.
    #[must_use]
    pub fn write(&self, head: &[u64], text: &[u8]) -> Fill {
        let start = self.written.load(Ordering::Relaxed);
        let read = self.read.load(Ordering::Acquire);
        let end = start + head.len() as u64 + text.len().div_ceil(8) as u64;
        if end - read > WORDS || !self.reach(start, end) {
            return Fill::Refused;
        }
        let words = text.chunks(8).map(|chunk| {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(bytes)
        });
        for (at, word) in (start..end).zip(head.iter().copied().chain(words)) {
            if let Some(stored) = self.slot(at) {
                stored.store(word, Ordering::Relaxed);
            }
        }
        self.written.store(end, Ordering::Release);
        let half = read + WORDS / 2;
        if start < half && end >= half { Fill::Half } else { Fill::Written }
    }

    /// Range of the readable indices. For the reader.
    pub fn readable(&self) -> std::ops::Range<u64> {
        self.read.load(Ordering::Relaxed)..self.written.load(Ordering::Acquire)
    }

    /// Word at a readable index.
    pub fn word(&self, at: u64) -> u64 {
        self.slot(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Returns everything before `at`, a readable index or the end, to the writer. For the reader.
    pub fn release(&self, at: u64) {
        self.read.store(at, Ordering::Release);
    }

    fn slot(&self, at: u64) -> Option<&AtomicU64> {
        self.segment(at).get()?.get(usize::try_from(at % SEGMENT).ok()?)
    }

    fn segment(&self, at: u64) -> &OnceLock<Segment> {
        &self.router[(at / SEGMENT) as usize % SEGMENTS]
    }

    /// Allocates the memory of `start..end`, at most one segment long, unless it exists. `false` if there is
    /// no memory.
    fn reach(&self, start: u64, end: u64) -> bool {
        [start, end - 1].into_iter().all(|at| {
            let segment = self.segment(at);
            segment.get().is_some() || make().is_some_and(|made| segment.set(made).is_ok())
        })
    }
}

/// Allocates a segment; a lack of memory must not end the program.
fn make() -> Option<Segment> {
    let mut words = Vec::new();
    words.try_reserve_exact(usize::try_from(SEGMENT).ok()?).ok()?;
    words.resize_with(words.capacity(), || AtomicU64::new(0));
    Some(words.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_out_as_they_went_in_round_after_round() {
        let ring = Ring::new();
        // 3 divides neither the segment nor the ring, so events cross every boundary.
        for round in 0..WORDS {
            assert_eq!(ring.write(&[round, !round], b"tex"), Fill::Written);
            let readable = ring.readable();
            let read: Vec<_> = readable.clone().map(|at| ring.word(at)).collect();
            assert_eq!(read, [round, !round, u64::from_le_bytes(*b"tex\0\0\0\0\0")]);
            ring.release(readable.end);
        }
    }

    #[test]
    fn a_ring_says_once_that_it_is_half_full_and_refuses_when_it_is_full() {
        let ring = Ring::new();
        let fills: Vec<_> = std::iter::repeat_with(|| ring.write(&[1; 7], &[])).take((WORDS / 7) as usize).collect();
        assert_eq!(fills.iter().position(|&fill| fill == Fill::Half), Some((WORDS / 2).div_ceil(7) as usize - 1));
        assert_eq!(fills.iter().filter(|&&fill| fill == Fill::Written).count(), fills.len() - 1);
        assert_eq!(ring.write(&[1], &[]), Fill::Written, "a shorter one fits");
        assert_eq!(ring.write(&[1; 7], &[]), Fill::Refused);
        ring.release(ring.readable().start + 7);
        assert!(ring.write(&[1; 7], &[]).is_written());
    }

    #[test]
    fn a_reader_sees_only_whole_writes() {
        let ring = Ring::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut sent = 0u64;
                while sent < 200_000 {
                    sent += u64::from(ring.write(&[sent, sent, sent], &[]).is_written());
                }
            });
            let mut expected = 0;
            while expected < 200_000 {
                let readable = ring.readable();
                for at in readable.clone().step_by(3) {
                    assert_eq!([0, 1, 2].map(|offset| ring.word(at + offset)), [expected; 3]);
                    expected += 1;
                }
                ring.release(readable.end);
            }
        });
    }
}
