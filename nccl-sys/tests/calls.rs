//! The functions of the plugins, called as NCCL calls them.

use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::ptr::{null, null_mut};
use std::sync::Mutex;

use nccl_sys::abi::{BODY, Coll, CollApi, event};
use nccl_sys::{Communicator, Handler, NcclOperation, plugin_v4, plugin_v5, plugin_v6};

/// Calls that the handler received. All tests of this file share it, so there is only one.
static REPORTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn reported() -> Vec<String> {
    std::mem::take(&mut *REPORTED.lock().unwrap())
}

struct Recorder;

impl Handler for Recorder {
    fn begin(communicator: &Communicator<'_>) -> Option<u32> {
        let name = String::from_utf8_lossy(communicator.name).into_owned();
        let Communicator { id, nodes, ranks, rank, version, .. } = communicator;
        REPORTED.lock().unwrap().push(format!("begin {id:x} {name} {nodes} {ranks} {rank} {version:?}"));
        (*ranks > 1).then_some(7)
    }

    fn end(context: u32) {
        REPORTED.lock().unwrap().push(format!("end {context}"));
    }

    fn operation(context: u32, operation: &NcclOperation<'_>) {
        assert!(operation.count != 13, "a handler that fails");
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let NcclOperation { kind, count, sequence, root_or_peer, channels, .. } = operation;
        REPORTED.lock().unwrap().push(format!(
            "{context} {kind:?} {} {count} {} {sequence:?} {root_or_peer} {} {} {channels}",
            text(operation.function),
            text(operation.data_type),
            text(operation.algorithm),
            text(operation.protocol),
        ));
    }

    fn launch_begin(context: u32) {
        REPORTED.lock().unwrap().push(format!("launch {context}"));
    }

    fn launch_end(context: u32) {
        REPORTED.lock().unwrap().push(format!("launched {context}"));
    }
}

/// A descriptor made of complete words, so that structs in it are aligned.
#[repr(C)]
struct Descriptor<T> {
    kind: u64,
    parent: *const c_void,
    rank: c_int,
    body: T,
}

fn coll(count: usize) -> Coll {
    // SAFETY: all of its members are numbers or pointers, for which zero is valid.
    let nothing: Coll = unsafe { zeroed() };
    Coll {
        sequence: 41,
        function: c"AllReduce".as_ptr(),
        count,
        root: -1,
        data_type: c"ncclFloat32".as_ptr(),
        channels: 24,
        algorithm: c"RING".as_ptr(),
        protocol: c"SIMPLE".as_ptr(),
        ..nothing
    }
}

#[test]
fn the_handler_is_reported_what_nccl_says_and_nccl_always_succeeds() {
    let (v4, v5, v6) = (plugin_v4::<Recorder>(), plugin_v5::<Recorder>(), plugin_v6::<Recorder>());
    let (mut context, mut mask) = (null_mut(), 0);
    // SAFETY: as NCCL calls: variables of this function, NUL-terminated texts.
    unsafe {
        assert_eq!((v4.init)(&raw mut context, &raw mut mask, c"dp".as_ptr(), 0xabc, 1, 2, 1, null()), 0);
        assert_eq!((context.addr(), mask), (7, 6));
        assert_eq!((v5.init)(&raw mut context, 1, &raw mut mask, null(), 2, 8, 3, null()), 0);
        assert_eq!((context.addr(), mask), (7, 3590));
        assert_eq!((v6.init)(&raw mut context, 2, &raw mut mask, c"".as_ptr(), 2, 8, 3, null()), 0);
        assert_eq!((context.addr(), mask), (7, 7686));
    }
    assert_eq!(reported(), ["begin abc dp 1 2 1 V4", "begin 1  2 8 3 V5", "begin 2  2 8 3 V6"]);

    assert_eq!(std::mem::offset_of!(Descriptor<Coll>, body), BODY);
    // In version 4 only the first byte is the event.
    let old = Descriptor { kind: 0xffff_ff00 | event::COLL, parent: null(), rank: 0, body: coll(1024) };
    let new = Descriptor { kind: event::COLL, parent: null(), rank: 0, body: coll(1 << 40) };
    let mut handle = null_mut::<c_void>().wrapping_byte_add(99);
    // SAFETY: descriptors of the versions; variables of this function.
    unsafe {
        assert_eq!((v4.start)(context, &raw mut handle, (&raw const old).cast()), 0);
        assert!(handle.is_null(), "always written");
        assert_eq!((v5.start)(context, &raw mut handle, (&raw const new).cast()), 0);
        assert_eq!((v5.stop)(null_mut()), 0);
    }
    let expected = |count: u64| format!("7 Collective AllReduce {count} ncclFloat32 Some(41) -1 RING SIMPLE 24");
    assert_eq!(reported(), [expected(1024), expected(1 << 40)]);

    let launch = Descriptor { kind: event::KERNEL_LAUNCH, parent: null(), rank: 0, body: coll(0) };
    let broken = Descriptor { kind: event::COLL, parent: null(), rank: 0, body: coll(13) };
    // SAFETY: as above; handles and contexts that were never returned are numbers, which are not
    // dereferenced.
    unsafe {
        assert_eq!((v5.start)(context, &raw mut handle, (&raw const launch).cast()), 0);
        assert!(!handle.is_null());
        assert_eq!([(v5.stop)(handle), (v5.stop)(handle), (v5.record)(handle, 3, null())], [0; 3]);
        assert_eq!((v5.stop)(handle.wrapping_byte_add(1)), 0);
        assert_eq!((v5.stop)(null_mut::<c_void>().wrapping_byte_sub(1)), 0);
        assert_eq!((v5.start)(null_mut(), &raw mut handle, (&raw const new).cast()), 0);
        assert_eq!((v5.start)(context, null_mut(), null()), 0);
        assert_eq!((v5.start)(context, null_mut(), (&raw const launch).cast()), 0);
        assert_eq!((v5.start)(context, &raw mut handle, (&raw const broken).cast()), 0);
    }
    assert_eq!(reported(), ["launch 7", "launched 7", "launched 7", "launch 7"]);

    let call = |captured| CollApi {
        function: c"AllGather".as_ptr(),
        count: 5,
        data_type: c"ncclInt8".as_ptr(),
        root: 0,
        stream: null(),
        captured,
    };
    for (captured, expected) in [(0, vec![]), (1, vec!["7 Captured AllGather 5 ncclInt8 None 0   0".to_owned()])] {
        let call = Descriptor { kind: event::COLL_API, parent: null(), rank: 0, body: call(captured) };
        // SAFETY: as above.
        unsafe { assert_eq!((v5.start)(context, &raw mut handle, (&raw const call).cast()), 0) };
        assert_eq!(reported(), expected);
    }
    // SAFETY: as above.
    unsafe {
        // An untracked communicator has a NULL context.
        assert_eq!((v6.init)(&raw mut context, 3, &raw mut mask, null(), 1, 1, 0, null()), 0);
        assert!(context.is_null());
        assert_eq!((v6.finalize)(context), 0);
        assert_eq!((v6.finalize)(null_mut::<c_void>().wrapping_byte_add(7)), 0);
    }
    assert_eq!(reported(), ["begin 3  1 1 0 V6", "end 7"]);
}
