//! CUPTI shared with other tools: whether one has taken its buffers, and taking them again when it is done.
//!
//! What can be seen of another tool, and what that rests on, is in docs/design/reliability.md; [`Company`] judges it. All of it is done
//! only where CUPTI is left to others (`GPUWHY_CUPTI_SHARING=yield`).

use std::sync::atomic::Ordering;

use profiler_core::capture::CaptureMark;
use profiler_core::record::Timestamp;

use crate::capture::controller::Director;
use crate::capture::plan::{Action, Event};
use crate::cupti::other_tool::Company;
use crate::sys::clock;
use crate::{config, log};

impl Director {
    /// On the flushing thread, before each flush: if CUPTI is left to others, finds out whether one has taken its buffers, and
    /// takes them again when that is done. Answers whether one has, just now: what CUPTI had of ours is lost.
    pub fn look_around(&self, company: &mut Company, at: Timestamp) -> bool {
        let slot = self.switch.slot();
        if !slot.is_yielded() || !self.switch.is_on() || self.is_watching() {
            return false;
        }
        if slot.is_taken() {
            if slot.answers() == Some(true) {
                // CUPTI was only late.
                slot.keep();
                self.regain();
            } else if self.is_free(company, at) {
                self.regain();
            }
            return false;
        }
        let Some(since) = slot.answers().and_then(|answered| company.heard(answered, at)) else { return false };
        slot.lose();
        log::warning!("another tool has taken CUPTI: nothing is recorded until it is done, and the time is counted");
        let mut desk = self.desk();
        if let Action::End { number } = desk.plan.on(Event::Lost, at) {
            desk.unobserved.begin(since);
            self.end(number, since);
        }
        true
    }

    /// Whether no other tool has CUPTI's buffers any more. One that has left without fetching its own is given them.
    pub(super) fn is_free(&self, company: &mut Company, at: Timestamp) -> bool {
        let slot = self.switch.slot();
        if !slot.is_taken() {
            return true;
        }
        let free = company.is_done(slot.is_somebody_recording(), at);
        if free {
            let _ = self.cupti.flush(false);
        }
        free
    }

    fn regain(&self) {
        if let Err(error) = self.switch.regain() {
            log::debug!("CUPTI is not had back yet: {error}");
            return;
        }
        log::warning!("the other tool is done with CUPTI: recording goes on");
        let at = clock::now(self.cupti);
        let mut desk = self.desk();
        let at = desk.in_order(at);
        desk.observe(at, true);
        if let Action::Begin { number, trigger } = desk.plan.on(Event::Regained, at) {
            self.open.fetch_add(1, Ordering::Relaxed);
            self.send(CaptureMark::Begin { number, at, trigger });
        }
    }

    /// From now on CUPTI is left to others, as soon as nothing is recorded.
    pub fn yield_slot(&self) {
        self.switch.slot().set_yields(true);
    }

    /// At the end: leaving CUPTI to others helps only those that use the same copy of it.
    pub fn say_if_yielded_in_vain(&self) {
        let copies = cupti_sys::loaded_copies();
        if self.switch.slot().is_yielded() && copies.len() > 1 {
            let ours = self.cupti.path().display();
            let copies: Vec<_> = copies.iter().map(|path| path.display().to_string()).collect();
            log::warning!(
                "copies of CUPTI in the program: {}. {}=yield is for tools that use {ours}; one that uses another copy is refused (39)",
                copies.join(", "),
                config::CUPTI_SHARING
            );
        }
    }

    /// Whether other tools are kept out of CUPTI.
    pub fn holds_slot(&self) -> bool {
        self.switch.slot().with(|_| ()).is_some()
    }

    /// Measuring cannot start: CUPTI goes back to whoever wants it.
    pub fn give_up(&self) {
        self.switch.slot().give_back();
    }
}
