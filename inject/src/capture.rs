//! Captures: what is measured, when a piece of the run begins and ends, and what that means for CUPTI.
//!
//! Events come from application threads (`cudaProfilerStart`, ranges), the flushing thread (time), the collector
//! (detected steps) and the control socket. [`plan`] decides; a begin switches tracing on at once, on the thread that
//! brought the event, so that its next launch is seen; an end is handed to the flushing thread, which keeps tracing on
//! until the capture's device work has come, and then switches it off. The collector cuts what lies outside
//! ([`segments`], [`gate`]).
//!
//! The lock of the plan is held around a decision and a push into a channel, never around a CUPTI call. Messages about
//! begin and end go out under it, so their order is that of the plan; a capture begins when tracing is on.

pub mod gate;
pub mod plan;
pub mod request;
pub mod segments;
pub mod watch;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crossbeam_channel::Sender;
use cupti_sys::{CallbackSite, Cupti, CuptiResult, Domain, Error};
use profiler_core::capture::{CaptureMark, Trigger};
use profiler_core::cost::Mode;
use profiler_core::record::Timestamp;

use self::plan::{Action, Event, Plan};
use self::request::{Range, RangeName, Request};
use crate::activity::Delivery;
use crate::enable::{Company, ProfilerCall, ProfilerCalls, Switch, Turned};
use crate::flusher::{self, Order};
use crate::{log, settings};

/// Tracing stays on for so long after the last capture: the next one may follow at once, and switching back and forth
/// costs more than it saves (`cuptiActivityDisable` does not give the launch path its full speed back).
const LINGER_NANOS: u64 = 200_000_000;
/// Between two flushes while the last device work of a capture is awaited.
const DRAIN_PERIOD: Duration = Duration::from_millis(10);

/// What the lock protects.
#[derive(Debug)]
struct Desk {
    plan: Plan,
    /// Marks that wait until tracing is on, first of all a begin: the thread that switches it on sends them.
    marks: Vec<Mark>,
    /// The newest time that an event had.
    newest: Timestamp,
    /// Since when a capture is being taken although nothing can be recorded.
    blind_since: Option<Timestamp>,
    /// For how long that was so before, nanoseconds.
    blind_nanos: u64,
}

/// What the plan has decided about a capture.
#[derive(Debug)]
enum Mark {
    Begin(u32, Trigger),
    End(u32),
}

impl Desk {
    /// A time that was read before the lock was taken: not before that of an event which got it first.
    fn in_order(&mut self, at: Timestamp) -> Timestamp {
        self.newest = self.newest.max(at);
        self.newest
    }

    /// Notes whether what the capture that is being taken wants is recorded as of `at`.
    fn observe(&mut self, at: Timestamp, recorded: bool) {
        if self.plan.taking().is_some() && !recorded {
            self.blind_since.get_or_insert(at);
        } else if let Some(since) = self.blind_since.take() {
            self.blind_nanos += at.since(since);
        }
    }
}

/// Brings events to the plan and carries out what it decides.
#[derive(Debug)]
pub struct Director {
    cupti: &'static Cupti,
    switch: Switch,
    desk: Mutex<Desk>,
    deliveries: Sender<Delivery>,
    orders: Sender<Order>,
    profiler_calls: OnceLock<ProfilerCalls>,
    /// Captures begun that the collector has not concluded. `Relaxed`: decides only when to stop looking.
    open: AtomicUsize,
    /// When the newest capture ended, nanoseconds; `Relaxed` as above.
    ended: AtomicU64,
    failure_said: AtomicBool,
    /// Who wants records whether or not a capture is being taken: sessions of the program. `AcqRel`: whoever lets go last
    /// may switch off.
    holders: AtomicUsize,
    /// Whether somebody waits for the next flush marks. `Relaxed`: only makes them come sooner.
    hurried: AtomicBool,
}

impl Director {
    /// For a process that starts now. Nothing is on yet.
    pub fn new(
        cupti: &'static Cupti,
        switch: Switch,
        request: Request,
        deliveries: Sender<Delivery>,
        orders: Sender<Order>,
    ) -> Self {
        Self {
            cupti,
            switch,
            desk: Mutex::new(Desk {
                plan: Plan::new(request, flusher::now(cupti)),
                marks: Vec::new(),
                newest: Timestamp::ZERO,
                blind_since: None,
                blind_nanos: 0,
            }),
            deliveries,
            orders,
            profiler_calls: OnceLock::new(),
            open: AtomicUsize::new(0),
            ended: AtomicU64::new(0),
            failure_said: AtomicBool::new(false),
            holders: AtomicUsize::new(0),
            hurried: AtomicBool::new(false),
        }
    }

    /// Begins what begins with the program: the whole run, or the detection of steps. Answers with notes for the
    /// report.
    ///
    /// # Errors
    /// When kernels cannot be recorded.
    pub fn start(&self) -> Result<Vec<String>, Error> {
        let (wants_records, at_once) = {
            let plan = &mut self.desk().plan;
            if plan.request().is_whole() {
                plan.on(Event::Tick, flusher::now(self.cupti));
                self.open.fetch_add(1, Ordering::Relaxed);
            }
            // A session of the program begins right behind this.
            (plan.wants_records(), plan.wants_records() || plan.request().range == Range::Nothing)
        };
        // What waits for its first capture has nothing on that a launch could pass through.
        let mut notes = if at_once { self.switch.describe() } else { Vec::new() };
        if wants_records && let Turned::Now(more) = self.switch.on()? {
            notes.extend(more);
        }
        Ok(notes)
    }

    /// The range of the program that is to be looked out for.
    pub fn wanted_range(&self) -> Option<RangeName> {
        match &self.desk().plan.request().range {
            Range::Named(name) | Range::Steps(_, Some(name)) => Some(name.clone()),
            _ => None,
        }
    }

    /// `cuInit` is done.
    pub fn initialised(&self) {
        self.switch.initialised();
    }

    /// Whether `cudaProfilerStart` is to be listened to.
    pub fn wants_profiler_calls(&self) -> bool {
        self.desk().plan.request().range == Range::ProfilerApi
    }

    /// From here on calls of the profiler API are understood, for as long as CUPTI's slot is held. Answers whether there are
    /// any.
    pub fn listen(&self) -> bool {
        let calls = self.switch.slot().with(|subscriber| ProfilerCalls::listen(self.cupti, subscriber));
        let calls = calls.unwrap_or_default();
        let any = !calls.is_empty();
        let _ = self.profiler_calls.set(calls);
        any
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
        let at = flusher::now(self.cupti);
        let mut desk = self.desk();
        let at = desk.in_order(at);
        match desk.plan.on(event, at) {
            Action::None => return false,
            Action::Warm => {
                drop(desk);
                self.switch_on();
            }
            Action::Begin { number, trigger } => {
                self.open.fetch_add(1, Ordering::Relaxed);
                desk.marks.push(Mark::Begin(number, trigger));
                let mut at = at;
                if !self.switch.is_on() {
                    drop(desk);
                    self.switch_on();
                    // What other threads launched meanwhile was recorded in part.
                    let on = flusher::now(self.cupti);
                    desk = self.desk();
                    at = desk.in_order(on);
                    desk.observe(at, self.is_recording());
                }
                self.send_marks(&mut desk, at);
            }
            Action::End { number } => {
                desk.observe(at, self.is_recording());
                // Behind a begin that is still to come.
                let begun = desk.marks.is_empty();
                desk.marks.push(Mark::End(number));
                if begun {
                    self.send_marks(&mut desk, at);
                }
            }
        }
        true
    }

    fn send_marks(&self, desk: &mut Desk, at: Timestamp) {
        for mark in desk.marks.drain(..) {
            match mark {
                Mark::Begin(number, trigger) => self.send(CaptureMark::Begin { number, at, trigger }),
                Mark::End(number) => self.end(number, at),
            }
        }
    }

    fn end(&self, number: u32, at: Timestamp) {
        self.ended.store(at.nanos(), Ordering::Relaxed);
        self.send(CaptureMark::End { number, at });
        // Full means that the flushing thread has reason enough to look.
        let _ = self.orders.try_send(Order::Look);
    }

    /// Tells the collector. Under the lock of the desk, so that marks arrive in the order of the plan.
    fn send(&self, mark: CaptureMark) {
        // The channel has room for every buffer and thousands of marks; it is full only when the collector is dead.
        if self.deliveries.try_send(Delivery::Capture(mark)).is_err() {
            log::warning!("{mark:?} is lost: the collector does not keep up");
        }
    }

    /// A capture has come to its end in the collector.
    pub fn concluded(&self) {
        let _ = self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| open.checked_sub(1));
    }

    /// Captures begun so far.
    pub fn captures(&self) -> u32 {
        self.desk().plan.begun()
    }

    /// Whether one is being taken.
    pub fn is_capturing(&self) -> bool {
        self.desk().plan.taking().is_some()
    }

    fn switch_on(&self) {
        match self.switch.on() {
            Ok(Turned::Now(notes)) => notes.iter().for_each(|note| log::info!("{note}")),
            Ok(Turned::Already) => {}
            Ok(Turned::Later) => log::warning!(
                "CUPTI is still being switched by another thread: what a capture launches first may be missing"
            ),
            Err(error) => self.refused(&error),
        }
    }

    fn refused(&self, error: &Error) {
        if self.failure_said.swap(true, Ordering::Relaxed) {
            return;
        }
        if error.code == CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED {
            log::warning!(
                "a capture has begun while another tool holds CUPTI: nothing is recorded until that lets go, and the time is counted"
            );
        } else {
            log::error!("a capture has begun but nothing can be recorded: {error}");
        }
    }

    /// Time of captures so far in which nothing could be recorded, because another tool held CUPTI or because that
    /// refused; nanoseconds.
    ///
    /// A stretch counts when it is over: it belongs to the capture that goes on behind it.
    pub fn unobserved(&self) -> u64 {
        self.desk().blind_nanos
    }

    /// The same with the stretch that lasts, up to `at`.
    pub fn unobserved_until(&self, at: Timestamp) -> u64 {
        let desk = self.desk();
        desk.blind_nanos + desk.blind_since.map_or(0, |since| at.since(since))
    }

    /// Whether what a capture wants is recorded.
    fn is_recording(&self) -> bool {
        self.switch.is_on() && !self.switch.slot().is_taken()
    }

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
            desk.blind_since = Some(since);
            self.end(number, since);
        }
        true
    }

    /// Whether no other tool has CUPTI's buffers any more. One that has left without fetching its own is given them.
    fn is_free(&self, company: &mut Company, at: Timestamp) -> bool {
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
        let at = flusher::now(self.cupti);
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
                settings::NEIGHBOURS
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

    /// Whether records are still to come for a capture that has ended.
    pub fn is_draining(&self) -> bool {
        self.open.load(Ordering::Relaxed) > usize::from(self.is_capturing())
    }

    /// Whether records are being made, so that flushing brings something.
    pub fn is_on(&self) -> bool {
        !self.switch.is_off()
    }

    /// Records are made from here on, whatever the plan says, until [`release`](Self::release) was called as often.
    pub fn hold(&self) {
        {
            // Under the lock, as everything that keeps tracing on.
            let _desk = self.desk();
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
        // Full means that the flushing thread has reason enough to look.
        let _ = self.orders.try_send(Order::Look);
    }

    /// How long the flushing thread may sleep.
    pub fn wait(&self, period: Duration) -> Duration {
        let (taking, deadline) = {
            let plan = &self.desk().plan;
            (plan.taking().is_some(), plan.deadline())
        };
        let draining = self.open.load(Ordering::Relaxed) > usize::from(taking) || self.hurried.load(Ordering::Relaxed);
        let now = flusher::now(self.cupti);
        let deadline = deadline.map_or(period, |at| Duration::from_nanos(at.since(now)));
        if draining { period.min(DRAIN_PERIOD) } else { period.min(deadline.max(Duration::from_millis(1))) }
    }

    /// On the flushing thread, after each flush: switches off what is no longer wanted. Answers whether measuring is
    /// over and its last record has come.
    pub fn settle(&self, company: &mut Company) -> bool {
        let now = flusher::now(self.cupti);
        let (wanted, over, leaves) = {
            let mut desk = self.desk();
            // Marks that wait: a thread is just switching on, and will say what came of it.
            if desk.marks.is_empty() {
                desk.observe(now, self.is_recording());
            }
            let over = desk.plan.is_over();
            let ended = Timestamp::from_nanos(self.ended.load(Ordering::Relaxed));
            let wanted = desk.plan.wants_records() || self.holders.load(Ordering::Acquire) > 0;
            let done = !wanted && self.open.load(Ordering::Relaxed) == 0;
            // Under the lock, so that a capture begins before it, or sees it and calls it back.
            (wanted, over && done, done && (over || now.since(ended) > LINGER_NANOS) && self.switch.leave())
        };
        if leaves {
            self.leave();
        } else if wanted && self.switch.is_off() {
            // It was refused when the capture began; it may not be now.
            if self.is_free(company, now) {
                self.switch_on();
                let now = flusher::now(self.cupti);
                self.desk().observe(now, self.is_recording());
            }
        } else if self.switch.is_off() {
            self.switch.slot().give_back_if_wanted();
        }
        over
    }

    /// Whether the run is only watched, and nothing of CUPTI's is recorded.
    pub fn is_watching(&self) -> bool {
        self.switch.is_watching()
    }

    /// Records less from here on. Only from the flushing thread.
    pub fn lower(&self, mode: Mode) {
        self.switch.lower(mode);
    }

    /// Asks the flushing thread to record less.
    pub fn step_down(&self, mode: Mode) {
        if self.orders.try_send(Order::Lower(mode)).is_err() {
            log::warning!("the step down to {} is late: the flushing thread is busy", mode.name());
        }
    }

    /// Switches off whatever is on. Only from the flushing thread.
    pub fn switch_off(&self) {
        let leaves = {
            let _desk = self.desk();
            self.switch.leave()
        };
        if leaves {
            self.leave();
        }
    }

    fn leave(&self) {
        match self.switch.off() {
            Ok(false) => {}
            Ok(true) => log::debug!("a capture began while CUPTI was being switched off"),
            Err(error) => self.refused(&error),
        }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        // A few numbers, whole after every panic that could happen.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
