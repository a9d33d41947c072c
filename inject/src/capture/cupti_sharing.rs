//! CUPTI shared with other tools: whether one has taken its buffers, and taking them again when it is done.
//!
//! What can be seen of another tool, and what that rests on, is in docs/design/reliability.md; [`OtherToolDetector`]
//! judges it. All of it is done only where CUPTI is left to others (`GPUWHY_CUPTI_SHARING=yield`).

use std::sync::atomic::Ordering;

use gpuwhy_trace::record::CaptureMark;
use gpuwhy_trace::record::Timestamp;

use crate::capture::controller::CaptureController;
use crate::capture::plan::{Action, Event};
use crate::config;
use crate::cupti::other_tool::OtherToolDetector;
use crate::sys::clock;

impl CaptureController {
    /// On the flushing thread, before each flush: if CUPTI is left to others, finds out whether one has taken its
    /// buffers, and takes them again when that is done. Answers whether one has, just now: what CUPTI had of ours is
    /// lost.
    pub fn check_other_tool(&self, detector: &mut OtherToolDetector, at: Timestamp) -> bool {
        let ownership = self.switch.ownership();
        if !ownership.is_yielded() || !self.switch.is_on() || self.is_watching() {
            return false;
        }
        if ownership.is_taken() {
            if ownership.answers() == Some(true) {
                // CUPTI was only late.
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
        if let Action::End { number } = state.plan.on(Event::Lost, at) {
            state.unobserved.begin(since);
            self.end(number, since);
        }
        true
    }

    /// Whether no other tool has CUPTI's buffers any more. One that has left without fetching its own is given them.
    pub(super) fn is_free(&self, detector: &mut OtherToolDetector, at: Timestamp) -> bool {
        let ownership = self.switch.ownership();
        if !ownership.is_taken() {
            return true;
        }
        let free = detector.is_done(ownership.is_somebody_recording(), at);
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
        if let Action::Begin { number, trigger } = state.plan.on(Event::Regained, at) {
            self.open.fetch_add(1, Ordering::Relaxed);
            self.send(CaptureMark::Begin { number, at, trigger });
        }
    }

    /// From now on CUPTI is left to others, as soon as nothing is recorded.
    pub fn yield_slot(&self) {
        self.switch.ownership().set_yields(true);
    }

    /// At the end: leaving CUPTI to others helps only those that use the same copy of it.
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

    /// Whether other tools are kept out of CUPTI.
    pub fn holds_slot(&self) -> bool {
        self.switch.ownership().with(|_| ()).is_some()
    }

    /// Measuring cannot start: CUPTI goes back to whoever wants it.
    pub fn give_up(&self) {
        self.switch.ownership().give_back();
    }
}
