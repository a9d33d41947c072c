//! What a device operation is, judged by its record: the leaf it is entered under while it runs.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use super::leaf::Leaf;
use crate::dictionary::Dictionary;
use crate::record::{Copy, CopyKind, LaunchConfig, LaunchConfigId, MemoryKind, NameId};

/// Parts of kernel names, in lower case, that mean communication between devices. Not NCCL alone: MoE and inference
/// engines bring their own collectives.
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

/// Parts of kernel names, in lower case, that mean an optimizer's step: PyTorch's fused and foreach ones, Apex, 8-bit
/// ones.
const OPTIMIZER: [&str; 6] = ["multi_tensor_apply", "multitensorapply", "adam", "_sgd", "optimizer", "kernel_lamb"];

/// Whether a kernel of this name (mangled or not) belongs to an optimizer.
#[must_use]
pub fn is_optimizer(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    OPTIMIZER.iter().any(|part| name.contains(part))
}

/// Whether a kernel of this name (mangled or not) communicates.
#[must_use]
pub fn is_communication(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    COMMUNICATION.iter().any(|part| name.contains(part))
}

/// The leaf of a copy while nothing of more value runs. A host end that is neither pageable nor pinned (managed
/// memory, not reported) is kept apart: it supports no advice.
pub(super) fn leaf_of_copy(copy: &Copy) -> Leaf {
    match (copy.kind, copy.source, copy.destination) {
        (CopyKind::HostToDevice, MemoryKind::Pageable, _) => Leaf::CopyH2dPageable,
        (CopyKind::HostToDevice, MemoryKind::Pinned, _) => Leaf::CopyH2dPinned,
        (CopyKind::HostToDevice, ..) => Leaf::CopyH2dOther,
        (CopyKind::DeviceToHost, _, MemoryKind::Pageable) => Leaf::CopyD2hPageable,
        (CopyKind::DeviceToHost, _, MemoryKind::Pinned) => Leaf::CopyD2hPinned,
        (CopyKind::DeviceToHost, ..) => Leaf::CopyD2hOther,
        (CopyKind::DeviceToDevice, ..) => Leaf::CopyD2d,
        (CopyKind::PeerToPeer, ..) => Leaf::CopyP2p,
        (CopyKind::Unknown | CopyKind::HostToHost, ..) => Leaf::CopyOther,
    }
}

/// A number for what an operation does. Chance makes one in four billion pairs equal.
pub(super) fn symbol(what: &impl Hash) -> u32 {
    let mut hasher = FxHasher::default();
    what.hash(&mut hasher);
    let hash = hasher.finish();
    (hash ^ (hash >> 32)) as u32
}

/// What is known of a kernel by its launch configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelClass {
    pub(super) name: NameId,
    pub(super) communication: bool,
    pub(super) optimizer: bool,
    /// Equal for the same name and grid.
    pub(super) symbol: u32,
    /// Blocks of the grid; 0 when they are not known, or so many that they fill any device.
    pub(super) blocks: u16,
}

/// Classes by launch configuration, so that names are looked at once.
#[derive(Debug, Default)]
pub(super) struct KernelClasses(Vec<Option<KernelClass>>);

impl KernelClasses {
    /// Configurations that the dictionary does not know are not cached.
    pub(super) fn get(&mut self, config: LaunchConfigId, dictionary: &Dictionary) -> KernelClass {
        let index = config.0 as usize;
        if let Some(&Some(known)) = self.0.get(index) {
            return known;
        }
        let LaunchConfig { name, grid, .. } = dictionary.launch_config(config);
        let communication = is_communication(dictionary.name(name));
        let blocks = grid.into_iter().try_fold(1u16, |blocks, n| blocks.checked_mul(u16::try_from(n).ok()?));
        let optimizer = is_optimizer(dictionary.name(name));
        let (symbol, blocks) = (symbol(&(name, grid)), blocks.unwrap_or(0));
        let class = KernelClass { name, communication, optimizer, symbol, blocks };
        if index < dictionary.launch_configs().len() {
            if self.0.len() <= index {
                self.0.resize(index + 1, None);
            }
            self.0[index] = Some(class);
        }
        class
    }
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
