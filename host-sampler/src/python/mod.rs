//! The Python stack of a thread, and the state of its interpreter.
//!
//! | file | what it knows |
//! |---|---|
//! | `attach` | where the interpreter is, and which version |
//! | `layout`, `debug_offsets` | where the fields of its structures are |
//! | `threads` | which of its thread states belongs to a kernel thread |
//! | `stack` | from the thread state through the frames |
//! | `code`, `lines`, `object` | what a frame's code object says |
//!
//! CPython 3.9 to 3.14. A version whose layout is not known, or whose structures are not where the layout says, gives
//! a reason and no stack. Free-threaded builds are refused: 3.13's have another string header, and 3.14's run copies
//! of the bytecode.

mod attach;
mod code;
mod debug_offsets;
mod layout;
mod lines;
mod object;
mod stack;
mod threads;

use std::fmt;
use std::sync::Arc;

pub use attach::{Python, Unavailable};

/// One function that a thread is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Function, qualified by its class from 3.11 on; at most its last 240 characters.
    pub function: Arc<str>,
    /// File; at most its last 240 characters.
    pub file: Arc<str>,
    /// Line that is being run.
    pub line: u32,
}

/// Who holds the lock of the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// The thread that was looked at.
    ThisThread,
    /// Another thread.
    OtherThread,
    /// Nobody.
    Free,
}

/// What a thread was doing in Python.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The innermost functions, innermost first, at most [`MAX_FRAMES`]. Empty when it was in no Python function.
    pub frames: Vec<Frame>,
    /// Whether there were more.
    pub is_truncated: bool,
    /// The bytecode of the innermost function, from 3.11 on.
    pub bytecode: Option<Bytecode>,
    /// Who held the lock.
    pub lock: Lock,
    /// Whether the cyclic garbage collector ran.
    pub is_collecting: bool,
}

/// The bytecode of a function that a thread is in.
#[derive(Clone, Debug)]
pub struct Bytecode {
    begin: u64,
    code: Arc<code::Code>,
}

impl Bytecode {
    /// Whether `address` is that of an instruction of this line, or of the one behind it.
    #[must_use]
    pub fn is_at(&self, address: u64, line: u32) -> bool {
        /// Bytes of an instruction.
        const UNIT: u32 = 2;
        // The interpreter points to the instruction that it runs, or behind it. The first is where every call begins.
        let offset = address.checked_sub(self.begin).and_then(|offset| u32::try_from(offset).ok());
        let Some(offset) = offset.filter(|&offset| offset > 0 && offset % UNIT == 0) else { return false };
        let is_inside = self.code.line_at(offset - UNIT).is_some();
        is_inside && [offset, offset - UNIT].into_iter().any(|offset| self.code.line_at(offset) == Some(line))
    }
}

impl PartialEq for Bytecode {
    fn eq(&self, other: &Self) -> bool {
        self.begin == other.begin && Arc::ptr_eq(&self.code, &other.code)
    }
}

impl Eq for Bytecode {}

/// Frames of one sample at most.
pub const MAX_FRAMES: usize = 64;

/// Why a look at a thread gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// The thread has never run Python, or not yet.
    NoPython,
    /// The stack changed while it was read.
    Torn,
    /// The program has closed the file by which its memory is read.
    Closed,
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoPython => "the thread runs no Python",
            Self::Closed => "the program has closed the file by which its memory is read",
            Self::Torn => "the stack changed while it was read",
        })
    }
}

impl std::error::Error for Miss {}
