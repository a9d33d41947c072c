//! The C functions of a plugin, one set for each [`Handler`].
//!
//! A panic ends here, and the return value is always success: NCCL continues as without a plugin.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::abi::{self, Head, Plugin, PluginV4, PluginV5, SUCCESS, event};
use crate::handler::{Communicator, Handler, NcclOperation, OperationKind, Version};

/// Maximum length of a text in bytes; longer texts are cut. NCCL's own names are shorter, names of
/// communicators are unbounded.
pub const MAX_TEXT: usize = 128;

/// Name of the plugin in NCCL's log.
const NAME: &CStr = c"gpuwhy";

/// Low bits of the handle of a launch event. All other handles are not ours.
const LAUNCH: usize = 0x4c;
const TAG_BITS: u32 = 8;

macro_rules! plugins {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $init:ident, $start:ident;)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub const fn $name<H: Handler>() -> $type {
            Plugin {
                name: NAME.as_ptr(),
                init: $init::<H>,
                start: $start::<H>,
                stop: stop::<H>,
                record,
                finalize: finalize::<H>,
            }
        }
    )*};
}

plugins! {
    /// The symbol `ncclProfiler_v4`.
    plugin_v4: PluginV4 = init_v4, start_v4;
    /// The symbol `ncclProfiler_v5`.
    plugin_v5: PluginV5 = init_v5, start_v5;
    /// The symbol `ncclProfiler_v6`.
    plugin_v6: PluginV5 = init_v6, start_v6;
}

/// A context or handle: the number itself, never dereferenced.
fn number(handle: *mut c_void) -> u32 {
    u32::try_from(handle.addr()).unwrap_or(0)
}

fn guarded(work: impl FnOnce()) -> c_int {
    let _ = catch_unwind(AssertUnwindSafe(work));
    SUCCESS
}

/// The text at `text`, cut; empty if `text` is NULL.
///
/// # Safety
/// `text` is NULL, or its bytes up to and including the first NUL, but no more than the first [`MAX_TEXT`],
/// are readable and do not change during `'a`.
unsafe fn read_text<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: each byte up to the first NUL is readable, and no byte after it is read.
    let length = (0..MAX_TEXT).find(|&at| unsafe { *text.add(at) } == 0).unwrap_or(MAX_TEXT);
    // SAFETY: these bytes were just read.
    unsafe { std::slice::from_raw_parts(text.cast(), length) }
}

/// # Safety
/// `context` and `mask` are writable, `name` is as in [`read_text`].
unsafe fn init<H: Handler>(
    version: Version,
    (context, mask): (*mut *mut c_void, *mut c_int),
    (id, name): (u64, *const c_char),
    [nodes, ranks, rank]: [c_int; 3],
) -> c_int {
    guarded(|| {
        // SAFETY: guaranteed by the caller.
        let name = unsafe { read_text(name) };
        let [nodes, ranks, rank] = [nodes, ranks, rank].map(|count| u32::try_from(count).unwrap_or(0));
        let given = H::begin(&Communicator { id, name, nodes, ranks, rank, version });
        let events = match version {
            Version::V4 => event::MASK_V4,
            Version::V5 => event::MASK_V5,
            Version::V6 => event::MASK_V6,
        };
        if !context.is_null() {
            // SAFETY: guaranteed by the caller.
            unsafe { context.write(ptr::without_provenance_mut(given.unwrap_or(0) as usize)) };
        }
        // All communicators share one mask: events that another communicator needs stay on. The operations of
        // a communicator without a context are ignored.
        if !mask.is_null() {
            // SAFETY: guaranteed by the caller.
            unsafe { mask.write(events) };
        }
    })
}

/// Defines NCCL's entry points of one version: `init`, whose arguments changed their order once, and
/// `startEvent`.
macro_rules! entry {
    ($version:ident, $start:ident, $init:ident($($argument:ident: $type:ty),*), $mask:ident $id:ident $name:ident) => {
        unsafe extern "C" fn $init<H: Handler>(
            context: *mut *mut c_void,
            $($argument: $type,)*
            nodes: c_int,
            ranks: c_int,
            rank: c_int,
            _log: *const c_void,
        ) -> c_int {
            // SAFETY: NCCL passes its own variables and a text or NULL.
            unsafe { init::<H>(Version::$version, (context, $mask), ($id, $name), [nodes, ranks, rank]) }
        }

        unsafe extern "C" fn $start<H: Handler>(
            context: *mut c_void,
            handle: *mut *mut c_void,
            descriptor: *const c_void,
        ) -> c_int {
            // SAFETY: NCCL passes its own variable and a descriptor of this version.
            unsafe { start::<H>(Version::$version, context, handle, descriptor) }
        }
    };
}

entry!(V4, start_v4, init_v4(mask: *mut c_int, name: *const c_char, id: u64), mask id name);
entry!(V5, start_v5, init_v5(id: u64, mask: *mut c_int, name: *const c_char), mask id name);
entry!(V6, start_v6, init_v6(id: u64, mask: *mut c_int, name: *const c_char), mask id name);

/// # Safety
/// `handle` is NULL or writable; `descriptor` is NULL or a descriptor of `version`.
unsafe fn start<H: Handler>(
    version: Version,
    context: *mut c_void,
    handle: *mut *mut c_void,
    descriptor: *const c_void,
) -> c_int {
    if !handle.is_null() {
        // NCCL keeps some handles in thread-local variables, so one is always written. SAFETY: guaranteed by
        // the caller.
        unsafe { handle.write(ptr::null_mut()) };
    }
    let context = number(context);
    if descriptor.is_null() || context == 0 {
        return SUCCESS;
    }
    guarded(|| {
        // SAFETY: guaranteed by the caller; version 4 guarantees one byte.
        let kind = unsafe {
            match version {
                Version::V4 => u64::from(*descriptor.cast::<u8>()),
                Version::V5 | Version::V6 => (*descriptor.cast::<Head>()).kind,
            }
        };
        if kind == event::KERNEL_LAUNCH && version != Version::V4 {
            if !handle.is_null() {
                let launch = (context as usize) << TAG_BITS | LAUNCH;
                // SAFETY: guaranteed by the caller.
                unsafe { handle.write(ptr::without_provenance_mut(launch)) };
            }
            H::launch_begin(context);
            return;
        }
        // SAFETY: guaranteed by the caller.
        if let Some(operation) = unsafe { operation(version, kind, descriptor.byte_add(abi::BODY)) } {
            H::operation(context, &operation);
        }
    })
}

/// The operation that a descriptor reports, if any.
///
/// # Safety
/// `body` is at [`abi::BODY`] of a descriptor of `version` whose event is `kind`. Its texts are constants of
/// NCCL.
unsafe fn operation<'a>(version: Version, kind: u64, body: *const c_void) -> Option<NcclOperation<'a>> {
    let plain = NcclOperation {
        kind: OperationKind::Captured,
        function: &[],
        count: 0,
        data_type: &[],
        sequence: None,
        root_or_peer: 0,
        algorithm: &[],
        protocol: &[],
        channels: 0,
    };
    // SAFETY: the caller guarantees that the struct of each event is at `body`, and the texts in it.
    unsafe {
        Some(match (kind, version) {
            (event::COLL, _) => {
                let coll = &*body.cast::<abi::Coll>();
                NcclOperation {
                    kind: OperationKind::Collective,
                    function: read_text(coll.function),
                    count: coll.count as u64,
                    data_type: read_text(coll.data_type),
                    sequence: Some(coll.sequence),
                    root_or_peer: coll.root,
                    algorithm: read_text(coll.algorithm),
                    protocol: read_text(coll.protocol),
                    channels: coll.channels,
                }
            }
            (event::P2P, _) => {
                let p2p = &*body.cast::<abi::P2p>();
                NcclOperation {
                    kind: OperationKind::PointToPoint,
                    function: read_text(p2p.function),
                    count: p2p.count as u64,
                    data_type: read_text(p2p.data_type),
                    root_or_peer: p2p.peer,
                    channels: p2p.channels,
                    ..plain
                }
            }
            (event::CE_COLL, Version::V6) => {
                let coll = &*body.cast::<abi::CeColl>();
                NcclOperation {
                    kind: OperationKind::CopyEngine,
                    function: read_text(coll.function),
                    count: coll.count as u64,
                    data_type: read_text(coll.data_type),
                    sequence: Some(coll.sequence),
                    root_or_peer: coll.root,
                    ..plain
                }
            }
            (event::COLL_API, Version::V5 | Version::V6) => {
                let call = body.cast::<abi::CollApi>();
                if (*call).captured == 0 {
                    return None;
                }
                let (function, data_type) = (read_text((*call).function), read_text((*call).data_type));
                NcclOperation { function, data_type, count: (*call).count as u64, root_or_peer: (*call).root, ..plain }
            }
            (event::P2P_API, Version::V5 | Version::V6) => {
                let call = body.cast::<abi::P2pApi>();
                if (*call).captured == 0 {
                    return None;
                }
                let (function, data_type) = (read_text((*call).function), read_text((*call).data_type));
                NcclOperation { function, data_type, count: (*call).count as u64, ..plain }
            }
            _ => return None,
        })
    }
}

unsafe extern "C" fn stop<H: Handler>(handle: *mut c_void) -> c_int {
    guarded(|| {
        let handle = handle.addr();
        if handle & ((1 << TAG_BITS) - 1) == LAUNCH
            && let Ok(context) = u32::try_from(handle >> TAG_BITS)
        {
            H::launch_end(context);
        }
    })
}

unsafe extern "C" fn record(_handle: *mut c_void, _state: c_int, _arguments: *const c_void) -> c_int {
    SUCCESS
}

unsafe extern "C" fn finalize<H: Handler>(context: *mut c_void) -> c_int {
    guarded(|| {
        let context = number(context);
        if context != 0 {
            H::end(context);
        }
    })
}
