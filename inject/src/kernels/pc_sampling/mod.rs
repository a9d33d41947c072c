//! PC sampling: one window per device, one after the other, before kernels are measured.
//!
//! The order matters. After ranges were measured in a process, samples had no program counters (seen once,
//! H200, CUPTI 13.0), and together with sampling of complete devices the process crashed later: `access_lock` makes
//! them exclusive. Only in continuous mode: in serialized mode, a program of many small kernels did not end.
//!
//! Only in builds with the feature `pc-sampling`: the call blocker makes threads of the program wait, which no other
//! part does.
//!
//! CUPTI's functions of PC sampling take locks in another order than a launch does: `call_blocker`. So they are
//! called at the start of a launch of the program, on its thread, before the driver has taken a lock, and
//! with no other thread inside a call. If that is not possible within [`PATIENCE`], the attempt is abandoned
//! and repeated at a later launch. A program that launches no more keeps its window until the context is
//! destroyed or the program ends. Then the samples are taken with the call blocker closed or, if it cannot be closed,
//! abandoned. `sample_counts` adds up the samples, and `modules` keeps the data for source lines.
//!
//! The thread that takes a device out of the state closes it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use cupti_sys::counters::Counters;
use cupti_sys::counters::pc::{PcSampler, PcSettings};
use cupti_sys::counters::range::ContextHandle;
use cupti_sys::{Cupti, CuptiResult, Error};
use gpuwhy_trace::kernels::{Outcome, PcWindow};
use gpuwhy_trace::record::{DeviceId, Timestamp};
use parking_lot::Mutex;

use crate::capture::controller::CaptureController;
use crate::counters::access_lock::COUNTER_ACCESS;
use crate::counters::{close_before_libraries, library_calls};
use crate::kernels::pc_sampling::modules::Modules;
use crate::kernels::pc_sampling::sample_counts::SampleCounts;
use crate::message::{Message, SampledWindow};
use crate::sys::clock;

mod call_blocker;
mod modules;
mod sample_counts;

pub use call_blocker::CALL_BLOCKER;
pub use modules::write as write_modules;

/// Cycles between two samples, as a power of two: 2^18 had no measurable cost, and 2^14 took a third of a
/// core (H200, CUPTI 13.0).
const PERIOD: u32 = 18;
/// Interval between two fetches in a long window: at 2^18 cycles, CUPTI's buffer is far from full then.
const FETCH_EVERY: Duration = Duration::from_secs(2);
/// Interval between two checks for the results of launches.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum wait for the sampling of complete devices to release the counters.
const ACCESS_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum wait of a launch, or of the end of a context or the program, until other threads have left their
/// calls.
const PATIENCE: Duration = Duration::from_millis(20);
/// Pause after an abandoned attempt: this times the number of attempts, at most [`MAX_PAUSE`].
const PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// Maximum number of attempts to start on a device.
const ATTEMPTS: u32 = 20;
/// Time to wait for a device after its window: there may be no more launches on it.
const GRACE: Duration = Duration::from_secs(30);
/// Maximum number of CUPTI calls to start, and the pause between them: other profilers found that the device
/// must be idle.
const START_ATTEMPTS: u32 = 5;
const START_AGAIN: Duration = Duration::from_millis(10);
/// Maximum wait of another thread for a CUPTI call to return: at the end of the program or of a context.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// PC sampling of a process.
#[derive(Debug)]
pub struct PcSampling {
    cupti: &'static Cupti,
    length: Duration,
    /// Modules that the program has loaded.
    pub modules: Modules,
    state: Mutex<SamplingState>,
    /// Held while windows that were taken out of the state are sent to the collector; locked before the
    /// state. Checksums of modules take a tenth of a second, for which no launch and no context must wait.
    sending: Mutex<()>,
    /// True if launches matter. `Acquire`/`Release`: a thread that sees it sees the state set before.
    is_armed: AtomicBool,
    /// No further windows are opened. `Relaxed`: dependent data is read under the lock.
    is_over: AtomicBool,
}

#[derive(Debug, Default)]
struct SamplingState {
    /// Devices that remain to be sampled.
    waiting: Vec<(u32, ContextHandle)>,
    open: Option<OpenWindow>,
    done: Vec<PcWindow>,
    attempts: Attempts,
    /// The window ends at the next launch.
    is_stopping: bool,
    /// A window was sent to the collector.
    has_reported: bool,
}

/// Abandoned attempts to close the call blocker since the last successful one.
#[derive(Debug, Default)]
struct Attempts {
    given_up: u32,
    /// Earliest time of the next attempt.
    again: Option<Instant>,
}

impl Attempts {
    fn is_due(&self, now: Instant) -> bool {
        self.again.is_none_or(|again| now >= again)
    }

    /// Notes an abandoned attempt; true if it was the last one allowed.
    fn give_up(&mut self, now: Instant) -> bool {
        self.given_up += 1;
        self.again = Some(now + (PAUSE * self.given_up).min(MAX_PAUSE));
        self.given_up >= ATTEMPTS
    }

    fn reset(&mut self) {
        *self = Self::default();
    }
}

/// Window of a device that is being sampled.
#[derive(Debug)]
struct OpenWindow {
    context: ContextHandle,
    sampler: PcSampler,
    sample_counts: SampleCounts,
    window: PcWindow,
    end: Instant,
    next_fetch: Instant,
}

/// Action of a launch before it continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaunchAction {
    Open(u32),
    Fetch,
    Close,
}

impl SamplingState {
    /// Action that is due at a launch in a context.
    fn due(&self, context: ContextHandle, now: Instant) -> Option<LaunchAction> {
        if !self.attempts.is_due(now) {
            return None;
        }
        match &self.open {
            Some(open) if open.context != context => None,
            Some(open) if now >= open.end || self.is_stopping => Some(LaunchAction::Close),
            Some(open) => (now >= open.next_fetch).then_some(LaunchAction::Fetch),
            None => {
                self.waiting.iter().find(|(_, known)| *known == context).map(|&(device, _)| LaunchAction::Open(device))
            }
        }
    }

    /// Abandons an attempt because other threads were inside calls.
    fn give_up(&mut self, work: LaunchAction, now: Instant, at: Timestamp) {
        if self.attempts.give_up(now)
            && let LaunchAction::Open(device) = work
        {
            tracing::warn!("PC samples of device {device} are not sampled: other threads were always inside CUDA");
            self.refuse(device, Outcome::Disturbed, at);
        }
    }

    fn take_done(&mut self) -> Vec<PcWindow> {
        self.has_reported |= !self.done.is_empty();
        std::mem::take(&mut self.done)
    }

    /// Notes that a device is not sampled.
    fn refuse(&mut self, device: u32, outcome: Outcome, at: Timestamp) {
        self.waiting.retain(|&(known, _)| known != device);
        self.attempts.reset();
        self.done.push(refused(device, outcome, at));
    }
}

impl PcSampling {
    /// Creates PC sampling with windows of `length`.
    pub fn new(cupti: &'static Cupti, length: Duration) -> Self {
        Self {
            cupti,
            length,
            modules: Modules::default(),
            state: Mutex::default(),
            sending: Mutex::default(),
            is_armed: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }
    }

    /// Lets launches sample one window per device, and sends the results to the collector; on a thread of
    /// this library.
    pub fn run(&self, controller: &CaptureController, messages: &Sender<Message>) {
        let contexts = self.modules.contexts(self.cupti);
        let Some(&(first, _)) = contexts.first() else {
            tracing::warn!("program counters are not sampled: the program has loaded no module since gpuwhy began");
            return self.refuse_before_start(0, Outcome::NotLaunched, messages);
        };
        let Some(access) = COUNTER_ACCESS.take(ACCESS_TIMEOUT) else {
            return self.refuse_before_start(first, Outcome::Busy, messages);
        };
        let calls = library_calls::enter();
        let prepared = Counters::of(self.cupti).initialize();
        close_before_libraries();
        drop(calls);
        let most = (self.length + GRACE) * u32::try_from(contexts.len()).unwrap_or(1);
        {
            let mut state = self.state.lock();
            state.waiting = contexts;
            if let Err(error) = prepared {
                self.refuse_all(&mut state, Outcome::Refused(error.code.0));
            }
        }
        self.is_armed.store(true, Ordering::Release);
        let deadline = Instant::now() + most;
        loop {
            self.hand_on(messages);
            let mut state = self.state.lock();
            let is_over = self.is_over.load(Ordering::Relaxed);
            if is_over || !controller.is_on() || Instant::now() >= deadline {
                state.is_stopping = true;
                self.refuse_all(&mut state, Outcome::NotLaunched);
            }
            if state.waiting.is_empty() && state.open.is_none() {
                break;
            }
            drop(state);
            thread::sleep(POLL_INTERVAL);
        }
        self.is_armed.store(false, Ordering::Release);
        self.hand_on(messages);
        self.modules.close();
        drop(access);
    }

    fn refuse_before_start(&self, device: u32, outcome: Outcome, messages: &Sender<Message>) {
        self.state.lock().refuse(device, outcome, clock::now(self.cupti));
        self.hand_on(messages);
    }

    fn refuse_all(&self, state: &mut SamplingState, outcome: Outcome) {
        for (device, _) in std::mem::take(&mut state.waiting) {
            state.refuse(device, outcome, clock::now(self.cupti));
        }
    }

    /// Called at the start of a launch, on the program's thread: the only place where sampling starts and
    /// normally ends. The launch is not nested in another call, and no lock of the driver is held.
    pub fn launch_begins(&self, context: ContextHandle) {
        if !self.is_armed.load(Ordering::Acquire) || !CALL_BLOCKER.is_outermost() {
            return;
        }
        let Some(mut state) = self.state.try_lock() else { return };
        let Some(work) = state.due(context, Instant::now()) else { return };
        let Some(closed) = CALL_BLOCKER.close(PATIENCE) else {
            return state.give_up(work, Instant::now(), clock::now(self.cupti));
        };
        state.attempts.reset();
        match work {
            LaunchAction::Open(device) => {
                if let Err(error) = self.open(&mut state, device, context) {
                    tracing::warn!("PC samples of device {device} are not sampled: {error}");
                    let busy = error.code == CuptiResult::HARDWARE_BUSY;
                    let outcome = if busy { Outcome::Busy } else { Outcome::Refused(error.code.0) };
                    state.refuse(device, outcome, clock::now(self.cupti));
                }
            }
            LaunchAction::Fetch => state.open.iter_mut().for_each(OpenWindow::fetch),
            LaunchAction::Close => {
                let taken = state.open.take();
                state.done.extend(taken.map(|taken| self.close(taken)));
            }
        }
        drop(closed);
    }

    /// Prepares a device and starts sampling. The context is current.
    fn open(&self, state: &mut SamplingState, device: u32, context: ContextHandle) -> Result<(), Error> {
        let opened = clock::now(self.cupti);
        let sampler = PcSampler::open(Counters::of(self.cupti), context, PcSettings { period: PERIOD });
        close_before_libraries();
        let mut sampler = sampler?;
        start(&mut sampler)?;
        let begin = clock::now(self.cupti);
        tracing::debug!("device {device}: program counters every {} cycles", sampler.period_cycles());
        let window = PcWindow {
            device: DeviceId(device),
            opened,
            begin,
            period_cycles: sampler.period_cycles(),
            ..PcWindow::default()
        };
        state.waiting.retain(|&(known, _)| known != device);
        let (end, next_fetch) = (Instant::now() + self.length, Instant::now() + FETCH_EVERY);
        state.open =
            Some(OpenWindow { context, sampler, sample_counts: SampleCounts::default(), window, end, next_fetch });
        Ok(())
    }

    /// Ends sampling of a device, with the call blocker closed and its context current.
    fn close(&self, mut taken: OpenWindow) -> PcWindow {
        if let Err(error) = taken.sampler.stop() {
            tracing::debug!("{error}");
        }
        taken.window.end = clock::now(self.cupti);
        taken.fetch();
        let OpenWindow { sampler, mut sample_counts, mut window, .. } = taken;
        let reasons = sampler.reasons().to_vec();
        match sampler.close(|sample| sample_counts.take(&sample)) {
            Ok(fetched) => sample_counts.add(fetched),
            Err(error) => tracing::debug!("{error}"),
        }
        window.closed = clock::now(self.cupti);
        sample_counts.conclude(window, &reasons)
    }

    /// Abandons a window that cannot be closed because other threads are inside calls. CUPTI is not called,
    /// and keeps the memory that it writes to.
    fn leave(&self, taken: OpenWindow) -> PcWindow {
        let OpenWindow { sampler, sample_counts, mut window, .. } = taken;
        tracing::warn!("the last program counters are lost: other threads were inside CUDA at the end");
        let reasons = sampler.reasons().to_vec();
        sampler.abandon();
        window.end = clock::now(self.cupti);
        window.closed = window.end;
        let window = sample_counts.conclude(window, &reasons);
        let outcome = if window.outcome == Outcome::NotLaunched { Outcome::Disturbed } else { window.outcome };
        PcWindow { outcome, ..window }
    }

    /// Called before a context is destroyed, on the destroying thread, inside its call.
    pub fn context_ends(&self, context: ContextHandle, messages: &Sender<Message>) {
        self.modules.context_ends(context);
        let Some(mut state) = self.state.try_lock_for(CLOSE_TIMEOUT) else { return };
        let gone: Vec<_> =
            state.waiting.iter().filter(|(_, known)| *known == context).map(|&(device, _)| device).collect();
        for device in gone {
            state.refuse(device, Outcome::NotLaunched, clock::now(self.cupti));
        }
        let Some(taken) = state.open.take_if(|open| open.context == context) else { return };
        // The context that is destroyed is current.
        let window = match CALL_BLOCKER.close(PATIENCE) {
            Some(_closed) => self.close(taken),
            None => self.leave(taken),
        };
        state.done.push(window);
        drop(state);
        self.hand_on(messages);
    }

    /// Called at the end of the program or of measuring.
    pub fn finish(&self, messages: &Sender<Message>) {
        self.is_over.store(true, Ordering::Relaxed);
        self.is_armed.store(false, Ordering::Release);
        // Windows that another thread has taken are sent before this returns, after which the collector may
        // end.
        let _sending = self.sending.try_lock_for(CLOSE_TIMEOUT);
        let Some(mut state) = self.state.try_lock_for(CLOSE_TIMEOUT) else {
            tracing::warn!("program counters are lost: CUPTI was still starting or stopping to sample them at the end");
            return;
        };
        let waited = !state.waiting.is_empty();
        self.refuse_all(&mut state, Outcome::NotLaunched);
        // The lock is held until the window is closed: the thread that waits for it may end the process.
        if let Some(taken) = state.open.take() {
            let window = match CALL_BLOCKER.close(PATIENCE) {
                Some(_closed) => {
                    let _current = taken.context.make_current();
                    self.close(taken)
                }
                None => self.leave(taken),
            };
            state.done.push(window);
        }
        tracing::debug!(
            "waited for launches: {waited}; calls that passed the closed call blocker: {}",
            CALL_BLOCKER.passed()
        );
        if state.done.is_empty() && !state.has_reported {
            // The program ended before it had run enough.
            state.refuse(0, Outcome::NotLaunched, clock::now(self.cupti));
        }
        let done = state.take_done();
        drop(state);
        self.send(done, messages);
    }

    /// Sends the windows that launches have finished.
    fn hand_on(&self, messages: &Sender<Message>) {
        let Some(_sending) = self.sending.try_lock_for(CLOSE_TIMEOUT) else { return };
        let Some(mut state) = self.state.try_lock_for(CLOSE_TIMEOUT) else { return };
        let done = state.take_done();
        drop(state);
        self.send(done, messages);
    }

    fn send(&self, done: Vec<PcWindow>, messages: &Sender<Message>) {
        for mut window in done {
            let wanted: HashSet<u64> = window.functions.iter().map(|function| function.module).collect();
            let (modules, lost) = self.modules.of(Counters::of(self.cupti), &wanted);
            window.modules_lost = lost;
            // Fails only if the collector is dead.
            let _ = messages.try_send(Message::ProgramCounters(Box::new(SampledWindow { window, modules })));
        }
    }
}

impl OpenWindow {
    /// Takes over the available samples, with the call blocker closed.
    fn fetch(&mut self) {
        let Self { sampler, sample_counts, .. } = self;
        match sampler.fetch(|sample| sample_counts.take(&sample)) {
            Ok(fetched) => {
                sample_counts.add(fetched);
                if fetched.full {
                    // After that no more samples arrive.
                    self.end = Instant::now();
                }
            }
            Err(error) => tracing::debug!("{error}"),
        }
        self.next_fetch = Instant::now() + FETCH_EVERY;
    }
}

/// Starts sampling. Retries for a moment.
fn start(sampler: &mut PcSampler) -> Result<(), Error> {
    for _ in 1..START_ATTEMPTS {
        if sampler.start().is_ok() {
            return Ok(());
        }
        thread::sleep(START_AGAIN);
    }
    sampler.start()
}

fn refused(device: u32, outcome: Outcome, at: Timestamp) -> PcWindow {
    PcWindow { device: DeviceId(device), outcome, opened: at, closed: at, ..PcWindow::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_made_at_a_distance_and_not_for_ever() {
        let mut attempts = Attempts::default();
        let mut now = Instant::now();
        for number in 1..ATTEMPTS {
            assert!(attempts.is_due(now), "{number}");
            assert!(!attempts.give_up(now), "{number}");
            assert!(!attempts.is_due(now + PAUSE / 2), "not at the next launch");
            now += MAX_PAUSE;
        }
        assert!(attempts.is_due(now) && attempts.give_up(now), "the last one");
        attempts.reset();
        assert!(attempts.is_due(now) && !attempts.give_up(now), "another device has attempts of its own");
    }
}
