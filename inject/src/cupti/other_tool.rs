//! Detects that another tool has taken CUPTI, and that it is done.
//!
//! No clock or library: observations carry their time.

use gpuwhy_trace::record::Timestamp;

/// Number of consecutive calls without a buffer request, over at least the time below, that show that another
/// tool gets the requests. Flushes may follow each other within 10 ms, and the buffer of the last call may
/// come back a moment after its flush.
const UNANSWERED: u32 = 2;
const SILENCE_NANOS: u64 = 150_000_000;
/// Time without records after which another tool counts as done: it fetches its last buffers after switching
/// off, and a tool that registers callbacks in between gets them. Kineto does both in one call of the
/// program.
const QUIET_NANOS: u64 = 500_000_000;

/// State of the detection. On the flushing thread.
#[derive(Debug, Default)]
pub struct OtherToolDetector {
    /// Time of the last call that caused a buffer request; before that, of the first check.
    answered_at: Option<Timestamp>,
    unanswered: u32,
    quiet_since: Option<Timestamp>,
}

impl OtherToolDetector {
    /// Notes whether the call at `at` caused a buffer request. If another tool must have taken the buffers,
    /// returns the time from which records may have gone to it.
    pub fn heard(&mut self, answered: bool, at: Timestamp) -> Option<Timestamp> {
        self.quiet_since = None;
        if answered {
            (self.answered_at, self.unanswered) = (Some(at), 0);
            return None;
        }
        self.unanswered += 1;
        let since = *self.answered_at.get_or_insert(at);
        let silent = self.unanswered >= UNANSWERED && at.since(since) >= SILENCE_NANOS;
        silent.then_some(since)
    }

    /// While another tool has the buffers: notes whether it records at `at`. True if it is done.
    pub fn is_done(&mut self, recording: bool, at: Timestamp) -> bool {
        if recording {
            self.quiet_since = None;
            return false;
        }
        let done = at.since(*self.quiet_since.get_or_insert(at)) >= QUIET_NANOS;
        if done {
            *self = Self { answered_at: Some(at), ..Self::default() };
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn one_silence_is_chance_and_two_are_somebody() {
        let mut detector = OtherToolDetector::default();
        assert_eq!(detector.heard(true, at(100)), None);
        assert_eq!(detector.heard(false, at(200)), None);
        assert_eq!(detector.heard(true, at(300)), None);
        let silence = [310, 320, 500].map(|millis| detector.heard(false, at(millis)));
        assert_eq!(silence, [None, None, Some(at(300))], "only when it lasts");
    }

    #[test]
    fn silence_from_the_beginning_lasts_since_the_first_check() {
        let mut detector = OtherToolDetector::default();
        let silence = [5_000, 5_100, 5_150].map(|millis| detector.heard(false, at(millis)));
        assert_eq!(silence, [None, None, Some(at(5_000))]);
    }

    #[test]
    fn somebody_is_done_after_a_time_of_quiet() {
        let mut detector = OtherToolDetector::default();
        let seen = [(true, 0), (false, 100), (false, 500), (true, 550), (false, 600), (false, 1000), (false, 1100)];
        let done: Vec<bool> = seen.iter().map(|&(recording, millis)| detector.is_done(recording, at(millis))).collect();
        assert_eq!(done, [false, false, false, false, false, false, true]);
    }
}
