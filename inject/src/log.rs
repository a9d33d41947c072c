//! Lines on the host's stderr: few, prefixed, and never a reason to fail.
//!
//! No logging crate: the library lives in somebody's job, and what it has to say fits one `write`. A line may be said in the
//! middle of a CUDA call, or under a lock that such a call takes. So it is put into a bounded queue, without waiting and
//! without allocating, and the flushing thread writes it, or the thread that ends the program. A stderr that is closed,
//! full, or read by nobody costs those two a moment's wait and no more: no signal, no blocking, no error.

use std::fmt::{self, Write as _};
use std::mem;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::sys::{descriptors, stderr};

/// Longest wait for a reader of stderr, each time that something is written. The host would wait for ever, but on its own
/// account.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of a piece; a longer message is several.
const PIECE: usize = 512;
/// Pieces that wait to be written at most.
const PIECES: usize = 64;

/// How much is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Nothing.
    Off,
    /// What makes the library useless in this process.
    Error,
    /// What makes a result incomplete.
    Warn,
    /// What it does.
    Info,
    /// Every step of its life.
    Debug,
}

impl Level {
    /// From its lower-case name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "off" => Self::Off,
            "error" => Self::Error,
            "warn" => Self::Warn,
            "info" => Self::Info,
            "debug" => Self::Debug,
            _ => return None,
        })
    }
}

/// The [`Level`] as its number. Written once at the start; `Relaxed`, because nothing else is published with it.
static LEVEL: AtomicU8 = AtomicU8::new(Level::Warn as u8);

/// Whether stderr was closed when this library started. What the program opens under its number later is a file of the
/// program's.
static CLOSED: AtomicBool = AtomicBool::new(false);
/// Messages that were left out because too many waited. `Relaxed`: a statistic.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

static WAITING: OnceLock<(Sender<Piece>, Receiver<Piece>)> = OnceLock::new();

fn waiting() -> &'static (Sender<Piece>, Receiver<Piece>) {
    WAITING.get_or_init(|| bounded(PIECES))
}

/// Begins to say what has this level, if anybody can hear it.
pub fn begin(level: Level) {
    LEVEL.store(level as u8, Ordering::Relaxed);
    CLOSED.store(descriptors::identity(libc::STDERR_FILENO).is_none(), Ordering::Relaxed);
    // Here and not where a line is said first, which may be inside a CUDA call.
    waiting();
}

/// Says one line if `level` is wanted, from any thread: it is written a moment later.
pub fn say(level: Level, message: fmt::Arguments<'_>) {
    if level as u8 <= LEVEL.load(Ordering::Relaxed) {
        let mut line = Line::default();
        // Cannot fail but by a `Display` that does.
        let _ = writeln!(line, "gpuwhy: {message}");
        line.end();
    }
}

/// A part of a message.
#[derive(Clone, Copy)]
struct Piece {
    text: [u8; PIECE],
    length: usize,
}

/// A message on its way into the queue.
struct Line {
    piece: Piece,
    /// A piece of it found no room.
    refused: bool,
}

impl Default for Line {
    fn default() -> Self {
        Self { piece: Piece { text: [0; PIECE], length: 0 }, refused: false }
    }
}

impl Line {
    fn send(&mut self) {
        let piece = mem::replace(&mut self.piece, Piece { text: [0; PIECE], length: 0 });
        self.refused = self.refused || (piece.length > 0 && waiting().0.try_send(piece).is_err());
    }

    fn end(mut self) {
        self.send();
        LEFT_OUT.fetch_add(u64::from(self.refused), Ordering::Relaxed);
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.piece.length == PIECE {
                self.send();
            }
            self.piece.text[self.piece.length] = byte;
            self.piece.length += 1;
        }
        Ok(())
    }
}

/// Writes what was said and not written. Waits for a reader, so never inside a call of the program, except for the one that
/// starts this library in vain and the one that ends the program.
pub fn write_waiting() {
    let mut text = Vec::new();
    for piece in waiting().1.try_iter().take(PIECES) {
        text.extend_from_slice(piece.text.get(..piece.length).unwrap_or_default());
    }
    let left_out = LEFT_OUT.swap(0, Ordering::Relaxed);
    if left_out > 0 {
        // A message that was cut has no end.
        let begin = if text.last().is_none_or(|&byte| byte == b'\n') { "" } else { "\n" };
        text.extend_from_slice(
            format!("{begin}gpuwhy: {left_out} messages were dropped: too many at once\n").as_bytes(),
        );
    }
    write(&text);
}

/// Writes text to stderr behind what was said before, lines in one call, so that those of several processes do not mix.
/// Waits as [`write_waiting`] does.
pub fn print(text: &str) {
    write_waiting();
    write(text.as_bytes());
}

fn write(text: &[u8]) {
    if !text.is_empty() && !CLOSED.load(Ordering::Relaxed) {
        stderr::write_stderr(text, WRITE_TIMEOUT);
    }
}

macro_rules! error { ($($t:tt)*) => { $crate::log::say($crate::log::Level::Error, format_args!($($t)*)) } }
macro_rules! warning { ($($t:tt)*) => { $crate::log::say($crate::log::Level::Warn, format_args!($($t)*)) } }
macro_rules! info { ($($t:tt)*) => { $crate::log::say($crate::log::Level::Info, format_args!($($t)*)) } }
macro_rules! debug { ($($t:tt)*) => { $crate::log::say($crate::log::Level::Debug, format_args!($($t)*)) } }
pub(crate) use {debug, error, info, warning};

#[cfg(test)]
mod tests {
    use super::*;

    fn taken() -> String {
        let text: Vec<u8> = waiting().1.try_iter().flat_map(|piece| piece.text[..piece.length].to_vec()).collect();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The queue is one for the process, so one test takes from it; others of this crate may say a line meanwhile.
    #[test]
    fn lines_wait_whole_up_to_a_limit_and_what_is_left_out_is_counted() {
        let long = "~".repeat(3 * PIECE);
        say(Level::Error, format_args!("{long}"));
        assert_eq!(taken().matches('~').count(), long.len());
        (0..PIECES + 10).for_each(|number| say(Level::Error, format_args!("{number}")));
        assert_eq!(waiting().1.len(), PIECES);
        assert!(taken().starts_with("gpuwhy: ") && LEFT_OUT.swap(0, Ordering::Relaxed) >= 10);
        say(Level::Debug, format_args!("not wanted"));
        assert!(!taken().contains("not wanted"));
    }
}
