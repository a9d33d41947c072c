//! Plain words for causes, memory and directions, for texts that people read. The stable names of the JSON are methods
//! of the types themselves; a text that shows one puts it behind these words.

use crate::attribution::host_cause::HostCause;
use crate::attribution::leaf::{Group, Leaf};
use crate::attribution::statistics::CopyPath;
use crate::record::{CopyKind, MemoryKind};

/// What a bottleneck is called: `Bottleneck: kernel launches.`
#[must_use]
pub const fn bottleneck(group: Group) -> &'static str {
    match group {
        Group::DataLoading => "data loading",
        Group::HostCpu => "CPU work between launches",
        Group::Copy => "memory copies",
        Group::Launch => "kernel launches",
        Group::GpuCompute => "GPU computation",
        Group::Sync => "synchronization",
        Group::Communication => "communication between GPUs",
        Group::Allocator => "memory allocation",
        Group::NoWork => "no GPU work",
        Group::CannotTell => "unknown",
    }
}

/// The same with its verb: `The GPU waits for the next launch 62 % of every step.`
pub(crate) const fn what_the_gpu_does(group: Group) -> &'static str {
    match group {
        Group::DataLoading => "waits for the next batch of data",
        Group::HostCpu => "waits for CPU work between launches",
        Group::Copy => "only copies memory",
        Group::Launch => "waits for the next launch",
        Group::GpuCompute => "computes",
        Group::Sync => "has nothing to do, because the CPU waited for it,",
        Group::Communication => "only communicates with other GPUs",
        Group::Allocator => "waits while memory is allocated or freed",
        Group::NoWork => "has no work",
        Group::CannotTell => "waits for something that was not recorded",
    }
}

/// What a part of the GPU's time is spent with: `waiting for launches 62 %`.
#[must_use]
pub const fn spent(group: Group) -> &'static str {
    match group {
        Group::DataLoading => "waiting for data",
        Group::HostCpu => "waiting for CPU work",
        Group::Copy => "copying memory",
        Group::Launch => "waiting for launches",
        Group::GpuCompute => "computing",
        Group::Sync => "idle after synchronization",
        Group::Communication => "communicating",
        Group::Allocator => "waiting for memory allocation",
        Group::NoWork => "no work",
        Group::CannotTell => "unknown",
    }
}

/// The cause of a part of the GPU's time.
#[must_use]
pub const fn cause(leaf: Leaf) -> &'static str {
    match leaf {
        Leaf::Compute => "computing",
        Leaf::Communication => "communicating with other GPUs",
        Leaf::CopyH2dPageable => "copying host to device, pageable memory",
        Leaf::CopyH2dPinned => "copying host to device, pinned memory",
        Leaf::CopyH2dOther => "copying host to device, other memory",
        Leaf::CopyD2hPageable => "copying device to host, pageable memory",
        Leaf::CopyD2hPinned => "copying device to host, pinned memory",
        Leaf::CopyD2hOther => "copying device to host, other memory",
        Leaf::CopyP2p => "copying between GPUs",
        Leaf::CopyD2d => "copying within the GPU",
        Leaf::CopyOther => "other copies",
        Leaf::Memset => "setting memory",
        Leaf::SyncDrain => "idle after synchronization",
        Leaf::RuntimeApi => "other CUDA calls",
        Leaf::Allocator => "memory allocation",
        Leaf::Dispatch => "framework overhead between launches",
        Leaf::HostCpu => "CPU busy with other work",
        Leaf::HostBlocked => "CPU asleep or blocked",
        Leaf::DataLoading => "waiting for data",
        Leaf::LaunchApi => "inside launch calls",
        Leaf::LaunchLatency => "launch-to-start delay",
        Leaf::InterKernel => "pause between queued kernels",
        Leaf::DependencyWait => "idle while work was queued",
        Leaf::GraphWait => "waiting inside a CUDA graph",
        Leaf::Profiler => "overhead of gpuwhy",
        Leaf::Unobserved => "not recorded",
        Leaf::NoWork => "no work",
    }
}

/// What a thread was seen to do.
#[must_use]
pub const fn activity(cause: HostCause) -> &'static str {
    match cause {
        HostCause::Code => "running code",
        HostCause::GarbageCollection => "collecting garbage",
        HostCause::InterpreterLock => "waiting for the interpreter's lock (GIL)",
        HostCause::Lock => "waiting for a lock or queue",
        HostCause::Poll => "waiting for a pipe or socket",
        HostCause::Io => "in input or output",
        HostCause::Disk => "waiting for storage",
        HostCause::Sleep => "sleeping",
        HostCause::Child => "waiting for a child process",
        HostCause::Memory => "in page faults or memory mapping",
        HostCause::Driver => "in a kernel driver",
        HostCause::Preempted => "ready, without a free core",
        HostCause::OtherWait => "in other waits",
        HostCause::LoaderInline => "preparing the batch on the launching thread",
        HostCause::LoaderCollate => "joining or pinning the batch on the launching thread",
        HostCause::LoaderReceive => "taking the batch over from workers",
        HostCause::LoaderWait | HostCause::LoaderWaitBusy | HostCause::LoaderWaitIo | HostCause::LoaderWaitIdle => {
            "waiting for the data loader"
        }
    }
}

/// Direction and host memory of a copy: `host-to-device copies from pageable memory`.
#[must_use]
pub fn copies(path: CopyPath, count: u64) -> String {
    let noun = if count == 1 { "copy" } else { "copies" };
    let (direction, host) = match path.kind {
        CopyKind::HostToDevice => ("host-to-device", Some(("from", path.source))),
        CopyKind::DeviceToHost => ("device-to-host", Some(("to", path.destination))),
        CopyKind::DeviceToDevice => ("device-to-device", None),
        other => return format!("{} {noun}", other.name().replace('_', "-")),
    };
    match host {
        Some((way, memory)) => format!("{direction} {noun} {way} {} memory", memory_word(memory)),
        None => format!("{direction} {noun}"),
    }
}

/// A kind of memory.
pub(crate) const fn memory_word(kind: MemoryKind) -> &'static str {
    match kind {
        MemoryKind::Unknown => "other",
        other => other.name(),
    }
}

/// The first letter in upper case.
#[must_use]
pub fn capitalized(words: &str) -> String {
    let mut rest = words.chars();
    rest.next().map(|first| first.to_uppercase().chain(rest).collect()).unwrap_or_default()
}
