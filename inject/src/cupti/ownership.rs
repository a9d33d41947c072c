//! Ownership of CUPTI's only subscriber, and of its buffers while the subscriber is left to other tools.
//!
//! CUPTI serves one tool per process. The tool with the subscriber keeps the others out, and is not notified
//! when one is refused. Records are made without the subscriber too, but then another tool replaces the
//! buffer callbacks when it starts, and shares the enabled kinds. Three properties make it possible to leave
//! the subscriber to other tools nevertheless, each measured with CUPTI 13.0.85 on an H200:
//!
//! * A call that this library makes has a record, for which CUPTI requests a buffer from this library on the
//!   calling thread. If it does not, another tool has the callbacks ([`CuptiOwnership::answers`]).
//! * Enabling `KERNEL` records is refused (NOT_COMPATIBLE, without any change) exactly while
//!   `CONCURRENT_KERNEL` records are on: this shows, without disturbing it, whether a tool that disables its
//!   kinds is done ([`CuptiOwnership::is_another_tool_recording`]).
//! * After that, callbacks that are registered again deliver records again. Individually enabled API
//!   functions do not: a tool that disables a complete kind of calls ends them for good, and from then on
//!   complete kinds are needed ([`CuptiOwnership::was_shared`]).

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use cupti_sys::{ActivityHandler, Cupti, CuptiResult, Error, Kind, ResourceHandler, Subscriber, ThreadIdType};
use parking_lot::{Mutex, MutexGuard};

use crate::config::CuptiSharing;
use crate::sys::clock;

thread_local! {
    /// True if CUPTI has requested a buffer on this thread since this was last set to false.
    static ASKED: Cell<bool> = const { Cell::new(false) };
}

/// Notes that CUPTI requests a buffer on this thread.
pub fn asked() {
    ASKED.set(true);
}

/// Ownership of CUPTI. The thread that enables or disables holds the
/// [`TracingSwitch`](super::toggle::TracingSwitch), so [`claim`](Self::claim) never runs on two threads.
pub struct CuptiOwnership {
    cupti: &'static Cupti,
    register: fn(&'static Cupti) -> Result<(), Error>,
    /// Locked on threads of this library, and on that of `cuInit`. A panic leaves it valid: it is one value.
    held: Mutex<Option<Subscriber>>,
    /// `Relaxed`, like the next ones: dependent data is ordered by the switch, or may be seen a moment later.
    yields: AtomicBool,
    /// True if the buffer callbacks are this library's, as far as is known.
    ours: AtomicBool,
    /// True if another tool has the buffer callbacks.
    taken: AtomicBool,
    shared: AtomicBool,
    /// True if a call of this library ever caused a buffer request: only then is a missing request
    /// meaningful.
    answered: AtomicBool,
    /// True if the user has been warned about another tool's clock.
    clock_logged: AtomicBool,
}

impl fmt::Debug for CuptiOwnership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CuptiOwnership").field("held", &self.held).field("yields", &self.yields).finish_non_exhaustive()
    }
}

impl CuptiOwnership {
    /// Acquires the subscriber, and releases it again if it is left to other tools. Fails if another tool has
    /// it, or if CUPTI cannot initialize.
    pub fn open<H: ActivityHandler + ResourceHandler>(
        cupti: &'static Cupti,
        sharing: CuptiSharing,
    ) -> Result<Self, Error> {
        let ownership = Self { held: Mutex::new(Some(cupti.subscribe::<H>()?)), ..Self::left_alone::<H>(cupti) };
        if sharing == CuptiSharing::Yield {
            ownership.set_yields(true);
            ownership.give_back();
        }
        Ok(ownership)
    }

    /// Does not acquire the subscriber: for a run without records.
    pub fn left_alone<H: ActivityHandler + ResourceHandler>(cupti: &'static Cupti) -> Self {
        Self {
            cupti,
            register: Cupti::register_callbacks::<H>,
            held: Mutex::new(None),
            yields: AtomicBool::new(false),
            ours: AtomicBool::new(false),
            taken: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            answered: AtomicBool::new(false),
            clock_logged: AtomicBool::new(false),
        }
    }

    /// Registers the buffer callbacks for the first time. Fails if CUPTI refuses.
    pub fn register(&self) -> Result<(), Error> {
        (self.register)(self.cupti)?;
        self.ours.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Ensures that the buffers are this library's. Call it before anything is enabled, and after another
    /// tool has had the buffers. Fails with [`CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED`] while another tool
    /// records, and for good once one has set its own clock in CUPTI.
    pub fn claim(&self) -> Result<(), Error> {
        if !self.is_yielded() || self.ours.load(Ordering::Relaxed) {
            return Ok(());
        }
        let foreign_clock = clock::is_on_foreign_clock(self.cupti);
        if foreign_clock && !self.clock_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "another tool has left its own clock in CUPTI; recording stays off, and the time is counted as unobserved"
            );
        }
        if foreign_clock || self.is_another_tool_recording() {
            self.taken.store(true, Ordering::Relaxed);
            return Err(Error {
                function: "cuptiActivityEnable",
                code: CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED,
            });
        }
        self.register()?;
        // Other tools choose another kind of thread id. If this fails, the report lacks the link to host
        // threads.
        let _ = self.cupti.set_thread_id_type(ThreadIdType::SYSTEM);
        self.shared.store(true, Ordering::Relaxed);
        self.taken.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Notes that all kinds of this library are off: from now on, another tool may come and go unnoticed.
    pub fn leave(&self) {
        self.ours.store(false, Ordering::Relaxed);
    }

    /// Notes that another tool has the buffers. It gets those that CUPTI still holds for this library.
    pub fn lose(&self) {
        self.leave();
        self.taken.store(true, Ordering::Relaxed);
    }

    /// Notes that the buffers are still this library's.
    pub fn keep(&self) {
        self.ours.store(true, Ordering::Relaxed);
        self.taken.store(false, Ordering::Relaxed);
    }

    /// True if another tool has the buffers, as far as is known.
    pub fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Relaxed)
    }

    /// True if other tools may have switched off what they had not switched on.
    pub fn was_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// True if the subscriber is left to other tools.
    pub fn is_yielded(&self) -> bool {
        self.yields.load(Ordering::Relaxed) && self.held().is_none()
    }

    /// True if CUPTI requests buffers from this library, which is tested by a call with a record
    /// (`cuDriverGetVersion`). `None` if that cannot be determined. Call it once between two flushes on one
    /// thread, since a flush takes the buffer of the last call.
    pub fn answers(&self) -> Option<bool> {
        ASKED.set(false);
        cupti_sys::driver_cuda_version()?;
        let asked = ASKED.get();
        self.answered.fetch_or(asked, Ordering::Relaxed);
        (asked || self.answered.load(Ordering::Relaxed)).then_some(asked)
    }

    /// True if kernel records are on. Only meaningful while this library's are off.
    pub fn is_another_tool_recording(&self) -> bool {
        match self.cupti.enable(Kind::KERNEL) {
            Ok(()) => {
                let _ = self.cupti.disable(Kind::KERNEL);
                false
            }
            Err(error) => error.code == CuptiResult::NOT_COMPATIBLE,
        }
    }

    /// Releases the subscriber.
    pub fn give_back(&self) {
        let subscriber = self.held().take();
        if let Some(subscriber) = subscriber {
            // Late at exit CUPTI may be gone, which has the same effect.
            let _ = subscriber.unsubscribe();
        }
    }

    /// Sets whether the subscriber is left to other tools from now on; it is released once recording is off.
    /// Returns the previous setting.
    pub fn set_yields(&self, yields: bool) -> bool {
        self.yields.swap(yields, Ordering::Relaxed)
    }

    /// True if the subscriber is held, and is to be released as soon as recording is off.
    pub fn is_wanted(&self) -> bool {
        self.yields.load(Ordering::Relaxed) && self.held().is_some()
    }

    /// Runs `work` with the subscriber, if it is held.
    pub fn with<T>(&self, work: impl FnOnce(&Subscriber) -> T) -> Option<T> {
        self.held().as_ref().map(work)
    }

    fn held(&self) -> MutexGuard<'_, Option<Subscriber>> {
        self.held.lock()
    }
}
