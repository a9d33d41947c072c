//! The causes that device time is divided into.
//!
//! Every nanosecond of a device's window has exactly one leaf. While something runs, the leaf is the most valuable
//! running thing (the order of the first twelve variants); while nothing runs, it is the reason the next operation
//! came no earlier. Leaves are mechanisms that can be observed; [`Group`] is the question a user asks.

/// A cause of device time. The discriminant indexes [`Leaves`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Leaf {
    /// A kernel that does not communicate was running.
    Compute,
    /// Only communication kernels (and perhaps copies) were running.
    Communication,
    /// Only copies were running: host to device from pageable memory.
    CopyH2dPageable,
    /// Host to device from page-locked memory.
    CopyH2dPinned,
    /// Host to device from managed or unreported memory.
    CopyH2dOther,
    /// Device to host into pageable memory.
    CopyD2hPageable,
    /// Device to host into page-locked memory.
    CopyD2hPinned,
    /// Device to host into managed or unreported memory.
    CopyD2hOther,
    /// Between devices.
    CopyP2p,
    /// Within the device.
    CopyD2d,
    /// Any other copy.
    CopyOther,
    /// Only memsets were running.
    Memset,
    /// The host waited for the device, so nothing was queued when the device ran dry.
    SyncDrain,
    /// The host was in a CUDA call that neither launches, waits nor allocates: module load, graph instantiation.
    RuntimeApi,
    /// The host was allocating, freeing or registering memory.
    Allocator,
    /// The host was between CUDA calls, each time briefly: the framework's cost per operation.
    Dispatch,
    /// The host was busy outside CUDA for long, or nobody saw what it did.
    HostCpu,
    /// The host was outside CUDA for long and was seen to be off the cores: waiting for a lock, a file, a child, a
    /// core.
    HostBlocked,
    /// The host was outside CUDA for long in a data loader: seen there, or inferred from the recurring pattern of a
    /// loop that waits for its next input batch.
    DataLoading,
    /// The host was inside the launching call.
    LaunchApi,
    /// The call had returned and the operation had not started, because it was launched into an idle device.
    LaunchLatency,
    /// The next operation was queued; the device took a moment to start it.
    InterKernel,
    /// The next operation was queued and waited for longer than the device needs: an event, another device.
    DependencyWait,
    /// As [`Leaf::DependencyWait`], for a node of a CUDA graph.
    GraphWait,
    /// The tracing library kept the launching thread busy.
    Profiler,
    /// The cause cannot be known: a launch or an activity record is missing.
    Unobserved,
    /// The host asked for nothing for so long that it is more likely parked than slow.
    NoWork,
}

/// Number of leaves.
pub const LEAF_COUNT: usize = Leaf::ALL.len();

/// Number of leaves that mean the device was doing something. They come first, in order of priority.
pub const BUSY_COUNT: usize = Leaf::Memset as usize + 1;

/// Nanoseconds by leaf, indexed by `Leaf as usize`.
pub type Leaves = [u64; LEAF_COUNT];

impl Leaf {
    /// All leaves, in the order of their discriminants.
    pub const ALL: [Self; 27] = [
        Self::Compute,
        Self::Communication,
        Self::CopyH2dPageable,
        Self::CopyH2dPinned,
        Self::CopyH2dOther,
        Self::CopyD2hPageable,
        Self::CopyD2hPinned,
        Self::CopyD2hOther,
        Self::CopyP2p,
        Self::CopyD2d,
        Self::CopyOther,
        Self::Memset,
        Self::SyncDrain,
        Self::RuntimeApi,
        Self::Allocator,
        Self::Dispatch,
        Self::HostCpu,
        Self::HostBlocked,
        Self::DataLoading,
        Self::LaunchApi,
        Self::LaunchLatency,
        Self::InterKernel,
        Self::DependencyWait,
        Self::GraphWait,
        Self::Profiler,
        Self::Unobserved,
        Self::NoWork,
    ];

    /// Stable name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Communication => "communication",
            Self::CopyH2dPageable => "copy_h2d_pageable",
            Self::CopyH2dPinned => "copy_h2d_pinned",
            Self::CopyH2dOther => "copy_h2d_other",
            Self::CopyD2hPageable => "copy_d2h_pageable",
            Self::CopyD2hPinned => "copy_d2h_pinned",
            Self::CopyD2hOther => "copy_d2h_other",
            Self::CopyP2p => "copy_p2p",
            Self::CopyD2d => "copy_d2d",
            Self::CopyOther => "copy_other",
            Self::Memset => "memset",
            Self::SyncDrain => "sync_drain",
            Self::RuntimeApi => "runtime_api",
            Self::Allocator => "allocator",
            Self::Dispatch => "dispatch",
            Self::HostCpu => "host_cpu",
            Self::HostBlocked => "host_blocked",
            Self::DataLoading => "data_loading",
            Self::LaunchApi => "launch_api",
            Self::LaunchLatency => "launch_latency",
            Self::InterKernel => "inter_kernel",
            Self::DependencyWait => "dependency_wait",
            Self::GraphWait => "graph_wait",
            Self::Profiler => "profiler",
            Self::Unobserved => "unobserved",
            Self::NoWork => "no_work",
        }
    }

    /// The question this leaf belongs to.
    #[must_use]
    pub const fn group(self) -> Group {
        match self {
            Self::Compute => Group::GpuCompute,
            Self::Communication => Group::Communication,
            Self::CopyH2dPageable
            | Self::CopyH2dPinned
            | Self::CopyH2dOther
            | Self::CopyD2hPageable
            | Self::CopyD2hPinned
            | Self::CopyD2hOther
            | Self::CopyP2p
            | Self::CopyD2d
            | Self::CopyOther
            | Self::Memset => Group::Copy,
            Self::SyncDrain => Group::Sync,
            Self::Allocator => Group::Allocator,
            Self::RuntimeApi | Self::HostCpu | Self::HostBlocked => Group::HostCpu,
            Self::DataLoading => Group::DataLoading,
            Self::Dispatch | Self::LaunchApi | Self::LaunchLatency | Self::InterKernel => Group::Launch,
            Self::DependencyWait | Self::GraphWait | Self::Profiler | Self::Unobserved => Group::CannotTell,
            Self::NoWork => Group::NoWork,
        }
    }

    /// Whether something was running on the device.
    #[must_use]
    pub const fn is_busy(self) -> bool {
        (self as usize) < BUSY_COUNT
    }

    /// Whether it is a copy from or to ordinary host memory.
    pub fn is_pageable(self) -> bool {
        matches!(self, Self::CopyH2dPageable | Self::CopyD2hPageable)
    }

    /// Whether it is a copy from or to the host.
    pub fn is_host_copy(self) -> bool {
        self.work() == Some(Work::Copy) && !matches!(self, Self::CopyP2p | Self::CopyD2d | Self::CopyOther)
    }

    /// What kind of work this is, for the overlap matrix; `None` for the idle leaves.
    #[must_use]
    pub const fn work(self) -> Option<Work> {
        match self {
            Self::Compute => Some(Work::Compute),
            Self::Communication => Some(Work::Communication),
            Self::Memset => Some(Work::Memset),
            _ if self.is_busy() => Some(Work::Copy),
            _ => None,
        }
    }
}

/// Kinds of device work between which overlap is counted. The discriminant indexes [`Overlap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Work {
    /// Kernels that compute.
    Compute,
    /// Kernels that communicate.
    Communication,
    /// Copies.
    Copy,
    /// Memsets.
    Memset,
}

impl Work {
    /// All kinds, in the order of their discriminants.
    pub const ALL: [Self; 4] = [Self::Compute, Self::Communication, Self::Copy, Self::Memset];

    /// Stable name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Communication => "communication",
            Self::Copy => "copy",
            Self::Memset => "memset",
        }
    }
}

/// Nanoseconds during which two kinds of work ran at once: `[the one that got the time][the one beneath it]`.
/// The diagonal stays zero.
pub type Overlap = [[u64; 4]; 4];

/// What a user can ask about. A verdict names one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// The device waits for input batches.
    DataLoading,
    /// The device waits for other host code.
    HostCpu,
    /// The device waits for copies.
    Copy,
    /// The device waits for launches: many small operations.
    Launch,
    /// The device computes.
    GpuCompute,
    /// The host waits for the device and then the device for the host.
    Sync,
    /// The device waits for other devices.
    Communication,
    /// The device waits for memory to be allocated or freed.
    Allocator,
    /// Nothing was asked of the device.
    NoWork,
    /// The records do not say.
    CannotTell,
}

impl Group {
    /// All groups.
    pub const ALL: [Self; 10] = [
        Self::DataLoading,
        Self::HostCpu,
        Self::Copy,
        Self::Launch,
        Self::GpuCompute,
        Self::Sync,
        Self::Communication,
        Self::Allocator,
        Self::NoWork,
        Self::CannotTell,
    ];

    /// Stable name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DataLoading => "data_loading",
            Self::HostCpu => "host_cpu",
            Self::Copy => "copy",
            Self::Launch => "launch",
            Self::GpuCompute => "gpu_compute",
            Self::Sync => "sync",
            Self::Communication => "communication",
            Self::Allocator => "allocator",
            Self::NoWork => "no_work",
            Self::CannotTell => "cannot_tell",
        }
    }

    /// Nanoseconds of this group in `leaves`.
    #[must_use]
    pub fn total(self, leaves: &Leaves) -> u64 {
        Leaf::ALL.iter().filter(|leaf| leaf.group() == self).map(|&leaf| leaves[leaf as usize]).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discriminants_follow_the_list() {
        for (index, leaf) in Leaf::ALL.into_iter().enumerate() {
            assert_eq!(leaf as usize, index);
            assert_eq!(leaf.work().is_some(), leaf.is_busy());
        }
    }

    #[test]
    fn copies_of_the_host_are_those_to_or_from_its_memory() {
        for leaf in Leaf::ALL {
            let with_host = leaf.name().starts_with("copy_h2d") || leaf.name().starts_with("copy_d2h");
            assert_eq!(leaf.is_host_copy(), with_host, "{leaf:?}");
            assert_eq!(leaf.is_pageable(), leaf.name().ends_with("_pageable"), "{leaf:?}");
        }
    }

    #[test]
    fn names_are_distinct() {
        let names: std::collections::BTreeSet<_> = Leaf::ALL.iter().map(|leaf| leaf.name()).collect();
        assert_eq!(names.len(), LEAF_COUNT);
    }
}
