//! The Python stack of a thread, and the state of its interpreter.
//!
//! | file | contents |
//! |---|---|
//! | `attach` | location and version of the interpreter |
//! | `layout`, `debug_offsets` | offsets of the fields in its structures |
//! | `threads` | the thread state of a kernel thread |
//! | `stack` | walking from the thread state through the frames |
//! | `code`, `lines`, `object` | contents of a frame's code object |
//!
//! CPython 3.9 to 3.14. If the layout of a version is unknown, or its structures do not match the layout, the
//! result is a reason instead of a stack. Free-threaded builds are rejected: 3.13's have another string
//! header, and 3.14's run copies of the bytecode.

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
use std::time::Instant;

pub use attach::{Python, Unavailable};

/// A function in a thread's Python stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Name of the function, qualified by its class from 3.11 on; at most its last 240 characters.
    pub function: Arc<str>,
    /// File; at most its last 240 characters.
    pub file: Arc<str>,
    /// Line being executed.
    pub line: u32,
}

/// Holder of the interpreter lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// The sampled thread.
    ThisThread,
    /// Another thread.
    OtherThread,
    /// Not held.
    Free,
}

/// Python activity of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The innermost functions, innermost first, at most [`MAX_FRAMES`](gpuwhy_trace::record::MAX_FRAMES). Empty if
    /// the thread was in no Python function.
    pub frames: Vec<Frame>,
    /// Times between which the positions of the frames were read.
    pub read: (Instant, Instant),
    /// True if the stack was deeper.
    pub is_truncated: bool,
    /// The bytecode of the innermost function, from 3.11 on.
    pub bytecode: Option<Bytecode>,
    /// Holder of the lock.
    pub lock: Lock,
    /// Kernel id of the thread that holds it, if that is another one.
    pub holder: Option<u32>,
    /// True if the cyclic garbage collector was running.
    pub is_collecting: bool,
}

/// Bytecode of a function in a thread's stack.
#[derive(Clone, Debug)]
pub struct Bytecode {
    begin: u64,
    code: Arc<code::Code>,
}

impl Bytecode {
    /// True if `address` points to an instruction of this line, or right after it.
    pub fn is_at(&self, address: u64, line: u32) -> bool {
        /// Bytes of an instruction.
        const UNIT: u32 = 2;
        // The interpreter points to the instruction that it runs, or right after it. Every call starts at
        // offset 0, so that one proves nothing and is excluded.
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

/// Reason why sampling a thread failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// The thread has not run Python code.
    NoPython,
    /// The stack changed while it was read.
    Torn,
    /// The program has closed the file through which its memory is read.
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
