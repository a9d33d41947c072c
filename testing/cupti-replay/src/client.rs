//! Settings of the client: subscriber, buffer callbacks, kinds, attributes.
//!
//! Arguments are checked as the real library checks them, in its order: NULL and range first, then state.
//! Result codes are those of the CUPTI documentation; where it defines none, the code is the one that 12.9
//! and 13.0 return. Settings that change nothing in a replay (device-side buffer sizes, thread id type, flush
//! period) are checked and then ignored: thread ids are those of the recording.

use std::collections::BTreeSet;

use cupti_sys::abi::{BufferCompleted, BufferRequested, Callback};
use cupti_sys::{Attribute, CuptiResult, Domain, Kind};

use crate::filter::Filter;

/// The subscriber.
#[derive(Clone, Copy, Debug)]
pub struct Subscriber {
    /// The client's handle: unlike any other number, and never a valid pointer.
    pub handle: usize,
    /// The client's function.
    pub callback: Callback,
    /// The client's pointer, passed back unchanged.
    pub userdata: usize,
}

/// Source and destination of buffers.
#[derive(Clone, Copy, Debug)]
pub struct BufferCallbacks {
    /// Requests a buffer.
    pub requested: BufferRequested,
    /// Returns it.
    pub completed: BufferCompleted,
}

/// All settings of the client.
#[derive(Debug, Default)]
pub struct Client {
    /// Records that the client wants.
    pub filter: Filter,
    /// Set by `cuptiActivityRegisterCallbacks`.
    pub buffers: Option<BufferCallbacks>,
    /// True if the client guarantees zeroed buffers.
    pub zeroed_buffers: bool,
    subscriber: Option<Subscriber>,
    handles: usize,
    events: BTreeSet<(u32, u32)>,
}

/// First handle; later ones count up. Neither an address nor a small number, and different after each
/// subscription.
const FIRST_HANDLE: usize = 0x5ab5_c1be_0000_0000;

impl Client {
    /// `cuptiSubscribe`: returns the handle.
    ///
    /// # Errors
    /// [`CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED`] while there is a subscriber.
    pub fn subscribe(&mut self, callback: Callback, userdata: usize) -> Result<usize, CuptiResult> {
        if self.subscriber.is_some() {
            return Err(CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
        }
        self.handles += 1;
        let handle = FIRST_HANDLE + self.handles;
        self.subscriber = Some(Subscriber { handle, callback, userdata });
        Ok(handle)
    }

    /// `cuptiSubscribe_v2` of a tool that allows others beside it: returns the handle. As NVIDIA documents it for 13.3
    /// with driver 610, it excludes tools of the first interface, which this library plays.
    ///
    /// # Errors
    /// [`CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED`] if another tool has subscribed or registered buffers.
    pub fn subscribe_beside_others(&mut self, callback: Callback, userdata: usize) -> Result<usize, CuptiResult> {
        if self.buffers.is_some() {
            return Err(CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
        }
        self.subscribe(callback, userdata)
    }

    /// `cuptiUnsubscribe`.
    ///
    /// # Errors
    /// [`CuptiResult::INVALID_PARAMETER`] for a handle that is not the subscriber's.
    pub fn unsubscribe(&mut self, handle: usize) -> Result<(), CuptiResult> {
        self.known(handle)?;
        self.subscriber = None;
        self.events.clear();
        Ok(())
    }

    /// `cuptiEnableCallback`.
    ///
    /// # Errors
    /// [`CuptiResult::INVALID_PARAMETER`] for an unknown handle, domain or callback.
    pub fn enable_callback(&mut self, on: bool, handle: usize, domain: u32, id: u32) -> Result<(), CuptiResult> {
        self.known(handle)?;
        // API callbacks are accepted, but only for calls that the host program makes (`gpuwhy_replay_call`).
        if !(Domain::DRIVER.0..=Domain::STATE.0).contains(&domain) || id == 0 {
            return Err(CuptiResult::INVALID_PARAMETER);
        }
        if on {
            self.events.insert((domain, id));
        } else {
            self.events.remove(&(domain, id));
        }
        Ok(())
    }

    /// The records of an API function were disabled, which ends its callbacks too, as seen with CUPTI 13.0.
    pub fn records_disabled(&mut self, domain: Domain, id: u32) {
        self.events.remove(&(domain.0, id));
    }

    /// The subscriber, if it has subscribed to this callback.
    #[must_use]
    pub fn listener(&self, domain: Domain, id: u32) -> Option<Subscriber> {
        self.subscriber.filter(|_| self.events.contains(&(domain.0, id)))
    }

    /// `cuptiActivitySetAttribute`, with all of its error checks. `first` is the first byte of the value,
    /// `size` its size.
    ///
    /// # Errors
    /// [`CuptiResult::INVALID_PARAMETER`] for an unknown attribute,
    /// [`CuptiResult::PARAMETER_SIZE_NOT_SUFFICIENT`] for a value that is too narrow.
    pub fn set_attribute(&mut self, attribute: u32, size: usize, first: u8) -> Result<(), CuptiResult> {
        let width = attribute_width(attribute).ok_or(CuptiResult::INVALID_PARAMETER)?;
        if size < width {
            return Err(CuptiResult::PARAMETER_SIZE_NOT_SUFFICIENT);
        }
        if Attribute(attribute) == Attribute::ZEROED_OUT_ACTIVITY_BUFFER {
            self.zeroed_buffers = first != 0;
        }
        Ok(())
    }

    fn known(&self, handle: usize) -> Result<(), CuptiResult> {
        let known = self.subscriber.is_some_and(|subscriber| subscriber.handle == handle);
        if known { Ok(()) } else { Err(CuptiResult::INVALID_PARAMETER) }
    }
}

/// Size in bytes of an attribute's value. Attributes that only the second version of the API accepts are
/// unknown here.
const fn attribute_width(attribute: u32) -> Option<usize> {
    match attribute {
        // Sizes, limits and counts.
        0..=4 | 6 | 7 | 10 => Some(size_of::<usize>()),
        // Switches: zeroed buffers, pinned memory, buffers by thread.
        5 | 8 | 9 => Some(size_of::<u8>()),
        _ => None,
    }
}

/// Kind of the API records of a domain.
#[must_use]
pub const fn api_kind(domain: Domain) -> Option<Kind> {
    match domain {
        Domain::DRIVER => Some(Kind::DRIVER),
        Domain::RUNTIME => Some(Kind::RUNTIME),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::c_void;

    extern "C" fn ignore(_: *mut c_void, _: Domain, _: u32, _: *const c_void) {}

    #[test]
    fn one_subscriber_at_a_time() {
        let mut client = Client::default();
        let first = client.subscribe(ignore as extern "C" fn(_, _, _, _) as _, 0).unwrap();
        assert_eq!(client.subscribe(ignore as extern "C" fn(_, _, _, _) as _, 0), Err(CuptiResult(39)));
        assert_eq!(client.unsubscribe(first + 1), Err(CuptiResult(1)));
        assert_eq!(client.unsubscribe(first), Ok(()));
        assert_eq!(client.unsubscribe(first), Err(CuptiResult(1)));
        assert_ne!(
            client.subscribe(ignore as extern "C" fn(_, _, _, _) as _, 0),
            Ok(first),
            "an old handle must not open the new slot"
        );
    }

    #[test]
    fn events_end_with_the_subscription() {
        let mut client = Client::default();
        let handle = client.subscribe(ignore as extern "C" fn(_, _, _, _) as _, 7).unwrap();
        assert_eq!(client.enable_callback(true, handle + 1, 3, 1), Err(CuptiResult(1)));
        assert_eq!(client.enable_callback(true, handle, 0, 1), Err(CuptiResult(1)));
        assert_eq!(client.enable_callback(true, handle, 7, 1), Err(CuptiResult(1)));
        assert_eq!(client.enable_callback(true, handle, 3, 1), Ok(()));
        assert_eq!(client.listener(Domain::RESOURCE, 1).map(|subscriber| subscriber.userdata), Some(7));
        assert!(client.listener(Domain::RESOURCE, 5).is_none());
        client.unsubscribe(handle).unwrap();
        client.subscribe(ignore as extern "C" fn(_, _, _, _) as _, 8).unwrap();
        assert!(client.listener(Domain::RESOURCE, 1).is_none());
    }

    #[test]
    fn attributes_have_a_width() {
        let mut client = Client::default();
        assert_eq!(client.set_attribute(0, 4, 1), Err(CuptiResult(10)));
        assert_eq!(client.set_attribute(0, 8, 1), Ok(()));
        assert_eq!(client.set_attribute(99, 8, 1), Err(CuptiResult(1)));
        assert_eq!(client.set_attribute(5, 1, 1), Ok(()));
        assert!(client.zeroed_buffers);
    }
}
