//! Ctrl-C and other requests to end, while something is written that must not stay behind unfinished.
//!
//! Without [`watch`] a signal ends the command at once, which is right wherever nothing has to be removed: commands that
//! only print, and `run`, which becomes another program. Behind it the first signal only leaves a mark that the work asks
//! for; a second one ends the command as ever.

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;

/// The number of the signal that came, 0 before.
static SIGNAL: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// Takes signals from now on. What the command inherited as ignored stays ignored (`nohup`).
///
/// # Errors
///
/// When the system refuses.
pub fn watch() -> io::Result<()> {
    let signal = Arc::clone(SIGNAL.get_or_init(Arc::default));
    let again = Arc::new(AtomicBool::new(false));
    let ignored = ignored();
    for number in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|number| ignored & (1 << (number - 1)) == 0) {
        // In this order: the first signal sets what makes the second one end the process.
        flag::register_conditional_default(number, Arc::clone(&again))?;
        flag::register(number, Arc::clone(&again))?;
        flag::register_usize(number, Arc::clone(&signal), number.unsigned_abs() as usize)?;
    }
    // Writing beyond the limit of a file's size (`ulimit -f`) becomes an error, like a full disk.
    flag::register(SIGXFSZ, Arc::default())?;
    Ok(())
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
