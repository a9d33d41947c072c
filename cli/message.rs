//! What the command says on stderr: messages to the user, and with `-v` what it does.
//!
//! [`say`] and [`note`] are sentences for whoever called the command. Events of `tracing` are for whoever
//! looks for the reason of something: which file was taken, which was passed over.

use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use gpuwhy_report::text_format::printable;
use tracing::Level;
use tracing_subscriber::fmt::time::uptime;

/// Whether only errors are wanted.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Decides how much is said from now on. Without `verbose` events are shown from warnings on, with 1 from
/// `info` on, with 2 from `debug` on.
pub fn set_up(verbose: u8, quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
    let level = match (quiet, verbose) {
        (true, _) => Level::ERROR,
        (false, 0) => Level::WARN,
        (false, 1) => Level::INFO,
        (false, _) => Level::DEBUG,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .with_ansi(false)
        .with_timer(uptime())
        // They would be printed with `eprintln!`, which panics when stderr is closed.
        .log_internal_errors(false)
        .finish();
    // Fails only when it is called twice.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// Writes a message that the user must read: an error, or what a result lacks. Not `eprintln!`, which panics
/// when stderr is closed. Messages may hold names that somebody else chose.
pub fn say(message: &str) {
    let lines: Vec<_> = message.split('\n').map(printable).collect();
    let _ = writeln!(io::stderr(), "gpuwhy: {}", lines.join("\n"));
}

/// Writes a message that the user may skip, unless `-q` is given.
pub fn note(message: &str) {
    if !is_quiet() {
        say(message);
    }
}

/// Whether `-q` is given.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}
