//! Which of several lines of a stream takes an operation.
//!
//! What stands on one line of a viewer may only nest. Operations of a stream may overlap (programmatic dependent
//! launch, branches of a CUDA graph, and by the few nanoseconds to which CUPTI's conversion of clocks is exact), and
//! Perfetto would then swap their ends or drop the second one: it goes to a line of its own.

use gpuwhy_trace::record::Timestamp;

/// Lines of a stream, at most. A stream that would need more was delivered in no order at all; the rest shares the
/// last.
const LIMIT: usize = 256;

/// The ends of what stands last on each line.
#[derive(Debug, Default)]
pub struct Tracks(Vec<Timestamp>);

impl Tracks {
    /// The first line that is free at `start`, and whether it is new.
    pub fn take(&mut self, start: Timestamp, end: Timestamp) -> (usize, bool) {
        let free = self.0.iter().position(|&last| last <= start);
        let track = free.unwrap_or(self.0.len().min(LIMIT - 1));
        match self.0.get_mut(track) {
            Some(last) => {
                *last = end;
                (track, false)
            }
            None => {
                self.0.push(end);
                (track, true)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_goes_elsewhere_and_what_touches_does_not() {
        let mut tracks = Tracks::default();
        let mut take = |start, end| tracks.take(Timestamp::from_nanos(start), Timestamp::from_nanos(end));
        assert_eq!(take(10, 20), (0, true));
        assert_eq!(take(20, 30), (0, false));
        assert_eq!(take(25, 35), (1, true));
        assert_eq!(take(30, 40), (0, false));
        // One that was delivered late.
        assert_eq!(take(5, 8), (2, true));
    }
}
