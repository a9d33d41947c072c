//! Handles Ctrl-C and other termination signals while a file is written that must not be left unfinished.
//!
//! Without [`watch`] a signal ends the command at once. That is right for commands that only print, and for
//! `run`, which becomes another program. After [`watch`] the first signal only sets a flag that the work
//! polls; a second one ends the command at once.
//!
//! `ctrlc` handles Ctrl-C. Its feature `termination` would handle SIGTERM and SIGHUP with the same handler
//! and is off for three reasons. The handler does not learn which signal came, so a job that a scheduler
//! terminated would exit with 130 instead of 143. It would end commands that `nohup` keeps alive. And it
//! cannot leave a single signal ignored that was inherited as ignored. `signal-hook` handles those two, and
//! SIGXFSZ, which `ctrlc` does not know.

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::{flag, low_level};

/// Number of the signal that came; 0 before.
static SIGNAL: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// Handles signals from now on. A subcommand calls this once, after checking its arguments. Signals that the
/// command inherited as ignored stay ignored (`nohup`). Fails when the system refuses.
pub fn watch() -> io::Result<()> {
    let signal = Arc::clone(SIGNAL.get_or_init(Arc::default));
    let again = Arc::new(AtomicBool::new(false));
    take_ctrl_c(Arc::clone(&signal), Arc::clone(&again))?;
    let ignored = ignored();
    for number in [SIGTERM, SIGHUP].into_iter().filter(|number| ignored & (1 << (number - 1)) == 0) {
        // The order matters: the first signal sets the flag that makes the second one terminate the process.
        flag::register_conditional_default(number, Arc::clone(&again))?;
        flag::register(number, Arc::clone(&again))?;
        flag::register_usize(number, Arc::clone(&signal), number.unsigned_abs() as usize)?;
    }
    // Writing beyond the file size limit (`ulimit -f`) becomes an error, like a full disk.
    flag::register(SIGXFSZ, Arc::default())?;
    Ok(())
}

/// Lets children end by Ctrl-C where this command inherited it as ignored, and goes on ignoring it: a signal that is
/// caught is not ignored in them. Fails when the system refuses.
pub fn end_children_by_ctrl_c() -> io::Result<()> {
    if ignored() & (1 << (SIGINT - 1)) != 0 {
        flag::register(SIGINT, Arc::default())?;
    }
    Ok(())
}

/// Takes the end of `input`, that of whoever started this process, for SIGTERM.
pub fn at_end_of(mut input: impl io::Read + Send + 'static) {
    thread::spawn(move || {
        // An error is an end too.
        let _ = io::copy(&mut input, &mut io::sink());
        let _ = low_level::raise(SIGTERM);
    });
}

fn take_ctrl_c(signal: Arc<AtomicUsize>, again: Arc<AtomicBool>) -> io::Result<()> {
    let taken = ctrlc::try_set_handler(move || {
        if again.swap(true, Ordering::Relaxed) {
            let _ = low_level::emulate_default_handler(SIGINT);
        }
        signal.store(SIGINT.unsigned_abs() as usize, Ordering::Relaxed);
    });
    match taken {
        // `try_set_handler` counts every disposition but the default as a handler: SIGINT is ignored here, as
        // in a script's background jobs.
        Ok(()) | Err(ctrlc::Error::MultipleHandlers) => Ok(()),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// `Continue` until a signal comes.
pub fn state() -> ControlFlow<()> {
    if exit_code().is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

/// Exit code after a signal: 128 plus its number, as in shells.
pub fn exit_code() -> Option<u8> {
    let signal = SIGNAL.get()?.load(Ordering::Relaxed);
    u8::try_from(128 + signal).ok().filter(|_| signal != 0)
}

/// Bit mask of the signals that this process ignores; empty when unknown.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
