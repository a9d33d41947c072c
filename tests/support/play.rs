//! The GPU of a test that has no GPU: the replay library that the collector of this very process has loaded.
//!
//! The environment must be set before a process starts, so a test runs itself anew: the outer half is [`inside`], the
//! inner half is an ignored test that plays.
#![expect(unsafe_code, reason = "calls C functions of the replay library")]

use std::process::{Command, Output};

use libloading::os::unix::{Library, RTLD_LAZY};

use crate::support::{Stage, stderr};

/// Runs the ignored test `name` of this binary in a process of its own, without libprof.so, with `fixture` for its GPU;
/// `set` may change its environment.
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
    // SAFETY: only looks at what is loaded; no code runs.
    unsafe { Library::open(Some(path), RTLD_LAZY | 4) }.expect("the collector has loaded the replay library")
}

/// Lets the recording go on to this time after its begin.
pub fn play_until(millis: u64) {
    // SAFETY: the name stands for a function of this type; both are built together.
    let play = unsafe { *library().get::<extern "C" fn(u64) -> i32>("gpuwhy_replay_play").unwrap() };
    assert_eq!(play(millis.saturating_mul(1_000_000)), 0);
}

/// Lets the recording come to its end.
pub fn play_out() {
    play_until(u64::MAX);
}

/// Gives CUPTI a clock of this process's own, as torch.profiler does.
pub fn replace_clock() {
    type Register = extern "C" fn(Option<extern "C" fn() -> u64>) -> u32;
    extern "C" fn ticks() -> u64 {
        391_000_000_000
    }
    // SAFETY: the name stands for the C function of this type, which is given one that stays.
    let register = unsafe { *library().get::<Register>("cuptiActivityRegisterTimestampCallback").unwrap() };
    assert_eq!(register(Some(ticks)), 0);
}

/// What the collector did that CUPTI forbids.
pub fn violation() -> Option<String> {
    let mut text = vec![0_u8; 4096];
    let library = library();
    // SAFETY: the name stands for a function of this type.
    let violation = unsafe {
        library.get::<unsafe extern "C" fn(usize, *mut u8, usize) -> usize>("gpuwhy_replay_violation").unwrap()
    };
    // SAFETY: so many bytes are writable.
    let length = unsafe { violation(0, text.as_mut_ptr(), text.len()) };
    text.truncate(length);
    (length > 0).then(|| String::from_utf8_lossy(&text).into_owned())
}
