//! What a CUDA graph cannot contain, among the operations and calls of a step.

use profiler_core::leaf::Leaf;

use crate::run::DeviceReport;
use crate::run::framework::Framework;

/// Least part of the steps with a call for it to belong to a step.
const EACH_STEP: f64 = 0.5;
/// Least share of steady time in copies of pageable memory for them to be in each step, where no step is known.
const SEEN_COPIES: f64 = 0.01;

/// Something that a graph cannot contain, or only with a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::run) enum Obstacle {
    /// The CPU reads values of a few bytes.
    Reads,
    /// Memory that is not pinned is copied from or to.
    PageableCopies,
    /// Memory is allocated by CUDA.
    Allocations,
    /// The CPU waits for the GPU.
    Waits,
    /// An optimizer that counts its steps on the CPU.
    Optimizer,
}

impl Obstacle {
    /// The first one of the device with the most time. `reads`: values of a few bytes are read.
    pub(in crate::run) fn first(devices: &[DeviceReport], reads: bool) -> Option<Self> {
        let device = devices.iter().max_by_key(|device| device.steady_leaves.iter().sum::<u64>())?;
        let sequence = device.sequence.as_ref();
        let each = |calls: u64| sequence.is_some_and(|of| calls as f64 >= EACH_STEP * of.steps.max(1) as f64);
        let calls = sequence.map(|of| of.calls).unwrap_or_default();
        let found = [
            (Self::Reads, reads),
            (Self::PageableCopies, copies_pageable(device)),
            (Self::Allocations, each(calls.allocations)),
            (Self::Waits, each(calls.synchronizations)),
            (Self::Optimizer, counts_steps(device)),
        ];
        found.into_iter().find(|(_, seen)| *seen).map(|(obstacle, _)| obstacle)
    }

    /// What to do about it before a capture, to follow the advice to capture a graph.
    pub(super) const fn condition(self, framework: Framework) -> &'static str {
        match (self, framework) {
            (Self::Optimizer, _) => {
                " torch.cuda.graph() around optimizer.step() needs capturable=True in the optimizer (Adam and others that \
                 count steps)."
            }
            // XLA copies arguments itself, outside of its command buffers.
            (Self::PageableCopies, Framework::Jax) => "",
            (Self::PageableCopies, Framework::Native | Framework::Offload) => {
                " Keep the copies of pageable memory out of the capture, or copy from pinned memory by cudaMemcpyAsync: \
                 cudaMemcpy ends a capture with an error."
            }
            (Self::PageableCopies, _) => {
                " Keep the copies from the CPU out of the graph: before each replay, copy the batch into a tensor that the \
                 graph reads (x.copy_(batch))."
            }
            (Self::Reads, _) => " Outside of it, read what is still needed: a graph cannot contain a read by the CPU.",
            (Self::Waits, _) => " Wait for the GPU outside of it: a graph cannot contain a wait.",
            (Self::Allocations, _) => " Allocate before the capture, and keep the memory.",
        }
    }

    /// What follows "a graph cannot contain"; `None` for what it can contain after a change.
    pub(in crate::run) const fn words(self) -> Option<&'static str> {
        match self {
            Self::Reads => Some("the reads of values by the CPU"),
            Self::PageableCopies => Some("the copies of pageable memory"),
            Self::Allocations => Some("the allocations"),
            Self::Waits => Some("the waits for the GPU"),
            Self::Optimizer => None,
        }
    }
}

/// True if a step copies from or to pageable memory.
fn copies_pageable(device: &DeviceReport) -> bool {
    let Some(sequence) = &device.sequence else {
        let pageable = Leaf::ALL.into_iter().filter(|leaf| leaf.is_pageable());
        let nanos: u64 = pageable.map(|leaf| device.steady_leaves[leaf as usize]).sum();
        return nanos as f64 > SEEN_COPIES * device.steady_leaves.iter().sum::<u64>() as f64;
    };
    sequence.places.iter().any(|(_, place)| place.leaf.is_pageable())
}

/// True if the optimizer updates with numbers that the CPU computes from the count of steps, as Adam does: captured,
/// they would stay those of one step.
pub(super) fn counts_steps(device: &DeviceReport) -> bool {
    let is_one = |name: &str| {
        let listed = name.contains("PointwiseOpScalarListFunctor") && name.contains("divides");
        ["FusedAdam", "addcdiv_cuda_kernel"].iter().any(|part| name.contains(part)) || listed
    };
    match &device.sequence {
        Some(sequence) => sequence.names.iter().any(|name| is_one(name)),
        None => device.kernels.iter().any(|row| is_one(&row.name)),
    }
}
