//! Samples of host threads: evidence for the time without CUDA calls.

use super::{NameId, StackId, ThreadId, Timestamp};
use crate::named;

named! {
    /// State of a thread at a sample.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum ThreadState: name {
        /// Unreadable, or a value unknown to this version.
        #[default]
        Unknown "unknown",
        /// On a core, or runnable.
        Running "running",
        /// Waiting for a lock, condition or queue (futex).
        Futex "futex",
        /// Waiting for readiness of a file, pipe or socket (poll, select, epoll).
        Poll "poll",
        /// Interruptible input or output of a file, pipe or socket (read, write and similar calls).
        Io "io",
        /// Waiting for storage: uninterruptible sleep.
        Disk "disk",
        /// Sleeping for a fixed time.
        Sleep "sleep",
        /// Waiting for the end of a child process.
        Child "child",
        /// In memory management: a page fault or a mapping call.
        Memory "memory",
        /// In a call to a kernel driver (ioctl), such as the GPU's.
        Driver "driver",
        /// Blocked for another reason.
        Other "other",
    }
}

named! {
    /// Holder of the Python interpreter lock (GIL).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum InterpreterLock: name {
        /// No interpreter, or unreadable.
        #[default]
        Unknown "unknown",
        /// The sampled thread.
        ThisThread "this_thread",
        /// Another thread.
        OtherThread "other_thread",
        /// Not held.
        Free "free",
    }
}

/// Maximum number of frames of a stack of one kind, Python or native: the innermost ones are recorded.
pub const MAX_FRAMES: usize = 64;

/// A function of a stack, linked to its caller. Stacks with equal outer frames share them. Native functions
/// are the innermost ones, inside those of Python; their file is the name of a library or program, and they
/// have no line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Frame of the caller, or [`StackId::NONE`] for the outermost frame.
    pub caller: StackId,
    /// Qualified name of the function. For a native function without a symbol, the file and the address in
    /// it.
    pub function: NameId,
    /// File that defines the function. For a native function, its library or program, with the build id if
    /// the function has no symbol.
    pub file: NameId,
    /// Line being executed, starting at 1; 0 if unknown, and for native functions.
    pub line: u32,
}

/// A sample of one thread, and how the thread spent the time since the previous sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostSample {
    /// Time of the previous sample of this thread, or the start of sampling.
    pub since: Timestamp,
    /// Time of the sample.
    pub at: Timestamp,
    /// The thread.
    pub thread: ThreadId,
    /// State of the thread at [`at`](Self::at).
    pub state: ThreadState,
    /// CPU time between `since` and `at`, nanoseconds.
    pub on_cpu: u64,
    /// Time between `since` and `at` in which the thread was runnable but waited for a core, nanoseconds.
    pub runnable: u64,
    /// Its stack, or [`StackId::NONE`].
    pub stack: StackId,
    /// Time from `at` until the stack was read, at least 1, nanoseconds; 0 if unknown.
    pub read_within: u32,
    /// Native functions of the thread at an earlier time between `since` and `at`, if `stack` has none. The
    /// thread has run since, so these functions may not belong to `stack` and are kept separate.
    pub earlier: Option<StackId>,
    /// Holder of the interpreter lock at `at`.
    pub interpreter_lock: InterpreterLock,
    /// True if the interpreter was collecting garbage at `at`.
    pub collecting_garbage: bool,
    /// Number of child processes of this process at `at`; 0 also if they were not sampled.
    pub children: u32,
    /// Children on a core or runnable.
    pub children_running: u32,
    /// Children waiting for input, output or storage.
    pub children_in_io: u32,
}
