//! Subjects of idle time, and activities of a host thread while it kept the device waiting: the vocabulary of
//! the evidence.
//!
//! A cause is decided when the sample arrives, from the state of the thread, the interpreter and the stack,
//! so that the gap rule only compares times. Each cause belongs to one leaf. Time without a sample has no
//! cause.

use gpuwhy_trace::named;
use gpuwhy_trace::record::{ApiFunctionId, NameId, ThreadState};

use super::stacks::LineId;
use crate::leaf::{Leaf, WorkKind};

named! {
    /// A cause seen by sampling the launching thread.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum HostCause: name {
        /// On a core, running the program's code or a library's.
        Code "code",
        /// In a compiler; or on a core or waiting for a child process right before a call that loads kernels.
        KernelBuild "kernel_build",
        /// On a core, in garbage collection.
        GarbageCollection "garbage_collection",
        /// Waiting for the Python interpreter lock, which another thread held.
        InterpreterLock "interpreter_lock",
        /// Waiting for a lock, a condition or a queue of this process.
        Lock "lock",
        /// Waiting for a file, pipe or socket to become ready.
        Poll "poll",
        /// In I/O on a file, pipe or socket.
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
        /// Ready to run with no core free.
        Preempted "preempted",
        /// Off the cores for another reason, or for one that had passed when the sample was taken.
        OtherWait "other_wait",
        /// Waiting for requests in a server, asleep or looking for them round after round.
        NoRequests "no_requests",
        /// In a data loader that prepares the batch on the launching thread.
        LoaderInline "loader_inline",
        /// Joining samples to a batch, or copying it to pinned memory, on the launching thread.
        LoaderCollate "loader_collate",
        /// On a core, receiving a finished batch from the loader's workers.
        LoaderReceive "loader_receive",
        /// Starting or ending a data loader's worker processes.
        LoaderStart "loader_start",
        /// Waiting in a data loader; the activity of its workers is unknown.
        LoaderWait "loader_wait",
        /// Waiting in a data loader while a worker process was on a core or ready for one.
        LoaderWaitBusy "loader_wait_busy",
        /// Waiting in a data loader while worker processes waited for I/O or storage, and none ran.
        LoaderWaitIo "loader_wait_io",
        /// Waiting in a data loader while all child processes were idle.
        LoaderWaitIdle "loader_wait_idle",
    }
}

impl HostCause {
    /// Reason that a thread in this state is off the cores, as far as the state alone shows it.
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

    /// The cause of the same activity in a host gap that ends where kernels are loaded. Sleeping, files, other
    /// threads and data loaders keep their own: they build nothing. Compilers run here or in a child.
    #[must_use]
    pub const fn before_load(self) -> Self {
        match self {
            Self::Code | Self::Child => Self::KernelBuild,
            other => other,
        }
    }

    /// Leaf of idle device time with this cause.
    pub const fn leaf(self) -> Leaf {
        match self {
            Self::Code | Self::GarbageCollection => Leaf::HostCpu,
            Self::KernelBuild => Leaf::KernelBuild,
            Self::NoRequests => Leaf::NoWork,
            Self::LoaderInline
            | Self::LoaderCollate
            | Self::LoaderReceive
            | Self::LoaderStart
            | Self::LoaderWait
            | Self::LoaderWaitBusy
            | Self::LoaderWaitIo
            | Self::LoaderWaitIdle => Leaf::DataLoading,
            _ => Leaf::HostBlocked,
        }
    }
}

/// Host gaps of one kind: gaps of one thread that end before the same operation have about the same length,
/// so each is as likely as the others to contain a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stratum {
    /// Index of the thread.
    pub thread: u32,
    /// Subject of the operation that ends the gap.
    pub before: Subject,
}

/// What is known about a part of a host gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Seen {
    /// No sample covers the time, which counts as this leaf.
    Nothing(Leaf),
    /// A sample saw this activity at this line.
    Activity(HostCause, LineId),
}

/// Subject of an idle segment, where that is more specific than the leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// No particular subject.
    #[default]
    None,
    /// The call that the host was in.
    Call(ApiFunctionId),
    /// The next kernel.
    Kernel(NameId),
    /// The next operation was a copy from host to device.
    HostToDevice,
    /// The next operation was another copy or a memset.
    OtherTransfer,
    /// The operation that the stream waited for because of an event.
    Awaited(Producer),
    /// Observed activity of the launching thread, and its source line.
    Host(HostCause, LineId),
}

/// Idle time, and the number of samples that explain it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GapSamples {
    /// Number of samples; 0 for time without one.
    pub samples: u64,
    /// Nanoseconds.
    pub nanos: u64,
}

impl GapSamples {
    /// Adds the time of another row.
    pub fn add(&mut self, other: Self) {
        self.samples += other.samples;
        self.nanos += other.nanos;
    }
}

/// Number and duration of the gaps with one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct GapTotals {
    /// Gaps of the device in which it had a part.
    pub count: u64,
    /// Their sum, nanoseconds.
    pub total_ns: u64,
    /// Its largest part of one gap, nanoseconds.
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

/// Operation that a gap waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Producer {
    /// Kind of its work.
    pub work: WorkKind,
    /// True if it ran on another device than the one that waited.
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
