//! Lines on the host's stderr: few, prefixed, and never a reason to fail.
//!
//! No logging crate: the library lives in somebody's job, and what it has to say fits one `write`. A stderr that is
//! closed, full, or read by nobody costs a moment's wait and no more: no signal, no blocking, no error.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::border;

/// Longest wait for a reader of stderr, for each message. The host would wait for ever, but on its own account.
const PATIENCE: Duration = Duration::from_secs(1);

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

/// Sets what is said from now on.
pub fn set_level(level: Level) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Says one line if `level` is wanted.
pub fn say(level: Level, message: fmt::Arguments<'_>) {
    if level as u8 <= LEVEL.load(Ordering::Relaxed) {
        print(&format!("gpuprof: {message}\n"));
    }
}

/// Writes text to stderr, lines in one call, so that those of several processes do not mix.
pub fn print(text: &str) {
    border::write_stderr(text.as_bytes(), PATIENCE);
}

macro_rules! error { ($($t:tt)*) => { $crate::log::say($crate::log::Level::Error, format_args!($($t)*)) } }
macro_rules! warning { ($($t:tt)*) => { $crate::log::say($crate::log::Level::Warn, format_args!($($t)*)) } }
macro_rules! info { ($($t:tt)*) => { $crate::log::say($crate::log::Level::Info, format_args!($($t)*)) } }
macro_rules! debug { ($($t:tt)*) => { $crate::log::say($crate::log::Level::Debug, format_args!($($t)*)) } }
pub(crate) use {debug, error, info, warning};
