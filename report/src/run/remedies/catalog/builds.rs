//! Kernels that are built or loaded while the program runs.

use crate::run::framework::Framework;
use crate::run::remedies::entry::{COMPILE, JAX_TIPS, RemedyEntry, Target, When};
use crate::run::remedies::facts::Found;
use crate::run::remedies::patterns::Class;
use crate::run::{Certainty, Results};
use profiler_core::leaf::Cause;

use Framework::{Any, Pytorch};

const NONE: RemedyEntry = RemedyEntry {
    target: Target::Time(Cause::KernelBuild),
    results: Results::Behavior,
    recognized: "kernels are built while steps run, in lines of this library",
    gain: "without builds: the simulation `no_host_work` where builds are nearly all CPU work, else their share of the time",
    not_when: "only the first use of each kernel is loaded: a longer run has less of it",
    ..RemedyEntry::NONE
};

const CUPY_AND_OTHERS: [&str; 4] = ["/cupy/", "/cupyx/", "/numba/", "/triton/"];
const INDUCTOR: [&str; 4] = ["torch/_inductor", "torch/_dynamo", "torch/fx/", "sympy/"];
const JAX: [&str; 3] = ["/jax/", "/jaxlib/", "/jax_plugins/"];

pub(super) const ENTRIES: &[RemedyEntry] = &[
    RemedyEntry {
        id: "cudnn_no_search",
        says: &[(
            Pytorch,
            "Keep the shapes {there} the same (pad to a few sizes), or turn torch.backends.cudnn.benchmark off if it is on: it tries \
             kernels for each new shape.",
        )],
        when: When::If(|facts| {
            let seen = facts.builds_in(&["torch/nn/modules/conv", "libcudnn"]) && !facts.builds_in(&["sdpa"]);
            (facts.is(Cause::KernelBuild) && seen).then(|| facts.built_here())
        }),
        results: Results::Rounding,
        certainty: Certainty::Measured,
        recognized: "kernels are built while steps run, in lines of convolutions or in libcudnn",
        gain: "without builds: 137x (122x to 153x) measured on convolutions of new sizes",
        link: crate::run::remedies::entry::TUNING,
        outside: true,
        ..NONE
    },
    RemedyEntry {
        id: "recompiles",
        says: &[(
            Pytorch,
            "Keep the shapes {there} the same (pad to a few sizes), or compile for all sizes: torch.compile(dynamic=True) or \
             torch._dynamo.mark_dynamic(x, 0), where the model allows it.",
        )],
        when: When::If(|facts| {
            let seen = facts.builds_in(&INDUCTOR);
            (facts.is(Cause::KernelBuild) && seen).then(|| facts.built_here())
        }),
        results: Results::Rounding,
        recognized: "kernels are built while steps run, in lines of torch/_inductor or torch/_dynamo",
        subsumes: &["new_shapes"],
        link: COMPILE,
        ..NONE
    },
    RemedyEntry {
        id: "triton_constants",
        says: &[(
            Any,
            "Build the kernels {there} once, before the loop. Triton builds a kernel for each new value of a tl.constexpr argument and \
             each new type: keep those the same.",
        )],
        when: When::If(|facts| {
            let seen = facts.builds_in(&["/triton/"]) && !facts.builds_in(&INDUCTOR);
            (facts.is(Cause::KernelBuild) && seen).then(|| facts.built_here())
        }),
        subsumes: &["build_once"],
        link: Some("https://triton-lang.org/main/python-api/generated/triton.jit.html"),
        ..NONE
    },
    RemedyEntry {
        id: "cupy_sources",
        says: &[(
            Any,
            "Build the kernels {there} once, before the loop. Pass what changes as arguments: CuPy builds a kernel for each new source.",
        )],
        when: When::If(|facts| {
            let seen = facts.builds_in(&["/cupy/", "/cupyx/"]);
            (facts.is(Cause::KernelBuild) && seen).then(|| facts.built_here())
        }),
        subsumes: &["build_once"],
        link: Some("https://docs.cupy.dev/en/stable/user_guide/kernel.html"),
        ..NONE
    },
    RemedyEntry {
        id: "numba_types",
        says: &[(
            Any,
            "Build the kernels {there} once, before the loop. Numba builds a kernel for each new combination of argument types: keep \
             those the same.",
        )],
        when: When::If(|facts| {
            let seen = facts.builds_in(&["/numba/"]);
            (facts.is(Cause::KernelBuild) && seen).then(|| facts.built_here())
        }),
        subsumes: &["build_once"],
        link: Some("https://nvidia.github.io/numba-cuda/"),
        ..NONE
    },
    RemedyEntry {
        id: "jax_compile",
        says: &[(
            Any,
            "Keep the shapes {there} the same: pad to a few sizes. jax.jit builds kernels for each new shape and static argument \
             (JAX_LOG_COMPILES=1 tells which); JAX_COMPILATION_CACHE_DIR keeps them for the next run.",
        )],
        when: When::If(|facts| {
            let seen = facts.builds_in(&JAX);
            (facts.is(Cause::KernelBuild) && seen).then(|| facts.built_here())
        }),
        subsumes: &["new_shapes"],
        link: JAX_TIPS,
        ..NONE
    },
    RemedyEntry {
        id: "build_once",
        says: &[(Any, "Build the kernels {there} once, before the loop.")],
        when: When::If(|facts| {
            let seen = facts.builds_in(&CUPY_AND_OTHERS) && !facts.builds_in(&INDUCTOR);
            (facts.is(Cause::KernelBuild) && seen).then(|| facts.built_here())
        }),
        ..NONE
    },
    RemedyEntry {
        id: "new_shapes",
        says: &[(Any, "Keep the shapes {there} the same: pad to a few sizes.")],
        when: When::If(|facts| {
            let other = facts.builds_in(&CUPY_AND_OTHERS) && !facts.builds_in(&INDUCTOR);
            let found = facts.built_here();
            (facts.is(Cause::KernelBuild) && found.at.is_some() && !other).then_some(found)
        }),
        recognized: "kernels are built while steps run, at a known line",
        ..NONE
    },
    RemedyEntry {
        id: "new_kernels",
        says: &[(
            Any,
            "Build kernels before the loop and keep them. If they are built for new shapes, keep the shapes the same: pad to a few \
             sizes.",
        )],
        when: When::If(|facts| {
            let found = facts.built_here();
            (facts.is(Cause::KernelBuild) && found.at.is_none()).then_some(found)
        }),
        recognized: "kernels are built while steps run, and no sample shows where",
        ..NONE
    },
    RemedyEntry {
        id: "tuner_cache",
        says: &[(
            Any,
            "Keep what was tuned for the next run: TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR or JAX_COMPILATION_CACHE_DIR on storage that \
             stays. Trials of the tuner may take {share} of the time of kernels at start-up.",
        )],
        target: Target::Kernels,
        when: When::If(|facts| {
            let whole = facts.devices.iter().flat_map(|device| &device.kernels);
            let all: u64 = whole.clone().map(|row| row.durations.total()).sum();
            let tuner = whole.filter(|row| super::super::patterns::Classes::of(&row.name).has(Class::Tuner));
            let share = tuner.map(|row| row.durations.total()).sum::<u64>() as f64 / all.max(1) as f64;
            (share >= 0.1).then(|| Found { share, gain: None, ..Found::default() })
        }),
        certainty: Certainty::Guess,
        recognized: "trial kernels of an autotuner (RedzoneAllocator, DelayKernel) take at least 10 % of all kernel time",
        gain: "start-up only",
        not_when: "the run is long",
        link: COMPILE,
        ..NONE
    },
];
