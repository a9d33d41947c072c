//! Another profiler in the program, such as torch.profiler, which uses the CUPTI that the first one has
//! loaded.
//!
//! It follows Kineto's sequence: takes the slot, registers its own buffer callbacks, enables kernels; at its
//! end it disables them and flushes. In between it may replace CUPTI's clock, as Kineto does. Kineto then
//! keeps the slot until the end of the process, other tools release it.
#![expect(unsafe_code, reason = "calls the C functions of a libcupti")]

use std::ffi::{OsStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use cupti_sys::abi::{Callback, Context, GetTimestamp, RegisterCallbacks, SetKind, Subscribe, Unsubscribe};
use cupti_sys::{CuptiResult, Domain, Kind};
use libloading::os::unix::{Library, RTLD_LAZY};

/// Size of a buffer in bytes.
const BUFFER: usize = 1 << 20;

/// The handle that `cuptiSubscribe` returned, while the slot is held.
static SLOT: Mutex<Option<usize>> = Mutex::new(None);
/// Number of its own buffers that were returned with records; below it, true once it received a buffer that it
/// did not lend.
static FILLED: AtomicUsize = AtomicUsize::new(0);
static STRANGE: AtomicBool = AtomicBool::new(false);
/// Addresses of the buffers that it has lent.
static LENT: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// A clock that counts from an arbitrary start, like the processor's tick counter.
extern "C" fn ticks() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

extern "C" fn called(_: *mut c_void, _: Domain, _: u32, _: *const c_void) {}

unsafe extern "C" fn requested(address: *mut *mut u8, size: *mut usize, records: *mut usize) {
    let memory = Box::leak(vec![0_u64; BUFFER / 8].into_boxed_slice()).as_mut_ptr();
    if let Ok(mut lent) = LENT.lock() {
        lent.push(memory.addr());
    }
    // SAFETY: CUPTI passes three pointers to fill in.
    unsafe {
        address.write(memory.cast());
        size.write(BUFFER);
        records.write(0);
    }
}

unsafe extern "C" fn completed(_: Context, _: u32, address: *mut u8, _: usize, valid: usize) {
    let ours = LENT.lock().is_ok_and(|lent| lent.contains(&address.addr()));
    STRANGE.fetch_or(!ours, Ordering::SeqCst);
    FILLED.fetch_add(usize::from(ours && valid > 0), Ordering::SeqCst);
}

/// `cuptiActivityFlushAll(1)`, marked as a call of another tool.
type FlushOfAnother = extern "C" fn() -> i32;

/// Performs a step before the profiler is loaded, with the libcupti at `path`, which then stays loaded.
///
/// # Errors
/// As [`run_step`].
pub fn run_first(path: &OsStr, step: &str) -> Result<(), String> {
    // SAFETY: the replay library, which has no initializers with effects.
    let library = unsafe { Library::open(Some(path), RTLD_LAZY) };
    std::mem::forget(library.map_err(|error| format!("{}: {error}", path.to_string_lossy()))?);
    run_step(path, step)
}

/// Performs one of its steps with the libcupti at `path`, and prints the result to stderr.
///
/// # Errors
/// If the library is not loaded, lacks a function, or there is no such step.
pub fn run_step(path: &OsStr, step: &str) -> Result<(), String> {
    // SAFETY: RTLD_NOLOAD only finds libraries that are already loaded; no code runs.
    let library = unsafe { Library::open(Some(path), RTLD_LAZY | libc::RTLD_NOLOAD) }
        .map_err(|error| format!("{}: {error}", path.to_string_lossy()))?;
    let missing = |error: libloading::Error| error.to_string();
    // SAFETY: each name belongs to the C function of this type.
    let (subscribe, unsubscribe, register, enable, disable, flush, clock) = unsafe {
        (
            *library.get::<Subscribe>("cuptiSubscribe").map_err(missing)?,
            *library.get::<Unsubscribe>("cuptiUnsubscribe").map_err(missing)?,
            *library.get::<RegisterCallbacks>("cuptiActivityRegisterCallbacks").map_err(missing)?,
            *library.get::<SetKind>("cuptiActivityEnable").map_err(missing)?,
            *library.get::<SetKind>("cuptiActivityDisable").map_err(missing)?,
            *library.get::<FlushOfAnother>("gpuwhy_replay_flush_of_another_tool").map_err(missing)?,
            *library.get::<GetTimestamp>("cuptiGetTimestamp").map_err(missing)?,
        )
    };
    let mut slot = SLOT.lock().map_err(|_| "the other tool has panicked".to_owned())?;
    match step {
        "subscribe_v2" => {
            type SubscribeV2 =
                unsafe extern "C" fn(*mut *mut c_void, Option<Callback>, *mut c_void, *mut c_void) -> CuptiResult;
            let mut handle = ptr::null_mut();
            // SAFETY: the name belongs to the C function of this type; the variable is live, and the callback is a
            // function of this program.
            let code = unsafe {
                let subscribe = library.get::<SubscribeV2>("cuptiSubscribe_v2").map_err(missing)?;
                subscribe(&raw mut handle, Some(called), ptr::null_mut(), ptr::null_mut())
            };
            *slot = (code == CuptiResult::SUCCESS).then(|| handle.expose_provenance());
            eprintln!("other tool: {}: {code}", if slot.is_some() { "has CUPTI" } else { "refused" });
        }
        "begin" => {
            if slot.is_none() {
                let mut handle = ptr::null_mut();
                // SAFETY: the variable is live, and the callback is a function of this program.
                let code = unsafe { subscribe(&raw mut handle, Some(called), ptr::null_mut()) };
                if code != CuptiResult::SUCCESS {
                    eprintln!("other tool: refused: {code}");
                    return Ok(());
                }
                *slot = Some(handle.expose_provenance());
            }
            // SAFETY: functions of this program, which keep the contract of CUPTI's buffers; numbers.
            let codes = unsafe { [register(Some(requested), Some(completed)), enable(Kind::CONCURRENT_KERNEL)] };
            let mut now = 0;
            // SAFETY: the variable is live.
            unsafe { clock(&raw mut now) };
            eprintln!("other tool: has CUPTI: {codes:?} at {now} ns");
        }
        "pause" | "end" => {
            // A tool that was refused has no session to end, and would flush at the same time as the other
            // one. SAFETY: numbers, and the handle that `cuptiSubscribe` returned.
            unsafe {
                if slot.is_some() {
                    disable(Kind::CONCURRENT_KERNEL);
                    flush();
                }
                if let Some(handle) = slot.take_if(|_| step == "end") {
                    unsubscribe(ptr::with_exposed_provenance_mut(handle));
                }
            }
            let strange = if STRANGE.load(Ordering::SeqCst) { ", and some of another tool" } else { "" };
            eprintln!("other tool: {step}s with {} buffers{strange}", FILLED.load(Ordering::SeqCst));
        }
        "clock" => {
            type Register = extern "C" fn(Option<extern "C" fn() -> u64>) -> CuptiResult;
            // SAFETY: the name belongs to the C function of this type.
            let replace =
                unsafe { library.get::<Register>("cuptiActivityRegisterTimestampCallback") }.map_err(missing)?;
            eprintln!("other tool: clock: {}", replace(Some(ticks)));
        }
        _ => return Err(format!("otherTool={step}: give begin, subscribe_v2, clock, pause or end")),
    }
    Ok(())
}
