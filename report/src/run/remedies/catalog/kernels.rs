//! Kernels of one's own, grids, and what hardware counters show.

use crate::run::framework::Framework;
use crate::run::remedies::entry::{BEST_PRACTICES, RemedyEntry, Target, When};
use crate::run::remedies::facts::Found;
use crate::run::remedies::gain::Gain;
use crate::run::remedies::trial::{How, Trial};
use crate::run::{Certainty, GridClass, KernelGeometry, KernelRow, Results};
use gpuwhy_trace::geometry::Limiter;
use profiler_core::counters::roofs::Limit;
use profiler_core::leaf::Cause;
use profiler_core::whatif::ScenarioKind;

use Framework::{Any, Native, Pytorch};

const NONE: RemedyEntry = RemedyEntry::NONE;

/// What hardware counters show as the largest limit, memory in the L1 cache or not.
const fn limit(
    id: &'static str,
    limit: Limit,
    in_cache: bool,
    says: &'static [(Framework, &'static str)],
) -> RemedyEntry {
    RemedyEntry {
        id,
        says,
        when: When::Limit(limit, in_cache),
        certainty: Certainty::Guess,
        results: Results::Rounding,
        recognized: "hardware counters show it as the largest limit of computation, at least a quarter of its time, \
                     whatever limits the part that they do not resolve",
        gain: "unknown: nothing predicts what a change of the kernels gains",
        link: Some("https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html"),
        ..NONE
    }
}

/// Waves of blocks from which larger blocks still fill the GPU.
const MANY_WAVES: f64 = 32.0;

pub(super) const ENTRIES: &[RemedyEntry] = &[
    RemedyEntry {
        id: "batch_grids",
        says: &[
            (
                Native,
                "Join equal small kernels into one with a larger grid, or run them on several streams. This helps where a kernel does \
                 not need the result of the one before it.",
            ),
            (
                Pytorch,
                "Join equal small kernels into one (stacked tensors, torch.vmap, foreach functions), or run them on several streams. \
                 This helps where a kernel does not need the result of the one before it.",
            ),
            (
                Any,
                "Join equal small kernels into one over stacked arrays, or run them on several streams. This helps where a kernel does \
                 not need the result of the one before it.",
            ),
        ],
        short: &[(Any, "join equal small kernels into one")],
        target: Target::FewerKernels,
        when: When::If(|facts| {
            let gain = facts.scenario(ScenarioKind::GridsFilled).filter(|gain| gain.speedup >= 1.0 / 0.85)?;
            facts.is(Cause::GpuCompute).then(|| Found::default().gaining(Some(gain)))
        }),
        results: Results::Rounding,
        recognized: "equal kernels with small grids in a row; a simulation that joins them saves at least 15 %",
        gain: "the simulation `grids_filled`: 16x to 64x for 64 samples one by one, 43.8x measured for one batch",
        not_when: "each needs the result of the one before (layers, time steps, decoding)",
        link: BEST_PRACTICES,
        ..NONE
    },
    RemedyEntry {
        id: "small_grid",
        says: &[(
            Any,
            "Give {what} more blocks, of 128 threads or more each, or put several problems into one launch. It has fewer blocks \
             than the GPU has multiprocessors and takes {share} of the time of kernels.",
        )],
        when: When::If(|facts| {
            let own = |name: &str| {
                let row = facts.devices.iter().flat_map(|device| &device.kernels).find(|row| row.name == name);
                row.is_some_and(|row| row.library.is_none() && !row.communication)
            };
            let kernel = facts.kernels.iter().find(|kernel| {
                kernel.filled < 0.9 && kernel.share >= 0.1 && kernel.median_ns >= 10_000 && own(kernel.name)
            })?;
            Some(Found {
                what: crate::text_format::names::short_name(kernel.name, 40),
                ..Found::of(None, kernel.share, facts.faster(kernel.share, (1.1, 1.0 / kernel.filled.max(0.05))))
            })
        }),
        recognized: "a kernel of no known library with fewer blocks than multiprocessors, over 10 us, at least 10 % of kernel \
                     time",
        gain: "this kernel 1.1 times as fast, up to as many times as the GPU has room; 22x measured for 16 of 132 multiprocessors",
        not_when: "it is bound by latency by design",
        link: BEST_PRACTICES,
        ..NONE
    },
    RemedyEntry {
        id: "small_blocks",
        says: &[
            (
                Native,
                "Let each block of {what} handle a tile of elements that lie next to each other in memory, so that neighboring \
                 threads read neighboring addresses: its blocks are so small and so many that their number limits how many threads \
                 are resident. It takes {share} of the time of kernels.",
            ),
            (
                Any,
                "Let each program of {what} handle a tile of elements that lie next to each other in memory (Triton: offsets whose last \
                 axis has stride 1), so that neighboring threads read neighboring addresses: its programs are so small and so many \
                 that their number limits how many threads are resident. It takes {share} of the time of kernels.",
            ),
        ],
        when: When::If(|facts| {
            let small = |row: &&KernelRow| {
                let many = |of: KernelGeometry| of.limiter == Limiter::Blocks && of.waves >= MANY_WAVES;
                row.library.is_none() && !row.communication && row.geometry.is_some_and(many)
            };
            let rows = || facts.devices.iter().flat_map(|device| &device.kernels);
            let row = rows().find(small)?;
            let share = facts.kernels.iter().find(|kernel| kernel.name == row.name)?.share;
            (share >= 0.1).then(|| Found {
                what: crate::text_format::names::short_name(&row.name, 40),
                ..Found::of(None, share, facts.faster(share, (1.2, 16.0)))
            })
        }),
        certainty: Certainty::Guess,
        recognized: "a kernel of no known library with over 32 waves of blocks so small that the number of blocks limits its \
                     occupancy, at least 10 % of kernel time",
        gain: "this kernel 1.2 to 16 times as fast: twice the occupancy, and the eight floats of each sector that is read; 10.6x \
               measured for one warp for each pixel",
        not_when: "neighboring threads read neighboring addresses already",
        link: BEST_PRACTICES,
        ..NONE
    },
    RemedyEntry {
        id: "connections",
        says: &[(
            Any,
            "Set CUDA_DEVICE_MAX_CONNECTIONS=32 ({what}), so that fewer streams share a queue: kernels waited {share} of the time \
             behind a kernel of another stream.",
        )],
        when: When::If(|facts| {
            let queue = facts.program.shared_queue?;
            let what = queue.connections.map_or_else(|| "8 by default".to_owned(), |count| format!("it is {count}"));
            let gain = Some(Gain::saving(0.0, queue.share));
            Some(Found { what, share: queue.share, gain, ..Found::default() })
        }),
        recognized: "kernels start together with one of another stream that was launched before them and waited for its own \
                     stream, both leave room, and no event explains it; at least 5 % of the time",
        gain: "none to all of the waits",
        not_when: "the order is wanted: Megatron-LM sets 1 so that communication starts before the kernels launched after it",
        link: Some("https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-environment-variables"),
        trial: Some(&Trial {
            id: "connections",
            change: "32 queues of work for the GPU",
            keep: "CUDA_DEVICE_MAX_CONNECTIONS=32",
            how: How::Set(&[("CUDA_DEVICE_MAX_CONNECTIONS", "32")]),
            needs: "CUDA_DEVICE_MAX_CONNECTIONS=32 is set already",
        }),
        ..NONE
    },
    RemedyEntry {
        id: "wave_tail",
        says: &[(
            Any,
            "Choose sizes that fill the last wave: {share} of the time of kernels is in grids whose last blocks leave much of the \
             GPU idle. Larger or smaller tiles, or another batch size, may help.",
        )],
        when: When::If(|facts| {
            let compute = &facts.device?.compute;
            let (share, loss) = (compute.share(GridClass::Tail), compute.geometry?.tail_loss);
            let seen = share >= 0.2 && facts.is(Cause::GpuCompute);
            seen.then(|| Found::of(None, share, facts.faster(1.0, (1.0 + loss / 2.0, 1.0 / (1.0 - loss.min(0.5))))))
        }),
        certainty: Certainty::Guess,
        recognized: "at least 20 % of the kernel time of a GPU-bound program in grids whose last wave is mostly empty",
        gain: "half of the loss to all of it",
        not_when: "kernels are persistent: their grid is always the GPU",
        link: crate::run::remedies::entry::MATRICES,
        ..NONE
    },
    limit(
        "limit_tensor",
        Limit::Tensor,
        false,
        &[(
            Any,
            "Tensor cores are the largest limit{detail}: use a lower precision (bf16, fp8), or do less work (sparsity, a smaller model).",
        )],
    ),
    limit(
        "limit_l1",
        Limit::Memory,
        true,
        &[(
            Any,
            "Shared memory and the L1 cache are the largest limit{detail}: look for bank conflicts and uncoalesced accesses (gpuwhy \
             kernels), pad shared arrays that are read by columns (float tile[32][33]), and keep values in registers.",
        )],
    ),
    limit(
        "limit_memory",
        Limit::Memory,
        false,
        &[
            (
                Native,
                "Memory is the largest limit{detail}: join kernels so that data are read once, access it in neighboring threads, and use smaller \
                 types.",
            ),
            (
                Pytorch,
                "Memory is the largest limit{detail}: fuse kernels so that data are read once (torch.compile, fused attention and \
                 optimizers), and use smaller types.",
            ),
            (
                Any,
                "Memory is the largest limit{detail}: join kernels so that data are read once, and use smaller types.",
            ),
        ],
    ),
    limit(
        "limit_issue",
        Limit::Issue,
        false,
        &[(
            Any,
            "The issue of instructions is the largest limit{detail}: move matrix products to tensor cores (TF32 or bf16), vectorize \
             loads, and do less work per element.",
        )],
    ),
    limit(
        "limit_latency",
        Limit::Latency,
        false,
        &[(
            Any,
            "Latency is the largest limit{detail}: kernels wait for memory or for their own results. Larger tiles and more independent work \
             per thread hide that; `gpuwhy kernels` tells what each kernel waits for.",
        )],
    ),
    limit(
        "limit_occupancy",
        Limit::Occupancy,
        false,
        &[(
            Any,
            "Too few resident warps to hide latency are the largest limit{detail}: fewer registers (__launch_bounds__) and less shared \
             memory per block, or other block sizes. `gpuwhy kernels` tells which of them limits.",
        )],
    ),
    limit(
        "limit_idle",
        Limit::IdleMultiprocessors,
        false,
        &[(
            Any,
            "Idle multiprocessors are the largest limit{detail}: use larger batches or shapes so that grids fill the GPU, or run \
             independent kernels on several streams.",
        )],
    ),
    RemedyEntry {
        results: Results::Same,
        ..limit(
            "clocks",
            Limit::LoweredClock,
            false,
            &[(
                Any,
                "The lowered clock is the largest limit{detail}: see which limit does that (power or temperature), raise it if you may, or use a \
             lower precision, which needs less power.",
            )],
        )
    },
];
