//! Captures: what is measured, when a piece of the run begins and ends, and what that means for CUPTI.
//!
//! Events come from application threads (`cudaProfilerStart`, ranges), the flushing thread (time), the collector
//! (detected steps) and the control socket. [`plan`](super::plan) decides; a begin switches tracing on at once, on the
//! thread that brought the event, so that its next launch is seen; an end is handed to the flushing thread, which keeps
//! tracing on until the capture's device work has come, and then switches it off. The collector cuts what lies outside
//! (`collect::router`, `collect::capture_filter`).
//!
//! [`drain`](super::drain) and [`cupti_sharing`](super::cupti_sharing) are the flushing thread's part: how long tracing stays on, and whether another tool has
//! taken CUPTI.
//!
//! The lock of the plan is held around a decision and a push into a channel, never around a CUPTI call. Messages about
//! begin and end go out under it, so their order is that of the plan; a capture begins when tracing is on.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crossbeam_channel::Sender;
use cupti_sys::{CallbackSite, Cupti, CuptiResult, Domain, Error};
use gpuwhy_trace::cost::Mode;
use gpuwhy_trace::record::{CaptureMark, Timestamp};
use parking_lot::{Mutex, MutexGuard};

use crate::capture::plan::{Action, AtStep, AtStepAnswer, Event, Plan};
use crate::capture::state::{CaptureState, PendingMark};
use crate::config::request::{Range, RangeName, Request};
use crate::cupti::recorder::{ActivityRecorder, ProfilerCall, ProfilerCalls};
use crate::cupti::toggle::SwitchOutcome;
use crate::message::{FlusherCommand, Message};
use crate::sync::CALLBACK_LOCK_TIMEOUT;
use crate::sys::clock;

/// Brings events to the plan and carries out what it decides.
#[derive(Debug)]
pub struct CaptureController {
    pub(super) cupti: &'static Cupti,
    pub(super) switch: ActivityRecorder,
    /// On threads of the program only with a timeout. A few numbers, whole after every panic that could happen.
    pub(super) state: Mutex<CaptureState>,
    /// Events that were given up because the lock was not to be had in time. `Relaxed`: a statistic.
    pub(super) missed_events: AtomicU64,
    /// Marks wait for the flushing thread, because the thread that was to send them did not get the lock. `Relaxed`:
    /// seen a flush later it is as good.
    pub(super) marks_are_left: AtomicBool,
    pub(super) messages: Sender<Message>,
    pub(super) commands: Sender<FlusherCommand>,
    pub(super) profiler_calls: OnceLock<ProfilerCalls>,
    /// Captures begun that the collector has not concluded. `Relaxed`: decides only when tracing goes off.
    pub(super) open: AtomicUsize,
    /// When the newest capture ended, nanoseconds; `Relaxed` as above.
    pub(super) ended: AtomicU64,
    pub(super) failure_logged: AtomicBool,
    /// Who wants records whether or not a capture is being taken: sessions of the program. `AcqRel`: whoever lets go
    /// last may switch off.
    pub(super) holders: AtomicUsize,
    /// Mode auto: the run is observed also while nothing is recorded.
    pub(super) has_bursts: bool,
    /// Whether somebody waits for the next flush marks. `Relaxed`: only makes them come sooner.
    pub(super) hurried: AtomicBool,
}

impl CaptureController {
    /// For a process that starts now. Nothing is on yet.
    pub fn new(
        cupti: &'static Cupti,
        switch: ActivityRecorder,
        request: Request,
        messages: Sender<Message>,
        commands: Sender<FlusherCommand>,
    ) -> Self {
        Self {
            cupti,
            switch,
            has_bursts: request.range == Range::Bursts,
            missed_events: AtomicU64::new(0),
            marks_are_left: AtomicBool::new(false),
            state: Mutex::new(CaptureState::new(Plan::new(request, clock::now(cupti)))),
            messages,
            commands,
            profiler_calls: OnceLock::new(),
            open: AtomicUsize::new(0),
            ended: AtomicU64::new(0),
            failure_logged: AtomicBool::new(false),
            holders: AtomicUsize::new(0),
            hurried: AtomicBool::new(false),
        }
    }

    /// Begins what begins with the program: the whole run, or the detection of steps. Answers with notes for the
    /// report. Fails when kernels cannot be recorded.
    pub fn start(&self) -> Result<Vec<String>, Error> {
        let (wants_records, at_once) = {
            let plan = &mut self.state().plan;
            if plan.request().is_whole() {
                plan.on(Event::Tick, clock::now(self.cupti));
                self.open.fetch_add(1, Ordering::Relaxed);
            }
            // A session of the program begins right behind this.
            (plan.wants_records(), plan.wants_records() || plan.request().range == Range::Nothing)
        };
        // What waits for its first capture has nothing on that a launch could pass through.
        let mut notes = if at_once { self.switch.describe() } else { Vec::new() };
        if wants_records && let SwitchOutcome::Now(more) = self.switch.on()? {
            notes.extend(more);
        }
        Ok(notes)
    }

    /// The range of the program that begins and ends captures.
    pub fn wanted_range(&self) -> Option<RangeName> {
        self.state().plan.request().range_name().cloned()
    }

    /// Whether `cudaProfilerStart` is to be listened to.
    pub fn wants_profiler_calls(&self) -> bool {
        self.state().plan.request().range == Range::ProfilerApi
    }

    /// From here on calls of the profiler API are understood, for as long as this library holds the subscriber. Answers
    /// whether there are any.
    pub fn listen(&self) -> bool {
        let calls = self.switch.ownership().with(|subscriber| ProfilerCalls::listen(self.cupti, subscriber));
        let calls = calls.unwrap_or_default();
        let any = !calls.is_empty();
        let _ = self.profiler_calls.set(calls);
        any
    }

    /// Calls of the API are told no more, unless captures need some of them.
    #[cfg(feature = "pc-sampling")]
    pub fn hear_no_more(&self) {
        if !self.wants_profiler_calls() {
            let told = self.switch.ownership().with(|subscriber| subscriber.hear_all(false));
            if let Some(Err(error)) = told {
                tracing::debug!("calls are still told: {error}");
            }
        }
    }

    /// Has the handler told of a function, or no more; `None` while the subscriber is left to others.
    pub fn listen_to(&self, domain: Domain, id: u32, on: bool) -> Option<Result<(), Error>> {
        self.switch
            .ownership()
            .with(|subscriber| if on { subscriber.enable_api(domain, id) } else { subscriber.disable_api(domain, id) })
    }

    /// A call that was listened to. On the calling thread, inside a CUPTI callback.
    pub fn api_called(&self, domain: Domain, id: u32, site: CallbackSite) {
        let event = match self.profiler_calls.get().and_then(|calls| calls.meaning(domain, id, site)) {
            Some(ProfilerCall::Start) => Event::ProfilerStart,
            Some(ProfilerCall::Stop) => Event::ProfilerStop,
            None => return,
        };
        self.event(event);
    }

    /// Something happened that may begin or end a capture. When it begins one, records of what this thread does next
    /// are made. Answers whether it changed anything.
    pub fn event(&self, event: Event) -> bool {
        // Before the lock: this thread may be inside a CUPTI callback, and a lock must not be held around a call that
        // could wait for what another one holds.
        let at = clock::now(self.cupti);
        let Some(mut state) = self.state.try_lock_for(CALLBACK_LOCK_TIMEOUT) else {
            self.missed_events.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        let at = state.in_order(at);
        match state.plan.on(event, at) {
            Action::None => return false,
            Action::Canceled => {}
            Action::Warm => {
                drop(state);
                self.switch_on();
            }
            Action::Begin { number, trigger } => {
                self.open.fetch_add(1, Ordering::Relaxed);
                state.marks.push(PendingMark::Begin(number, trigger));
                let mut at = at;
                if !self.switch.is_on() {
                    drop(state);
                    self.switch_on();
                    // What other threads launched meanwhile was recorded in part.
                    let on = clock::now(self.cupti);
                    let Some(again) = self.state.try_lock_for(CALLBACK_LOCK_TIMEOUT) else {
                        self.marks_are_left.store(true, Ordering::Relaxed);
                        return true;
                    };
                    state = again;
                    at = state.in_order(on);
                    state.observe(at, self.is_recording());
                }
                self.send_marks(&mut state, at);
            }
            Action::End { number } => {
                state.observe(at, self.is_recording());
                // Behind a begin that is still to come.
                let begun = state.marks.is_empty();
                state.marks.push(PendingMark::End(number));
                if begun {
                    self.send_marks(&mut state, at);
                }
            }
        }
        true
    }

    pub(super) fn send_marks(&self, state: &mut CaptureState, at: Timestamp) {
        for mark in state.marks.drain(..) {
            match mark {
                PendingMark::Begin(number, trigger) => self.send(CaptureMark::Begin { number, at, trigger }),
                PendingMark::End(number) => self.end(number, at),
            }
        }
    }

    pub(super) fn end(&self, number: u32, at: Timestamp) {
        self.ended.store(at.nanos(), Ordering::Relaxed);
        self.send(CaptureMark::End { number, at });
        // Full means that the flushing thread will flush anyway.
        let _ = self.commands.try_send(FlusherCommand::FlushNow);
    }

    /// Tells the collector. Under the lock of the state, so that marks arrive in the order of the plan.
    pub(super) fn send(&self, mark: CaptureMark) {
        // The channel has room for every buffer and thousands of marks; it is full only when the collector is dead.
        if self.messages.try_send(Message::Capture(mark)).is_err() {
            tracing::warn!("{mark:?} is lost: the collector does not keep up");
        }
    }

    /// Whether commands alone begin captures.
    pub fn waits_for_commands(&self) -> bool {
        matches!(self.state().plan.request().range, Range::Commands(_))
    }

    /// A command wants a capture that begins at a step.
    pub fn start_at_step(&self, wanted: AtStep) -> AtStepAnswer {
        self.state().plan.start_at_step(wanted)
    }

    /// Steps so far, and the one at which a command has a capture begin; `None` where nothing counts them.
    pub fn steps(&self) -> (Option<u64>, Option<u64>) {
        let plan = &self.state().plan;
        (plan.steps(), plan.awaited_step())
    }

    /// Captures begun so far.
    pub fn captures(&self) -> u32 {
        self.state().plan.begun()
    }

    /// Whether one is being taken.
    pub fn is_capturing(&self) -> bool {
        self.state().plan.taking().is_some()
    }

    pub(super) fn switch_on(&self) {
        match self.switch.on() {
            Ok(SwitchOutcome::Now(notes)) => notes.iter().for_each(|note| tracing::info!("{note}")),
            Ok(SwitchOutcome::Already) => {}
            Ok(SwitchOutcome::Later) => tracing::warn!(
                "another thread is still switching CUPTI; the first launches of the capture may be missing"
            ),
            Err(error) => self.refused(&error),
        }
    }

    pub(super) fn refused(&self, error: &Error) {
        if self.failure_logged.swap(true, Ordering::Relaxed) {
            return;
        }
        if error.code == CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED {
            tracing::warn!(
                "a capture has begun while another tool uses CUPTI; recording starts when that tool has finished, and the time until then is counted as unobserved"
            );
        } else {
            tracing::error!("a capture has begun but nothing can be recorded: {error}");
        }
    }

    /// Time of captures so far in which nothing could be recorded, because another tool held CUPTI or because that
    /// refused; nanoseconds of the periods that are over.
    pub fn unobserved(&self) -> u64 {
        self.state().unobserved.over()
    }

    /// The same with the period that lasts, up to `at`.
    pub fn unobserved_until(&self, at: Timestamp) -> u64 {
        self.state().unobserved.until(at)
    }

    /// Whether what a capture wants is recorded.
    pub fn is_recording(&self) -> bool {
        self.switch.is_on() && !self.switch.ownership().is_taken()
    }

    /// Whether the run is only watched, and nothing of CUPTI's is recorded.
    pub fn is_watching(&self) -> bool {
        self.switch.is_watching()
    }

    /// Whether captures are bursts of a run that samples divide.
    pub fn has_bursts(&self) -> bool {
        self.has_bursts
    }

    /// Whether samples divide the time of the run: no device work is recorded, or it is in bursts alone.
    pub fn monitors(&self) -> bool {
        self.has_bursts || self.is_watching()
    }

    /// Whether what was switched on can be switched off again.
    pub fn can_stop_recording(&self) -> bool {
        self.switch.can_be_off()
    }

    /// Whether CUPTI may have records of ours.
    pub fn may_have_recorded(&self) -> bool {
        self.switch.may_have_recorded()
    }

    /// Whether a CUDA graph is one record.
    pub fn has_whole_graphs(&self) -> bool {
        self.switch.has_whole_graphs()
    }

    /// Asks the flushing thread to record less.
    pub fn step_down(&self, mode: Mode) {
        if self.commands.try_send(FlusherCommand::LowerMode(mode)).is_err() {
            tracing::warn!("the change to mode {} is delayed: the flushing thread is busy", mode.name());
        }
    }

    /// Asks the flushing thread to record the nodes of CUDA graphs; whether it will.
    pub fn ask_for_nodes(&self) -> bool {
        self.commands.try_send(FlusherCommand::RecordNodes).is_ok()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, CaptureState> {
        self.state.lock()
    }
}
