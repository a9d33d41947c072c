//! JAX, CuPy and Numba.

use crate::run::framework::Framework;
use crate::run::remedies::entry::{JAX_TIPS, RemedyEntry, Target, When};
use crate::run::remedies::facts::Found;
use crate::run::remedies::gain::Gain;
use crate::run::remedies::sequences;
use crate::run::{Certainty, Results};
use gpuwhy_trace::record::CopyKind;
use profiler_core::attribution::CallKind;
use profiler_core::leaf::Cause;
use profiler_core::whatif::ScenarioKind;

use super::copies::PART;

use Framework::{Cupy, Jax, Numba};

const NONE: RemedyEntry = RemedyEntry { link: JAX_TIPS, ..RemedyEntry::NONE };

/// Least part of the idle time at lines of Python in operations of JAX that no jitted function contains.
const SINGLE: f64 = 0.5;

pub(super) const ENTRIES: &[RemedyEntry] = &[
    RemedyEntry {
        id: "jax_no_jit",
        says: &[(
            Jax,
            "Wrap the body of the loop in one jax.jit function, made before the loop: single operations are run or traced one \
             by one{at}.",
        )],
        target: Target::Time(Cause::Launch),
        when: When::If(|facts| {
            // A step that is traced or compiled again has no function of its own.
            let again = ["apply_primitive", "_pjit_linearize", "backend_compile_and_load", "trace_to_jaxpr"];
            let share = facts.launches_in(&["apply_primitive", "_src/dispatch.py"]);
            let idle = facts.idle_in(&again);
            let share = share.max(idle.as_ref().map_or(0.0, |(share, _)| *share));
            // A jitted function runs no code of JAX's own for its operations.
            let single = facts.python_within(&["jax/_src/numpy/", "jax/_src/lax/", "jax/_src/nn/"]);
            (share >= 0.1 || single >= SINGLE && facts.is(Cause::Launch)).then(|| Found {
                at: idle.map(|(_, at)| at).or_else(|| facts.call_at(CallKind::Launch)),
                share,
                gain: match facts.is(Cause::HostCpu) {
                    true => facts.scenario(ScenarioKind::NoHostWork),
                    false => facts.scenario(ScenarioKind::LaunchesFree),
                }
                // Work and launches go together.
                .map(|gain| Gain { is_estimate: true, ..gain }),
                ..Found::default()
            })
        }),
        subsumes: &["wait_other", "graph"],
        results: Results::Rounding,
        recognized: "at least 10 % of the sampled launches in apply_primitive, or of the time idle there, in tracing or in the \
                     compiler; or half of the idle time at lines of Python in functions of jax.numpy and jax.lax, which a jitted \
                     function does not call",
        gain: "the simulation `launches_free`, or `no_host_work` where the CPU is the bottleneck",
        not_when: "the code runs once, for set-up",
        link: Some("https://docs.jax.dev/en/latest/jit-compilation.html"),
        ..NONE
    },
    RemedyEntry {
        id: "cupy_fuse",
        says: &[(
            Cupy,
            "Join elementwise kernels: @cupy.fuse() on the function{at}, or a cupy.ElementwiseKernel. CuPy's own kernels are {share} of \
             the launches. This may help where several pass over the same array.",
        )],
        target: Target::FewerKernels,
        when: When::If(sequences::cupy_chains),
        results: Results::Rounding,
        certainty: Certainty::Guess,
        recognized: "at least half of the launches are CuPy's elementwise kernels and reductions, some in rows",
        gain: "each row takes 0.5 to 1.5 times as long as its longest kernel, of over 15 kernels a tenth of their number; 1.0 times \
               measured for ten, 2.4 times for 33",
        link: Some("https://docs.cupy.dev/en/stable/user_guide/kernel.html"),
        ..NONE
    },
    RemedyEntry {
        id: "numba_copies",
        says: &[(
            Numba,
            "Copy arrays to the GPU once: d = numba.cuda.to_device(a), and pass d to the kernels{at}. This may help if the CPU does not \
             change the array between kernels.",
        )],
        target: Target::Time(Cause::Copy),
        when: When::If(|facts| {
            let to_gpu = facts.copies_going(CopyKind::HostToDevice);
            let copies = facts.time(Cause::Copy) >= 0.1 && to_gpu >= PART;
            let at = facts.copied_at(CopyKind::HostToDevice);
            copies.then(|| Found { at, gain: facts.scenario(ScenarioKind::CopiesOverlapped), ..Found::default() })
        }),
        certainty: Certainty::Guess,
        recognized: "most kernel time in Numba's kernels, and at least 10 % of the time in copies, a quarter of it to the GPU",
        gain: "the simulation `copies_overlapped`",
        link: Some("https://nvidia.github.io/numba-cuda/"),
        ..NONE
    },
];
