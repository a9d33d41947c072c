//! Functions for the host program: they play, and report the outcome.
//!
//! They are not part of CUPTI, hence the prefix. Texts are copied into the caller's memory, truncated to fit,
//! without a terminating zero; the return value is the full length.
#![expect(unsafe_code, reason = "C functions that take pointers")]

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::fault::Phase;
use crate::instance;
use crate::player::{Counts, Launch};
use crate::violation::{Rule, Violation};

/// Sets the recording and the speed, in place of the environment. 0 is success; otherwise see
/// [`gpuwhy_replay_error`].
///
/// # Safety
/// Both are NUL-terminated texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwhy_replay_open(path: *const c_char, speed: *const c_char) -> i32 {
    guard(1, || {
        if path.is_null() || speed.is_null() {
            return 1;
        }
        // SAFETY: not NULL, so a text as guaranteed by the caller.
        let (path, speed) = unsafe { (CStr::from_ptr(path), CStr::from_ptr(speed)) };
        let path = PathBuf::from(OsStr::from_bytes(path.to_bytes()));
        i32::from(instance::open(path, &speed.to_string_lossy()).is_err())
    })
}

/// Why the recording cannot be played; length 0 if it can.
///
/// # Safety
/// `capacity` bytes at `text` are writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwhy_replay_error(text: *mut u8, capacity: usize) -> usize {
    // SAFETY: guaranteed by the caller.
    guard(0, || instance::player().err().map_or(0, |error| unsafe { copy(error, text, capacity) }))
}

/// Plays on to `until` nanoseconds after the start of the recording, `u64::MAX` for its end. 0 is success; 1
/// if there is no recording to play, or in the child of a fork. One thread at a time.
#[unsafe(no_mangle)]
pub extern "C" fn gpuwhy_replay_play(until: u64) -> i32 {
    guard(1, || match instance::player() {
        Ok(player) if !instance::is_forked() => {
            player.play(player.session.origin.start.saturating_add(until));
            0
        }
        _ => 1,
    })
}

/// `cuptiActivityFlushAll(1)` as called by another tool, which the client cannot know about: if the client
/// flushes at the same time, that is not a violation. 0 is success; 1 if there is no recording, or in the
/// child of a fork.
#[unsafe(no_mangle)]
pub extern "C" fn gpuwhy_replay_flush_of_another_tool() -> i32 {
    guard(1, || match instance::player() {
        Ok(player) if !instance::is_forked() => {
            player.flush_of_another_tool();
            0
        }
        _ => 1,
    })
}

/// Calls the API function `name`, such as `cudaProfilerStart`, on this thread: the subscriber is notified as
/// of a call of the program. 0 is success; 1 if the recording has no such function, or in the child of a
/// fork.
///
/// # Safety
/// `name` is NULL or a NUL-terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwhy_replay_call(name: *const c_char) -> i32 {
    guard(1, || match instance::player() {
        Ok(player) if !name.is_null() && !instance::is_forked() => {
            // SAFETY: not NULL, so a text as guaranteed by the caller.
            let name = unsafe { CStr::from_ptr(name) };
            i32::from(!player.call(&name.to_string_lossy()))
        }
        _ => 1,
    })
}

/// Calls the function `name`, which copies `bytes` or launches a graph, on this thread: the subscriber gets the
/// parameters. 0 is success; 1 if there is no such function, or in the child of a fork.
///
/// # Safety
/// `name` is NULL or a NUL-terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwhy_replay_submit(name: *const c_char, bytes: u64) -> i32 {
    guard(1, || match instance::player() {
        Ok(player) if !name.is_null() && !instance::is_forked() => {
            // SAFETY: not NULL, so a text as guaranteed by the caller.
            let name = unsafe { CStr::from_ptr(name) };
            i32::from(!player.submit(&name.to_string_lossy(), bytes))
        }
        _ => 1,
    })
}

/// Calls the function `name`, which takes or gives device memory, on this thread: the subscriber gets the parameters
/// and the result. 0 is success; 1 if there is no such function, or in the child of a fork.
///
/// # Safety
/// `name` is NULL or a NUL-terminated text; `parameters` are `count` readable words, laid out as those of the function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwhy_replay_memory(
    name: *const c_char,
    result: u32,
    parameters: *const u64,
    count: usize,
) -> i32 {
    guard(1, || match instance::player() {
        Ok(player) if !name.is_null() && !parameters.is_null() && !instance::is_forked() => {
            // SAFETY: not NULL, so a text and words as guaranteed by the caller.
            let (name, words) = unsafe { (CStr::from_ptr(name), slice::from_raw_parts(parameters, count)) };
            i32::from(!player.memory_call(&name.to_string_lossy(), result, words))
        }
        _ => 1,
    })
}

/// Time between two launches, for the program's own work.
const BETWEEN_LAUNCHES: Duration = Duration::from_millis(2);

/// True once a launch had a subscriber.
static HEARD: AtomicBool = AtomicBool::new(false);

/// Launches the kernel `symbol` on this thread `times` times, with a shape of `grid`, `block` (three numbers
/// each) and dynamic shared memory. Before the first launch, waits for a subscriber to launches,
/// `patience_ms` at most, unless an earlier launch had one. Returns the number of launches that had a
/// subscriber.
///
/// # Safety
/// `symbol` is NULL or a NUL-terminated text; `shape` points to seven numbers: grid, block, shared memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwhy_replay_launch(
    symbol: *const c_char,
    shape: *const u32,
    times: u32,
    patience_ms: u32,
) -> u32 {
    guard(0, || match instance::player() {
        Ok(player) if !symbol.is_null() && !shape.is_null() && !instance::is_forked() => {
            // SAFETY: not NULL, so a text and seven numbers as guaranteed by the caller.
            let (symbol, [a, b, c, d, e, f, shared_bytes]) =
                unsafe { (CStr::from_ptr(symbol).to_owned(), *shape.cast::<[u32; 7]>()) };
            let launch = Launch { symbol, grid: [a, b, c], block: [d, e, f], shared_bytes };
            let deadline = Instant::now() + Duration::from_millis(patience_ms.into());
            let mut heard = 0;
            while !HEARD.load(Ordering::Relaxed) && !player.is_heard() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
            for number in 0..times {
                let is_heard = player.is_heard();
                player.launch(&launch, 1_000_000 + number);
                if is_heard {
                    heard += 1;
                    HEARD.store(true, Ordering::Relaxed);
                    // A profiler skips launches that occur while its thread holds a lock: without a pause it
                    // could skip all of them.
                    thread::sleep(BETWEEN_LAUNCHES);
                }
            }
            heard
        }
        _ => 0,
    })
}

/// Waits until the client has flushed `times` times from here on, as a part of play: the records of all
/// flushes before the last one have then arrived. Returns at once if the client has lent no buffer, has
/// nothing enabled any more, or has met a fault, such as a flush that hangs. 0 is success; 1 after
/// `patience_ms`.
#[unsafe(no_mangle)]
pub extern "C" fn gpuwhy_replay_flushes(times: u32, patience_ms: u32) -> i32 {
    guard(1, || match instance::player() {
        Ok(player) if !instance::is_forked() => {
            player.faults.enter(Phase::Running);
            let (begun, patience) = (Instant::now(), Duration::from_millis(patience_ms.into()));
            let before = player.counts().flushes;
            while player.has_begun() && player.records() && player.faults.struck() == 0 {
                if player.counts().flushes >= before + u64::from(times) {
                    return 0;
                }
                if begun.elapsed() > patience {
                    return 1;
                }
                thread::sleep(Duration::from_millis(1));
            }
            0
        }
        _ => 1,
    })
}

/// Reports a call of the driver's function `name` on this thread, by a caller that has no part in the
/// recording: the `libcuda` of a test.
///
/// # Safety
/// `name` is NULL or a NUL-terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwhy_replay_call_aside(name: *const c_char) {
    guard((), || {
        if let Ok(player) = instance::player()
            && !name.is_null()
            && !instance::is_forked()
        {
            // SAFETY: not NULL, so a text as guaranteed by the caller.
            player.call_aside(&unsafe { CStr::from_ptr(name) }.to_string_lossy());
        }
    });
}

/// Length of the recording in nanoseconds; 0 if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn gpuwhy_replay_duration() -> u64 {
    guard(0, || instance::player().map_or(0, |player| player.session.end().saturating_sub(player.session.origin.start)))
}

/// Stores the counts of records by their outcome. 0 is success.
///
/// # Safety
/// `counts` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwhy_replay_counts(counts: *mut Counts) -> i32 {
    guard(1, || match instance::player() {
        Ok(player) if !counts.is_null() && !instance::is_forked() => {
            // SAFETY: not NULL, so valid as guaranteed by the caller.
            unsafe { counts.write(player.counts()) };
            0
        }
        _ => 1,
    })
}

/// Text of the violation with this index; length 0 if there are no more.
///
/// # Safety
/// `capacity` bytes at `text` are writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwhy_replay_violation(index: usize, text: *mut u8, capacity: usize) -> usize {
    guard(0, || {
        // In a forked child only the atomic counter is safe to read.
        let list = if instance::is_forked() {
            let times = instance::calls_after_fork();
            let detail = "a CUPTI function".to_owned();
            if times > 0 { vec![Violation { rule: Rule::CallAfterFork, detail, times }] } else { Vec::new() }
        } else {
            instance::player().map_or_else(|_| Vec::new(), |player| player.violations.list())
        };
        // SAFETY: guaranteed by the caller.
        list.get(index).map_or(0, |violation| unsafe { copy(&violation.to_string(), text, capacity) })
    })
}

fn guard<T>(otherwise: T, call: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(otherwise)
}

/// # Safety
/// `capacity` bytes at `to` are writable.
unsafe fn copy(text: &str, to: *mut u8, capacity: usize) -> usize {
    if !to.is_null() {
        // SAFETY: at most `capacity` bytes, which the caller guarantees to be writable and unshared.
        unsafe { to.copy_from_nonoverlapping(text.as_ptr(), text.len().min(capacity)) };
    }
    text.len()
}
