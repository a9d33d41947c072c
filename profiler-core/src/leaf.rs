//! Causes that device time is divided into.
//!
//! Every nanosecond of a device's window has exactly one leaf. While an operation runs, the leaf is the most
//! valuable running kind (the order of the first twelve variants); while the device is idle, it is the reason
//! that the next operation came no earlier. Leaves are observable mechanisms; a [`Cause`] is a cause in the
//! terms of a user.

use gpuwhy_trace::named;
use gpuwhy_trace::record::CopyKind;

named! {
    /// A cause of device time. The discriminant indexes [`Leaves`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum Leaf: name {
        /// A kernel that does not communicate was running.
        Compute "compute",
        /// Only communication kernels (and perhaps copies) were running.
        Communication "communication",
        /// Only copies were running: host to device from pageable memory.
        CopyH2dPageable "copy_h2d_pageable",
        /// Host to device from pinned memory.
        CopyH2dPinned "copy_h2d_pinned",
        /// Host to device from managed or unreported memory.
        CopyH2dOther "copy_h2d_other",
        /// Device to host into pageable memory.
        CopyD2hPageable "copy_d2h_pageable",
        /// Device to host into pinned memory.
        CopyD2hPinned "copy_d2h_pinned",
        /// Device to host into managed or unreported memory.
        CopyD2hOther "copy_d2h_other",
        /// Between devices.
        CopyP2p "copy_p2p",
        /// Within the device.
        CopyD2d "copy_d2d",
        /// Any other copy.
        CopyOther "copy_other",
        /// Only memsets were running.
        Memset "memset",
        /// The host waited for the device, so the queue was empty when the device ran dry.
        SyncDrain "sync_drain",
        /// The host was in a CUDA call that neither launches, waits, allocates nor loads kernels: graph
        /// instantiation, context creation.
        RuntimeApi "runtime_api",
        /// The host was allocating, freeing or registering memory.
        Allocator "allocator",
        /// The host was loading kernels, or busy for a long time right before that: it built them.
        KernelBuild "kernel_build",
        /// The host was between CUDA calls, each time briefly: the framework's cost per operation.
        Dispatch "dispatch",
        /// The host was busy outside CUDA for a long time, or its activity was not observed.
        HostCpu "host_cpu",
        /// The host was outside CUDA for a long time and was observed off the cores: waiting for a lock, a
        /// file, a child, a core.
        HostBlocked "host_blocked",
        /// The host was outside CUDA for a long time in a data loader: observed there, or inferred from the
        /// recurring pattern of a loop that waits for its next input batch.
        DataLoading "data_loading",
        /// The host was inside the launching call.
        LaunchApi "launch_api",
        /// The call had returned and the operation had not started, because it was launched into an idle device.
        LaunchLatency "launch_latency",
        /// The next operation was queued; the device took a moment to start it.
        InterKernel "inter_kernel",
        /// The next operation was queued and waited for longer than the device needs: an event, another device.
        DependencyWait "dependency_wait",
        /// Like [`Leaf::DependencyWait`], for a node of a CUDA graph.
        GraphWait "graph_wait",
        /// The next operation was queued for longer than the device needs, and another process used the device.
        OtherProcess "other_process",
        /// The tracing library kept the launching thread busy.
        Profiler "profiler",
        /// The cause cannot be known: a launch or an activity record is missing.
        Unobserved "unobserved",
        /// The host was inactive long enough to be more likely parked than slow.
        NoWork "no_work",
    }
}

/// Number of leaves.
pub const LEAF_COUNT: usize = Leaf::ALL.len();

/// Number of leaves in which the device was busy. They come first, in order of priority.
pub const BUSY_COUNT: usize = Leaf::Memset as usize + 1;

/// Nanoseconds by leaf, indexed by `Leaf as usize`.
pub type Leaves = [u64; LEAF_COUNT];

impl Leaf {
    /// Cause that this leaf belongs to.
    pub const fn cause(self) -> Cause {
        match self {
            Self::Compute => Cause::GpuCompute,
            Self::Communication => Cause::Communication,
            Self::CopyH2dPageable
            | Self::CopyH2dPinned
            | Self::CopyH2dOther
            | Self::CopyD2hPageable
            | Self::CopyD2hPinned
            | Self::CopyD2hOther
            | Self::CopyP2p
            | Self::CopyD2d
            | Self::CopyOther
            | Self::Memset => Cause::Copy,
            Self::SyncDrain => Cause::Sync,
            Self::Allocator => Cause::Allocator,
            Self::KernelBuild => Cause::KernelBuild,
            Self::RuntimeApi | Self::HostCpu | Self::HostBlocked => Cause::HostCpu,
            Self::DataLoading => Cause::DataLoading,
            Self::Dispatch | Self::LaunchApi | Self::LaunchLatency | Self::InterKernel => Cause::Launch,
            Self::OtherProcess => Cause::OtherProcess,
            Self::DependencyWait | Self::GraphWait | Self::Profiler | Self::Unobserved => Cause::CannotTell,
            Self::NoWork => Cause::NoWork,
        }
    }

    /// True if the device was running an operation.
    pub const fn is_busy(self) -> bool {
        (self as usize) < BUSY_COUNT
    }

    /// True for a copy from or to pageable host memory.
    pub fn is_pageable(self) -> bool {
        matches!(self, Self::CopyH2dPageable | Self::CopyD2hPageable)
    }

    /// Direction of a copy; `None` of other work, and where it is unknown.
    pub const fn copy_kind(self) -> Option<CopyKind> {
        match self {
            Self::CopyH2dPageable | Self::CopyH2dPinned | Self::CopyH2dOther => Some(CopyKind::HostToDevice),
            Self::CopyD2hPageable | Self::CopyD2hPinned | Self::CopyD2hOther => Some(CopyKind::DeviceToHost),
            Self::CopyP2p => Some(CopyKind::PeerToPeer),
            Self::CopyD2d => Some(CopyKind::DeviceToDevice),
            _ => None,
        }
    }

    /// True for a copy from or to the host.
    pub const fn is_host_copy(self) -> bool {
        matches!(self.copy_kind(), Some(CopyKind::HostToDevice | CopyKind::DeviceToHost))
    }

    /// Kind of work for the overlap matrix; `None` for idle leaves.
    pub const fn work(self) -> Option<WorkKind> {
        match self {
            Self::Compute => Some(WorkKind::Compute),
            Self::Communication => Some(WorkKind::Communication),
            Self::Memset => Some(WorkKind::Memset),
            _ if self.is_busy() => Some(WorkKind::Copy),
            _ => None,
        }
    }
}

named! {
    /// Kinds of device work between which overlap is counted. The discriminant indexes [`Overlap`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum WorkKind: name {
        /// Kernels that compute.
        Compute "compute",
        /// Kernels that communicate.
        Communication "communication",
        /// Copies.
        Copy "copy",
        /// Memsets.
        Memset "memset",
    }
}

/// Nanoseconds during which two kinds of work ran at once: `[the one that got the time][the one beneath it]`.
/// The diagonal stays zero.
pub type Overlap = [[u64; 4]; 4];

/// For `nanos`, the leaves set in `beneath` ran beneath `top`. Only different kinds of work count: two concurrent
/// kernels are one computing device.
#[inline(never)]
pub(crate) fn count_overlap(overlap: &mut Overlap, top: Leaf, mut beneath: u32, nanos: u64) {
    let Some(work) = top.work() else { return };
    let mut counted = [false; WorkKind::ALL.len()];
    counted[work as usize] = true;
    while beneath != 0 {
        if let Some(other) = Leaf::ALL[beneath.trailing_zeros() as usize].work()
            && !std::mem::replace(&mut counted[other as usize], true)
        {
            overlap[work as usize][other as usize] += nanos;
        }
        beneath &= beneath - 1;
    }
}

named! {
    /// Cause in the terms of a user. The bottleneck is one of these.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Cause: name {
        /// The device waits for input batches.
        DataLoading "data_loading",
        /// The device waits for other host code.
        HostCpu "host_cpu",
        /// The device waits for copies.
        Copy "copy",
        /// The device waits for launches: many small operations.
        Launch "launch",
        /// The device computes.
        GpuCompute "gpu_compute",
        /// The host waits for the device and then the device for the host.
        Sync "sync",
        /// The device waits for other devices.
        Communication "communication",
        /// The device waits for memory to be allocated or freed.
        Allocator "allocator",
        /// The device waits while the host builds or loads kernels.
        KernelBuild "kernel_build",
        /// The device works for another process.
        OtherProcess "other_process",
        /// The device had no work.
        NoWork "no_work",
        /// The records do not show the cause.
        CannotTell "cannot_tell",
    }
}

impl Cause {
    /// Nanoseconds of this cause in `leaves`.
    pub fn total(self, leaves: &Leaves) -> u64 {
        Leaf::ALL.iter().filter(|leaf| leaf.cause() == self).map(|&leaf| leaves[leaf as usize]).sum()
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
