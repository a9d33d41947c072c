//! Kernels that are built or loaded while the program runs.

use crate::run::framework::Framework;
use crate::run::remedies::entry::{RemedyEntry, Target, When};
use crate::run::remedies::gain::Gain;
use crate::run::remedies::trial::{How, Trial};
use crate::run::{Certainty, Results};
use profiler_core::leaf::Cause;

use super::others::COMPILE_DYNAMIC;

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

pub(super) const ENTRIES: &[RemedyEntry] = &[
    RemedyEntry {
        id: "cudnn_no_search",
        says: &[(
            Pytorch,
            "Set torch.backends.cudnn.benchmark = False (the default) if it is on, or keep the shapes the same (pad to a few sizes): cuDNN tries \
             kernels for each new shape of the convolutions{at}.",
        )],
        when: When::If(|facts| {
            let seen = facts.builds_in(&["torch/nn/modules/conv", "libcudnn"]) && !facts.builds_in(&["sdpa"]);
            // What is tried runs, too, and some kernels are loaded in any case.
            let (built, computing) = (facts.time(Cause::KernelBuild), facts.time(Cause::GpuCompute));
            let gain = Some(Gain::saving(0.8 * built, built + computing));
            (facts.is(Cause::KernelBuild) && seen).then(|| facts.built_here().gaining(gain))
        }),
        results: Results::Rounding,
        certainty: Certainty::Measured,
        recognized: "kernels are built while steps run, in lines of convolutions or in libcudnn",
        gain: "four fifths of the builds gone to all of them, with the kernels that are tried: 7.7x and 137x measured on convolutions of \
               new sizes",
        subsumes: &["new_shapes", "new_kernels"],
        link: crate::run::remedies::entry::TUNING,
        trial: Some(&Trial {
            id: "cudnn_no_search",
            change: "cuDNN does not measure algorithms for each size",
            keep: "torch.backends.cudnn.benchmark = False",
            how: How::PyTorch,
            needs: "the program did not turn torch.backends.cudnn.benchmark on",
        }),
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
        trial: Some(&COMPILE_DYNAMIC),
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
        trial: Some(&COMPILE_DYNAMIC),
        ..NONE
    },
];
