//! Data passed between the stages of the engine: a device operation, with the contents of its record and the
//! facts derived along the way; and the state of delivery.

use std::hash::{Hash, Hasher};

use gpuwhy_trace::completeness::Completeness;
use gpuwhy_trace::dictionary::{Dictionary, is_whole_graph};
use gpuwhy_trace::record::{
    Copy, CopyKind, CorrelationId, DeviceId, Kernel, LaunchConfig, LaunchConfigId, Memset, NameId, StreamId, Timestamp,
};
use rustc_hash::FxHasher;

use super::host_cause::Subject;
use super::launch_places::PlaceId;
use super::statistics::CopyPath;
use crate::api::ApiClass;
use crate::leaf::Leaf;
use crate::steps::TokenKernel;
use crate::thresholds::{FUTURE_NANOS, INPUT_BYTES};
use crate::whatif::{MOST_BYTES, SmallGrid};

/// Operations that may wait for the watermark (some 120 bytes each). Beyond that, the flush mark alone
/// decides: bounded memory takes precedence over exact order, and operations that then come late are counted.
/// Only programs that launch large graphs far ahead reach this limit. A graph does not say how many records
/// it will leave, so everything since the launch of the oldest unfinished one would wait, a million
/// operations per second.
pub(super) const PENDING_LIMIT: usize = 1 << 17;

/// Records that may wait: operations for the watermark, and as many records for each of two flushes.
pub(super) const WAITING_LIMIT: usize = 3 * PENDING_LIMIT;

/// Longest window, nanoseconds (208 days): a time farther away is damage, and sums over all devices fit into
/// 64 bits.
pub(super) const LONGEST_WINDOW: u64 = 1 << 54;

/// True if this value means an unknown time: the end of the value range is as impossible as its start.
pub(super) fn is_no_time(nanos: u64) -> bool {
    matches!(nanos, 0 | u64::MAX)
}

/// The outermost call of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchCall {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Index of the calling thread.
    pub(crate) thread: u32,
    pub(crate) class: ApiClass,
    /// True if host samples fell into it; see `host/launch_lines.rs`.
    pub(crate) sampled: bool,
}

/// A kernel, copy or memset on its way to the timeline.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceOperation {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) launch: Option<LaunchCall>,
    pub(super) device: DeviceId,
    pub(super) stream: StreamId,
    pub(super) correlation: CorrelationId,
    pub(super) subject: Subject,
    pub(super) leaf: Leaf,
    pub(super) graph: bool,
    /// True for a copy from the host that is large enough to be an input batch.
    pub(super) input: bool,
    /// True for an optimizer's kernel, by its name.
    pub(super) optimizer: bool,
    /// True for a kernel that only finds the size or the places of a selection, by its name.
    pub(super) selection: bool,
    /// CUPTI's id of the graph that contains it; 0 outside graphs, or if the record does not have it.
    pub(super) graph_id: u32,
    /// Place that captured its node of a graph.
    pub(super) captured: Option<PlaceId>,
    /// Number of the flush during which it arrived.
    pub(super) flush: u64,
    /// Equal for equivalent operations: kernel and grid, direction of a copy, graph.
    pub(super) symbol: u32,
    pub(super) status: LaunchStatus,
    /// True if its start was already accounted for when it arrived.
    pub(super) late: bool,
    /// Number of kernels with its grid that can run at once with one block per multiprocessor; 0 for less
    /// than two.
    pub(super) fit: u16,
    /// Minimum time that a copy between host and device needs the link, nanoseconds, capped at its duration;
    /// 0 if unknown.
    pub(super) link: u32,
    /// Duration of a kernel at the achievable peak of its nearest roofline, nanoseconds; 0 if unknown.
    pub(super) at_roof: u32,
    /// The number of a kernel's launch configuration.
    pub(super) kernel: u32,
    /// Size of a copy in bytes; 0 for other operations.
    pub(super) bytes: u64,
    /// What a kernel tells about tokens of a language model.
    pub(super) tokens: TokenKernel,
}

impl DeviceOperation {
    /// An operation for which only its time and place are known.
    #[inline]
    pub(super) fn new(
        start: Timestamp,
        end: Timestamp,
        device: DeviceId,
        stream: StreamId,
        correlation: CorrelationId,
    ) -> Self {
        Self {
            start: start.nanos(),
            end: end.nanos(),
            launch: None,
            device,
            stream,
            correlation,
            subject: Subject::None,
            leaf: Leaf::CopyOther,
            graph: false,
            graph_id: 0,
            captured: None,
            input: false,
            optimizer: false,
            selection: false,
            flush: 0,
            symbol: 0,
            status: LaunchStatus::default(),
            late: false,
            fit: 0,
            link: 0,
            at_roof: 0,
            kernel: 0,
            bytes: 0,
            tokens: TokenKernel::None,
        }
    }

    /// A kernel. Its duration at the nearest roofline is not known here.
    #[inline]
    pub(super) fn of_kernel(kernel: &Kernel, class: &KernelClass, dictionary: &Dictionary) -> Self {
        let &KernelClass { name, communication, optimizer, selection, tokens, symbol, blocks, .. } = class;
        Self {
            leaf: if communication { Leaf::Communication } else { Leaf::Compute },
            subject: Subject::Kernel(name),
            graph: kernel.graph_id != 0,
            optimizer,
            tokens,
            selection: selection == Selection::Places,
            kernel: kernel.config.0,
            graph_id: kernel.graph_id,
            symbol: if kernel.graph_id == 0 { symbol } else { symbol_of_graph(kernel.graph_id) },
            fit: if communication || blocks == 0 { 0 } else { fit(blocks, kernel.device, dictionary) },
            ..Self::new(kernel.start, kernel.end, kernel.device, kernel.stream, kernel.correlation)
        }
    }

    pub(super) fn of_copy(copy: &Copy, dictionary: &Dictionary) -> Self {
        let from_host = copy.kind == CopyKind::HostToDevice;
        Self {
            leaf: CopyPath { kind: copy.kind, source: copy.source, destination: copy.destination }.leaf(),
            subject: if from_host { Subject::HostToDevice } else { Subject::OtherTransfer },
            graph: copy.graph_id != 0,
            graph_id: copy.graph_id,
            symbol: if copy.graph_id == 0 { symbol(&("copy", copy.kind)) } else { symbol_of_graph(copy.graph_id) },
            input: from_host && copy.bytes >= INPUT_BYTES,
            link: link_nanos(copy, dictionary),
            bytes: copy.bytes,
            ..Self::new(copy.start, copy.end, copy.device, copy.stream, copy.correlation)
        }
    }

    pub(super) fn of_memset(memset: &Memset) -> Self {
        Self {
            leaf: Leaf::Memset,
            subject: Subject::OtherTransfer,
            graph: memset.graph_id != 0,
            graph_id: memset.graph_id,
            symbol: if memset.graph_id == 0 { symbol(&"memset") } else { symbol_of_graph(memset.graph_id) },
            ..Self::new(memset.start, memset.end, memset.device, memset.stream, memset.correlation)
        }
    }

    pub(super) fn is_kernel(&self) -> bool {
        matches!(self.leaf, Leaf::Compute | Leaf::Communication)
    }

    /// Size of a copy as the simulation needs it: at most [`MOST_BYTES`].
    pub(super) fn simulated_bytes(&self) -> u16 {
        u16::try_from(self.bytes).unwrap_or(MOST_BYTES)
    }

    /// Extra time of a copy from or to pageable memory compared to pinned memory, nanoseconds; 0 if unknown.
    ///
    /// For a kernel, the extra time compared to its nearest roofline.
    pub(super) fn excess(&self) -> u32 {
        if self.leaf == Leaf::Compute && self.at_roof != 0 {
            return u32::try_from((self.end - self.start).saturating_sub(self.at_roof.into())).unwrap_or(u32::MAX);
        }
        if self.link == 0 || !self.leaf.is_pageable() {
            return 0;
        }
        u32::try_from((self.end - self.start).saturating_sub(self.link.into())).unwrap_or(u32::MAX)
    }
}

/// State of delivery: counts of records, and the flush marks between them.
#[derive(Debug, Default)]
pub(super) struct Delivery {
    pub(super) completeness: Completeness,
    /// First start and last end of records with times.
    observed: Option<(u64, u64)>,
    /// Number of the next flush.
    pub(super) flush: u64,
    /// Time up to which records are known to have arrived.
    pub(super) newest_flush: u64,
    /// Newest flush mark, and the nanoseconds since the previous one.
    pub(super) last_flush: Option<(Timestamp, u64)>,
}

impl Delivery {
    /// Processes a flush mark and returns its time, which is never less than that of the previous mark.
    pub(super) fn mark(&mut self, at: Timestamp) -> u64 {
        let at = at.nanos().max(self.newest_flush);
        // A repeated mark only means that no later time is confirmed, not that flushes are closer.
        if self.last_flush.is_none_or(|(before, _)| before.nanos() < at) {
            let interval = self.last_flush.map_or(0, |(before, _)| at - before.nanos());
            self.last_flush = Some((Timestamp::from_nanos(at), interval));
        }
        self.newest_flush = at;
        at
    }

    /// True if a record cannot have been delivered by now, or only by a process that ran for longer than the
    /// longest window. Without any flush there is no reference.
    #[inline]
    pub(super) fn is_damaged(&self, start: u64, end: u64) -> bool {
        let newest = self.newest_flush;
        newest != 0 && (end > newest.saturating_add(FUTURE_NANOS) || start < newest.saturating_sub(LONGEST_WINDOW))
    }

    /// Extends the observed time by an operation from `start` to `end`.
    pub(super) fn observe(&mut self, start: u64, end: u64) {
        let (first, last) = self.observed.get_or_insert((start, end));
        *first = (*first).min(start);
        *last = (*last).max(end);
    }

    /// Nanoseconds from the first start to the last end of records with times.
    pub(super) fn observed_ns(&self) -> u64 {
        self.observed.map_or(0, |(first, last)| last - first)
    }
}

/// Relation of an operation to the start of a step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LaunchStatus {
    /// True if it was shown to the detector, or is past it.
    pub(super) shown: bool,
    /// True if it is the first operation launched in a named step.
    pub(super) marked: bool,
    /// True if it is the first operation of its launch; later nodes of a graph are not.
    pub(super) first: bool,
    /// True if a step starts with it or breaks off: `LaunchOrder::take_cuts` returns which.
    pub(super) cuts: bool,
}

/// Substrings of kernel names, in lower case, that indicate communication between devices. Not only NCCL: MoE
/// and inference engines have their own collectives.
const COMMUNICATION: [&str; 12] = [
    "nccl",
    "nvshmem",
    "deep_ep",
    "cross_device_reduce",
    "allreduce",
    "all_reduce",
    "allgather",
    "all_gather",
    "reducescatter",
    "reduce_scatter",
    "alltoall",
    "all_to_all",
];

/// Substrings of kernel names, in lower case, that indicate an optimizer's step: PyTorch's fused and foreach
/// ones, Apex, 8-bit ones.
const OPTIMIZER: [&str; 6] = ["multi_tensor_apply", "multitensorapply", "adam", "_sgd", "optimizer", "kernel_lamb"];

/// True if a kernel of this name (mangled or not) belongs to an optimizer.
pub fn is_optimizer(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    // `torch._foreach_copy_`, with which CUDA graphs of Inductor take their inputs.
    let copies = ["copy<", "4copyi"].iter().any(|part| name.contains(part));
    !copies && OPTIMIZER.iter().any(|part| name.contains(part))
}

/// Part of finding a selection that a kernel does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selection {
    None,
    /// It counts, or adds up anything else: CUB's reduction.
    Sum,
    /// It finds the places of the selected elements: CUB's selection, used by boolean indexing and `nonzero`
    /// of PyTorch and CuPy.
    Places,
}

/// True if a kernel of this name (mangled or not) finds the places of selected elements.
pub fn is_selection(name: &str) -> bool {
    Selection::of(name) == Selection::Places
}

impl Selection {
    fn of(name: &str) -> Self {
        match name {
            name if name.contains("DeviceSelect") || name.contains("DeviceCompactInit") => Self::Places,
            name if name.contains("DeviceReduce") => Self::Sum,
            _ => Self::None,
        }
    }
}

/// True if a kernel of this name (mangled or not) communicates.
pub fn is_communication(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    COMMUNICATION.iter().any(|part| name.contains(part))
}

/// Hash that identifies equivalent operations. One in four billion pairs collides.
fn symbol(what: &impl Hash) -> u32 {
    let mut hasher = FxHasher::default();
    what.hash(&mut hasher);
    let hash = hasher.finish();
    (hash ^ (hash >> 32)) as u32
}

/// Facts about a kernel by its launch configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelClass {
    pub(super) name: NameId,
    pub(super) communication: bool,
    /// True for a graph that was recorded without its nodes.
    pub(super) whole_graph: bool,
    optimizer: bool,
    selection: Selection,
    tokens: TokenKernel,
    /// Equal for the same name and grid.
    symbol: u32,
    /// Blocks of the grid; 0 if they are unknown, or enough to fill any device.
    blocks: u16,
}

/// Classes by launch configuration, so that each name is examined once.
#[derive(Debug, Default)]
pub(super) struct KernelClasses {
    rows: Vec<Option<KernelClass>>,
    /// True if the program selects: its sums by the same library are taken for counts.
    selects: bool,
}

impl KernelClasses {
    /// Configurations that the dictionary does not know are not cached.
    pub(super) fn get(&mut self, config: LaunchConfigId, dictionary: &Dictionary) -> KernelClass {
        let index = config.0 as usize;
        if let Some(&Some(known)) = self.rows.get(index) {
            return self.counting(known);
        }
        let LaunchConfig { name, grid, block, .. } = dictionary.launch_config(config);
        let communication = is_communication(dictionary.name(name));
        let blocks = grid.into_iter().try_fold(1u16, |blocks, n| blocks.checked_mul(u16::try_from(n).ok()?));
        let optimizer = is_optimizer(dictionary.name(name));
        let (symbol, blocks) = (symbol(&(name, grid)), blocks.unwrap_or(0));
        let selection = Selection::of(dictionary.name(name));
        self.selects |= selection == Selection::Places;
        let whole_graph = is_whole_graph(dictionary.name(name));
        let tokens = TokenKernel::of(dictionary.name(name), grid[0], block[1]);
        let class = KernelClass { name, communication, whole_graph, optimizer, selection, tokens, symbol, blocks };
        if index < dictionary.launch_configs().len() {
            if self.rows.len() <= index {
                self.rows.resize(index + 1, None);
            }
            self.rows[index] = Some(class);
        }
        self.counting(class)
    }

    fn counting(&self, class: KernelClass) -> KernelClass {
        let counts = self.selects && class.selection == Selection::Sum;
        KernelClass { selection: if counts { Selection::Places } else { class.selection }, ..class }
    }
}

/// All operations of a graph are one launch, no matter which starts first.
fn symbol_of_graph(graph_id: u32) -> u32 {
    symbol(&("graph", graph_id))
}

/// Number of grids of `blocks` blocks that run at once with one block per multiprocessor of the device; 0 for
/// less than two, or if the device is not described yet.
fn fit(blocks: u16, device: DeviceId, dictionary: &Dictionary) -> u16 {
    let multiprocessors = dictionary.device(device).map_or(0, |device| device.multiprocessors);
    let fit = SmallGrid::fit(blocks.into(), multiprocessors).unwrap_or(0);
    u16::try_from(fit).unwrap_or(u16::MAX)
}

/// Minimum time that a copy between host and device needs the link, capped at its duration; 0 if the link is
/// unknown.
fn link_nanos(copy: &Copy, dictionary: &Dictionary) -> u32 {
    let over_link = matches!(copy.kind, CopyKind::HostToDevice | CopyKind::DeviceToHost);
    let link = dictionary.link(copy.device).filter(|_| over_link);
    let shortest = link.and_then(|link| link.shortest_copy_nanos(copy.bytes));
    // A few bytes round to no time; at least 1 keeps them distinct from unknown.
    let nanos = shortest.map_or(0, |shortest| shortest.max(1).min(copy.end.since(copy.start)));
    u32::try_from(nanos).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optimizers_by_name() {
        for name in [
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>",
            "_Z25multi_tensor_apply_kernelI18TensorListMetadataILi4EE11AdamFunctorIffiEJEEvlPViT_T0_DpT1_",
            "kOptimizer32bit2State<float, 0>",
        ] {
            assert!(is_optimizer(name), "{name}");
        }
        let copies =
            "multi_tensor_apply_kernel<TensorListMetadata<2>, UnaryOpFunctor<c10::BFloat16, 2, 1, 1>, Copy<float> >";
        assert!(!is_optimizer(copies) && !is_optimizer("_ZN2at6native25multi_tensor_apply_kernelINS0_4CopyIffEEEvT_"));
        assert!(!is_optimizer("ampere_sgemm_128x64_tn") && !is_optimizer("vectorized_elementwise_kernel<4>"));
    }

    #[test]
    fn communication_by_name() {
        for name in [
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "_ZN4vllm26cross_device_reduce_1stageI6__halfLi2EEEvv",
            "_ZN7deep_ep9intranode8dispatchILi2EEEvv",
            "one_shot_all_reduce_kernel",
        ] {
            assert!(is_communication(name), "{name}");
        }
        for name in ["ampere_sgemm_128x64_tn", "_ZN2at6native13reduce_kernelILi512EEEvv", "?"] {
            assert!(!is_communication(name), "{name}");
        }
    }
}
