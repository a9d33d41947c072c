//! Plain words for causes, memory, directions and missing data, for text output. The stable names of the JSON
//! are methods of the types themselves; a text that shows one appends it to these words.

mod gains;

pub use gains::{about, condition, faster, gain, not_simulated, what_if, worth_showing};
pub(crate) use gains::{at_least, at_most, at_most_without};

use gpuwhy_trace::counters::UnavailableReason;
use gpuwhy_trace::kernels::Outcome;
use gpuwhy_trace::loss::LossKind;
use gpuwhy_trace::record::{CopyKind, Loss, MemoryKind};
use profiler_core::attribution::host_cause::HostCause;
use profiler_core::attribution::statistics::CopyPath;
use profiler_core::counters::roofs::{Limit, Roof};
use profiler_core::leaf::{Cause, Leaf};

use crate::text_format::{counted, duration, percent, printable};

/// Name of a bottleneck: `Bottleneck: kernel launches.`
pub const fn bottleneck(cause: Cause) -> &'static str {
    match cause {
        Cause::DataLoading => "data loading",
        Cause::HostCpu => "CPU work between launches",
        Cause::Copy => "memory copies",
        Cause::Launch => "kernel launches",
        Cause::GpuCompute => "GPU computation",
        Cause::Sync => "synchronization",
        Cause::Communication => "communication between GPUs",
        Cause::Allocator => "memory allocation",
        Cause::KernelBuild => "building kernels",
        Cause::OtherProcess => "another process on the GPU",
        Cause::NoWork => "no GPU work",
        Cause::CannotTell => "unknown",
    }
}

/// The same with its verb: `The GPU waits for the next launch 62 % of every step.`
pub(crate) const fn what_the_gpu_does(cause: Cause) -> &'static str {
    match cause {
        Cause::DataLoading => "waits for the next batch of data",
        Cause::HostCpu => "waits for CPU work between launches",
        Cause::Copy => "only copies memory",
        Cause::Launch => "waits for the next launch",
        Cause::GpuCompute => "computes",
        Cause::Sync => "has nothing to do, because the CPU waited for it,",
        Cause::Communication => "only communicates with other GPUs",
        Cause::Allocator => "waits while memory is allocated or freed",
        Cause::KernelBuild => "waits while kernels are built or loaded",
        Cause::OtherProcess => "works for another process",
        Cause::NoWork => "has no work",
        Cause::CannotTell => "waits for something that was not recorded",
    }
}

/// Result of a part of the run: `waiting for launches 62 %`.
pub(crate) fn result(cause: Cause, share: f64) -> String {
    match cause {
        Cause::NoWork => "no GPU work".to_owned(),
        Cause::CannotTell => "no bottleneck".to_owned(),
        cause => format!("{} {}", spent(cause), percent(share)),
    }
}

/// Activity that a part of the GPU's time is spent on: `waiting for launches 62 %`.
pub const fn spent(cause: Cause) -> &'static str {
    match cause {
        Cause::DataLoading => "waiting for data",
        Cause::HostCpu => "CPU work between launches",
        Cause::Copy => "copying memory",
        Cause::Launch => "waiting for launches",
        Cause::GpuCompute => "computing",
        Cause::Sync => "idle because the CPU waited for it",
        Cause::Communication => "communicating",
        Cause::Allocator => "waiting for memory allocation",
        Cause::KernelBuild => "waiting for kernels to be built or loaded",
        Cause::OtherProcess => "used by another process",
        Cause::NoWork => "no work",
        Cause::CannotTell => "unknown",
    }
}

/// The cause of a part of the GPU's time.
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
        Leaf::SyncDrain => "idle, CPU waited for the GPU",
        Leaf::RuntimeApi => "other CUDA calls",
        Leaf::Allocator => "memory allocation",
        Leaf::KernelBuild => "building or loading kernels",
        Leaf::Dispatch => "framework overhead between launches",
        Leaf::HostCpu => "CPU running or not sampled",
        Leaf::HostBlocked => "CPU asleep or blocked",
        Leaf::DataLoading => "waiting for data",
        Leaf::LaunchApi => "inside launch calls",
        Leaf::LaunchLatency => "launch-to-start delay",
        Leaf::InterKernel => "pause between queued kernels",
        Leaf::DependencyWait => "idle while work was queued",
        Leaf::OtherProcess => "used by another process",
        Leaf::GraphWait => "waiting inside a CUDA graph",
        Leaf::Profiler => "overhead of gpuwhy",
        Leaf::Unobserved => "not recorded",
        Leaf::NoWork => "no work",
    }
}

/// Sampled activity of a thread.
pub const fn activity(cause: HostCause) -> &'static str {
    match cause {
        HostCause::Code => "running code",
        HostCause::KernelBuild => "building kernels",
        HostCause::GarbageCollection => "collecting garbage",
        HostCause::InterpreterLock => "waiting for the interpreter's lock (GIL)",
        HostCause::Lock => "waiting for a lock or queue",
        HostCause::Poll => "waiting for a pipe or socket",
        HostCause::Io => "waiting for input or output",
        HostCause::Disk => "waiting for storage",
        HostCause::Sleep => "sleeping",
        HostCause::Child => "waiting for a child process",
        HostCause::Memory => "waiting for page faults or memory mapping",
        HostCause::Driver => "waiting in a kernel driver",
        HostCause::Preempted => "waiting for a CPU core",
        HostCause::OtherWait => "waiting for an unknown reason",
        HostCause::NoRequests => "waiting for requests",
        HostCause::LoaderInline => "preparing the batch on the launching thread",
        HostCause::LoaderCollate => "joining or pinning the batch on the launching thread",
        HostCause::LoaderReceive => "taking the batch over from workers",
        HostCause::LoaderStart => "starting or ending worker processes",
        HostCause::LoaderWait | HostCause::LoaderWaitBusy | HostCause::LoaderWaitIo | HostCause::LoaderWaitIdle => {
            "waiting for the data loader"
        }
    }
}

/// Options that record a part of a run, after `lead`; empty for a run shorter than that part and the time before.
pub(crate) fn part_of_a_run(run_ns: u64, lead: &str) -> String {
    const SECOND: u64 = 1_000_000_000;
    match run_ns / SECOND {
        0..30 => String::new(),
        30..90 => format!("{lead} (gpuwhy run --delay 20 --duration 10)"),
        _ => format!("{lead} (gpuwhy run --delay 60 --duration 10)"),
    }
}

/// True for a thread of PyTorch's backward pass, named in `torch/csrc/autograd/engine.cpp`.
pub(crate) fn is_backward_thread(name: &str) -> bool {
    name.starts_with("pt_autograd_")
}

/// A thread by its name, or by its number if it has none.
pub fn thread(name: &str) -> String {
    let known = match name {
        _ if is_backward_thread(name) => "backward",
        "pt_data_pin" => "pinning",
        _ => return format!("thread {}", printable(name)),
    };
    format!("the {known} thread ({})", printable(name))
}

/// Limit of computation, for a table.
pub const fn limit(limit: Limit) -> &'static str {
    match limit {
        Limit::Tensor => "tensor cores",
        Limit::Memory => "memory",
        Limit::Issue => "instruction issue",
        Limit::Latency => "latency",
        Limit::Occupancy => "too few warps",
        Limit::IdleMultiprocessors => "idle multiprocessors",
        Limit::LoweredClock => "lowered clock",
        Limit::Unresolved => "unresolved",
    }
}

/// Unit with a roofline, for a sentence.
pub const fn roof(roof: Roof) -> &'static str {
    match roof {
        Roof::Tensor => "the tensor cores",
        Roof::Dram => "the bandwidth of device memory",
        Roof::L2 => "the bandwidth of the L2 cache",
        Roof::L1 => "L1 and shared memory",
        Roof::Issue => "the peak of instruction issue",
    }
}

/// Direction and host memory of a copy: `host-to-device copies from pageable memory`.
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

pub(crate) const fn memory_word(kind: MemoryKind) -> &'static str {
    match kind {
        MemoryKind::Unknown => "other",
        other => other.name(),
    }
}

/// Capitalizes the first letter.
pub fn capitalized(words: &str) -> String {
    let mut rest = words.chars();
    rest.next().map(|first| first.to_uppercase().chain(rest).collect()).unwrap_or_default()
}

/// Losses, one sentence per nonzero counter; none for a complete run.
pub fn losses(loss: &Loss) -> impl Iterator<Item = String> + use<> {
    loss.kinds().into_iter().filter_map(|kind| lost(&kind))
}

/// Sentence about one loss counter; `None` if it is zero, or if another part of the report mentions it.
pub fn lost(kind: &LossKind) -> Option<String> {
    let (before, what, after) = match kind.name {
        _ if kind.count == 0 => return None,
        "dropped_by_cupti" => ("CUPTI dropped", "record", ""),
        "dropped_by_gpuwhy" => ("gpuwhy dropped", "record", ""),
        "unknown_kinds" => ("Not understood:", "record", " of an unknown kind"),
        "broken_buffers" => ("CUPTI delivered", "broken buffer", ""),
        "undelivered_buffers" => ("CUPTI never delivered", "buffer", ""),
        "dropped_ranges" => ("gpuwhy dropped", "NVTX range event", ""),
        "dictionary_overflow" => ("Too many names: counted without theirs", "record", ""),
        "unobserved_ns" => {
            let time = duration(kind.count);
            return Some(format!("Nothing was recorded for {time}, because another tool used CUPTI or CUPTI refused."));
        }
        "own_kernels" => ("Excluded:", "kernel", " that CUPTI launched while gpuwhy measured kernels"),
        "dropped_collectives" => ("gpuwhy dropped", "event", " of NCCL"),
        "unplaced_graph_nodes" => ("gpuwhy did not read the origin of", "node", " of CUDA graphs"),
        "dropped_graph_nodes" => ("gpuwhy dropped", "node", " of CUDA graphs"),
        "dropped_memory_calls" => ("gpuwhy dropped", "call", " that takes or gives device memory"),
        // `broken_bytes` are in the buffers; failed samples are listed next to the successful ones.
        _ => return None,
    };
    Some(format!("{before} {}{after}.", counted(kind.count, what)))
}

/// Sentence about why hardware counters were not sampled, and the remedy.
pub fn refusal(refused: UnavailableReason) -> String {
    match refused {
        UnavailableReason::Busy => {
            "another tool or process uses the GPU's counters (ncu, nsys, DCGM or a second gpuwhy): stop it, or \
                       pause DCGM with `dcgmi profile --pause`"
                .to_owned()
        }
        UnavailableReason::NotPermitted => {
            "the driver allows counters to administrators only: run as root, or load the kernel module \
                               nvidia with NVreg_RestrictProfilingToAdminUsers=0"
                .to_owned()
        }
        UnavailableReason::NoLibrary => {
            "libnvperf_host.so was not found beside libcupti: install the CUPTI package of CUDA 12.6 or later"
                .to_owned()
        }
        UnavailableReason::TooOld => "the CUPTI in use cannot sample counters: use CUDA 12.6 or later".to_owned(),
        UnavailableReason::UnknownChip => "no set of counters is known for this GPU".to_owned(),
        UnavailableReason::NotSupported => {
            "the GPU does not allow it (MIG, vGPU, MPS or confidential computing): use a whole GPU".to_owned()
        }
        UnavailableReason::GivenAway => "the counters were in use for kernel profiles of this run".to_owned(),
        UnavailableReason::Incomplete => "samples never completed: a unit of the GPU sent nothing".to_owned(),
        UnavailableReason::Failed(code) => format!("CUPTI refused (error {code}): see `gpuwhy doctor`"),
        UnavailableReason::Unknown => "for a reason that this version does not know: update gpuwhy".to_owned(),
    }
}

/// Sentence about why a kernel was not measured, and the remedy; `None` if it was measured.
pub fn not_measured(outcome: Outcome) -> Option<String> {
    Some(match outcome {
        Outcome::Measured => return None,
        Outcome::NotLaunched => {
            "it was not launched again with this shape and after the same launches; let the program run longer, or choose it with --kernel"
                .to_owned()
        }
        Outcome::OutOfBudget => {
            "its time or launches ran out before all passes were measured; fewer kernels (--top) leave more time for each"
                .to_owned()
        }
        Outcome::Disturbed => "other threads launched work into every pass; profile it from one thread".to_owned(),
        Outcome::Refused(code) => refused_by_cupti(code),
        Outcome::Busy => "another tool on this GPU holds its counters (ncu, nsys, or DCGM: `dcgmi profile --pause`); \
                       end it and repeat"
            .to_owned(),
        Outcome::Unsuitable => "it is launched cooperatively or in a way that cannot be measured".to_owned(),
        Outcome::Unknown => "for a reason that a newer version of gpuwhy knows".to_owned(),
    })
}

/// Meaning of a `CUptiResult` code in this context.
fn refused_by_cupti(code: u32) -> String {
    match code {
        12 => "more metrics were chosen than are measured; choose fewer".to_owned(),
        35 => "this user may not read the counters; run as root, or load the driver with \
               NVreg_RestrictProfilingToAdminUsers=0"
            .to_owned(),
        26 => "something on this machine holds the counters of the GPU; end it and repeat".to_owned(),
        17 => "this GPU does not have one of the metrics; choose another --set".to_owned(),
        33 | 40..=45 => {
            format!(
                "counters cannot be read in this environment, such as MIG, MPS, vGPU or confidential computing ({code})"
            )
        }
        code => format!("CUPTI refused (error {code}) and does not say why; repeat it alone on this GPU"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_lost_has_a_sentence() {
        assert_eq!(losses(&Loss::default()).count(), 0);
        let loss =
            Loss { dropped_by_cupti: 1, broken_buffers: 2, broken_bytes: 96, unobserved_ns: 2_000, ..Loss::default() };
        let sentences: Vec<_> = losses(&loss).collect();
        assert_eq!(sentences[..2], ["CUPTI dropped 1 record.", "CUPTI delivered 2 broken buffers."]);
        assert!(sentences[2].starts_with("Nothing was recorded for 2"), "{sentences:?}");
        assert_eq!(sentences.len(), 3);
    }

    #[test]
    fn a_part_is_advised_only_of_a_run_that_is_longer() {
        let advised = |seconds: u64| part_of_a_run(seconds * 1_000_000_000, "");
        assert_eq!(advised(9), "");
        assert!(advised(60).contains("--delay 20") && advised(600).contains("--delay 60"));
    }

    #[test]
    fn threads_of_pytorch_are_named_by_what_they_do() {
        let words = ["pt_autograd_0", "pt_data_pin", "worker", "1779"].map(thread);
        let expected = ["the backward thread (pt_autograd_0)", "the pinning thread (pt_data_pin)"];
        assert_eq!(words[..2], expected);
        assert_eq!(words[2..], ["thread worker", "thread 1779"]);
    }

    #[test]
    fn each_kind_of_loss_is_said_once() {
        let kinds = Loss::default().kinds().map(|kind| LossKind { count: 3, ..kind });
        let silent: Vec<_> = kinds.iter().filter(|kind| lost(kind).is_none()).map(|kind| kind.name).collect();
        assert_eq!(silent, ["broken_bytes", "failed_samples"]);
    }
}
