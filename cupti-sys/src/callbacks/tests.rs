//! The trampolines, called as CUPTI calls them.
//!
//! Handlers are static, so each test has its own handler type with its own counters.

use super::*;
use crate::buffer::lent_buffers;
use std::sync::atomic::{AtomicU64, Ordering};

/// Calls the request trampoline; returns address, size and record limit.
fn request<H: ActivityHandler>() -> (*mut u8, usize, usize) {
    let (mut address, mut size, mut limit) = (ptr::dangling_mut(), usize::MAX, usize::MAX);
    // SAFETY: pointers to three live locals, as CUPTI passes them.
    unsafe { requested::<H>(&raw mut address, &raw mut size, &raw mut limit) };
    (address, size, limit)
}

fn complete<H: ActivityHandler>(address: *mut u8, valid: usize) {
    // SAFETY: the trampoline itself checks that the address was lent.
    unsafe { completed::<H>(ptr::without_provenance_mut(0x77), 7, address, 4096, valid) };
}

#[test]
fn a_buffer_goes_out_and_comes_back_with_its_records() {
    static BYTES: AtomicU64 = AtomicU64::new(0);
    struct Handler;
    impl ActivityHandler for Handler {
        fn buffer_requested() -> Option<Buffer> {
            Buffer::new(4096)
        }
        fn buffer_completed(buffer: CompletedBuffer) {
            assert_eq!((buffer.context(), buffer.stream()), (0x77, 7));
            BYTES.fetch_add(buffer.bytes().len() as u64, Ordering::Relaxed);
        }
        fn buffer_discarded(_: u64) {}
    }
    let (address, size, limit) = request::<Handler>();
    assert_eq!((size, limit, address as usize % 8), (4096, 0, 0));
    assert!(lent_buffers() >= 1);
    complete::<Handler>(address, 40);
    assert_eq!(BYTES.load(Ordering::Relaxed), 40);
    complete::<Handler>(address, 40);
    assert_eq!(BYTES.load(Ordering::Relaxed), 40, "the second return of one buffer is not ours");
}

#[test]
fn memory_of_others_is_reported_and_left_alone() {
    static FOREIGN: AtomicU64 = AtomicU64::new(0);
    struct Handler;
    impl ActivityHandler for Handler {
        fn buffer_requested() -> Option<Buffer> {
            None
        }
        fn buffer_completed(_: CompletedBuffer) {
            FOREIGN.fetch_add(1_000_000, Ordering::Relaxed);
        }
        fn buffer_discarded(_: u64) {}
        fn foreign_buffer(bytes: usize) {
            FOREIGN.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
    let mut others = [7_u64; 8];
    complete::<Handler>(others.as_mut_ptr().cast(), 64);
    complete::<Handler>(ptr::null_mut(), 0);
    assert_eq!(FOREIGN.load(Ordering::Relaxed), 64);
    assert_eq!(others, [7; 8]);
}

#[test]
fn without_memory_old_libraries_get_a_buffer_to_throw_away_and_new_ones_null() {
    assert_eq!(answer(None, true), (ptr::null_mut(), 0));
    let (address, size) = answer(None, false);
    assert_eq!(size, DISCARD_BYTES);
    let (buffer, returned) = take_back(address).unwrap();
    assert_eq!((buffer.capacity(), returned.purpose), (DISCARD_BYTES, Purpose::Discard));
}

#[test]
fn a_panic_ends_at_the_border() {
    struct Handler;
    impl ActivityHandler for Handler {
        fn buffer_requested() -> Option<Buffer> {
            panic!("no buffer");
        }
        fn buffer_completed(_: CompletedBuffer) {
            panic!("no use for it");
        }
        fn buffer_discarded(_: u64) {}
    }
    impl ResourceHandler for Handler {
        fn context_created() {
            panic!("no context");
        }
    }
    // No library is registered here, so the reply is the one that every library survives.
    let (address, size, _) = request::<Handler>();
    assert_eq!(size, DISCARD_BYTES);
    drop(take_back(address).unwrap());

    let (address, _) = Buffer::new(64).unwrap().lend(Purpose::Deliver);
    complete::<Handler>(address, 64);
    assert!(take_back(address).is_none());

    // SAFETY: the trampoline dereferences neither pointer.
    unsafe { resource::<Handler>(ptr::null_mut(), Domain::RESOURCE, 1, ptr::null()) };
}

#[test]
fn only_the_subscribed_resource_events_reach_the_handler() {
    static CREATED: AtomicU64 = AtomicU64::new(0);
    struct Handler;
    impl ResourceHandler for Handler {
        fn context_created() {
            CREATED.fetch_add(1, Ordering::Relaxed);
        }
        fn graph_node_created(node: u64) {
            assert_eq!(node, 0, "no library to query");
            CREATED.fetch_add(100, Ordering::Relaxed);
        }
        fn graph_node_cloned(node: u64, original: u64) {
            assert_eq!((node, original), (0, 0), "no library to query");
            CREATED.fetch_add(10_000, Ordering::Relaxed);
        }
        fn graph_instantiated(_: u32) {
            CREATED.fetch_add(1_000_000, Ordering::Relaxed);
        }
    }
    let events = [1, 5, 2, 13, 20].map(|event| (Domain::RESOURCE, event));
    for (domain, callback) in events.into_iter().chain([(Domain::RUNTIME, 1)]) {
        // SAFETY: the trampoline dereferences neither pointer.
        unsafe { resource::<Handler>(ptr::null_mut(), domain, callback, ptr::null()) };
    }
    assert_eq!(CREATED.load(Ordering::Relaxed), 10_101);
    // A graph without a name: no data, no descriptor, and no library to query.
    let nothing = ptr::null_mut();
    let graph = GraphData {
        graphs: [nothing; 2],
        node: nothing,
        original: nothing,
        node_type: 0,
        dependency: nothing,
        exec: nothing,
    };
    let empty = ResourceData { context: ptr::null_mut(), stream: ptr::null_mut(), descriptor: ptr::null() };
    let described =
        ResourceData { context: ptr::null_mut(), stream: ptr::null_mut(), descriptor: (&raw const graph).cast() };
    for data in [ptr::null(), (&raw const empty).cast(), (&raw const described).cast()] {
        // SAFETY: NULL, or data of this callback that lives as long as the call.
        unsafe { resource::<Handler>(ptr::null_mut(), Domain::RESOURCE, 18, data) };
    }
    assert_eq!(CREATED.load(Ordering::Relaxed), 10_101);
    // Nodes without ids are still counted.
    for callback in [13, 20] {
        // SAFETY: as above.
        unsafe { resource::<Handler>(ptr::null_mut(), Domain::RESOURCE, callback, (&raw const described).cast()) };
    }
    assert_eq!(CREATED.load(Ordering::Relaxed), 20_201);
}

#[test]
fn api_calls_reach_the_handler_with_their_site() {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    struct Handler;
    impl ResourceHandler for Handler {
        fn context_created() {}
        fn api_called(domain: Domain, callback_id: u32, site: CallbackSite) {
            assert_eq!((domain, callback_id), (Domain::DRIVER, 7));
            CALLS.fetch_add(if site == CallbackSite::ENTER { 1 } else { 100 }, Ordering::Relaxed);
        }
    }
    for site in [CallbackSite::ENTER, CallbackSite::EXIT] {
        // SAFETY: all zeroes is a valid value of integers and raw pointers.
        let data = ApiCallbackData { site, ..unsafe { std::mem::zeroed() } };
        // SAFETY: the data is a live local of the type that this domain uses.
        unsafe { resource::<Handler>(ptr::null_mut(), Domain::DRIVER, 7, (&raw const data).cast()) };
    }
    // SAFETY: NULL is not dereferenced.
    unsafe { resource::<Handler>(ptr::null_mut(), Domain::DRIVER, 7, ptr::null()) };
    assert_eq!(CALLS.load(Ordering::Relaxed), 101);
}
