//! Ctrl-C and other requests to end, while something is written that must not stay behind unfinished.
//!
//! Without [`watch`] a signal ends the command at once. That is right for commands that only print, and for
//! `run`, which becomes another program. After [`watch`] the first signal only sets a flag that the work asks
//! for; a second one ends the command at once.
//!
//! `ctrlc` takes Ctrl-C. Its feature `termination` would take SIGTERM and SIGHUP with the same handler and is
//! off for three reasons: the handler does not learn which signal came, so a job that a scheduler ended would
//! exit with 130 instead of 143; it would end what `nohup` keeps alive; and it cannot leave one signal alone
//! that is inherited as ignored. `signal-hook` takes those two, and SIGXFSZ, which `ctrlc` does not know.

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::{flag, low_level};

/// The number of the signal that came, 0 before.
static SIGNAL: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// Takes signals from now on. A verb calls this once, after its arguments are checked. What the command inherited as
/// ignored stays ignored (`nohup`). Fails when the system refuses.
pub fn watch() -> io::Result<()> {
    let signal = Arc::clone(SIGNAL.get_or_init(Arc::default));
    let again = Arc::new(AtomicBool::new(false));
    take_ctrl_c(Arc::clone(&signal), Arc::clone(&again))?;
    let ignored = ignored();
    for number in [SIGTERM, SIGHUP].into_iter().filter(|number| ignored & (1 << (number - 1)) == 0) {
        // In this order: the first signal sets what makes the second one end the process.
        flag::register_conditional_default(number, Arc::clone(&again))?;
        flag::register(number, Arc::clone(&again))?;
        flag::register_usize(number, Arc::clone(&signal), number.unsigned_abs() as usize)?;
    }
    // Writing beyond the limit of a file's size (`ulimit -f`) becomes an error, like a full disk.
    flag::register(SIGXFSZ, Arc::default())?;
    Ok(())
}

fn take_ctrl_c(signal: Arc<AtomicUsize>, again: Arc<AtomicBool>) -> io::Result<()> {
    let taken = ctrlc::try_set_handler(move || {
        if again.swap(true, Ordering::Relaxed) {
            let _ = low_level::emulate_default_handler(SIGINT);
        }
        signal.store(SIGINT.unsigned_abs() as usize, Ordering::Relaxed);
    });
    match taken {
        // `try_set_handler` calls everything but the default a handler: here SIGINT is ignored, as in a
        // script's background jobs.
        Ok(()) | Err(ctrlc::Error::MultipleHandlers) => Ok(()),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Whether the work goes on.
pub fn state() -> ControlFlow<()> {
    if exit_code().is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

/// The exit code once a signal has come: 128 and its number, as shells show it.
pub fn exit_code() -> Option<u8> {
    let signal = SIGNAL.get()?.load(Ordering::Relaxed);
    u8::try_from(128 + signal).ok().filter(|_| signal != 0)
}

/// The signals that this process ignores, a bit each; none when that cannot be found out.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
