//! The GPU of a test without a GPU: the replay library that the collector of this process has loaded.
//!
//! The environment must be set before a process starts, so a test starts itself again: the outer half is
//! [`inside`], the inner half is an ignored test that plays.
#![expect(unsafe_code, reason = "calls C functions of the replay library")]

use std::process::{Command, Output};

use libloading::os::unix::{Library, RTLD_LAZY};

use crate::support::{Stage, stderr};

/// Runs the ignored test `name` of this binary in a separate process, without libprof.so, with `fixture` as
/// its GPU; `set` may change its environment.
pub fn inside(stage: &Stage, fixture: &str, name: &str, set: impl FnOnce(&mut Command)) -> Output {
    let mut command = stage.program(fixture, std::env::current_exe().unwrap());
    command.env_remove("CUDA_INJECTION64_PATH").env_remove("NVTX_INJECTION64_PATH").env_remove("GPUWHY_OUTPUT");
    command.args(["--ignored", "--exact", "--nocapture", name]);
    set(&mut command);
    let output = command.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
    assert!(text.contains("running 1 test"), "no test {name}: {text}");
    output
}

/// As [`inside`], and the inner half must pass.
pub fn passes(stage: &Stage, fixture: &str, name: &str, set: impl FnOnce(&mut Command)) {
    let output = inside(stage, fixture, name, set);
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
}

/// The replay library in this process, which the collector has loaded.
fn library() -> Library {
    let path = std::env::var_os("GPUWHY_CUPTI_PATH").unwrap();
    // SAFETY: only finds a library that is already loaded; no code runs.
    unsafe { Library::open(Some(path), RTLD_LAZY | 4) }.expect("the collector has loaded the replay library")
}

/// Plays the recording up to this time after its start.
pub fn play_until(millis: u64) {
    // SAFETY: the function with this name has this type; both are built together.
    let play = unsafe { *library().get::<extern "C" fn(u64) -> i32>("gpuwhy_replay_play").unwrap() };
    assert_eq!(play(millis.saturating_mul(1_000_000)), 0);
}

/// Plays the recording to its end.
pub fn play_out() {
    play_until(u64::MAX);
}

/// Sets a clock of this process in CUPTI, as torch.profiler does.
pub fn replace_clock() {
    type Register = extern "C" fn(Option<extern "C" fn() -> u64>) -> u32;
    extern "C" fn ticks() -> u64 {
        391_000_000_000
    }
    // SAFETY: the C function with this name has this type, and the callback passed to it stays loaded.
    let register = unsafe { *library().get::<Register>("cuptiActivityRegisterTimestampCallback").unwrap() };
    assert_eq!(register(Some(ticks)), 0);
}

/// A violation of CUPTI's rules by the collector.
pub fn violation() -> Option<String> {
    let mut text = vec![0_u8; 4096];
    let library = library();
    // SAFETY: the function with this name has this type.
    let violation = unsafe {
        library.get::<unsafe extern "C" fn(usize, *mut u8, usize) -> usize>("gpuwhy_replay_violation").unwrap()
    };
    // SAFETY: `text.len()` bytes are writable.
    let length = unsafe { violation(0, text.as_mut_ptr(), text.len()) };
    text.truncate(length);
    (length > 0).then(|| String::from_utf8_lossy(&text).into_owned())
}
