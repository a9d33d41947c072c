//! Several GPUs, and other processes on the GPU.

use crate::run::framework::Framework;
use crate::run::remedies::entry::{Rank, RemedyEntry, Target, When};
use crate::run::remedies::facts::Found;
use crate::run::{Certainty, Results};
use profiler_core::leaf::Cause;
use profiler_core::whatif::ScenarioKind;

use super::others::XLA_OVERLAP;

use Framework::{Any, Jax};

const NONE: RemedyEntry = RemedyEntry { target: Target::Time(Cause::Communication), ..RemedyEntry::NONE };

pub(super) const ENTRIES: &[RemedyEntry] = &[
    RemedyEntry {
        id: "overlap",
        says: &[
            (
                Jax,
                "Overlap collectives with computation: XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true, and compare the ranks \
                 (gpuwhy merge): on one rank, waiting for a slow rank looks the same as a slow transfer.",
            ),
            (
                Any,
                "Overlap collectives with computation (bucket size, another stream), and compare the ranks (gpuwhy merge): on one rank, \
                 waiting for a slow rank looks the same as a slow transfer.",
            ),
        ],
        short: &[(Any, "overlap communication with the kernels")],
        when: When::If(|facts| {
            let gain = facts.scenario(ScenarioKind::CommunicationHidden);
            let worth = gain.is_some_and(|gain| gain.speedup >= 1.15);
            (facts.is(Cause::Communication) || worth).then(|| Found::default().gaining(gain))
        }),
        recognized: "collectives run while nothing computes, as the bottleneck or with a simulated gain of 15 % without them",
        gain: "the simulation `communication_hidden`",
        not_when: "the last bucket: nothing is left to hide it behind",
        link: Some("https://docs.pytorch.org/docs/stable/notes/ddp.html"),
        trial: Some(&XLA_OVERLAP),
        ..NONE
    },
    RemedyEntry {
        id: "other_process",
        says: &[(
            Any,
            "Move one of the processes to another GPU. Where they must share it, NVIDIA MPS lets their small kernels run at the \
             same time instead of in turns.",
        )],
        target: Target::Time(Cause::OtherProcess),
        when: When::If(|facts| {
            let shares = facts.program.shared && facts.is(Cause::GpuCompute);
            (shares || facts.is(Cause::OtherProcess)).then(Found::default)
        }),
        results: Results::Behavior,
        certainty: Certainty::Measured,
        recognized: "work of this process is queued while the GPU works for another one, or the GPU computes and another \
                     process used it at least 15 % of the time (NVML)",
        gain: "the waits subtracted: a rough bound",
        link: Some("https://docs.nvidia.com/deploy/mps/index.html"),
        rank: Rank::First,
        also: |facts| facts.is(Cause::GpuCompute) && facts.program.shared,
        ..NONE
    },
];
