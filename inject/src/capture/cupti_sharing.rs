//! Sharing CUPTI with other tools: detects that one has taken its buffers, and takes them back once it is
//! done.
//!
//! docs/design/reliability.md describes how another tool is visible and on what that rests;
//! [`OtherToolDetector`] decides. Applies only if CUPTI is left to other tools
//! (`GPUWHY_CUPTI_SHARING=yield`).

use std::sync::atomic::Ordering;

use gpuwhy_trace::record::CaptureMark;
use gpuwhy_trace::record::Timestamp;

use crate::capture::controller::CaptureController;
use crate::capture::plan::{Action, CaptureEvent};
use crate::config;
use crate::cupti::other_tool::OtherToolDetector;
use crate::sys::clock;

impl CaptureController {
    /// Called on the flushing thread before each flush. If CUPTI is left to other tools, checks whether one
    /// has taken its buffers, and takes them back once that tool is done. Returns true if a tool has just
    /// taken them: the records that CUPTI held for this library are lost.
    pub fn check_other_tool(&self, detector: &mut OtherToolDetector, at: Timestamp) -> bool {
        let ownership = self.switch.ownership();
        if !ownership.is_yielded() || !self.switch.is_on() || self.is_monitor() {
            return false;
        }
        if ownership.is_taken() {
            if ownership.answers() == Some(true) {
                // CUPTI responded late; no tool has taken it.
                ownership.keep();
                self.regain();
            } else if self.is_free(detector, at) {
                self.regain();
            }
            return false;
        }
        let Some(since) = ownership.answers().and_then(|answered| detector.heard(answered, at)) else { return false };
        ownership.lose();
        tracing::warn!(
            "another tool has taken over CUPTI; recording pauses until it has finished, and the time is counted as unobserved"
        );
        let mut state = self.state();
        if let Action::End { number } = state.plan.on(CaptureEvent::Lost, at) {
            state.unobserved.begin(since);
            self.end(number, since);
        }
        true
    }

    /// True if no other tool has CUPTI's buffers any longer. Flushes the buffers that a tool left without
    /// fetching.
    pub(super) fn is_free(&self, detector: &mut OtherToolDetector, at: Timestamp) -> bool {
        let ownership = self.switch.ownership();
        if !ownership.is_taken() {
            return true;
        }
        let free = detector.is_done(ownership.is_another_tool_recording(), at);
        if free {
            let _ = self.cupti.flush(false);
        }
        free
    }

    fn regain(&self) {
        if let Err(error) = self.switch.regain() {
            tracing::debug!("CUPTI is not available yet: {error}");
            return;
        }
        tracing::warn!("the other CUPTI tool has finished; recording resumes");
        let at = clock::now(self.cupti);
        let mut state = self.state();
        let at = state.in_order(at);
        state.observe(at, true);
        if let Action::Begin { number, trigger } = state.plan.on(CaptureEvent::Regained, at) {
            self.open.fetch_add(1, Ordering::Relaxed);
            self.send(CaptureMark::Begin { number, at, trigger });
        }
    }

    /// At the end, warns if the process has several copies of CUPTI: yielding helps only tools that use the
    /// same copy.
    pub fn say_if_yielded_in_vain(&self) {
        let copies = cupti_sys::loaded_copies();
        if self.switch.ownership().is_yielded() && copies.len() > 1 {
            let ours = self.cupti.path().display();
            let copies: Vec<_> = copies.iter().map(|path| path.display().to_string()).collect();
            tracing::warn!(
                "copies of CUPTI in the program: {}. {}=yield serves tools that use {ours}; tools that use another copy are refused (39)",
                copies.join(", "),
                config::CUPTI_SHARING
            );
        }
    }

    /// True if other tools are kept out of CUPTI.
    pub fn holds_slot(&self) -> bool {
        self.switch.ownership().with(|_| ()).is_some()
    }
}
