//! Assigns operations of a stream to lines.
//!
//! Slices on one line of a viewer must be nested. Operations of a stream may overlap (programmatic dependent
//! launch, branches of a CUDA graph, and the few nanoseconds of error in CUPTI's clock conversion). Perfetto
//! would then swap their ends or drop the second one, so that one is put on a separate line.

use gpuwhy_trace::record::Timestamp;

/// Maximum number of lines per stream. A stream that would need more was delivered out of order; the rest
/// shares the last line.
const LIMIT: usize = 256;

/// End of the last operation on each line.
#[derive(Debug, Default)]
pub struct Tracks(Vec<Timestamp>);

impl Tracks {
    /// Returns the first line that is free at `start`, and true if it is new.
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
        // An operation that was delivered late.
        assert_eq!(take(5, 8), (2, true));
    }
}
