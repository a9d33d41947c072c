//! The thread `gpuwhy-kernels`: acquires the counters, prepares the metrics, enables launch callbacks, and
//! sends the results to the collector.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use cupti_sys::counters::Counters;
use cupti_sys::counters::host::{Collection, Host};
use cupti_sys::counters::range::{ContextHandle, RangePlan, RangeProfiler};
use cupti_sys::{Cupti, CuptiResult, Error, LAUNCHES};
use gpuwhy_report::capture::Captures;
use gpuwhy_report::kernels::{Choice, sets};
use gpuwhy_report::words::not_measured;
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::kernels::Outcome;
use gpuwhy_trace::record::Context;
use parking_lot::Mutex;

use crate::capture::controller::CaptureController;
use crate::config::{KernelRequest, WantedMetrics};
use crate::counters::access_lock::{COUNTER_ACCESS, CounterAccess};
use crate::counters::{close_before_libraries, library_calls};
use crate::kernels::measurement::{LaunchShape, Limits, Measurement};
use crate::shared::Message;
use crate::sys::clock;

/// Interval between two checks for finished profiles.
const PERIOD: Duration = Duration::from_millis(20);
/// Maximum wait for sampling to release the counters.
const ACCESS_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum wait for an open pass at the end of the program.
const LAST_PASS: Duration = Duration::from_secs(1);
/// Interval between two checks for its end.
const LAST_PASS_PERIOD: Duration = Duration::from_millis(1);
/// Wait of a thread of the program for the lock at the start of a launch: none.
const NO_TIME: Duration = Duration::ZERO;

/// State for measuring kernels, shared by the collector, the thread and the callbacks.
#[derive(Debug)]
pub struct KernelProfiler {
    cupti: &'static Cupti,
    request: KernelRequest,
    /// Passes the collector's choice to the thread, once.
    choices: Sender<Chosen>,
    is_chosen: AtomicBool,
    /// True if launches matter. `Acquire`/`Release`: a thread that sees it sees the state set before.
    is_armed: AtomicBool,
    /// True if everything is over. `Relaxed`: seeing it a moment later is fine.
    is_over: AtomicBool,
    state: Mutex<Option<MeasurementState>>,
    /// Launches that came during a measurement on another thread, or while it had the lock. `Relaxed`: a
    /// statistic.
    missed: AtomicU64,
}

#[derive(Debug)]
struct MeasurementState {
    measurement: Measurement<RangeProfiler>,
    /// Metrics to measure, until they are opened in the context of the first launch.
    plan: Option<RangePlan>,
}

/// Choice of the collector.
#[derive(Debug)]
pub struct Chosen {
    choices: Vec<Choice>,
    contexts: Vec<Context>,
}

impl KernelProfiler {
    /// Creates a profiler without a choice, and the receiver of the choice for [`run`](Self::run).
    pub fn new(cupti: &'static Cupti, request: KernelRequest) -> (Arc<Self>, Receiver<Chosen>) {
        let (choices, chosen) = bounded(1);
        let profiler = Self {
            cupti,
            request,
            choices,
            is_chosen: AtomicBool::new(false),
            is_armed: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            state: Mutex::new(None),
            missed: AtomicU64::new(0),
        };
        (Arc::new(profiler), chosen)
    }

    /// Chooses the kernels to measure once the program has run enough. Once; on the collector's thread.
    pub fn choose(&self, captures: &Captures, dictionary: &Dictionary) {
        if self.is_chosen.load(Ordering::Relaxed) || self.is_over.load(Ordering::Relaxed) {
            return;
        }
        let request = &self.request;
        let is_wanted = |name: &str| request.names.as_ref().is_none_or(|names| names.is_match(name));
        if let Some(choices) = captures.kernels_to_measure(request.most, is_wanted, dictionary) {
            self.is_chosen.store(true, Ordering::Relaxed);
            // The thread waits for this, or has ended.
            let _ = self.choices.try_send(Chosen { choices, contexts: dictionary.contexts().to_vec() });
        }
    }

    /// Main function of the thread: measures the chosen kernels, and ends.
    pub fn run(&self, chosen: &Receiver<Chosen>, controller: &CaptureController, messages: &Sender<Message>) {
        let chosen = loop {
            match chosen.recv_timeout(PERIOD) {
                Ok(chosen) => break chosen,
                Err(RecvTimeoutError::Timeout) if !self.is_over.load(Ordering::Relaxed) => {}
                Err(_) => return,
            }
        };
        if chosen.choices.is_empty() || self.is_over.load(Ordering::Relaxed) {
            return;
        }
        for choice in &chosen.choices {
            tracing::info!(
                "{}: {:.0} % of kernel time, to be measured",
                choice.candidate.demangled,
                choice.share * 100.0
            );
        }
        let measurement = Measurement::new(&chosen.choices, &chosen.contexts, Limits::OF_A_RUN);
        let device = chosen.choices.first().map_or(0, |choice| choice.candidate.device.0);
        // From here on `finish` reports the state of each kernel, even if the program ends early.
        *self.state.lock() = Some(MeasurementState { measurement, plan: None });
        let prepared = self.prepare(device);
        let mut locked = self.state.lock();
        let Some(state) = locked.as_mut() else { return };
        match prepared {
            Err(code) => {
                state.measurement.refuse(code);
                hand_on(&mut state.measurement, messages);
                *locked = None;
            }
            Ok((plan, access)) => {
                state.plan = Some(plan);
                drop(locked);
                self.is_armed.store(true, Ordering::Release);
                self.listen(controller, true);
                self.wait(controller, messages);
                self.listen(controller, false);
                self.is_armed.store(false, Ordering::Release);
                // Sampling may continue.
                drop(access);
            }
        }
    }

    /// Acquires the counters of the process and prepares the metrics of a device's chip: all steps that need
    /// no context.
    fn prepare(&self, device: u32) -> Result<(RangePlan, CounterAccess<'static>), u32> {
        let counters = Counters::of(self.cupti);
        let access = COUNTER_ACCESS.take(ACCESS_TIMEOUT).ok_or(CuptiResult::HARDWARE_BUSY.0)?;
        let calls = library_calls::enter();
        let prepared = counters.initialize().and_then(|()| counters.chip_name(device)).and_then(|chip| {
            match self.groups(counters, &chip)? {
                Some(groups) => RangePlan::new(counters, &chip, &groups).map(Some),
                None => Ok(None),
            }
        });
        close_before_libraries();
        drop(calls);
        match prepared {
            Ok(None) => Err(CuptiResult::MAX_LIMIT_REACHED.0),
            Ok(Some(plan)) => {
                for metric in plan.missing() {
                    tracing::warn!("this GPU does not have the metric {metric}");
                }
                Ok((plan, access))
            }
            Err(error) => {
                tracing::warn!("kernels are not measured: {error}");
                Err(error.code.0)
            }
        }
    }

    /// Names of the metrics to measure, in groups; `None` if too many are chosen.
    fn groups(&self, counters: &'static Counters, chip: &str) -> Result<Option<Vec<Vec<String>>>, Error> {
        if self.request.metrics.is_empty() {
            return Ok(Some(sets::groups()));
        }
        let catalog = Host::open(counters, Collection::Ranges, chip, None)?.catalog()?;
        let chosen = WantedMetrics::on_chip(&self.request.metrics, &catalog);
        for refusal in chosen.refusals(chip) {
            tracing::warn!("{refusal}");
        }
        if chosen.are_too_many() {
            return Ok(None);
        }
        Ok(Some(vec![chosen.names]))
    }

    fn listen(&self, controller: &CaptureController, on: bool) {
        for (domain, id, name) in LAUNCHES {
            // Older libraries lack some of these functions.
            if let Some(Err(error)) = controller.set_callback(domain, id, on) {
                tracing::debug!("launches by {name} are not seen: {error}");
            }
        }
    }

    /// Sends finished profiles until all kernels are done.
    fn wait(&self, controller: &CaptureController, messages: &Sender<Message>) {
        loop {
            thread::sleep(PERIOD);
            let mut state = self.state.lock();
            let Some(MeasurementState { measurement, .. }) = state.as_mut() else { return };
            // Between two captures no kernel is measured, and none is skipped.
            let is_on = controller.is_on() && !self.is_over.load(Ordering::Relaxed);
            self.is_armed.store(is_on, Ordering::Release);
            if is_on {
                measurement.tick(clock::now(self.cupti).nanos());
            }
            hand_on(measurement, messages);
            if measurement.is_over() && !measurement.is_in_pass() {
                let open = state.take();
                drop(state);
                // Outside of the lock: closing takes CUPTI 11 ms.
                drop(open);
                return;
            }
        }
    }

    /// Called before a launch. True if it is measured: then [`end_pass`](Self::end_pass) must follow on this
    /// thread.
    pub(super) fn begin_pass(&self, launch: &LaunchShape<'_>, context: ContextHandle) -> bool {
        if !self.is_armed.load(Ordering::Acquire) {
            return false;
        }
        let Some(mut locked) = self.state.try_lock_for(NO_TIME) else {
            self.missed.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        let Some(state) = locked.as_mut() else { return false };
        if !state.measurement.wants(launch) {
            return false;
        }
        if let Some(plan) = state.plan.take() {
            // Once, 150 ms: this needs the context, which is current here.
            match RangeProfiler::open(Counters::of(self.cupti), context, plan) {
                Ok(profiler) => state.measurement.open(profiler),
                Err((error, plan)) => {
                    tracing::warn!("kernels are not measured: {error}");
                    state.measurement.refuse(error.code.0);
                    // The thread drops it.
                    state.plan = Some(plan);
                    return false;
                }
            }
        }
        if state.measurement.counter().is_none_or(|counter| counter.context() != context) {
            return false;
        }
        state.measurement.begin_pass(launch, clock::now(self.cupti).nanos())
    }

    /// Called after the measured launch.
    pub(super) fn end_pass(&self) {
        // While a pass is open, other threads hold the lock only for a moment.
        if let Some(state) = self.state.lock().as_mut() {
            state.measurement.end_pass(|| clock::now(self.cupti).nanos());
        }
    }

    /// Ends measuring, with the program or before, and sends the profiles as they are. Waits for an open
    /// pass.
    pub fn finish(&self, messages: &Sender<Message>) {
        self.is_over.store(true, Ordering::Relaxed);
        self.is_armed.store(false, Ordering::Release);
        let deadline = Instant::now() + LAST_PASS;
        while let Some(mut state) = self.state.try_lock_until(deadline) {
            let Some(open) = state.as_mut() else { return };
            let is_late = Instant::now() >= deadline;
            if open.measurement.is_in_pass() && !is_late {
                drop(state);
                thread::sleep(LAST_PASS_PERIOD);
                continue;
            }
            open.measurement.end();
            hand_on(&mut open.measurement, messages);
            // A profiler with an open pass is left alone: closing it would disrupt the launch that uses it.
            let closed = open.measurement.close();
            drop(state);
            return drop(closed);
        }
    }
}

/// Sends the finished profiles to the collector.
fn hand_on(measurement: &mut Measurement<RangeProfiler>, messages: &Sender<Message>) {
    for profile in measurement.take_finished() {
        if let Some(why) = not_measured(profile.outcome).filter(|_| profile.outcome != Outcome::NotLaunched) {
            tracing::warn!("a kernel was not measured: {why}");
        }
        // Fails only if the collector is dead.
        let _ = messages.try_send(Message::KernelProfile(Box::new(profile)));
    }
}
