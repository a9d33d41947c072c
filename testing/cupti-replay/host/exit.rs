//! Ways to end: returning, exiting without handlers, dying; and forked children.
//!
//! The list of violations has to come last, after the profiler's own exit handler has run. Handlers run in
//! the reverse order of their registration, so [`register`] is called before the profiler is loaded.
#![expect(unsafe_code, reason = "atexit, fork and signals are C")]

use std::os::unix::process::CommandExt;
use std::process;
use std::sync::OnceLock;

use crate::args::{Child, ExitKind};
use crate::libraries::Replay;

/// Exit code if the profiler broke a rule of CUPTI, or a child failed.
pub const VIOLATED: u8 = 3;
/// An alarm kills a hanging child after this many seconds: its work takes less than one.
const CHILD_SECONDS: u32 = 30;

/// The process that called [`register`], and true if it prints counts.
static HOST: OnceLock<(u32, bool)> = OnceLock::new();

/// Lists violations at exit, and counts too if requested. Restores `SIGPIPE`'s default action, as in a C
/// program.
pub fn register(counts: bool) -> Result<(), String> {
    // SAFETY: the default action of a signal of this process; no handler is involved.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    HOST.get_or_init(|| (process::id(), counts));
    // SAFETY: `at_exit` is a function of this program, which is not unloaded.
    if unsafe { libc::atexit(at_exit) } == 0 { Ok(()) } else { Err("atexit: no memory".to_owned()) }
}

extern "C" fn at_exit() {
    if let Some(code) = bottleneck() {
        // SAFETY: ends the process; other handlers have run.
        unsafe { libc::_exit(code.into()) };
    }
}

/// Lists violations. Returns their exit code if there are any.
fn bottleneck() -> Option<u8> {
    let replay = Replay::found()?;
    let (host, counts) = *HOST.get()?;
    let who = if host == process::id() { "" } else { "forked child: " };
    if counts
        && who.is_empty()
        && let Some(counts) = replay.counts()
    {
        eprintln!("gpuwhy-replay-host: {counts:?}");
    }
    let violations = replay.violations();
    for violation in &violations {
        eprintln!("gpuwhy-replay-host: {who}{violation}");
    }
    (!violations.is_empty()).then_some(VIOLATED)
}

/// Forks a child and waits for it. The child exits at once unless it is to continue.
pub fn fork(then: Child) -> Result<(), String> {
    // SAFETY: the child of a process with threads does what is forbidden there on purpose or not at all. It
    // exits, and the test is that it can do so safely with the profiler loaded.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(format!("fork: {}", std::io::Error::last_os_error())),
        0 => {
            // SAFETY: sets a timer of this process.
            unsafe { libc::alarm(CHILD_SECONDS) };
            match then {
                Child::Play => return Ok(()),
                Child::Exit => process::exit(0),
                Child::Exec => {
                    let error = std::env::current_exe().map(|this| process::Command::new(this).exec());
                    eprintln!("gpuwhy-replay-host: exec: {error:?}");
                }
                Child::Nothing => {}
            }
            let code = bottleneck().unwrap_or(0);
            // SAFETY: ends the child.
            unsafe { libc::_exit(code.into()) }
        }
        child => wait(child),
    }
}

fn wait(child: i32) -> Result<(), String> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is a live local.
        if unsafe { libc::waitpid(child, &raw mut status, 0) } == child {
            break;
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(format!("waitpid: {error}"));
        }
    }
    if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
        return Ok(());
    }
    Err(if libc::WIFSIGNALED(status) {
        format!("the forked child died of signal {} (14 is its alarm: it hung)", libc::WTERMSIG(status))
    } else {
        format!("the forked child left with exit code {}", libc::WEXITSTATUS(status))
    })
}

/// Calls `exit` on another thread, at any point of the program.
pub fn on_thread(exit_code: u8) {
    std::thread::spawn(move || process::exit(exit_code.into()));
}

/// Ends the process, except for [`ExitKind::Exit`], where main returns.
pub fn exit(how: ExitKind, exit_code: u8) {
    if how == ExitKind::Exit {
        return;
    }
    // No exit handler will run, so list the violations now.
    let code = bottleneck();
    match (how, code) {
        // SAFETY: ends the process without handlers, as requested.
        (_, Some(violated)) => unsafe { libc::_exit(violated.into()) },
        // SAFETY: as above.
        (ExitKind::QuickExit, None) => unsafe { libc::_exit(exit_code.into()) },
        (ExitKind::Abort, None) => process::abort(),
        (ExitKind::Segfault, None) => {
            // SAFETY: none: this is the requested crash. Page 0 is never mapped.
            unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(0) };
        }
        (ExitKind::Signal(signal), None) => {
            // A program that a shell starts in the background ignores SIGINT. SAFETY: the default action of a
            // signal, and a signal to this process only.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            }
        }
        (ExitKind::Exit, None) => {}
    }
}
