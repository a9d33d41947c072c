//! How long tracing stays on: what the flushing thread checks before it sleeps and after each flush.
//!
//! Records are wanted while a capture is being taken, while the last device work of one is awaited, and while a session
//! of the program holds. Only the flushing thread switches off, so none of this is done inside a callback.

use std::sync::atomic::Ordering;
use std::time::Duration;

use gpuwhy_trace::cost::Mode;
use gpuwhy_trace::record::Timestamp;

use crate::capture::controller::CaptureController;
use crate::cupti::other_tool::OtherToolDetector;
use crate::message::FlusherCommand;
use crate::sys::clock;

/// Tracing stays on for so long after the last capture: the next one may follow at once, and switching back and forth
/// costs more than it saves (`cuptiActivityDisable` does not give the launch path its full speed back).
const SWITCH_OFF_DELAY_NANOS: u64 = 200_000_000;
/// Between two flushes while the last device work of a capture is awaited.
const DRAIN_PERIOD: Duration = Duration::from_millis(10);

impl CaptureController {
    /// How long the flushing thread may sleep.
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

    /// On the flushing thread, after each flush: switches off what is no longer wanted. Answers whether measuring is
    /// over and its last record has come.
    pub fn stop_if_done(&self, detector: &mut OtherToolDetector) -> bool {
        let now = clock::now(self.cupti);
        let (wanted, over, leaves) = {
            let mut state = self.state();
            if self.marks_are_left.swap(false, Ordering::Relaxed) {
                let at = state.in_order(now);
                state.observe(at, self.is_recording());
                self.send_marks(&mut state, at);
            }
            // Marks that wait: a thread is just switching on, and will say what came of it.
            if state.marks.is_empty() {
                state.observe(now, self.is_recording());
            }
            let over = state.plan.is_over();
            let ended = Timestamp::from_nanos(self.ended.load(Ordering::Relaxed));
            let wanted = state.plan.wants_records() || self.holders.load(Ordering::Acquire) > 0;
            let done = !wanted && self.open.load(Ordering::Relaxed) == 0;
            // Under the lock, so that a capture begins before it, or sees it and calls it back.
            (wanted, over && done, done && (over || now.since(ended) > SWITCH_OFF_DELAY_NANOS) && self.switch.leave())
        };
        if leaves {
            self.leave();
        } else if wanted && self.switch.is_off() {
            // It was refused when the capture began; it may not be now.
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

    /// Events since this was last asked that were given up because the lock was not to be had.
    pub fn take_missed_events(&self) -> u64 {
        self.missed_events.swap(0, Ordering::Relaxed)
    }

    /// Records less from here on. Only from the flushing thread.
    pub fn lower(&self, mode: Mode) {
        self.switch.lower(mode);
    }

    /// Records the nodes of CUDA graphs from here on. Only from the flushing thread.
    pub fn record_nodes(&self) {
        self.switch.record_nodes();
    }

    /// Switches off whatever is on, for good: graphs as a whole, too. Only from the flushing thread.
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

    /// Whether records are still to come for a capture that has ended.
    pub fn is_draining(&self) -> bool {
        self.open.load(Ordering::Relaxed) > usize::from(self.is_capturing())
    }

    /// Whether the run is observed: records are being made, or samples divide its time.
    pub fn is_on(&self) -> bool {
        self.has_bursts || self.makes_records()
    }

    /// Whether records are being made, so that flushing brings something.
    pub fn makes_records(&self) -> bool {
        !self.switch.is_off()
    }

    /// Records are made from here on, whatever the plan says, until [`release`](Self::release) was called as often.
    pub fn hold(&self) {
        {
            // Under the lock, as everything that keeps tracing on.
            let _state = self.state();
            self.holders.fetch_add(1, Ordering::AcqRel);
        }
        if !self.switch.is_on() {
            self.switch_on();
        }
    }

    /// Takes one [`hold`](Self::hold) back.
    pub fn release(&self) {
        self.holders.fetch_sub(1, Ordering::AcqRel);
    }

    /// Somebody waits for the next flush marks, which come every [`DRAIN_PERIOD`] meanwhile; or waits no more.
    pub fn hurry(&self, waits: bool) {
        self.hurried.store(waits, Ordering::Relaxed);
        // Full means that the flushing thread will flush anyway.
        let _ = self.commands.try_send(FlusherCommand::FlushNow);
    }

    /// A capture has come to its end in the collector.
    pub fn concluded(&self) {
        let _ = self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| open.checked_sub(1));
    }
}
