//! API calls in stretches (`GPUWHY_API_CALLS=stretches`): switches their records on and off when
//! [`Stretches`] says so, on the flushing thread.

use std::sync::atomic::Ordering;
use std::time::Duration;

use profiler_core::capture::stretches::Stretches;
use profiler_core::record::{CallRecording, Timestamp};

use crate::capture::controller::CaptureController;
use crate::message::{FlusherCommand, Message};
use crate::sync::BoundedWait;
use crate::sys::clock;

impl CaptureController {
    /// Records API calls in stretches from here on; before anything is recorded.
    pub fn record_calls_in_stretches(&self) {
        *self.stretches.lock() = Some(Stretches::default());
        // Nothing is recorded yet: the channel is empty.
        let at = clock::now(self.cupti);
        let _ = self.messages.try_send(Message::CallRecording(CallRecording { at, on: true }));
    }

    /// On the flushing thread, before each flush: records calls or leaves them out, as the stretches say. `runs`: a
    /// kernel has run.
    pub fn follow_stretches(&self, runs: bool) {
        let mut stretches = self.stretches.lock();
        let Some(stretches) = &mut *stretches else { return };
        if !self.switch.is_on() || self.switch.is_watching() {
            return;
        }
        // Device work of a session or of a capture is told from other work by its call.
        let whole = self.holders.load(Ordering::Acquire) > 0;
        let at = clock::now(self.cupti);
        let wanted = stretches.wants(at, runs, whole);
        if wanted == self.switch.records_calls() {
            return;
        }
        self.switch.record_calls(wanted);
        // Whatever was switched meanwhile lies outside of the stretch.
        let at = if wanted { clock::now(self.cupti) } else { at };
        if self.messages.try_send(Message::CallRecording(CallRecording { at, on: wanted })).is_err() {
            tracing::warn!("the collector does not keep up; API calls are recorded all the time from here on");
            self.switch.record_calls(true);
        }
    }

    /// On a thread of the program: waits until calls are recorded, which somebody needs from now on, for as long as a
    /// switch may take.
    pub(super) fn await_calls(&self) {
        if self.switch.records_calls() || !self.switch.is_on() {
            return;
        }
        // Full means that the flushing thread is about to look anyway.
        let _ = self.commands.try_send(FlusherCommand::FlushNow);
        let mut wait = BoundedWait::new();
        while !self.switch.records_calls() && wait.wait() {}
    }

    /// Until the stretches change.
    pub(super) fn stretch_wait(&self, now: Timestamp) -> Option<Duration> {
        let deadline = self.stretches.lock().as_ref()?.deadline()?;
        Some(Duration::from_nanos(deadline.since(now)))
    }
}
