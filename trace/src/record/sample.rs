//! What a host thread was doing, seen from outside: evidence for the time in which no CUDA call was made.

use super::{NameId, StackId, ThreadId, Timestamp};

/// What a thread waited in when it was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ThreadState {
    /// Could not be read, or a value this version does not know.
    #[default]
    Unknown,
    /// On a core, or ready for one.
    Running,
    /// A lock, a condition or a queue of this process (futex).
    Futex,
    /// Readiness of a file, pipe or socket (poll, select, epoll).
    Poll,
    /// Input or output of a file, pipe or socket (read, write and their like), interruptible.
    Io,
    /// Storage: uninterruptible sleep.
    Disk,
    /// A sleep of fixed length.
    Sleep,
    /// The end of a child process.
    Child,
    /// The memory management: a page fault or a mapping call.
    Memory,
    /// A call into a kernel driver (ioctl), such as the GPU's.
    Driver,
    /// Anything else that blocks.
    Other,
}

/// Who holds the lock of the Python interpreter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InterpreterLock {
    /// No interpreter, or not readable.
    #[default]
    Unknown,
    /// The sampled thread.
    ThisThread,
    /// Another thread.
    OtherThread,
    /// Nobody.
    Free,
}

/// One function of a stack, with the way to its caller. Stacks that begin alike share their outer frames. Native
/// functions are the innermost ones, above those of Python; they have a library's or program's name as file and no
/// line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The stack below, or [`StackId::NONE`] for the outermost frame.
    pub caller: StackId,
    /// Qualified name of the function. Of a native one without a symbol the file and the address in it.
    pub function: NameId,
    /// File in which it is defined; the library or program of a native function, with its build id if the function has
    /// no symbol.
    pub file: NameId,
    /// The line being executed, from 1; 0 when unknown, and for native functions.
    pub line: u32,
}

/// A sample of one thread, and how it spent the time since the sample before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostSample {
    /// The sample before this one at the same thread, or the begin of sampling.
    pub since: Timestamp,
    /// When the thread was looked at.
    pub at: Timestamp,
    /// The thread.
    pub thread: ThreadId,
    /// What it was doing at [`at`](Self::at).
    pub state: ThreadState,
    /// CPU time that it took between `since` and `at`, nanoseconds.
    pub on_cpu: u64,
    /// Time that it was ready and waited for a core between `since` and `at`, nanoseconds.
    pub runnable: u64,
    /// Its stack at `at`, or [`StackId::NONE`].
    pub stack: StackId,
    /// Native functions that it was in at a moment between `since` and `at`, where `stack` has none: the thread went on
    /// in between, so the two are not put together.
    pub earlier: Option<StackId>,
    /// Who held the interpreter's lock at `at`.
    pub interpreter_lock: InterpreterLock,
    /// Whether the interpreter was collecting garbage at `at`.
    pub collecting_garbage: bool,
    /// Child processes of this process at `at`; 0 also when they were not looked at.
    pub children: u32,
    /// Of these, on a core or ready for one.
    pub children_running: u32,
    /// Of these, waiting for input, output or storage.
    pub children_in_io: u32,
}
