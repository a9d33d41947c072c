//! Samples of program counters: one window in each device, before kernels are measured.
//!
//! The order matters. After ranges were measured in a process samples had no program counters (seen once, H200, CUPTI
//! 13.0), and beside sampling of whole devices the process crashed later: `turns` keeps them apart. Continuous mode
//! alone: in the serialized one a program of many small kernels did not end.
//!
//! Whoever takes a device out of `open` closes it: the thread at the end of the window, the program's thread when the
//! context goes, or the flushing thread when the program ends.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use cupti_sys::counters::Counters;
use cupti_sys::counters::pc::{PcSampler, PcSettings};
use cupti_sys::counters::range::ContextHandle;
use cupti_sys::{Cupti, CuptiResult, Error};
use parking_lot::Mutex;
use profiler_core::kernels::Outcome;
use profiler_core::kernels::source::PcWindow;
use profiler_core::record::{DeviceId, Timestamp};

use crate::capture::controller::CaptureController;
use crate::counters::close_before_libraries;
use crate::counters::turns::{TURNS, Use};
use crate::kernels::modules::Modules;
use crate::kernels::tally::Tally;
use crate::message::{Message, SampledWindow};
use crate::sys::clock;

/// The power of two of cycles between two samples: 2^18 cost nothing that could be measured, and 2^14 took a third of a
/// core (H200, CUPTI 13.0).
const PERIOD: u32 = 18;
/// Between two fetches.
const FETCH_EVERY: Duration = Duration::from_millis(50);
/// How long sampling of whole devices has to give way.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);
/// Attempts to start before the last one, and what is between them.
const START_ATTEMPTS: u32 = 20;
const START_AGAIN: Duration = Duration::from_millis(10);
/// How long somebody else waits for a call of CUPTI's to return: the end of the program, or of a context.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// What samples program counters of a process.
#[derive(Debug)]
pub struct SourceSampler {
    cupti: &'static Cupti,
    length: Duration,
    /// What the program has loaded.
    pub modules: Modules,
    open: Mutex<Vec<OpenWindow>>,
    /// No more is opened. `Relaxed`: what matters is seen under the lock.
    is_over: AtomicBool,
    /// Whether a window was told about. `Relaxed`: asked when nobody else can change it.
    has_told: AtomicBool,
}

/// A device that is sampled.
#[derive(Debug)]
struct OpenWindow {
    context: ContextHandle,
    sampler: PcSampler,
    tally: Tally,
    window: PcWindow,
}

impl SourceSampler {
    /// One that samples for so long.
    pub fn new(cupti: &'static Cupti, length: Duration) -> Self {
        let (is_over, has_told) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { cupti, length, modules: Modules::default(), open: Mutex::default(), is_over, has_told }
    }

    /// Samples one window, on a thread of ours.
    pub fn run(&self, controller: &CaptureController, messages: &Sender<Message>) {
        let contexts = self.modules.contexts(self.cupti);
        let Some(&(first, _)) = contexts.first() else {
            tracing::warn!("program counters are not sampled: the program has loaded no module since gpuwhy began");
            return self.send(refused(0, Outcome::NotLaunched, clock::now(self.cupti)), messages);
        };
        let Some(turn) = TURNS.take(Use::ProgramCounters, TURN_TIMEOUT) else {
            return self.send(refused(first, Outcome::Busy, clock::now(self.cupti)), messages);
        };
        for (device, context) in contexts {
            // The lock is held until a refusal is told, so that nobody believes that nothing was tried.
            let mut open = self.open.lock();
            if let Err(error) = self.open(&mut open, device, context) {
                tracing::warn!("program counters of device {device} are not sampled: {error}");
                let busy = error.code == CuptiResult::HARDWARE_BUSY;
                let outcome = if busy { Outcome::Busy } else { Outcome::Refused(error.code.0) };
                self.send(refused(device, outcome, clock::now(self.cupti)), messages);
            }
        }
        let deadline = Instant::now() + self.length;
        while Instant::now() < deadline && controller.is_on() && self.fetch() {
            thread::sleep(FETCH_EVERY.min(deadline.saturating_duration_since(Instant::now())));
        }
        self.close_all(messages);
        self.modules.close();
        drop(turn);
    }

    /// Prepares a device and begins.
    fn open(&self, open: &mut Vec<OpenWindow>, device: u32, context: ContextHandle) -> Result<(), Error> {
        let counters = Counters::of(self.cupti);
        let opened = clock::now(self.cupti);
        if self.is_over.load(Ordering::Relaxed) {
            return Ok(());
        }
        counters.initialize()?;
        let _current = context.make_current();
        let sampler = PcSampler::open(counters, context, PcSettings { period: PERIOD });
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
        open.push(OpenWindow { context, sampler, tally: Tally::default(), window });
        Ok(())
    }

    /// Takes over what has come. Whether it is worth going on.
    fn fetch(&self) -> bool {
        let mut goes_on = false;
        for OpenWindow { sampler, tally, .. } in self.open.lock().iter_mut() {
            match sampler.fetch(|sample| tally.take(&sample)) {
                Ok(fetched) => {
                    tally.add(fetched);
                    // After that nothing comes any more.
                    goes_on |= !fetched.full;
                }
                Err(error) => tracing::debug!("{error}"),
            }
        }
        goes_on
    }

    /// A context is about to go. On the thread that destroys it, inside its call.
    pub fn context_ends(&self, context: ContextHandle, messages: &Sender<Message>) {
        self.modules.context_ends(context);
        let Some(mut open) = self.open.try_lock_for(CLOSE_TIMEOUT) else { return };
        let place = open.iter().position(|open| open.context == context);
        let Some(taken) = place.map(|place| open.swap_remove(place)) else { return };
        drop(open);
        self.close(taken, messages);
    }

    /// The program ends, or measuring does.
    pub fn finish(&self, messages: &Sender<Message>) {
        self.is_over.store(true, Ordering::Relaxed);
        self.close_all(messages);
        if !self.has_told.load(Ordering::Relaxed) {
            // It ended before enough had run.
            self.send(refused(0, Outcome::NotLaunched, clock::now(self.cupti)), messages);
        }
    }

    fn close_all(&self, messages: &Sender<Message>) {
        let Some(mut open) = self.open.try_lock_for(CLOSE_TIMEOUT) else { return };
        // The lock is held until all are closed: whoever waits for it may end the process.
        for taken in std::mem::take(&mut *open) {
            let _current = taken.context.make_current();
            self.close(taken, messages);
        }
    }

    fn close(&self, mut taken: OpenWindow, messages: &Sender<Message>) {
        let OpenWindow { sampler, tally, window, .. } = &mut taken;
        if let Err(error) = sampler.stop() {
            tracing::debug!("{error}");
        }
        window.end = clock::now(self.cupti);
        match sampler.fetch(|sample| tally.take(&sample)) {
            Ok(fetched) => tally.add(fetched),
            Err(error) => tracing::debug!("{error}"),
        }
        let reasons = sampler.reasons().to_vec();
        let OpenWindow { sampler, mut tally, mut window, .. } = taken;
        match sampler.close(|sample| tally.take(&sample)) {
            Ok(fetched) => tally.add(fetched),
            Err(error) => tracing::debug!("{error}"),
        }
        window.closed = clock::now(self.cupti);
        self.send(tally.conclude(window, &reasons), messages);
    }

    fn send(&self, mut window: PcWindow, messages: &Sender<Message>) {
        self.has_told.store(true, Ordering::Relaxed);
        let wanted: HashSet<u64> = window.functions.iter().map(|function| function.module).collect();
        let (modules, lost) = self.modules.of(Counters::of(self.cupti), &wanted);
        window.modules_lost = lost;
        // Refused only when the collector is dead.
        let _ = messages.try_send(Message::ProgramCounters(Box::new(SampledWindow { window, modules })));
    }
}

/// Begins to sample. Tried again for a moment: other profilers found that the device must be idle.
fn start(sampler: &mut PcSampler) -> Result<(), Error> {
    for _ in 0..START_ATTEMPTS {
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
