//! Lines on the program's stderr: few, prefixed, and never a reason to fail.
//!
//! Events come through `tracing`, of which libprof.so has its own copy. Its subscriber is installed where the
//! driver starts the library; a program that has linked this crate gets the events in its own subscriber.
//!
//! An event may occur in the middle of a CUDA call, or under a lock that such a call takes. So its line is
//! put into a bounded queue, without waiting and without allocating. The flushing thread writes it, or the
//! thread that ends the program. If stderr is closed, full or without a reader, those two lose a moment, with
//! no signal, no blocking and no error.

use std::fmt::{self, Write as _};
use std::mem;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use tracing::field::{Field, Visit};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber, span};

use crate::sys::{descriptors, stderr};

/// Maximum wait for a reader of stderr, per write. The program itself would wait forever, but by its own
/// choice.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);
/// Size of a piece, bytes; a longer message takes several.
const PIECE: usize = 512;
/// Maximum number of pieces that wait to be written.
const PIECES: usize = 64;

/// Log level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// No messages.
    Off,
    /// Errors that make the library useless in this process.
    Error,
    /// Problems that make a result incomplete.
    Warn,
    /// Normal operation.
    Info,
    /// Every step of the library.
    Debug,
}

impl Level {
    /// Parses a lower-case name.
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

/// The [`Level`] as its number. Written once at the start; `Relaxed`, because it publishes no other data.
static LEVEL: AtomicU8 = AtomicU8::new(Level::Warn as u8);

/// True if stderr was closed when this library started. A file that the program opens later with the same
/// number is the program's.
static CLOSED: AtomicBool = AtomicBool::new(false);
/// Number of messages dropped because too many were waiting. `Relaxed`: a statistic.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

static WAITING: OnceLock<(Sender<Piece>, Receiver<Piece>)> = OnceLock::new();

fn waiting() -> &'static (Sender<Piece>, Receiver<Piece>) {
    WAITING.get_or_init(|| bounded(PIECES))
}

/// Installs the subscriber for this level, if stderr is open. Allocates, so do not call it in a callback.
pub fn begin(level: Level) {
    LEVEL.store(level as u8, Ordering::Relaxed);
    CLOSED.store(descriptors::identity(libc::STDERR_FILENO).is_none(), Ordering::Relaxed);
    // Here and not at the first message, which may be inside a CUDA call.
    waiting();
    // Fails if this copy of `tracing` has a subscriber: that of the program which has linked this crate.
    let _ = tracing::subscriber::set_global_default(LineFormat);
}

/// Stops all output in the child of a fork.
pub fn silence() {
    LEVEL.store(Level::Off as u8, Ordering::Relaxed);
}

/// Formats events as lines. There are no spans.
struct LineFormat;

impl LineFormat {
    fn level(metadata: &Metadata<'_>) -> Level {
        match *metadata.level() {
            tracing::Level::ERROR => Level::Error,
            tracing::Level::WARN => Level::Warn,
            tracing::Level::INFO => Level::Info,
            _ => Level::Debug,
        }
    }
}

impl Subscriber for LineFormat {
    // Called once per call site; caching its result needs no lock and no allocation.
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && Self::level(metadata) as u8 <= LEVEL.load(Ordering::Relaxed)
    }

    fn event(&self, event: &Event<'_>) {
        if !self.enabled(event.metadata()) {
            return;
        }
        let mut line = Line::default();
        line.text("gpuwhy: ");
        event.record(&mut line);
        line.text("\n");
        line.end();
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Fails only if a `Debug` implementation fails.
        let _ = match field.name() {
            "message" => write!(self, "{value:?}"),
            name => write!(self, " {name}={value:?}"),
        };
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
    /// True if the queue had no room for a piece.
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

    fn text(&mut self, text: &str) {
        // Never fails.
        let _ = self.write_str(text);
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

/// Writes the waiting messages. It waits for a reader, so never call it inside a call of the program, except
/// the one in which this library fails to start and the one that ends the program.
pub fn write_waiting() {
    let mut text = Vec::new();
    for piece in waiting().1.try_iter().take(PIECES) {
        text.extend_from_slice(piece.text.get(..piece.length).unwrap_or_default());
    }
    let left_out = LEFT_OUT.swap(0, Ordering::Relaxed);
    if left_out > 0 {
        // A truncated message lacks its newline.
        let begin = if text.last().is_none_or(|&byte| byte == b'\n') { "" } else { "\n" };
        text.extend_from_slice(
            format!("{begin}gpuwhy: {left_out} messages were dropped: too many at once\n").as_bytes(),
        );
    }
    write(&text);
}

/// Writes text to stderr after the waiting messages, all lines in one call, so that those of several
/// processes do not mix. Waits as [`write_waiting`] does.
pub fn print(text: &str) {
    write_waiting();
    write(text.as_bytes());
}

fn write(text: &[u8]) {
    if !text.is_empty() && !CLOSED.load(Ordering::Relaxed) {
        stderr::write_stderr(text, WRITE_TIMEOUT);
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;

    use super::*;

    /// Counts the allocations of each thread.
    struct Counting;

    thread_local! {
        static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    }

    #[expect(unsafe_code, reason = "an allocator that counts")]
    // SAFETY: both functions pass the same arguments to the system's allocator.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            ALLOCATIONS.set(ALLOCATIONS.get() + 1);
            // SAFETY: the contract is that of this function.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
            // SAFETY: the contract is that of this function.
            unsafe { System.dealloc(memory, layout) }
        }
    }

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    fn taken() -> String {
        let text: Vec<u8> = waiting().1.try_iter().flat_map(|piece| piece.text[..piece.length].to_vec()).collect();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The process has one queue, so only one test takes from it; other tests of this crate may log
    /// meanwhile.
    #[test]
    fn events_wait_whole_up_to_a_limit_allocate_nothing_and_are_counted_when_dropped() {
        begin(Level::Warn);
        let event = |number: u32| {
            let before = ALLOCATIONS.get();
            tracing::warn!(number, "an event of a callback: {}", std::path::Path::new("/x").display());
            ALLOCATIONS.get() - before
        };
        // The first event registers the call site.
        assert_eq!([event(1), event(2)], [0, 0]);
        assert!(taken().contains("gpuwhy: an event of a callback: /x number=1\n"));
        let long = "~".repeat(3 * PIECE);
        tracing::error!("{long}");
        assert_eq!(taken().matches('~').count(), long.len());
        (0..PIECES + 10).for_each(|number| tracing::error!("{number}"));
        assert_eq!(waiting().1.len(), PIECES);
        assert!(taken().starts_with("gpuwhy: ") && LEFT_OUT.swap(0, Ordering::Relaxed) >= 10);
        tracing::debug!("not wanted");
        assert!(!taken().contains("not wanted"));
        let level = LEVEL.load(Ordering::Relaxed);
        silence();
        tracing::error!("after a fork");
        LEVEL.store(level, Ordering::Relaxed);
        assert!(!taken().contains("after a fork"));
    }
}
