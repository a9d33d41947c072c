//! Memory allocation on the GPU.

use crate::run::framework::Framework;
use crate::run::managed::MIGRATIONS;
use crate::run::remedies::entry::{BEST_PRACTICES, CUDA_NOTES, Rank, RemedyEntry, Target, When};
use crate::run::remedies::facts::{Facts, Found};
use crate::run::remedies::gain::Gain;
use crate::run::remedies::trial::{How, Trial};
use crate::run::{Certainty, Results};
use profiler_core::attribution::CallKind;
use profiler_core::leaf::Cause;
use profiler_core::whatif::ScenarioKind;

use Framework::{Any, Native, Offload, Pytorch};

const NONE: RemedyEntry = RemedyEntry { target: Target::Time(Cause::Allocator), ..RemedyEntry::NONE };

const EMPTY_CACHE: [&str; 2] = ["empty_cache", "clear_device_cache"];

fn gain(facts: &Facts<'_>) -> Option<Gain> {
    facts.scenario(ScenarioKind::NoAllocations)
}

/// Allocation is the bottleneck, or worth a change beside it.
fn matters(facts: &Facts<'_>) -> bool {
    let first = facts.program.first_fix == Some(ScenarioKind::NoAllocations);
    first || facts.is(Cause::Allocator) || gain(facts).is_some_and(|gain| gain.speedup >= 1.15)
}

fn empties(facts: &Facts<'_>) -> bool {
    let calls = facts.host.into_iter().flat_map(|host| &host.calls).filter(|row| row.calls == CallKind::Allocation);
    let seen = calls.into_iter().any(|row| EMPTY_CACHE.iter().any(|part| row.function.contains(part)));
    // PyTorch frees memory in each step only if it is told to.
    let each_step = facts.program.framework == Pytorch && facts.calls_a_step(&["cudaFree"]) >= 1.0;
    seen || each_step || facts.lines_in(&EMPTY_CACHE).next().is_some()
}

/// Share of kernel time in which pages of managed memory moved or were missed, 0 to 1.
fn managed_share(facts: &Facts<'_>) -> f64 {
    facts.device.and_then(|device| device.managed.as_ref()).map_or(0.0, |managed| managed.share)
}

pub(super) const ENTRIES: &[RemedyEntry] = &[
    RemedyEntry {
        id: "empty_cache",
        says: &[(
            Pytorch,
            "Take torch.cuda.empty_cache(){at} out of the loop: memory is freed and allocated again in each step. This holds if no other \
             process needs that memory.",
        )],
        when: When::If(|facts| {
            let at = facts.call_at(CallKind::Allocation);
            (matters(facts) && empties(facts)).then(|| Found { at, gain: gain(facts), ..Found::default() })
        }),
        certainty: Certainty::Measured,
        recognized: "cudaMalloc and cudaFree in steps, with frames of empty_cache, or PyTorch frees memory in each step",
        gain: "the simulation `no_allocations`: 6.4x predicted, 5.8x measured",
        not_when: "another process needs the memory",
        subsumes: &["allocate_once", "fragmentation"],
        link: CUDA_NOTES,
        trial: Some(&Trial {
            id: "empty_cache",
            change: "torch.cuda.empty_cache() does nothing",
            keep: "no torch.cuda.empty_cache() within the loop",
            how: How::PyTorch,
            needs: "torch.cuda.empty_cache() was not called",
        }),
        rank: Rank::BeforeGraph,
        ..NONE
    },
    RemedyEntry {
        id: "fragmentation",
        says: &[(
            Pytorch,
            "Let PyTorch's memory grow in place: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and run the longest batch first{at}. It \
             may help if sizes change and the GPU's memory is nearly full.",
        )],
        when: When::If(|facts| {
            let frees = facts.calls_a_step(&["cudaFree"]) > 0.0;
            let at = facts.call_at(CallKind::Allocation);
            (matters(facts) && frees && facts.has_python() && !empties(facts)).then(|| Found::of(at, 0.0, gain(facts)))
        }),
        certainty: Certainty::Guess,
        recognized: "cudaMalloc and cudaFree in steps of a Python program, without frames of empty_cache",
        gain: "the simulation `no_allocations`",
        not_when: "only the first steps allocate",
        link: CUDA_NOTES,
        trial: Some(&Trial {
            id: "fragmentation",
            change: "expandable segments in PyTorch's allocator",
            keep: "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            how: How::Add(&["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"], "expandable_segments:True"),
            needs: "expandable_segments is set already",
        }),
        ..NONE
    },
    RemedyEntry {
        id: "managed_prefetch",
        says: &[(
            Any,
            "Move managed memory before the kernels need it: cudaMemPrefetchAsync on their stream, or cudaMalloc and explicit copies in \
             place of cudaMallocManaged. A kernel stops at pages that are not on the GPU: they moved, or were missed, in {share} of the time of kernels.",
        )],
        target: Target::FewerKernels,
        // The CPU faults on the same pages.
        also: |facts| managed_share(facts) * facts.busy() >= MIGRATIONS.max(0.5 * facts.time(Cause::HostCpu)),
        when: When::If(|facts| {
            let share = managed_share(facts);
            // The copies themselves remain.
            let time = share * facts.time(Cause::GpuCompute) + facts.time(Cause::Sync) + facts.time(Cause::HostCpu);
            let gain = Some(Gain::at_most(1.0 / (1.0 - time).max(0.05)));
            (share >= MIGRATIONS).then(|| Found { share, gain, ..Found::default() })
        }),
        subsumes: &["find_work"],
        recognized: "pages of managed memory move to or from the GPU, or its page faults are resolved, in at least 10 % of the time of kernels",
        gain: "at most the time of these kernels, of waits for them and of the CPU, which misses the same pages: explicit copies take \
               time too, but as one piece at the rate of the link, and beside other work; 2.9x measured",
        not_when: "the data does not fit into the GPU's memory",
        link: Some("https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#unified-memory-programming"),
        ..NONE
    },
    RemedyEntry {
        id: "allocate_once",
        says: &[
            (
                Offload,
                "Allocate once and reuse{at}: one data region around the loop (OpenMP: target data; OpenACC: data), not one for each \
                 kernel.",
            ),
            (
                Native,
                "Allocate once and reuse{at}, or allocate in the order of a stream (cudaMallocAsync) from a pool that keeps its memory \
                 (cudaMemPoolAttrReleaseThreshold). cudaMalloc and cudaFree may wait for the GPU.",
            ),
            (
                Any,
                "Allocate once and reuse{at}: a caching or stream-ordered allocator (cudaMallocAsync), and fixed shapes so that cached \
                 blocks fit. cudaMalloc and cudaFree may wait for the GPU.",
            ),
        ],
        short: &[(Any, "keep memory instead of allocating it again")],
        when: When::If(|facts| {
            matters(facts).then(|| Found::of(facts.call_at(CallKind::Allocation), 0.0, gain(facts)))
        }),
        results: Results::Same,
        certainty: Certainty::Measured,
        recognized: "allocation is the bottleneck, or a simulation without it gains 15 %",
        gain: "the simulation `no_allocations`",
        link: BEST_PRACTICES,
        rank: Rank::BeforeGraph,
        ..NONE
    },
];
