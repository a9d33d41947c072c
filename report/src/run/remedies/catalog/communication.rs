//! Several GPUs, and other processes on the GPU.

use crate::run::framework::Framework;
use crate::run::remedies::entry::{JAX_TIPS, RemedyEntry, TUNING, Target, When};
use crate::run::remedies::facts::Found;
use crate::run::remedies::patterns::Class;
use crate::run::{Certainty, Results};
use profiler_core::leaf::Cause;
use profiler_core::whatif::ScenarioKind;

use Framework::{Any, Jax, Pytorch};

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
        when: When::If(|facts| {
            let gain = facts.scenario(ScenarioKind::CommunicationHidden);
            let worth = gain.is_some_and(|gain| gain.speedup >= 1.15);
            (facts.is(Cause::Communication) || worth).then(|| Found::default().gaining(gain))
        }),
        recognized: "collectives run while nothing computes, as the bottleneck or with a simulated gain of 15 % without them",
        gain: "the simulation `communication_hidden`",
        not_when: "the last bucket: nothing is left to hide it behind",
        link: Some("https://docs.pytorch.org/docs/stable/notes/ddp.html"),
        ..NONE
    },
    RemedyEntry {
        id: "buckets",
        says: &[(
            Pytorch,
            "Join small all-reduces: DistributedDataParallel(model, bucket_cap_mb=100, gradient_as_bucket_view=True). There are {what} \
             collectives a step. This helps if they are not hidden behind the backward pass.",
        )],
        when: When::If(|facts| {
            let rows = facts.device?.kernels.iter().filter(|row| row.communication);
            let (count, total) =
                rows.fold((0, 0), |(count, total), row| (count + row.durations.count(), total + row.durations.total()));
            let each = count as f64 / facts.steps.max(1) as f64;
            // A transfer of a few megabytes over NVLink takes some tens of microseconds.
            let short = count > 0 && total / count < 100_000;
            let worth = facts.time(Cause::Communication) >= 0.05;
            (worth && short && facts.steps > 0 && each >= 20.0).then(|| Found {
                what: format!("{each:.0}"),
                gain: facts.scenario(ScenarioKind::CommunicationHidden),
                ..Found::default()
            })
        }),
        certainty: Certainty::Guess,
        recognized: "at least 20 collectives a step, under 100 us each, and 5 % of the time in them alone",
        gain: "a part of the simulation `communication_hidden`",
        not_when: "larger buckets end after the backward pass and overlap less",
        link: TUNING,
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
        ..NONE
    },
    RemedyEntry {
        id: "jax_latency_hiding",
        says: &[(
            Jax,
            "Try XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true: it may start collectives earlier.",
        )],
        when: When::If(|facts| (facts.share(&[Class::Communication]) >= 0.05).then(Found::default)),
        certainty: Certainty::Guess,
        recognized: "collectives in a program whose kernels are XLA's",
        gain: "a part of the simulation `communication_hidden`",
        link: JAX_TIPS,
        results: Results::Same,
        ..NONE
    },
];
