//! Copies between the CPU and the GPU, and within the GPU.

use crate::run::copies::pageable_copies;
use crate::run::framework::Framework;
use crate::run::remedies::entry::{BEST_PRACTICES, NO_LOADER, PINNING, RemedyEntry, Target, When};
use crate::run::remedies::facts::{Facts, Found};
use crate::run::remedies::gain::Gain;
use crate::run::remedies::trial::{How, Trial};
use crate::run::{Certainty, Results};
use gpuwhy_trace::record::CopyKind;
use profiler_core::attribution::CallKind;
use profiler_core::attribution::statistics::OctaveTotals;
use profiler_core::leaf::{Cause, Leaf};
use profiler_core::whatif::{BestCase, ScenarioKind};

use super::others::NON_BLOCKING;

use Framework::{Any, Cupy, Jax, Native, Offload, Pytorch};

const NONE: RemedyEntry = RemedyEntry { target: Target::Time(Cause::Copy), link: PINNING, ..RemedyEntry::NONE };

/// Least share of the time in copies within the device for advice on them.
const SEEN: f64 = 0.02;
/// Least gain of a change of copies where something else is the bottleneck.
const WORTH: f64 = 1.15;

/// True if copies are the bottleneck and `kind` is the scenario that it is judged by.
fn judged_by(facts: &Facts<'_>, kind: ScenarioKind) -> bool {
    facts.is(Cause::Copy) && facts.program.best_case.is_some_and(|best_case| best_case.kind == kind)
}

fn gains(facts: &Facts<'_>, kind: ScenarioKind) -> Option<Gain> {
    facts.scenario(kind).filter(|gain| gain.speedup >= WORTH)
}

/// Least part of the time of copies that those of one direction must take for advice on them: of less, a change gains
/// under 15 % even if it makes them 2.5 times as fast.
pub(super) const PART: f64 = 0.25;

/// Copies of one direction that could run beside kernels, from or to pageable memory or not. The simulation is one of
/// all copies, so its gain is said where few go in other directions.
fn moved(facts: &Facts<'_>, kind: CopyKind, pageable: bool) -> Option<Found> {
    let share = facts.copies_going(kind);
    let is_pageable = facts.devices.iter().any(|device| pageable_copies(device).any(|of| of == kind));
    let gain = gains(facts, ScenarioKind::CopiesOverlapped).filter(|_| share > 1.0 - PART);
    let wanted = share >= PART && is_pageable == pageable && (only_moved(facts) || gain.is_some());
    wanted.then(|| Found { at: facts.copied_at(kind), gain, ..Found::default() })
}

/// Copies of one direction that are the bottleneck, where overlapping them gains nothing.
fn only_fewer(facts: &Facts<'_>, kind: CopyKind) -> Option<Found> {
    let nothing = facts.program.best_case.is_some_and(|best_case| !best_case.is_worth_showing());
    let wanted = facts.is(Cause::Copy) && nothing && facts.copies_going(kind) >= PART;
    wanted.then(|| Found { at: facts.copied_at(kind), ..Found::default() })
}

/// The direction of most copies.
fn most_copies(facts: &Facts<'_>) -> Option<CopyKind> {
    let work = &facts.device?.steady_work;
    let copied = Leaf::ALL.into_iter().filter_map(|leaf| Some((leaf.copy_kind()?, work.operations(leaf))));
    copied.max_by_key(|&(_, count)| count).filter(|&(_, count)| count > 0).map(|(kind, _)| kind)
}

/// None of the changes that make copies fewer or smaller is what they need.
fn only_moved(facts: &Facts<'_>) -> bool {
    use ScenarioKind::{CopiesJoined, DeviceCopiesGone, ReadsReduced};
    let less = [DeviceCopiesGone, ReadsReduced, CopiesJoined].into_iter().any(|kind| judged_by(facts, kind));
    let nothing = facts.program.best_case.is_some_and(|best_case| !best_case.is_worth_showing());
    facts.is(Cause::Copy) && !less && !nothing
}

pub(super) const ENTRIES: &[RemedyEntry] = &[
    RemedyEntry {
        id: "device_copies",
        says: &[
            (
                Jax,
                "Let XLA write results over arguments in place of a copy of them: jax.jit(f, donate_argnums=(0,)) for the function that \
                 is called{at}. The best case is that none of these copies is needed.",
            ),
            (
                Native,
                "Remove copies within the GPU that are not needed{at}: write results where they are used, and exchange pointers \
                 instead of contents. The best case is that none of these copies is needed.",
            ),
            (
                Pytorch,
                "Remove copies within the GPU that are not needed: .clone(), .contiguous(), .to(), torch.cat{at}. Write results where \
                 they are used, or use views. The best case is that none of these copies is needed.",
            ),
            (
                Any,
                "Remove copies within the GPU that are not needed{at}. Write results where they are used, or use views. The best case \
                 is that none of these copies is needed.",
            ),
        ],
        short: &[
            (Jax, "remove the copies within the GPU (donate_argnums)"),
            (Pytorch, "remove the copies within the GPU (.clone(), .contiguous(), .to(), torch.cat)"),
            (Any, "remove the copies within the GPU"),
        ],
        when: When::If(|facts| {
            let kind = ScenarioKind::DeviceCopiesGone;
            let gain = gains(facts, kind).or_else(|| facts.scenario(kind).filter(|_| judged_by(facts, kind)));
            let within = CopyKind::DeviceToDevice;
            let most = facts.is(Cause::Copy) && facts.copies_going(within) > 1.0 - PART;
            let others = [ScenarioKind::ReadsReduced, ScenarioKind::CopiesJoined];
            let only = most && !others.into_iter().any(|kind| judged_by(facts, kind));
            let time = facts.copies_going(within) * facts.time(Cause::Copy);
            let wanted = (only || judged_by(facts, kind) || gain.is_some()) && time >= SEEN;
            // The simulation keeps the time in which the CPU is held up in calls; the copies hold it up.
            let held_up = gain.is_none_or(|gain| gain.speedup < WORTH) && time >= 0.5;
            let gain = if held_up { Some(Gain::at_most(1.0 / (1.0 - time).max(0.01))) } else { gain };
            let at = facts.copied_at(within).or_else(|| facts.call_at(CallKind::Copy).filter(|_| most));
            wanted.then(|| Found { at, gain, ..Found::default() })
        }),
        certainty: Certainty::Measured,
        recognized: "copies within the device of over 64 KiB, and a simulation without them gains 15 %; or copies within the \
                     device are the bottleneck",
        gain: "the simulation `device_copies_gone`: 14x to 17x predicted, 16.8x measured",
        not_when: "a copy is needed because the original changes",
        ..NONE
    },
    RemedyEntry {
        id: "reduce_first",
        says: &[
            (
                Jax,
                "Copy less to the CPU: reduce on the GPU first (jnp.argmax, jnp.sum, a slice, inside jax.jit), then copy the \
                 result{at}. This helps when the CPU does not need all of what is copied.",
            ),
            (
                Any,
                "Copy less to the CPU{at}: compute on the GPU and copy the result (argmax, a sum, a slice), copy every n steps, or use \
                 smaller types. This helps when the CPU does not need all of what is copied.",
            ),
        ],
        short: &[(Any, "reduce results on the GPU before copying them")],
        when: When::If(|facts| {
            let kind = ScenarioKind::ReadsReduced;
            let judged = judged_by(facts, kind) || facts.program.best_case.is_some_and(|best| best.kind == kind);
            // Fewer results do not help where the copies to the GPU are the larger part.
            let to_gpu = facts.is(Cause::Copy) && facts.copies_going(CopyKind::HostToDevice) > 0.5;
            // What is saved has to be copied.
            let saves = facts.program.activity == Some(crate::run::remedies::Activity::Checkpoint);
            let gain = gains(facts, kind).or_else(|| facts.scenario(kind).filter(|_| judged));
            let at = facts.copied_at(CopyKind::DeviceToHost);
            (!saves && !to_gpu && (judged || gain.is_some())).then_some(Found { at, gain, ..Found::default() })
        }),
        results: Results::Behavior,
        certainty: Certainty::Measured,
        recognized: "copies to the host of over 4 KiB that it waits for, and a simulation with short ones gains 15 %",
        gain: "the simulation `reads_reduced`: 14x to 16x predicted, 13.4x measured",
        not_when: "all of the array is the output",
        subsumes: &["move_work"],
        // The work on a result of a large copy goes with the copy.
        also: |facts| {
            let reduced = |best: BestCase| best.kind == ScenarioKind::ReadsReduced;
            facts.is(Cause::HostCpu) && facts.program.best_case.is_some_and(reduced)
        },
        ..NONE
    },
    RemedyEntry {
        id: "average_on_gpu",
        says: &[(
            Pytorch,
            "Keep the average of the weights on the GPU, where the weights are: timm's ModelEmaV2 and ModelEmaV3 without \
             device=\"cpu\", torch.optim.swa_utils.AveragedModel of the model on the GPU; or update it every n steps. The update{at} \
             copies all weights to the CPU and averages them there.",
        )],
        target: Target::Time(Cause::HostCpu),
        when: When::If(|facts| {
            let (share, at) = facts.idle_in(&["model_ema.py", "optim/swa_utils.py", "torch_ema/", "ema_pytorch/"])?;
            let gain = facts.scenario(ScenarioKind::ReadsReduced);
            // Single values are none of the weights.
            let weights = |octave: &OctaveTotals| octave.bytes >= 65_536 * octave.count.max(1);
            let copies = gain.is_some_and(|gain| gain.speedup >= WORTH)
                || facts.copied(CopyKind::DeviceToHost).iter().any(weights);
            (share >= 0.1 && copies).then_some(Found { at: Some(at), share, gain, ..Found::default() })
        }),
        results: Results::Rounding,
        recognized: "at least 10 % of the time idle in an average of weights (model_ema.py, swa_utils.py), and copies to the host \
                     that are worth a change",
        gain: "the simulation `reads_reduced`",
        not_when: "the GPU's memory has no room for another copy of the weights",
        subsumes: &["reduce_first", "pinned_results", "overlap_results", "move_work", "framework_work"],
        also: |facts| facts.is(Cause::Copy) || facts.is(Cause::Sync),
        link: Some("https://docs.pytorch.org/docs/stable/optim.html#weight-averaging-swa-and-ema"),
        ..NONE
    },
    RemedyEntry {
        id: "join_copies",
        says: &[(
            Any,
            "Join the small copies into one{at}: one buffer for all of a step. Each copy costs a launch, whatever its size. A small \
             value for a kernel can be its argument.",
        )],
        short: &[(Any, "join the small copies into one")],
        when: When::If(|facts| {
            let kind = ScenarioKind::CopiesJoined;
            let many = facts.program.small_copies && facts.is(Cause::Launch);
            let gain = gains(facts, kind).or_else(|| facts.scenario(kind).filter(|_| many || judged_by(facts, kind)));
            let wanted = many || judged_by(facts, kind) || gain.is_some();
            let at = most_copies(facts).and_then(|kind| facts.copied_at(kind));
            wanted.then_some(Found { at, gain, ..Found::default() })
        }),
        certainty: Certainty::Measured,
        recognized: "small copies are most of the operations, or a simulation that joins them gains 15 %",
        gain: "the simulation `copies_joined`: 8.0x predicted, 38x measured, so a low end",
        subsumes: &["scalar_tensor", "batch_loop"],
        also: |facts| facts.is(Cause::Launch) && facts.program.small_copies,
        ..NONE
    },
    RemedyEntry {
        id: "pinned",
        says: &[
            (
                Jax,
                "Copy the next batch ahead: batch = jax.device_put(next_batch) before the step that runs meanwhile{at}.",
            ),
            (
                Offload,
                "Keep the data on the GPU between kernels{at}: one data region around the loop (OpenMP: target data with map; \
                 OpenACC: data), and update only what changes. What must be copied is faster from pinned \
                 memory (cudaMallocHost, or cudaHostRegister once).",
            ),
            (
                Cupy,
                "Copy from pinned memory{at}: fill an array over cupy.cuda.alloc_pinned_memory() and copy it by array.set(pinned, \
                 stream), on a stream of its own where other work can run meanwhile.",
            ),
            (
                Native,
                "Copy from pinned memory{at}: allocate host buffers with cudaMallocHost, or pin them once with cudaHostRegister, \
                 and copy with cudaMemcpyAsync, on a stream of its own where other work can run meanwhile. Do not pin in the loop: \
                 it takes longer than a copy.",
            ),
            (
                Pytorch,
                "Copy from pinned memory{at}: {detail}tensor.to(device, non_blocking=True), on a stream of its own where other work \
                 can run meanwhile. Do not call pin_memory() in the loop: it copies too.",
            ),
            (Any, "Copy from pinned memory{at}, on a stream of its own where other work can run meanwhile."),
        ],
        short: &[
            (Jax, "copy the next batch ahead (jax.device_put)"),
            (Offload, "keep the data on the GPU between kernels"),
            (Any, "copy from pinned memory, overlapped with the kernels"),
        ],
        when: When::If(|facts| {
            let found = moved(facts, CopyKind::HostToDevice, true)?;
            let loads = facts.time(Cause::DataLoading) > 0.0 || facts.runs_in("torch/utils/data/");
            let detail = match loads {
                true => "DataLoader(..., pin_memory=True) and ",
                false => {
                    "x = x.pin_memory() once before the loop, or write into a tensor made with pin_memory=True, and "
                }
            };
            Some(Found { detail: detail.to_owned(), ..found })
        }),
        certainty: Certainty::Measured,
        recognized: "copies to the GPU while nothing else runs; those from pageable memory take at least a quarter of the time of \
                     copies",
        gain: "the simulation `copies_overlapped`: 4.43x in a program bound by pageable copies",
        not_when: "the data is pinned already; non_blocking alone changes nothing",
        trial: Some(&Trial {
            id: "pinned",
            change: "pinned memory in data loaders, copies from it do not wait",
            keep: "DataLoader(..., pin_memory=True) and x.to(\"cuda\", non_blocking=True)",
            how: How::PyTorch,
            needs: NO_LOADER,
        }),
        ..NONE
    },
    RemedyEntry {
        id: "pinned_results",
        says: &[
            (Jax, "Start copies to the CPU early: array.copy_to_host_async(){at}, and read the result one step later."),
            (
                Offload,
                "Keep the results on the GPU between kernels{at}: one data region around the loop (OpenMP: target data with map; \
                 OpenACC: data), and copy back at its end.",
            ),
            (
                Native,
                "Copy to pinned memory: allocate host buffers with cudaMallocHost, or pin them once with cudaHostRegister, copy with \
                 cudaMemcpyAsync on a stream of its own{at}, and read the result one step later, after an event. Take two buffers in \
                 turn, so that no copy goes to the one that is read. Do not pin in the loop: it takes longer than a copy.",
            ),
            (
                Pytorch,
                "Copy to pinned memory: make two tensors with torch.empty(..., pin_memory=True) before the loop, copy to them in \
                 turn with pinned.copy_(result, non_blocking=True) on a stream of its own{at}, and read each one step later, \
                 after an event. This helps where the CPU can do without the result that long.",
            ),
            (
                Any,
                "Copy to pinned memory on a stream of its own{at}, to two buffers in turn, and read each one step later, after an \
                 event. This helps where the CPU can do without the result that long.",
            ),
        ],
        short: &[
            (Jax, "start copies to the CPU early (copy_to_host_async)"),
            (Offload, "keep the results on the GPU between kernels"),
            (Any, "copy to pinned memory, overlapped with the kernels"),
        ],
        when: When::If(|facts| moved(facts, CopyKind::DeviceToHost, true)),
        recognized: "copies to the host while nothing else runs; those to pageable memory take at least a quarter of the time of copies",
        gain: "the simulation `copies_overlapped`",
        not_when: "the next step needs the result",
        ..NONE
    },
    RemedyEntry {
        id: "overlap_copies",
        says: &[
            (
                Jax,
                "Copy the next batch ahead: batch = jax.device_put(next_batch) before the step that runs meanwhile{at}. This helps when \
                 independent work exists.",
            ),
            (
                Native,
                "Run the copies overlapped with the kernels, on a stream of their own (cudaMemcpyAsync){at}, or keep the data on \
                 the GPU. This helps when independent work exists.",
            ),
            (
                Pytorch,
                "Run the copies overlapped with the kernels, on a stream of their own (torch.cuda.Stream(), copy the next batch while \
                 this one computes){at}, or keep the data on the GPU. This helps when independent work exists.",
            ),
            (
                Any,
                "Run the copies overlapped with the kernels, on a stream of their own (copy the next batch while this one \
                 computes){at}, or keep the data on the GPU. This helps when independent work exists.",
            ),
        ],
        short: &[
            (Jax, "copy the next batch ahead (jax.device_put)"),
            (Offload, "keep the data on the GPU between kernels"),
            (Any, "overlap the copies with the kernels"),
        ],
        when: When::If(|facts| moved(facts, CopyKind::HostToDevice, false)),
        recognized: "copies to the GPU while nothing else runs; those from pageable memory take less than a quarter of the time of copies",
        gain: "the simulation `copies_overlapped`",
        not_when: "no independent work exists",
        trial: Some(&NON_BLOCKING),
        ..NONE
    },
    RemedyEntry {
        id: "overlap_results",
        says: &[
            (Jax, "Start copies to the CPU early: array.copy_to_host_async(){at}, and read the result one step later."),
            (
                Native,
                "Run the copies to the CPU overlapped with the kernels, on a stream of their own (cudaMemcpyAsync){at}, and read the \
                 results of one step while the next one runs. This helps when independent work exists.",
            ),
            (
                Any,
                "Run the copies to the CPU overlapped with the kernels, on a stream of their own{at}, and read the results of one \
                 step while the next one runs. This helps when independent work exists.",
            ),
        ],
        short: &[
            (Jax, "start copies to the CPU early (copy_to_host_async)"),
            (Any, "overlap the copies with the kernels"),
        ],
        when: When::If(|facts| moved(facts, CopyKind::DeviceToHost, false)),
        recognized: "copies to the host while nothing else runs; those to pageable memory take less than a quarter of the time of copies",
        gain: "the simulation `copies_overlapped`",
        not_when: "the next step needs the result",
        ..NONE
    },
    RemedyEntry {
        id: "overlap_peers",
        says: &[(
            Any,
            "Run the copies between GPUs overlapped with the kernels, on streams of their own{at}, or let each GPU keep what it needs. \
             This helps when independent work exists.",
        )],
        when: When::If(|facts| moved(facts, CopyKind::PeerToPeer, false)),
        recognized: "copies between GPUs while nothing else runs",
        gain: "the simulation `copies_overlapped`",
        not_when: "no independent work exists",
        link: BEST_PRACTICES,
        ..NONE
    },
    RemedyEntry {
        id: "send_less",
        says: &[(
            Any,
            "Copy less to the GPU: smaller types (bytes that a kernel converts, 16 bits in place of 32), or keep there what does not \
             change{at}. There is little to run beside these copies.",
        )],
        when: When::If(|facts| only_fewer(facts, CopyKind::HostToDevice)),
        results: Results::Behavior,
        recognized: "copies are the bottleneck, at least a quarter of their time to the GPU, and a simulation that overlaps them gains \
                     nothing",
        gain: "unknown: it depends on what need not be copied",
        ..NONE
    },
    RemedyEntry {
        id: "copy_less",
        says: &[(
            Any,
            "Copy less: reduce on the GPU before copying (argmax or sum there, copy the result, use smaller types), or keep the data \
             there{at}. There is little to run beside these copies.",
        )],
        when: When::If(|facts| only_fewer(facts, CopyKind::DeviceToHost)),
        results: Results::Behavior,
        recognized: "copies are the bottleneck, at least a quarter of their time to the host, and a simulation that overlaps them gains \
                     nothing",
        gain: "unknown: it depends on what need not be copied",
        ..NONE
    },
];
