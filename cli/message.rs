//! Output of the command on stderr: messages to the user, and with `-v` a log of its actions.
//!
//! [`say`] and [`note`] print sentences for the caller of the command. `tracing` events are for
//! troubleshooting: which file was used, which was skipped.

use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use gpuwhy_report::text_format::printable;
use tracing::Level;
use tracing_subscriber::fmt::time::uptime;

/// True if only errors are wanted.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Sets the verbosity. Events are shown from warnings up; with `verbose` 1 from `info` up, with 2 from
/// `debug` up.
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
        // The errors would be printed with `eprintln!`, which panics when stderr is closed.
        .log_internal_errors(false)
        .finish();
    // Fails only when this function is called twice.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// Writes a message that the user must read: an error, or missing data in a result. Does not use `eprintln!`,
/// which panics when stderr is closed. Escapes names, which may come from untrusted files.
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

/// True if `-q` is given.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}
