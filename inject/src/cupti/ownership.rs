//! Who has CUPTI's one subscriber, and who its buffers while the subscriber is left to other tools.
//!
//! CUPTI serves one tool in a process. Who holds the subscriber keeps the others out, and is not told that one was
//! refused. Records are made without the subscriber too, but then another tool that comes replaces the callbacks for
//! buffers, and what is enabled is shared with it. Three things make it possible to leave the subscriber to others all
//! the same, each measured with CUPTI
//! 13.0.85 on an H200:
//!
//! * A call that this library makes has a record, for which CUPTI asks this library for a buffer on the calling thread.
//!   If it does not ask, somebody else has the callbacks ([`CuptiOwnership::answers`]).
//! * Enabling `KERNEL` records is refused (NOT_COMPATIBLE, and nothing changes) exactly while `CONCURRENT_KERNEL`
//!   records are on: whether a tool that disables what it enabled is done can be seen without disturbing it
//!   ([`CuptiOwnership::is_somebody_recording`]).
//! * After that, callbacks registered again bring records again. API functions chosen one by one do not: whoever
//!   disables a whole kind of calls ends that for good, and from then on the whole kinds are needed
//!   ([`CuptiOwnership::was_shared`]).

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use cupti_sys::{ActivityHandler, Cupti, CuptiResult, Error, Kind, ResourceHandler, Subscriber, ThreadIdType};
use parking_lot::{Mutex, MutexGuard};

use crate::config::CuptiSharing;
use crate::sys::clock;

thread_local! {
    /// Whether CUPTI has asked for a buffer on this thread since this was last set to false.
    static ASKED: Cell<bool> = const { Cell::new(false) };
}

/// CUPTI asks for a buffer on this thread.
pub fn asked() {
    ASKED.set(true);
}

/// Who has CUPTI. Whoever enables or disables holds the [`TracingSwitch`](super::toggle::TracingSwitch), so
/// [`claim`](Self::claim) is never in two threads.
pub struct CuptiOwnership {
    cupti: &'static Cupti,
    register: fn(&'static Cupti) -> Result<(), Error>,
    /// Taken on threads of this library, and on that of `cuInit`. A panic leaves it whole: it is one value.
    held: Mutex<Option<Subscriber>>,
    /// `Relaxed`, as the next ones: what depends on them is ordered by the turn, or may be seen a moment later.
    yields: AtomicBool,
    /// Whether the callbacks are ours alone, as far as is known.
    ours: AtomicBool,
    /// Whether somebody else has them.
    taken: AtomicBool,
    shared: AtomicBool,
    /// Whether a call of ours was ever answered by a request: only then does silence say something.
    answered: AtomicBool,
    /// Whether the user knows of another tool's clock.
    clock_logged: AtomicBool,
}

impl fmt::Debug for CuptiOwnership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CuptiOwnership").field("held", &self.held).field("yields", &self.yields).finish_non_exhaustive()
    }
}

impl CuptiOwnership {
    /// Takes it, and lets go of it again if it is left to others. Fails when another tool has it, or CUPTI cannot
    /// initialize.
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

    /// Does not touch it: for a run in which nothing is recorded.
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

    /// Becomes the owner of all buffers for the first time. Fails when CUPTI refuses.
    pub fn register(&self) -> Result<(), Error> {
        (self.register)(self.cupti)?;
        self.ours.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// To be called before anything is enabled, and when another tool has had the buffers: makes sure that they are
    /// ours.
    ///
    /// # Errors
    /// [`CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED`] while another tool records, and for good once one has given
    /// CUPTI its own clock.
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
        if foreign_clock || self.is_somebody_recording() {
            self.taken.store(true, Ordering::Relaxed);
            return Err(Error {
                function: "cuptiActivityEnable",
                code: CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED,
            });
        }
        self.register()?;
        // Other tools choose another kind of thread id. Refused, it costs the report the link to host threads.
        let _ = self.cupti.set_thread_id_type(ThreadIdType::SYSTEM);
        self.shared.store(true, Ordering::Relaxed);
        self.taken.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// From here on somebody else may come and go without a trace: nothing of ours is on.
    pub fn leave(&self) {
        self.ours.store(false, Ordering::Relaxed);
    }

    /// Somebody else has the buffers. Those that CUPTI has of ours go to it.
    pub fn lose(&self) {
        self.leave();
        self.taken.store(true, Ordering::Relaxed);
    }

    /// They are ours after all.
    pub fn keep(&self) {
        self.ours.store(true, Ordering::Relaxed);
        self.taken.store(false, Ordering::Relaxed);
    }

    /// Whether somebody else has the buffers, as far as is known.
    pub fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether others may have switched off what they had not switched on.
    pub fn was_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// Whether the subscriber is left to others.
    pub fn is_yielded(&self) -> bool {
        self.yields.load(Ordering::Relaxed) && self.held().is_none()
    }

    /// Whether CUPTI asks us for buffers, found out by a call with a record (`cuDriverGetVersion`). `None` when that
    /// cannot be found out here. To be called once between two flushes on one thread, since a flush takes the buffer of
    /// the last time.
    pub fn answers(&self) -> Option<bool> {
        ASKED.set(false);
        cupti_sys::driver_cuda_version()?;
        let asked = ASKED.get();
        self.answered.fetch_or(asked, Ordering::Relaxed);
        (asked || self.answered.load(Ordering::Relaxed)).then_some(asked)
    }

    /// Whether records of kernels are on. Only says something about others while none of ours are.
    pub fn is_somebody_recording(&self) -> bool {
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
            // Late at exit CUPTI may be gone, which is as good.
            let _ = subscriber.unsubscribe();
        }
    }

    /// Whether it is to be left to others from now on; it is let go of when nothing is on. Answers what held before.
    pub fn set_yields(&self, yields: bool) -> bool {
        self.yields.swap(yields, Ordering::Relaxed)
    }

    /// Whether it is held, and to be left to others as soon as nothing of ours is on.
    pub fn is_wanted(&self) -> bool {
        self.yields.load(Ordering::Relaxed) && self.held().is_some()
    }

    /// Does something with it while it is held.
    pub fn with<T>(&self, work: impl FnOnce(&Subscriber) -> T) -> Option<T> {
        self.held().as_ref().map(work)
    }

    fn held(&self) -> MutexGuard<'_, Option<Subscriber>> {
        self.held.lock()
    }
}
