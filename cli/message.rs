//! Messages to the user on stderr.

use std::io::{self, Write as _};

use profiler_core::text_format::printable;

/// Writes a message that the user must read. Not `eprintln!`, which panics when stderr is closed. Messages may hold names that
/// somebody else chose.
pub fn say(message: &str) {
    let lines: Vec<_> = message.split('\n').map(printable).collect();
    let _ = writeln!(io::stderr(), "gpuwhy: {}", lines.join("\n"));
}
