//! Names of enumeration values, equal in JSON lines and in tables.

use gpuwhy_trace::record::{InterpreterLock, RangeEventKind, SyncKind, ThreadState};

/// Kind of synchronization.
pub const fn sync(kind: SyncKind) -> &'static str {
    match kind {
        SyncKind::Unknown => "unknown",
        SyncKind::Event => "event",
        SyncKind::StreamWaitEvent => "stream_wait_event",
        SyncKind::Stream => "stream",
        SyncKind::Context => "context",
    }
}

pub const fn range(kind: RangeEventKind) -> &'static str {
    match kind {
        RangeEventKind::Unknown => "unknown",
        RangeEventKind::Push => "push",
        RangeEventKind::Pop => "pop",
        RangeEventKind::Start => "start",
        RangeEventKind::End => "end",
        RangeEventKind::Mark => "mark",
    }
}

/// State of a thread.
pub const fn state(state: ThreadState) -> &'static str {
    match state {
        ThreadState::Unknown => "unknown",
        ThreadState::Running => "running",
        ThreadState::Futex => "futex",
        ThreadState::Poll => "poll",
        ThreadState::Io => "io",
        ThreadState::Disk => "disk",
        ThreadState::Sleep => "sleep",
        ThreadState::Child => "child",
        ThreadState::Memory => "memory",
        ThreadState::Driver => "driver",
        ThreadState::Other => "other",
    }
}

/// Holder of the Python interpreter lock.
pub const fn interpreter_lock(holder: InterpreterLock) -> &'static str {
    match holder {
        InterpreterLock::Unknown => "unknown",
        InterpreterLock::ThisThread => "this_thread",
        InterpreterLock::OtherThread => "other_thread",
        InterpreterLock::Free => "free",
    }
}
