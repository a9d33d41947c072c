//! Copies between the CPU and the GPU, and within the GPU.

use crate::run::copies::copies_are_pageable;
use crate::run::framework::Framework;
use crate::run::remedies::entry::{PINNING, RemedyEntry, Target, When};
use crate::run::remedies::facts::{Facts, Found};
use crate::run::remedies::gain::Gain;
use crate::run::{Certainty, Results};
use profiler_core::attribution::CallKind;
use profiler_core::attribution::leaf::Cause;
use profiler_core::whatif::ScenarioKind;

use Framework::{Any, Jax, Native};

const NONE: RemedyEntry = RemedyEntry { target: Target::Time(Cause::Copy), link: PINNING, ..RemedyEntry::NONE };

/// Least gain of a change of copies where something else is the bottleneck.
const WORTH: f64 = 1.15;

/// True if copies are the bottleneck and `kind` is the scenario that it is judged by.
fn judged_by(facts: &Facts<'_>, kind: ScenarioKind) -> bool {
    facts.is(Cause::Copy) && facts.program.best_case.is_some_and(|best_case| best_case.kind == kind)
}

fn gains(facts: &Facts<'_>, kind: ScenarioKind) -> Option<Gain> {
    facts.scenario(kind).filter(|gain| gain.speedup >= WORTH)
}

fn is_pageable(facts: &Facts<'_>) -> bool {
    facts.devices.iter().any(copies_are_pageable)
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
                "Remove copies within the GPU that are not needed: jax.jit(step, donate_argnums=(0,)) lets XLA write results over \
                 arguments. The best case is that none of these copies is needed.",
            ),
            (
                Native,
                "Remove copies within the GPU that are not needed{at}: write results where they are used, and exchange pointers \
                 instead of contents. The best case is that none of these copies is needed.",
            ),
            (
                Any,
                "Remove copies within the GPU that are not needed: .clone(), .contiguous(), .to(), torch.cat{at}. Write results where \
                 they are used, or use views. The best case is that none of these copies is needed.",
            ),
        ],
        when: When::If(|facts| {
            let kind = ScenarioKind::DeviceCopiesGone;
            let gain = gains(facts, kind).or_else(|| facts.scenario(kind).filter(|_| judged_by(facts, kind)));
            let wanted = judged_by(facts, kind) || gain.is_some();
            wanted.then(|| Found { at: facts.call_at(CallKind::Copy), gain, ..Found::default() })
        }),
        certainty: Certainty::Measured,
        recognized: "copies within the device of over 64 KiB, and a simulation without them gains 15 %",
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
                "Copy less to the CPU: reduce on the GPU first (argmax, sum or a slice there, then copy the result){at}, or use smaller \
                 types. This helps when the CPU does not need all of what is copied.",
            ),
        ],
        when: When::If(|facts| {
            let kind = ScenarioKind::ReadsReduced;
            let judged = judged_by(facts, kind) || facts.program.best_case.is_some_and(|best| best.kind == kind);
            // What is saved has to be copied.
            let saves = facts.program.activity == Some(crate::run::remedies::Activity::Checkpoint);
            let gain = gains(facts, kind).or_else(|| facts.scenario(kind).filter(|_| judged));
            let at = facts.call_at(CallKind::Copy);
            (!saves && (judged || gain.is_some())).then_some(Found { at, gain, ..Found::default() })
        }),
        results: Results::Behavior,
        certainty: Certainty::Measured,
        recognized: "copies to the host of over 4 KiB that it waits for, and a simulation with short ones gains 15 %",
        gain: "the simulation `reads_reduced`: 14x to 16x predicted, 13.4x measured",
        not_when: "all of the array is the output",
        subsumes: &["move_work", "host_arrays"],
        ..NONE
    },
    RemedyEntry {
        id: "join_copies",
        says: &[(
            Any,
            "Join the small copies into one{at}: one buffer for all of a step, or arguments of a kernel. Each copy costs a launch, \
             whatever its size.",
        )],
        when: When::If(|facts| {
            let kind = ScenarioKind::CopiesJoined;
            let many = facts.program.small_copies && facts.is(Cause::Launch);
            let gain = gains(facts, kind).or_else(|| facts.scenario(kind).filter(|_| many || judged_by(facts, kind)));
            let wanted = many || judged_by(facts, kind) || gain.is_some();
            wanted.then(|| Found { at: facts.call_at(CallKind::Copy), gain, ..Found::default() })
        }),
        certainty: Certainty::Measured,
        recognized: "small copies are most of the operations, or a simulation that joins them gains 15 %",
        gain: "the simulation `copies_joined`: 8.0x predicted, 38x measured, so a low end",
        subsumes: &["scalar_tensor"],
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
                Native,
                "Copy from pinned memory: allocate host buffers with cudaMallocHost, or pin them once with cudaHostRegister, and \
                 copy with cudaMemcpyAsync on a stream of its own where other work can run meanwhile{at}. Or keep the data on the \
                 GPU between kernels (OpenMP: target data; OpenACC: data). Do not pin in the loop: it takes longer than a copy.",
            ),
            (
                Any,
                "Copy from pinned memory: DataLoader(..., pin_memory=True) and tensor.to(device, non_blocking=True), on a stream of its \
                 own where other work can run meanwhile{at}. Do not call pin_memory() in the loop: it copies too.",
            ),
        ],
        when: When::If(|facts| {
            let gain = gains(facts, ScenarioKind::CopiesOverlapped);
            let wanted = is_pageable(facts) && (only_moved(facts) || gain.is_some());
            wanted.then(|| Found { at: facts.call_at(CallKind::Copy), gain, ..Found::default() })
        }),
        certainty: Certainty::Measured,
        recognized: "copies while nothing else runs, at least a quarter of whose time is from or to pageable memory",
        gain: "the simulation `copies_overlapped`: 4.43x in a program bound by pageable copies",
        not_when: "the data is pinned already; non_blocking alone changes nothing",
        outside: true,
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
                 the GPU. This helps when independent work exists. Join many small copies.",
            ),
            (
                Any,
                "Run the copies overlapped with the kernels, on a stream of their own (torch.cuda.Stream(), copy the next batch while \
                 this one computes){at}, or keep the data on the GPU. This helps when independent work exists. Join many small \
                 copies.",
            ),
        ],
        when: When::If(|facts| {
            let gain = gains(facts, ScenarioKind::CopiesOverlapped);
            let wanted = !is_pageable(facts) && (only_moved(facts) || gain.is_some());
            wanted.then(|| Found { at: facts.call_at(CallKind::Copy), gain, ..Found::default() })
        }),
        recognized: "copies while nothing else runs, less than a quarter of whose time is from or to pageable memory",
        gain: "the simulation `copies_overlapped`",
        not_when: "no independent work exists",
        ..NONE
    },
    RemedyEntry {
        id: "copy_less",
        says: &[(
            Any,
            "Copy less: reduce on the GPU before copying (argmax or sum there, copy the result, use smaller types), or keep the data \
             there{at}. There is little to run beside these copies.",
        )],
        when: When::If(|facts| {
            let nothing = facts.program.best_case.is_some_and(|best_case| !best_case.is_worth_showing());
            (facts.is(Cause::Copy) && nothing).then(|| Found { at: facts.call_at(CallKind::Copy), ..Found::default() })
        }),
        results: Results::Behavior,
        recognized: "copies are the bottleneck, and a simulation that overlaps them gains nothing",
        gain: "unknown: it depends on what need not be copied",
        ..NONE
    },
];
