//! How long tracing stays on: checks of the flushing thread before it sleeps and after each flush.
//!
//! Records are needed during a capture, while the last device work of a capture is awaited, and during a
//! session of the program. Only the flushing thread switches tracing off, so none of this happens inside a
//! callback.

use std::sync::atomic::Ordering;
use std::time::Duration;

use gpuwhy_trace::record::Timestamp;

use crate::capture::controller::CaptureController;
use crate::cupti::other_tool::OtherToolDetector;
use crate::shared::FlusherCommand;
use crate::sys::clock;

/// Time for which tracing stays on after the last capture. The next one may follow at once, and switching
/// back and forth costs more than it saves (`cuptiActivityDisable` does not restore the full speed of the
/// launch path).
const SWITCH_OFF_DELAY_NANOS: u64 = 200_000_000;
/// Flush period while the last device work of a capture is awaited.
const DRAIN_PERIOD: Duration = Duration::from_millis(10);

impl CaptureController {
    /// Maximum sleep of the flushing thread.
    pub fn wait(&self, period: Duration) -> Duration {
        let (taking, deadline) = {
            let plan = &self.state().plan;
            (plan.taking().is_some(), plan.deadline())
        };
        let draining = self.open.load(Ordering::Relaxed) > usize::from(taking) || self.hurried.load(Ordering::Relaxed);
        let now = clock::now(self.cupti);
        let deadline = deadline.map_or(period, |at| Duration::from_nanos(at.since(now)));
        if draining { period.min(DRAIN_PERIOD) } else { period.min(deadline.max(Duration::from_millis(1))) }
    }

    /// Called on the flushing thread after each flush: switches off tracing that is no longer needed. Returns
    /// true if measuring is over and its last record has arrived.
    pub fn stop_if_done(&self, detector: &mut OtherToolDetector) -> bool {
        let now = clock::now(self.cupti);
        let (wanted, over, leaves) = {
            let mut state = self.state();
            if self.marks_are_left.swap(false, Ordering::Relaxed) {
                let at = state.in_order(now);
                state.observe(at, self.is_recording());
                self.send_marks(&mut state, at);
            }
            // Pending marks mean that a thread is just switching tracing on, and will report the result.
            if state.marks.is_empty() {
                state.observe(now, self.is_recording());
            }
            let over = state.plan.is_over();
            let ended = Timestamp::from_nanos(self.ended.load(Ordering::Relaxed));
            let wanted = state.plan.wants_records() || self.holders.load(Ordering::Acquire) > 0;
            let done = !wanted && self.open.load(Ordering::Relaxed) == 0;
            // Under the lock, so that a capture either starts before this, or sees it and cancels it.
            (wanted, over && done, done && (over || now.since(ended) > SWITCH_OFF_DELAY_NANOS) && self.switch.leave())
        };
        if leaves {
            self.leave();
        } else if wanted && self.switch.is_off() {
            // CUPTI refused when the capture started; it may accept now.
            if self.is_free(detector, now) {
                self.switch_on();
                let now = clock::now(self.cupti);
                self.state().observe(now, self.is_recording());
            }
        } else if self.switch.is_off() {
            self.switch.give_back_if_wanted();
        }
        over
    }

    /// Returns and resets the number of events dropped because the lock was not available.
    pub fn take_missed_events(&self) -> u64 {
        self.missed_events.swap(0, Ordering::Relaxed)
    }

    /// Switches everything off for good, including the tracing of complete graphs. Only from the flushing
    /// thread.
    pub fn switch_off(&self) {
        let leaves = {
            let _state = self.state();
            self.switch.leave()
        };
        if leaves {
            self.leave();
        }
        self.switch.record_nodes();
    }

    fn leave(&self) {
        match self.switch.off() {
            Ok(false) => {}
            Ok(true) => tracing::debug!("a capture began while CUPTI was being switched off"),
            Err(error) => self.refused(&error),
        }
    }

    /// True if records of a capture that has ended are still to arrive.
    pub fn is_draining(&self) -> bool {
        self.open.load(Ordering::Relaxed) > usize::from(self.is_capturing())
    }

    /// True if the run is observed: records are being made, or samples divide its time.
    pub fn is_on(&self) -> bool {
        self.has_bursts() || self.makes_records()
    }

    /// True if records are being made, so that a flush delivers some.
    pub fn makes_records(&self) -> bool {
        !self.switch.is_off()
    }

    /// Forces records from now on, regardless of the plan, until a matching [`release`](Self::release).
    pub fn hold(&self) {
        {
            // Under the lock, like everything that keeps tracing on.
            let _state = self.state();
            self.holders.fetch_add(1, Ordering::AcqRel);
        }
        if !self.switch.is_on() {
            self.switch_on();
        }
    }

    /// Reverts one [`hold`](Self::hold).
    pub fn release(&self) {
        self.holders.fetch_sub(1, Ordering::AcqRel);
    }

    /// Sets whether a caller waits for the next flush marks, which then come every [`DRAIN_PERIOD`].
    pub fn hurry(&self, waits: bool) {
        self.hurried.store(waits, Ordering::Relaxed);
        // If the channel is full, the flushing thread will flush anyway.
        let _ = self.commands.try_send(FlusherCommand::FlushNow);
    }

    /// The collector has concluded a capture.
    pub fn concluded(&self) {
        let _ = self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| open.checked_sub(1));
    }
}
