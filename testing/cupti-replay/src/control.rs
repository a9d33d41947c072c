//! Functions for the host program: they play, and tell how it went.
//!
//! They are no part of CUPTI, hence the prefix. Texts are copied into the caller's memory, cut to fit, without a
//! terminating zero; the answer is the full length.
#![expect(unsafe_code, reason = "C functions that take pointers")]

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::fault::Phase;
use crate::instance;
use crate::player::{Counts, Launch};
use crate::violation::{Rule, Violation};

/// Names the recording and the speed, in place of the environment. 0 is success; otherwise see
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
        // SAFETY: not NULL, and then a text as promised by the caller.
        let (path, speed) = unsafe { (CStr::from_ptr(path), CStr::from_ptr(speed)) };
        let path = PathBuf::from(OsStr::from_bytes(path.to_bytes()));
        i32::from(instance::open(path, &speed.to_string_lossy()).is_err())
    })
}

/// Why nothing can be played; length 0 when it can.
///
/// # Safety
/// `capacity` bytes at `text` are writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwhy_replay_error(text: *mut u8, capacity: usize) -> usize {
    // SAFETY: as promised by the caller.
    guard(0, || instance::player().err().map_or(0, |error| unsafe { copy(error, text, capacity) }))
}

/// Plays on to `until` nanoseconds after the start of the recording, `u64::MAX` for its end. 0 is success; 1 when
/// there is nothing to play, or in the child of a fork. One thread at a time.
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

/// `cuptiActivityFlushAll(1)` as another tool calls it, of which the client cannot know: if it flushes as well, that is
/// not held against it. 0 is success; 1 when there is nothing to flush, or in the child of a fork.
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

/// Calls the API function `name` on this thread, such as `cudaProfilerStart`: the subscriber hears of it as of a call
/// of the program. 0 is success; 1 when the recording has no such function, or in the child of a fork.
///
/// # Safety
/// `name` is NULL or a NUL-terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwhy_replay_call(name: *const c_char) -> i32 {
    guard(1, || match instance::player() {
        Ok(player) if !name.is_null() && !instance::is_forked() => {
            // SAFETY: not NULL, and then a text as promised by the caller.
            let name = unsafe { CStr::from_ptr(name) };
            i32::from(!player.call(&name.to_string_lossy()))
        }
        _ => 1,
    })
}

/// Between two launches: some of a program's own work.
const BETWEEN_LAUNCHES: Duration = Duration::from_millis(2);

/// Whether somebody listened to a launch.
static HEARD: AtomicBool = AtomicBool::new(false);

/// Launches the kernel `symbol` on this thread `times` times, with a shape of `grid`, `block` (three numbers each) and
/// dynamic shared memory. Waits before the first one until somebody listens to launches, `patience_ms` at most, unless
/// somebody did listen to an earlier one. Answers how many launches somebody listened to.
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
            // SAFETY: not NULL, and then a text and seven numbers as promised by the caller.
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
                    // A profiler whose thread holds a lock leaves out the launches that meet it: at once, all could.
                    thread::sleep(BETWEEN_LAUNCHES);
                }
            }
            heard
        }
        _ => 0,
    })
}

/// With `step` 0 launches until program counters are sampled, with 1 until that is over, `patience_ms` at most; with 2
/// ends the first context, as its destruction does; with 3 waits until a fault has struck. 0 is success.
#[unsafe(no_mangle)]
pub extern "C" fn gpuwhy_replay_program_counters(step: u32, patience_ms: u32) -> i32 {
    guard(1, || match instance::player() {
        Ok(player) if !instance::is_forked() => {
            if step == 2 {
                return i32::from(!player.end_context());
            }
            let deadline = Instant::now() + Duration::from_millis(patience_ms.into());
            let is_there = || {
                if step == 3 {
                    return player.faults.struck() > 0;
                }
                let objects = player.unit.objects();
                // What follows may need that no other thread is inside a call, however slowly they are scheduled.
                let is_there = objects.has_sampled && (step == 0 || objects.program_counters.is_empty());
                is_there && player.nothing_is_beside()
            };
            while !is_there() {
                if Instant::now() >= deadline {
                    return 1;
                }
                // Whoever samples may need launches of the program for it.
                player.launch_something();
                thread::sleep(Duration::from_millis(1));
            }
            0
        }
        _ => 1,
    })
}

/// Waits until the client has flushed so many times from here on, as a part of play: what the flushes before the last
/// one bring has come by then. Returns at once where the client has lent no buffer, has nothing enabled any more, or
/// has met a fault, such as a flush that hangs. 0 is success; 1 after `patience_ms`.
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

/// The driver's function `name` was called on this thread, by somebody who has no part in the recording: a `libcuda` of
/// a test tells it here.
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
            // SAFETY: not NULL, and then a text as promised by the caller.
            player.call_aside(&unsafe { CStr::from_ptr(name) }.to_string_lossy());
        }
    });
}

/// Length of the recording, nanoseconds; 0 when there is none.
#[unsafe(no_mangle)]
pub extern "C" fn gpuwhy_replay_duration() -> u64 {
    guard(0, || instance::player().map_or(0, |player| player.session.end().saturating_sub(player.session.origin.start)))
}

/// What became of the records so far. 0 is success.
///
/// # Safety
/// `counts` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwhy_replay_counts(counts: *mut Counts) -> i32 {
    guard(1, || match instance::player() {
        Ok(player) if !counts.is_null() && !instance::is_forked() => {
            // SAFETY: not NULL, and then valid as promised by the caller.
            unsafe { counts.write(player.counts()) };
            0
        }
        _ => 1,
    })
}

/// Text of the violation with this index; length 0 when there are no more.
///
/// # Safety
/// `capacity` bytes at `text` are writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwhy_replay_violation(index: usize, text: *mut u8, capacity: usize) -> usize {
    guard(0, || {
        // In a fork only the atomic counter is safe to look at.
        let list = if instance::is_forked() {
            let times = instance::calls_after_fork();
            let detail = "a CUPTI function".to_owned();
            if times > 0 { vec![Violation { rule: Rule::CallAfterFork, detail, times }] } else { Vec::new() }
        } else {
            instance::player().map_or_else(|_| Vec::new(), |player| player.violations.list())
        };
        // SAFETY: as promised by the caller.
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
        // SAFETY: at most `capacity` bytes, which the caller says are writable and nobody else's.
        unsafe { to.copy_from_nonoverlapping(text.as_ptr(), text.len().min(capacity)) };
    }
    text.len()
}
