//! The C functions of libcupti, under their real names.
//!
//! Exactly those that `cupti-sys` looks up, plus two of other tools, which replace the clock and subscribe: a library
//! that exports more would invite a client to rely on functions that are not played. A symbol cannot be
//! hidden from a client according to the version that is played, so functions newer than that version exist
//! and return `API_NOT_IMPLEMENTED`, as `cupti-sys` does for a missing symbol.
//!
//! `host`, `sampling` and `ranges` have those of the hardware counters, of which `parameters` reads the structs.
//!
//! All pointers are checked for NULL and otherwise trusted, as in CUPTI.
#![expect(unsafe_code, reason = "a C library is made of unmangled functions that take pointers")]

pub mod host;
mod parameters;
pub mod ranges;
pub mod sampling;

use std::ffi::{c_char, c_void};
use std::ptr;

use cupti_sys::abi::{
    BufferCompleted, BufferRequested, Callback, Context, FLUSH_FORCED, GraphExec, GraphNode, SubscriberHandle,
    UnifiedMemoryConfig,
};
use cupti_sys::{Attribute, CuptiResult, Domain, Kind, ThreadIdType};

use crate::client::{self, BufferCallbacks};
use crate::clock::TimestampCallback;
use crate::ffi;
use crate::instance::answer;
use crate::player::Player;
use crate::violation::Rule;

/// CUDA 12.4, from which on an unknown kind has its own error code.
const UNKNOWN_KIND_VERSION: u32 = 22;
/// CUDA 12.5.
const FUNCTIONS_CAN_BE_CHOSEN: u32 = 23;
/// CUDA 13.0 update 1.
const KERNELS_CAN_BE_DISABLED: u32 = 130_001;
/// CUDA 13.2.
const STRUCT_SIZES: u32 = 130_200;

fn need(condition: bool) -> Result<(), CuptiResult> {
    if condition { Ok(()) } else { Err(CuptiResult::INVALID_PARAMETER) }
}

fn since(player: &Player, version: u32) -> Result<(), CuptiResult> {
    if player.session.origin.version >= version { Ok(()) } else { Err(CuptiResult::API_NOT_IMPLEMENTED) }
}

/// Size of the records of a kind, altered by a fault if one is set.
fn size_of_kind(player: &Player, kind: u32) -> Result<usize, CuptiResult> {
    let size = player.session.origin.sizes.get(&kind).copied().filter(|&size| size > 0);
    size.map(|size| player.faults.size(size)).ok_or(CuptiResult::INVALID_KIND)
}

/// Stores a result.
///
/// # Safety
/// `place` is NULL or valid for a write.
unsafe fn put<T>(place: *mut T, value: T) -> Result<(), CuptiResult> {
    need(!place.is_null())?;
    // SAFETY: not NULL, so valid as guaranteed by the caller.
    unsafe { place.write(value) };
    Ok(())
}

/// `cuptiGetVersion`
///
/// # Safety
/// `version` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetVersion(version: *mut u32) -> CuptiResult {
    // SAFETY: guaranteed by the caller.
    answer("cuptiGetVersion", |player| unsafe { put(version, player.session.origin.version) })
}

/// `cuptiActivityRegisterTimestampCallback`: for all clients, as with CUPTI. Recorded times do not change.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityRegisterTimestampCallback(clock: Option<TimestampCallback>) -> CuptiResult {
    answer("cuptiActivityRegisterTimestampCallback", |player| {
        player.clock.replace(clock.ok_or(CuptiResult::INVALID_PARAMETER)?);
        Ok(())
    })
}

/// `cuptiGetTimestamp`: the play clock, or the clock that has replaced it.
///
/// # Safety
/// `timestamp` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetTimestamp(timestamp: *mut u64) -> CuptiResult {
    // SAFETY: guaranteed by the caller.
    answer("cuptiGetTimestamp", |player| unsafe { put(timestamp, player.clock.client_time()) })
}

/// `cuptiGetCallbackName`: the names in the recording.
///
/// # Safety
/// `name` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetCallbackName(domain: Domain, id: u32, name: *mut *const c_char) -> CuptiResult {
    answer("cuptiGetCallbackName", |player| {
        need(!name.is_null())?;
        let known = player.session.name(domain.0, id).ok_or(CuptiResult::INVALID_PARAMETER)?;
        // SAFETY: guaranteed by the caller. The text lives as long as the library.
        unsafe { put(name, known.as_ptr()) }
    })
}

/// `cuptiSubscribe`
///
/// # Safety
/// `subscriber` is NULL or valid for a write; `callback` may be called from any thread until unsubscribed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiSubscribe(
    subscriber: *mut SubscriberHandle,
    callback: Option<Callback>,
    userdata: *mut c_void,
) -> CuptiResult {
    answer("cuptiSubscribe", |player| {
        need(!subscriber.is_null())?;
        let callback = callback.ok_or(CuptiResult::INVALID_PARAMETER)?;
        let handle = player.client().subscribe(callback, userdata.expose_provenance())?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(subscriber, ptr::without_provenance_mut(handle)) }
    })
}

/// `cuptiSubscribe_v2`, as other tools call it that allow further subscribers: the name and the previous subscriber's
/// name in the last argument are not read.
///
/// # Safety
/// As for [`cuptiSubscribe`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiSubscribe_v2(
    subscriber: *mut SubscriberHandle,
    callback: Option<Callback>,
    userdata: *mut c_void,
    _parameters: *mut c_void,
) -> CuptiResult {
    answer("cuptiSubscribe_v2", |player| {
        need(!subscriber.is_null())?;
        let callback = callback.ok_or(CuptiResult::INVALID_PARAMETER)?;
        let handle = player.client().subscribe_beside_others(callback, userdata.expose_provenance())?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(subscriber, ptr::without_provenance_mut(handle)) }
    })
}

/// `cuptiUnsubscribe`
#[unsafe(no_mangle)]
pub extern "C" fn cuptiUnsubscribe(subscriber: SubscriberHandle) -> CuptiResult {
    answer("cuptiUnsubscribe", |player| player.client().unsubscribe(subscriber.addr()))
}

/// `cuptiEnableCallback`: resource callbacks, and calls that the host program makes.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiEnableCallback(
    enable: u32,
    subscriber: SubscriberHandle,
    domain: Domain,
    id: u32,
) -> CuptiResult {
    answer("cuptiEnableCallback", |player| {
        player.client().enable_callback(enable != 0, subscriber.addr(), domain.0, id)
    })
}

/// `cuptiGetGraphExecId`
///
/// # Safety
/// `id` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetGraphExecId(exec: GraphExec, id: *mut u32) -> CuptiResult {
    answer("cuptiGetGraphExecId", |_| {
        let graph = ffi::id_of(exec).ok_or(CuptiResult::INVALID_PARAMETER)?;
        need(!id.is_null())?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(id, graph) }
    })
}

/// `cuptiGetGraphNodeId`
///
/// # Safety
/// `id` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetGraphNodeId(node: GraphNode, id: *mut u64) -> CuptiResult {
    answer("cuptiGetGraphNodeId", |_| {
        need(!node.is_null())?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(id, ffi::node_of(node)) }
    })
}

/// `cuptiActivityRegisterCallbacks`
///
/// # Safety
/// Both functions may be called from any thread until replaced, and keep the contract of CUPTI's buffers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityRegisterCallbacks(
    requested: Option<BufferRequested>,
    completed: Option<BufferCompleted>,
) -> CuptiResult {
    answer("cuptiActivityRegisterCallbacks", |player| {
        let (requested, completed) = requested.zip(completed).ok_or(CuptiResult::INVALID_PARAMETER)?;
        player.client().buffers = Some(BufferCallbacks { requested, completed });
        Ok(())
    })
}

/// `cuptiActivityEnable`
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnable(kind: Kind) -> CuptiResult {
    answer("cuptiActivityEnable", |player| set_kind(player, kind, true))
}

/// `cuptiActivityDisable`
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityDisable(kind: Kind) -> CuptiResult {
    answer("cuptiActivityDisable", |player| set_kind(player, kind, false))
}

fn set_kind(player: &Player, kind: Kind, on: bool) -> Result<(), CuptiResult> {
    size_of_kind(player, kind.0)?;
    if let (false, Some(callback)) = (on, ffi::callback_on_this_thread()) {
        player.violations.note(Rule::DisableInCallback, || format!("{kind}, from {callback}"));
    }
    let version = player.session.origin.version;
    if !on && kind == Kind::CONCURRENT_KERNEL && version < KERNELS_CAN_BE_DISABLED {
        player.violations.note(Rule::EarlyKernelDisable, || format!("the library played is version {version}"));
    }
    let concurrent = || player.client().filter.wants(Kind::CONCURRENT_KERNEL.0, None, player.clock.now());
    if on && kind == Kind::KERNEL && concurrent() {
        return Err(CuptiResult::NOT_COMPATIBLE);
    }
    if on && kind == Kind::GRAPH_TRACE && player.has_begun() {
        player.violations.note(Rule::LateGraphTrace, || "enabled after the first record".to_owned());
    }
    player.client().filter.set_kind(kind.0, on, player.clock.now());
    if on {
        player.enabled();
    }
    Ok(())
}

/// `cuptiActivityEnableRuntimeApi`, since 12.5
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnableRuntimeApi(id: u32, enable: u8) -> CuptiResult {
    answer("cuptiActivityEnableRuntimeApi", |player| set_function(player, Domain::RUNTIME, id, enable != 0))
}

/// `cuptiActivityEnableDriverApi`, since 12.5
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnableDriverApi(id: u32, enable: u8) -> CuptiResult {
    answer("cuptiActivityEnableDriverApi", |player| set_function(player, Domain::DRIVER, id, enable != 0))
}

fn set_function(player: &Player, domain: Domain, id: u32, on: bool) -> Result<(), CuptiResult> {
    since(player, FUNCTIONS_CAN_BE_CHOSEN)?;
    need(id != 0)?;
    let kind = client::api_kind(domain).ok_or(CuptiResult::INVALID_PARAMETER)?;
    let mut client = player.client();
    // As seen with CUPTI 13.0: accepted, but without effect unless a function of the domain was enabled when
    // CUDA started.
    if on && player.has_begun() && !client.filter.had_function_at(kind.0, player.clock.start()) {
        return Ok(());
    }
    client.filter.set_function(kind.0, id, on, player.clock.now());
    if !on {
        client.records_disabled(domain, id);
    }
    drop(client);
    if on {
        player.enabled();
    }
    Ok(())
}

/// `cuptiActivityConfigureUnifiedMemoryCounter`: what was recorded is played, so this chooses nothing.
///
/// # Safety
/// `config` is NULL or points to `count` configurations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityConfigureUnifiedMemoryCounter(
    config: *mut UnifiedMemoryConfig,
    count: u32,
) -> CuptiResult {
    answer("cuptiActivityConfigureUnifiedMemoryCounter", |_| need(!config.is_null() && count > 0))
}

/// `cuptiActivityFlushAll`
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityFlushAll(flag: u32) -> CuptiResult {
    answer("cuptiActivityFlushAll", |player| player.flush(flag & FLUSH_FORCED != 0))
}

/// `cuptiActivityGetNextRecord`: steps by the sizes of the library that made the recording.
///
/// # Safety
/// `valid` bytes at `buffer` are readable; `record` is NULL or valid for reads and writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityGetNextRecord(
    buffer: *mut u8,
    valid: usize,
    record: *mut *mut u8,
) -> CuptiResult {
    answer("cuptiActivityGetNextRecord", |player| {
        need(!buffer.is_null() && !record.is_null())?;
        // SAFETY: not NULL, so readable as guaranteed by the caller.
        let current = unsafe { record.read() };
        let offset = if current.is_null() {
            0
        } else {
            let offset = current.addr().checked_sub(buffer.addr()).ok_or(CuptiResult::INVALID_PARAMETER)?;
            // SAFETY: `buffer` has `valid` readable bytes.
            offset + unsafe { step(player, buffer, valid, offset) }?
        };
        // SAFETY: as above.
        unsafe { step(player, buffer, valid, offset) }?;
        // SAFETY: `step` found a complete record at `offset`, so it lies within the buffer; `record` is
        // valid.
        unsafe { put(record, buffer.add(offset)) }
    })
}

/// Size of the record at `offset`, which lies within the valid part.
///
/// # Safety
/// `valid` bytes at `buffer` are readable.
unsafe fn step(player: &Player, buffer: *const u8, valid: usize, offset: usize) -> Result<usize, CuptiResult> {
    let left = valid.saturating_sub(offset);
    if left < size_of::<u32>() {
        return Err(CuptiResult::MAX_LIMIT_REACHED);
    }
    // SAFETY: at least four bytes are left at `offset` of the readable part.
    let kind = unsafe { buffer.add(offset).cast::<u32>().read_unaligned() };
    let size = size_of_kind(player, kind).map_err(|unknown| {
        if player.session.origin.version < UNKNOWN_KIND_VERSION { CuptiResult::UNKNOWN } else { unknown }
    })?;
    if size <= left { Ok(size) } else { Err(CuptiResult::MAX_LIMIT_REACHED) }
}

/// `cuptiActivityGetNumDroppedRecords`: records since the last call, of all contexts and streams.
///
/// # Safety
/// `dropped` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityGetNumDroppedRecords(
    _context: Context,
    _stream: u32,
    dropped: *mut usize,
) -> CuptiResult {
    answer("cuptiActivityGetNumDroppedRecords", |player| {
        need(!dropped.is_null())?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(dropped, player.take_dropped()) }
    })
}

/// `cuptiActivitySetAttribute`
///
/// # Safety
/// `size` is NULL or readable; `value` is NULL or has `*size` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivitySetAttribute(
    attribute: Attribute,
    size: *mut usize,
    value: *mut c_void,
) -> CuptiResult {
    answer("cuptiActivitySetAttribute", |player| {
        need(!size.is_null() && !value.is_null())?;
        // SAFETY: not NULL, so readable as guaranteed by the caller.
        let size = unsafe { size.read() };
        // SAFETY: as above; an empty value is not read.
        let first = if size == 0 { 0 } else { unsafe { value.cast::<u8>().read() } };
        let by_thread = attribute == Attribute::PER_THREAD_ACTIVITY_BUFFER;
        let late = player.has_begun() || (by_thread && player.client().buffers.is_some());
        player.client().set_attribute(attribute.0, size, first)?;
        if late {
            player.violations.note(Rule::LateAttribute, || attribute.to_string());
        }
        Ok(())
    })
}

/// `cuptiSetThreadIdType`: thread ids stay as recorded.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiSetThreadIdType(kind: ThreadIdType) -> CuptiResult {
    answer("cuptiSetThreadIdType", |_| need(matches!(kind, ThreadIdType::DEFAULT | ThreadIdType::SYSTEM)))
}

/// `cuptiActivityGetStructSize`, since 13.2
///
/// # Safety
/// `size` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityGetStructSize(kind: Kind, _version: u32, size: *mut usize) -> CuptiResult {
    answer("cuptiActivityGetStructSize", |player| {
        since(player, STRUCT_SIZES)?;
        need(!size.is_null())?;
        // SAFETY: guaranteed by the caller.
        unsafe { put(size, size_of_kind(player, kind.0)?) }
    })
}
