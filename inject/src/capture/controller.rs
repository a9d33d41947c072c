//! Captures: which parts of the run are recorded, and how CUPTI is switched for them.
//!
//! Events come from application threads (`cudaProfilerStart`, ranges), the flushing thread (time), the
//! collector (detected steps) and the control socket. [`plan`](super::plan) decides. The start of a capture
//! switches tracing on at once, on the thread of the event, so that the thread's next launch is recorded. The
//! end is handed to the flushing thread, which keeps tracing on until the capture's device work has arrived,
//! and then switches it off. The collector discards the records outside (`collect::router`,
//! `collect::capture_filter`).
//!
//! [`drain`](super::drain) and [`cupti_sharing`](super::cupti_sharing) are the flushing thread's part: how
//! long tracing stays on, and whether another tool has taken CUPTI.
//!
//! The lock of the plan is held for a decision and a push into a channel, never during a CUPTI call. The
//! messages for starts and ends are sent under the lock, so they have the order of the plan; a capture starts
//! once tracing is on.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crossbeam_channel::Sender;
use cupti_sys::{CallbackSite, Cupti, CuptiResult, Domain, Error, MEMORY_CALLS, SUBMISSIONS};
use gpuwhy_trace::cost::Mode;
use gpuwhy_trace::record::{CaptureMark, Timestamp};
use parking_lot::{Mutex, MutexGuard};

use crate::capture::plan::{Action, AtStep, AtStepAnswer, CaptureEvent, Plan};
use crate::capture::state::{CaptureState, PendingMark};
use crate::config::request::{CaptureRange, RangeName, Request};
use crate::cupti::recorder::{ActivityRecorder, ProfilerCall, ProfilerCalls};
use crate::cupti::toggle::SwitchOutcome;
use crate::shared::{FlusherCommand, Message};
use crate::sync::CALLBACK_LOCK_TIMEOUT;
use crate::sys::clock;

/// Passes events to the plan and carries out its decisions.
#[derive(Debug)]
pub struct CaptureController {
    pub(super) cupti: &'static Cupti,
    /// What records. Off at the start: until the first capture, launches pass through no tracing. Only the modules of
    /// captures switch it on and off, as the plan decides; the flushing thread lowers what it records, and all others
    /// only read its state, but for `release`, which gives CUPTI to other tools.
    pub(crate) switch: ActivityRecorder,
    /// Threads of the program lock it only with a timeout. It holds a few numbers, valid after any possible
    /// panic.
    pub(super) state: Mutex<CaptureState>,
    /// Events dropped because the lock was not available in time. `Relaxed`: a statistic.
    pub(super) missed_events: AtomicU64,
    /// Marks wait for the flushing thread because the thread that had to send them did not get the lock.
    /// `Relaxed`: seeing it one flush later is fine.
    pub(super) marks_are_left: AtomicBool,
    pub(super) messages: Sender<Message>,
    pub(super) commands: Sender<FlusherCommand>,
    pub(super) profiler_calls: OnceLock<ProfilerCalls>,
    /// Captures that have started and that the collector has not concluded. `Relaxed`: only decides when
    /// tracing goes off.
    pub(super) open: AtomicUsize,
    /// End of the newest capture, nanoseconds; `Relaxed` as above.
    pub(super) ended: AtomicU64,
    pub(super) failure_logged: AtomicBool,
    /// Number of sessions of the program that need records even without a capture. `AcqRel`: the last one to
    /// release may switch off.
    pub(super) holders: AtomicUsize,
    /// True if the run is monitored from its start (mode auto).
    monitored: bool,
    /// True if captures are bursts: the run is observed even while no records are made. `Relaxed`: seeing it one
    /// flush later is fine.
    bursts: AtomicBool,
    /// True if a caller waits for the next flush marks. `Relaxed`: only makes them come sooner.
    pub(super) hurried: AtomicBool,
}

impl CaptureController {
    /// Creates the controller of a starting process. Tracing is off.
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
            monitored: request.range == CaptureRange::Bursts,
            bursts: AtomicBool::new(request.range == CaptureRange::Bursts),
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

    /// Starts what starts with the program: a capture of the complete run, or the detection of steps. Returns
    /// notes for the report. Fails if kernels cannot be recorded.
    pub fn start(&self) -> Result<Vec<String>, Error> {
        let (wants_records, at_once) = {
            let plan = &mut self.state().plan;
            if plan.request().is_complete() {
                plan.on(CaptureEvent::Tick, clock::now(self.cupti));
                self.open.fetch_add(1, Ordering::Relaxed);
            }
            // A session of the program starts right after this.
            (plan.wants_records(), plan.wants_records() || plan.request().range == CaptureRange::Nothing)
        };
        // While a process waits for its first capture, launches pass through no tracing, so there are no
        // notes.
        let mut notes = if at_once { self.switch.describe() } else { Vec::new() };
        if wants_records && let SwitchOutcome::Now(more) = self.switch.on()? {
            notes.extend(more);
        }
        Ok(notes)
    }

    /// Range of the program that starts and ends captures.
    pub fn wanted_range(&self) -> Option<RangeName> {
        self.state().plan.request().range_name().cloned()
    }

    /// True if `cudaProfilerStart` starts captures.
    pub fn wants_profiler_calls(&self) -> bool {
        self.state().plan.request().range == CaptureRange::ProfilerApi
    }

    /// Enables callbacks for the calls of the profiler API, for as long as this library holds the subscriber.
    /// Returns true if there are any.
    pub fn listen(&self) -> bool {
        let calls = self.switch.ownership().with(|subscriber| ProfilerCalls::listen(self.cupti, subscriber));
        let calls = calls.unwrap_or_default();
        let any = !calls.is_empty();
        let _ = self.profiler_calls.set(calls);
        any
    }

    /// Enables or disables the callback for a function; `None` while the subscriber is left to other tools.
    pub fn set_callback(&self, domain: Domain, id: u32, on: bool) -> Option<Result<(), Error>> {
        self.switch
            .ownership()
            .with(|subscriber| if on { subscriber.enable_api(domain, id) } else { subscriber.disable_api(domain, id) })
    }

    /// Enables or disables the callbacks for copies and launches of CUDA graphs. False if CUPTI does not: without the
    /// subscriber, or if it refuses them all. Older libraries lack some of these functions.
    pub fn watch_submissions(&self, on: bool) -> bool {
        SUBMISSIONS.map(|(domain, id, ..)| matches!(self.set_callback(domain, id, on), Some(Ok(())))).contains(&true)
    }

    /// Enables the callbacks for calls that take or give device memory. False as above.
    pub fn watch_memory_calls(&self) -> bool {
        MEMORY_CALLS.map(|(id, ..)| matches!(self.set_callback(Domain::DRIVER, id, true), Some(Ok(())))).contains(&true)
    }

    /// Handles a call with an enabled callback. On the calling thread, inside a CUPTI callback.
    pub fn api_called(&self, domain: Domain, id: u32, site: CallbackSite) {
        if site == CallbackSite::EXIT
            && self.switch.allocates_managed(domain, id)
            && self.commands.try_send(FlusherCommand::RecordFaults).is_err()
        {
            tracing::warn!("page faults are recorded from the next capture on: the flushing thread is busy");
        }
        let event = match self.profiler_calls.get().and_then(|calls| calls.meaning(domain, id, site)) {
            Some(ProfilerCall::Start) => CaptureEvent::ProfilerStart,
            Some(ProfilerCall::Stop) => CaptureEvent::ProfilerStop,
            None => return,
        };
        self.event(event);
    }

    /// Handles an event that may start or end a capture. If it starts one, the next calls of this thread are
    /// recorded. Returns true if it changed the state.
    pub fn event(&self, event: CaptureEvent) -> bool {
        // Before the lock: this thread may be inside a CUPTI callback, and the lock must not be held during a
        // call that could wait for a lock of another thread.
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
                    // Launches of other threads up to this point were recorded only in part.
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
                // False if a start mark is still pending: the end must follow it.
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
        // If the channel is full, the flushing thread will flush anyway.
        let _ = self.commands.try_send(FlusherCommand::FlushNow);
    }

    /// Notifies the collector. Call it under the lock of the state, so that marks arrive in the order of the
    /// plan.
    pub(super) fn send(&self, mark: CaptureMark) {
        // The channel has room for every buffer and thousands of marks; it is full only if the collector is
        // dead.
        if self.messages.try_send(Message::Capture(mark)).is_err() {
            tracing::warn!("{mark:?} is lost: the collector does not keep up");
        }
    }

    /// True if only commands start captures.
    pub fn waits_for_commands(&self) -> bool {
        matches!(self.state().plan.request().range, CaptureRange::Commands(_))
    }

    /// Handles a command to start a capture at a step.
    pub fn start_at_step(&self, wanted: AtStep) -> AtStepAnswer {
        self.state().plan.start_at_step(wanted)
    }

    /// Number of steps up to now, and the step at which a command will start a capture; `None` if steps are
    /// not counted.
    pub fn steps(&self) -> (Option<u64>, Option<u64>) {
        let plan = &self.state().plan;
        (plan.steps(), plan.awaited_step())
    }

    /// Number of captures started.
    pub fn captures(&self) -> u32 {
        self.state().plan.begun()
    }

    /// The program makes CUDA graphs. Not on threads of the program: waits for the lock.
    pub fn graph_made(&self) {
        self.state().plan.graph_made();
    }

    /// True if no capture starts from now on, see [`Plan::ended_for_graphs`].
    pub fn ended_for_graphs(&self) -> bool {
        self.state().plan.ended_for_graphs()
    }

    /// True if a capture is in progress.
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

    /// Time within captures in which recording was impossible, because another tool held CUPTI or because
    /// CUPTI refused; nanoseconds of the completed periods.
    pub fn unobserved(&self) -> u64 {
        self.state().unobserved.over()
    }

    /// As [`unobserved`](Self::unobserved), including the current period up to `at`.
    pub fn unobserved_until(&self, at: Timestamp) -> u64 {
        self.state().unobserved.until(at)
    }

    /// True if everything that a capture needs is recorded.
    pub fn is_recording(&self) -> bool {
        self.switch.is_on() && !self.switch.ownership().is_taken()
    }

    /// True in mode monitor: CUPTI records nothing.
    pub fn is_monitor(&self) -> bool {
        self.switch.is_monitor()
    }

    /// True if the run is monitored from its start, and captures are bursts.
    pub fn is_monitored(&self) -> bool {
        self.monitored
    }

    /// True if captures are bursts.
    pub fn has_bursts(&self) -> bool {
        self.bursts.load(Ordering::Relaxed)
    }

    /// True if samples divide the time of the run: device work is not recorded, or only in bursts.
    pub fn monitors(&self) -> bool {
        self.monitored || self.is_monitor()
    }

    /// Ends the capture of the complete run; bursts follow. Returns false if the run is not measured completely.
    pub fn follow_with_bursts(&self) -> bool {
        // Before the end: the flushing thread may switch off at once.
        self.switch.restore_speed();
        let follows = self.event(CaptureEvent::BurstsFollow);
        if follows {
            self.bursts.store(true, Ordering::Relaxed);
        }
        follows
    }

    /// Requests the flushing thread to record less.
    pub fn step_down(&self, mode: Mode) {
        if self.commands.try_send(FlusherCommand::LowerMode(mode)).is_err() {
            tracing::warn!("the change to mode {} is delayed: the flushing thread is busy", mode.name());
        }
    }

    /// If CUPTI was left to other tools, which expect nodes of CUDA graphs, requests the flushing thread to record
    /// them. Returns true if it will.
    pub fn asks_for_nodes_for_others(&self) -> bool {
        let asks = !self.holds_slot() && !self.is_monitor();
        let will = asks && self.commands.try_send(FlusherCommand::RecordNodes).is_ok();
        if will {
            tracing::info!("nodes of CUDA graphs are recorded from now on: CUPTI was left to other tools");
        }
        will
    }

    pub(super) fn state(&self) -> MutexGuard<'_, CaptureState> {
        self.state.lock()
    }
}
