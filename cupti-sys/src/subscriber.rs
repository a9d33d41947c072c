//! The two registrations of a process: the subscriber to events, and the owner of the activity buffers.

use crate::abi::{self, Domain, ResourceCallback};
use crate::callbacks::{self, ActivityHandler, ResourceHandler};
use crate::cupti::{Cupti, Error, check};
use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

impl Cupti {
    /// Takes the one subscriber slot of this process, and notifies `H` of each new context.
    ///
    /// # Errors
    /// [`MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED`](crate::CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) if
    /// another profiler holds the slot; [`NOT_INITIALIZED`](crate::CuptiResult::NOT_INITIALIZED) or
    /// [`UNKNOWN`](crate::CuptiResult::UNKNOWN) if the driver does not match this library.
    pub fn subscribe<H: ResourceHandler>(&'static self) -> Result<Subscriber, Error> {
        let mut handle: abi::SubscriberHandle = ptr::null_mut();
        // SAFETY: `handle` is live; the trampoline is a function of this never-unloaded image and ignores its
        // user data.
        let code = unsafe {
            (self.symbols.subscribe)(&raw mut handle, Some(callbacks::resource::<H>), ptr::null_mut::<c_void>())
        };
        check("cuptiSubscribe", code)?;
        let subscriber = Subscriber { cupti: self, handle, calls: Mutex::default() };
        if let Err(error) = subscriber.enable_resource(ResourceCallback::CONTEXT_CREATED) {
            // A slot that delivers no events only keeps other tools out. The first of the two errors is the
            // more informative.
            let _ = subscriber.unsubscribe();
            return Err(error);
        }
        Ok(subscriber)
    }

    /// Makes `H` the owner of all activity buffers of this process, in place of the previous owner.
    ///
    /// # Errors
    /// If CUPTI refuses.
    pub fn register_callbacks<H: ActivityHandler>(&'static self) -> Result<(), Error> {
        callbacks::remember(self);
        // SAFETY: both trampolines are functions of this never-unloaded image with the types that CUPTI calls.
        let code = unsafe {
            (self.symbols.register_callbacks)(Some(callbacks::requested::<H>), Some(callbacks::completed::<H>))
        };
        check("cuptiActivityRegisterCallbacks", code)
    }
}

/// The subscriber slot. It is held until [`unsubscribe`](Self::unsubscribe) or the end of the process:
/// dropping the value has no effect, because CUPTI may have shut down at exit.
pub struct Subscriber {
    cupti: &'static Cupti,
    handle: abi::SubscriberHandle,
    /// API functions of which the handler is notified.
    calls: Mutex<Vec<(Domain, u32)>>,
}

// SAFETY: the handle is an opaque token; CUPTI's functions that take it may be called from any thread.
unsafe impl Send for Subscriber {}
// SAFETY: as above; the methods only pass the token on.
unsafe impl Sync for Subscriber {}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscriber")
    }
}

impl Subscriber {
    /// Also notifies the handler of this event.
    ///
    /// # Errors
    /// If this library does not know the callback.
    pub fn enable_resource(&self, callback: ResourceCallback) -> Result<(), Error> {
        self.enable(Domain::RESOURCE, callback.0)
    }

    /// Also notifies the handler at entry to and exit from each call of this API function. Every such call
    /// has this overhead, so functions that launch are enabled only for as long as needed.
    ///
    /// # Errors
    /// If this library does not know the function.
    pub fn enable_api(&self, domain: Domain, callback_id: u32) -> Result<(), Error> {
        self.enable(domain, callback_id)?;
        let mut calls = self.calls();
        if !calls.contains(&(domain, callback_id)) {
            calls.push((domain, callback_id));
        }
        Ok(())
    }

    /// Notifies the handler again of all API functions of [`enable_api`](Self::enable_api):
    /// [`Cupti::disable_api`] of a function also ends the notifications of it (seen with CUPTI 13.0.85).
    ///
    /// # Errors
    /// The first error of a function; the others are enabled.
    pub fn restore_api(&self) -> Result<(), Error> {
        self.calls().iter().map(|&(domain, id)| self.enable(domain, id)).fold(Ok(()), Result::and)
    }

    /// Stops notifying the handler of this API function.
    ///
    /// # Errors
    /// If this library does not know the function.
    pub fn disable_api(&self, domain: Domain, callback_id: u32) -> Result<(), Error> {
        self.calls().retain(|&call| call != (domain, callback_id));
        self.switch(0, domain, callback_id)
    }

    fn calls(&self) -> MutexGuard<'_, Vec<(Domain, u32)>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enable(&self, domain: Domain, callback_id: u32) -> Result<(), Error> {
        self.switch(1, domain, callback_id)
    }

    fn switch(&self, on: u32, domain: Domain, callback_id: u32) -> Result<(), Error> {
        // SAFETY: the handle came from `cuptiSubscribe` and is released only by `unsubscribe`, which consumes
        // `self`.
        let code = unsafe { (self.cupti.symbols.enable_callback)(on, self.handle, domain, callback_id) };
        check("cuptiEnableCallback", code)
    }

    /// Releases the slot.
    ///
    /// # Errors
    /// If CUPTI has already shut down, which is normal late at exit.
    pub fn unsubscribe(self) -> Result<(), Error> {
        // SAFETY: as above; the handle is not used again.
        check("cuptiUnsubscribe", unsafe { (self.cupti.symbols.unsubscribe)(self.handle) })
    }
}
