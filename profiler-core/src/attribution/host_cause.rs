//! What idle time is blamed on, and what a host thread was seen to do while it kept the device waiting: the words of
//! the evidence.
//!
//! A cause is decided when the sample arrives, from the state of the thread, the interpreter and the stack, so that the
//! gap rule only compares times. Each cause belongs to one leaf. Time that no sample speaks for has no cause.

use gpuwhy_trace::named;
use gpuwhy_trace::record::{ApiFunctionId, NameId, ThreadState};

use super::host::stacks::LineId;
use super::leaf::{Leaf, Work};

named! {
    /// A cause seen by looking at the launching thread.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum HostCause: name {
        /// On a core, running the program's code or a library's.
        Code "code",
        /// On a core, collecting garbage.
        GarbageCollection "garbage_collection",
        /// Waiting for the lock of the Python interpreter, which another thread held.
        InterpreterLock "interpreter_lock",
        /// Waiting for a lock, a condition or a queue of this process.
        Lock "lock",
        /// Waiting for a file, pipe or socket to become ready.
        Poll "poll",
        /// In input or output of a file, pipe or socket.
        Io "io",
        /// Waiting for storage.
        Disk "disk",
        /// Sleeping for a fixed time.
        Sleep "sleep",
        /// Waiting for a child process to end.
        Child "child",
        /// In the memory management of the operating system.
        Memory "memory",
        /// In a kernel driver.
        Driver "driver",
        /// Ready to run, and no core was free.
        Preempted "preempted",
        /// Off the cores for another reason, or for one that the sample came too late to see.
        OtherWait "other_wait",
        /// In a data loader that prepares the batch on the launching thread.
        LoaderInline "loader_inline",
        /// Joining samples to a batch, or copying it to page-locked memory, on the launching thread.
        LoaderCollate "loader_collate",
        /// On a core, taking a finished batch over from the loader's workers.
        LoaderReceive "loader_receive",
        /// Waiting in a data loader; what its workers did is not known.
        LoaderWait "loader_wait",
        /// Waiting in a data loader while a worker process was on a core or ready for one.
        LoaderWaitBusy "loader_wait_busy",
        /// Waiting in a data loader while worker processes waited for input, output or storage, and none ran.
        LoaderWaitIo "loader_wait_io",
        /// Waiting in a data loader while all child processes were idle.
        LoaderWaitIdle "loader_wait_idle",
    }
}

impl HostCause {
    /// Why a thread in this state is off the cores, as far as the state alone tells.
    pub const fn of(state: ThreadState) -> Self {
        match state {
            ThreadState::Futex => Self::Lock,
            ThreadState::Poll => Self::Poll,
            ThreadState::Io => Self::Io,
            ThreadState::Disk => Self::Disk,
            ThreadState::Sleep => Self::Sleep,
            ThreadState::Child => Self::Child,
            ThreadState::Memory => Self::Memory,
            ThreadState::Driver => Self::Driver,
            ThreadState::Running | ThreadState::Unknown | ThreadState::Other => Self::OtherWait,
        }
    }

    /// The leaf of idle device time with this cause.
    pub const fn leaf(self) -> Leaf {
        match self {
            Self::Code | Self::GarbageCollection => Leaf::HostCpu,
            Self::LoaderInline
            | Self::LoaderCollate
            | Self::LoaderReceive
            | Self::LoaderWait
            | Self::LoaderWaitBusy
            | Self::LoaderWaitIo
            | Self::LoaderWaitIdle => Leaf::DataLoading,
            _ => Leaf::HostBlocked,
        }
    }
}

/// What an idle segment is blamed on, where that says more than the leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// Nothing in particular.
    #[default]
    None,
    /// The call that the host was in.
    Call(ApiFunctionId),
    /// The kernel that came next.
    Kernel(NameId),
    /// A copy from host to device came next.
    HostToDevice,
    /// Another copy or a memset came next.
    OtherTransfer,
    /// The operation that an event made the stream wait for.
    Awaited(Producer),
    /// What the launching thread was seen to do, and at which line.
    Host(HostCause, LineId),
}

/// How often and how long a cause kept the device idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct GapTotals {
    /// Gaps of the device that it had a part in.
    pub count: u64,
    /// Their sum, nanoseconds.
    pub total_ns: u64,
    /// The most that it had of one gap, nanoseconds.
    pub longest_ns: u64,
}

impl GapTotals {
    /// Adds the gaps of another row.
    pub fn add(&mut self, other: Self) {
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }
}

/// What a gap waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Producer {
    /// What it did.
    pub work: Work,
    /// It ran on another device than the one that waited.
    pub other_device: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discriminants_follow_the_list_and_names_are_distinct() {
        let mut names = std::collections::BTreeSet::new();
        for (index, cause) in HostCause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, index);
            assert!(names.insert(cause.name()));
        }
    }
}
