//! Launches: graphs, fused kernels, optimizers, and what keeps a graph from being captured.

use crate::run::framework::Framework;
use crate::run::remedies::entry::{
    BEST_PRACTICES, COMPILE, COMPILE_MODEL, CUDA_NOTES, FUSED_OPTIMIZER, Rank, RemedyEntry, Target, When,
};
use crate::run::remedies::facts::{Activity, Facts, Found};
use crate::run::remedies::gain::Gain;
use crate::run::remedies::options::class_of_optimizer;
use crate::run::remedies::patterns::Class;
use crate::run::remedies::repeated::repeated;
use crate::run::remedies::trial::{How, Trial};
use crate::run::{Certainty, Results};
use profiler_core::attribution::host_cause::HostCause;
use profiler_core::leaf::Cause;
use profiler_core::whatif::ScenarioKind;

use super::others::COMPILE_GRAPHS;

use Framework::{Any, Cupy, Jax, Native, Offload, Pytorch};

const NONE: RemedyEntry = RemedyEntry { target: Target::Time(Cause::Launch), ..RemedyEntry::NONE };

/// A compiler that makes the kernels makes no graphs.
const REGIONS: (Framework, &str) = (
    Offload,
    "Launch fewer, larger kernels: join neighboring target regions or parallel loops, collapse nested ones, and let them run \
     without waiting (OpenMP: nowait and depend; OpenACC: async).",
);

/// Launches matter, and graphs are used in this way.
fn launches(facts: &Facts<'_>, graphs: bool) -> Option<Found> {
    let gain = facts.scenario(ScenarioKind::LaunchesFree);
    let worth = facts.is(Cause::Launch) || gain.is_some_and(|gain| gain.speedup >= 1.15);
    let worth = worth && facts.time(Cause::Launch) >= 0.1;
    // What sleeps to limit a rate sleeps longer after a shorter step.
    let sleeps = facts.program.activity == Some(Activity::Does(HostCause::Sleep)) && !facts.is(Cause::Launch);
    (graphs && worth && !sleeps && !facts.program.small_copies)
        .then(|| Found::at(None).unwrap_or_default().gaining(gain))
}

pub(super) const COMPILE_MODULE: Trial = Trial {
    id: "compile",
    change: "torch.compile around the outermost module",
    keep: COMPILE_MODEL,
    how: How::PyTorch,
    needs: "no module was called on the GPU, or it is compiled already; for plain functions, put @torch.compile above the \
            one that launches the most kernels",
};

pub(super) const ENTRIES: &[RemedyEntry] = &[
    RemedyEntry {
        id: "batch_loop",
        says: &[
            (
                Jax,
                "Do in one call what is done one by one{at}: jax.vmap over stacked inputs within one jax.jit, or jax.lax.scan where one \
                 needs the result of the one before. Here {what} run again and again, on grids that do not fill the GPU.",
            ),
            (
                Offload,
                "Do in one parallel loop what is done one by one{at}: put the loop around it inside, and collapse them. Here {what} run \
                 again and again, on grids that do not fill the GPU. This holds if none needs the result of the one before.",
            ),
            (
                Native,
                "Launch once what is launched one by one{at}: another dimension of the grid, or a batched function of the library. Here \
                 {what} run again and again, on grids that do not fill the GPU. This holds if none needs the result of the one \
                 before.",
            ),
            (
                Pytorch,
                "Do in one call what is done one by one{at}: one batch of stacked inputs in place of x[i:i + 1], torch.vmap (modules: with \
                 torch.func.stack_module_state), torch.bmm, foreach functions (time steps: torch.nn.LSTM). Here {what} run again and again, on grids that do not fill the GPU. This holds if none needs the result of the one before.",
            ),
            (
                Any,
                "Do in one call what is done one by one{at}: one call over stacked arrays. Here {what} run again and again, on grids that \
                 do not fill the GPU. This holds if none needs the result of the one before.",
            ),
        ],
        target: Target::FewerKernels,
        when: When::If(repeated),
        results: Results::Rounding,
        certainty: Certainty::Measured,
        recognized: "the same 64 launches or fewer at least eight times in a row, from one line that launches nothing else, at least \
                     80 % of them with grids smaller than the GPU; launches matter, no CUDA graph is used, and no optimizer launches \
                     them or is in the unit. Said behind the CUDA graph where values are read, cells are recurrent, or tokens are chosen",
        gain: "at most the launches of one unit for all, and as much kernel time as their blocks need if they fill the GPU: 44x, 53x \
               and more measured for samples one by one",
        not_when: "each needs the result of the one before (layers, time steps, decoding)",
        link: BEST_PRACTICES,
        rank: Rank::Batch,
        ..NONE
    },
    RemedyEntry {
        id: "fused_optimizer",
        says: &[(
            Pytorch,
            "Let the optimizer update all tensors in one kernel: pass fused=True where it is made{detail}; one without it takes \
             foreach=True. It launches kernels for each tensor{at}: {share} of the launches. This helps if parameters are on the \
             GPU and dense.",
        )],
        target: Target::FewerKernels,
        when: When::If(|facts| {
            let sampled = facts.launches_in(&["_single_tensor_"]);
            let kernels = facts.per_step(&[Class::LoopOptimizer]) >= 50;
            let of_count =
                sampled.max(if kernels { 3.0 * facts.count_share(&[Class::LoopOptimizer]) } else { 0.0 }).min(0.9);
            let share = facts.share(&[Class::LoopOptimizer]);
            let gain = facts.without_between((0.5 * share, of_count), (share, of_count));
            let found = facts.found(&[Class::LoopOptimizer], of_count, gain);
            (of_count >= 0.1).then(|| Found { detail: class_of_optimizer(facts), ..found })
        }),
        results: Results::Rounding,
        certainty: Certainty::Measured,
        recognized: "at least 10 % of the sampled launches in torch/optim's _single_tensor_ functions, or 50 addcdiv, addcmul \
                     or lerp kernels in a step",
        gain: "half of these launches to all of them gone: 1.84x and 2.20x measured",
        not_when: "parameters are on the CPU or sparse, or the optimizer is the program's own",
        subsumes: &["foreach_fused", "compile_elementwise"],
        link: Some("https://docs.pytorch.org/docs/stable/optim.html"),
        trial: Some(&FUSED_OPTIMIZER),
        rank: Rank::BeforeGraph,
        ..NONE
    },
    RemedyEntry {
        id: "graph_whole",
        says: &[(Any, "Capture the whole step in one CUDA graph: each graph has few operations.")],
        short: &[(Any, "capture the whole step in one CUDA graph")],
        when: When::If(|facts| launches(facts, facts.program.graphs.is_split)),
        recognized: "nearly all operations come from graphs of at most four operations each",
        gain: "the simulation `launches_free`",
        not_when: "shapes or addresses change from step to step",
        link: CUDA_NOTES,
        rank: Rank::Graph,
        trial: Some(&COMPILE_GRAPHS),
        ..NONE
    },
    RemedyEntry {
        id: "graph_nodes",
        says: &[
            (
                Jax,
                "Make the operations within the graphs fewer and larger: more of the step in one jax.jit, larger batches. Each node \
                 costs the GPU a moment, however it is launched.",
            ),
            (
                Pytorch,
                "Make the operations within the graphs fewer and larger: fused kernels (torch.compile), larger batches. Each node \
                 costs the GPU a moment, however it is launched.",
            ),
            (
                Any,
                "Make the operations within the graphs fewer and larger. Each node costs the GPU a moment, however it is launched.",
            ),
        ],
        short: &[(Any, "make the operations within the graphs fewer and larger")],
        when: When::If(|facts| {
            let used = facts.program.graphs.used && !facts.program.graphs.is_split;
            // The time between nodes, and no more of it: a node that is joined with another has none.
            let between = Gain::saving(0.0, facts.time(Cause::Launch));
            launches(facts, used).map(|found| found.gaining(Some(between)))
        }),
        results: Results::Rounding,
        recognized: "graphs launch most of the work",
        gain: "at most the time between the nodes",
        link: CUDA_NOTES,
        rank: Rank::Graph,
        ..NONE
    },
    RemedyEntry {
        id: "graph",
        says: &[
            (
                Jax,
                "Launch whole steps: put the loop body into jax.jit, and leave command buffers on (XLA_FLAGS \
                 --xla_gpu_enable_command_buffer). Shapes must stay the same.",
            ),
            (
                Cupy,
                "Capture the step in a CUDA graph on a stream of its own: stream.begin_capture(), the step, graph = \
                 stream.end_capture(), then graph.launch(stream) for each step. Arrays must stay at the same addresses.",
            ),
            REGIONS,
            (
                Native,
                "Capture the step in a CUDA graph: cudaStreamBeginCapture and cudaStreamEndCapture around it once, \
                 cudaGraphInstantiate, then cudaGraphLaunch for each step; or launch fewer, larger kernels. Addresses must stay the \
                 same.",
            ),
            (
                Pytorch,
                "Capture the step in a CUDA graph: torch.compile({model}, mode=\"reduce-overhead\"){passes}, \
                 or torch.cuda.graph() for all of it. Shapes and addresses of tensors must stay the same.",
            ),
            (Any, "Capture the step in a CUDA graph. Shapes and addresses of arrays must stay the same."),
        ],
        short: &[
            (Jax, "launch whole steps (jax.jit)"),
            (Offload, "launch fewer, larger kernels"),
            (Any, "capture the step in a CUDA graph"),
        ],
        when: When::If(|facts| {
            let graphs = facts.program.graphs;
            launches(facts, graphs.fits && !graphs.used && !graphs.is_split)
        }),
        unless: |facts| facts.share(&[Class::Selection]) > 0.0 && !facts.is(Cause::Launch),
        certainty: Certainty::Measured,
        recognized: "launches matter, and at least 98 % of them are the same in every step",
        gain: "the simulation `launches_free`, less 0.8 to 1.6 us for each node",
        not_when: "the step reads values, allocates with cudaMalloc or changes shapes; Adam needs capturable=True",
        link: CUDA_NOTES,
        rank: Rank::Graph,
        trial: Some(&COMPILE_GRAPHS),
        ..NONE
    },
    RemedyEntry {
        id: "compile",
        says: &[
            (
                Jax,
                "Launch fewer, larger operations: put more of the step into one jax.jit, so that XLA fuses it. Shapes must stay the \
                 same.",
            ),
            REGIONS,
            (
                Native,
                "Launch fewer, larger kernels: join them, or give each more of the problem. CUDA graphs (cudaStreamBeginCapture) \
                 need kernels and sizes that stay the same from step to step; here they do not, or it is unknown.",
            ),
            (
                Pytorch,
                "Launch fewer, larger operations: fused or batched ones (torch.compile, with dynamic=True if shapes change; foreach \
                 or fused optimizers; larger batches). CUDA graphs need kernels and shapes that stay the same from step to step; here they do not, or it is \
                 unknown.",
            ),
            (
                Any,
                "Launch fewer, larger operations: fused or batched ones. CUDA graphs need kernels and shapes that stay the same \
                 from step to step; here they do not, or it is unknown.",
            ),
        ],
        short: &[
            (Native, "launch fewer, larger kernels"),
            (Pytorch, "launch fewer, larger operations (torch.compile, with dynamic=True if shapes change)"),
            (Any, "launch fewer, larger operations"),
        ],
        when: When::If(|facts| {
            let graphs = facts.program.graphs;
            // Some launches are left.
            let found = launches(facts, !graphs.fits && !graphs.used && !graphs.is_split);
            found.map(|found| Found { gain: found.gain.map(Gain::as_bound), ..found })
        }),
        results: Results::Rounding,
        recognized: "launches matter, and fewer than 98 % of them are the same in every step",
        gain: "the simulation `launches_free` is the most that fewer launches gain",
        not_when: "shapes change in each step, or the run is shorter than compiling",
        link: COMPILE,
        trial: Some(&COMPILE_MODULE),
        rank: Rank::Graph,
        is_generic: true,
        ..NONE
    },
    RemedyEntry {
        id: "compile_elementwise",
        says: &[(
            Pytorch,
            "Join short elementwise kernels: {compile}. They are {share} of the launches. This helps if shapes \
             stay the same and the run is longer than compiling.",
        )],
        target: Target::FewerKernels,
        when: When::If(|facts| {
            // torch.compile of a model leaves those of the optimizer.
            let of_optimizer = facts.launches_of(&[Class::Elementwise], &["torch/optim/"]);
            let of_count = facts.count_share(&[Class::Elementwise]) - of_optimizer;
            let fused = facts.share(&[Class::Triton]) > 0.0;
            (of_count >= 0.4 && !fused && facts.is(Cause::Launch) && !facts.program.graphs.used)
                .then(|| Found::of(None, of_count, facts.without_between((0.0, 0.6 * of_count), (0.0, 0.9 * of_count))))
        }),
        results: Results::Rounding,
        certainty: Certainty::Guess,
        recognized: "launches are the bottleneck, at least 40 % of them are elementwise kernels outside of the optimizer, and none \
                     is from Triton",
        gain: "three to nine of ten such launches gone (an estimate)",
        link: COMPILE,
        trial: Some(&COMPILE_MODULE),
        ..NONE
    },
    RemedyEntry {
        id: "one_launcher",
        says: &[(
            Any,
            "Launch from one thread in each process, or one CUDA graph in place of many kernels: threads that launch take turns \
             with the interpreter's lock (GIL), so eight threads may launch less than one.",
        )],
        when: When::If(|facts| facts.doing(&[Activity::LockOfLauncher])),
        certainty: Certainty::Documented,
        recognized: "in at least ten samples launching threads wait for the interpreter's lock, which a thread that launches too \
                     holds (in a fifth of them at least) or gets next",
        gain: "unknown: the work of the threads is joined, not gone; two threads launched 1.28, eight 0.58 times as much as one",
        link: Some("https://docs.python.org/3/glossary.html#term-global-interpreter-lock"),
        rank: Rank::First,
        also: |facts| facts.program.activity.is_some(),
        ..NONE
    },
    RemedyEntry {
        id: "backward",
        says: &[(
            Pytorch,
            "The CPU takes this time for the backward pass, which is called {there}. Make it launch less: torch.compile, a CUDA \
             graph (torch.cuda.make_graphed_callables), fewer and larger operations.",
        )],
        target: Target::Time(Cause::HostCpu),
        when: When::If(|facts| facts.doing(&[Activity::Backward])),
        results: Results::Rounding,
        recognized: "most CPU work between launches is in _engine_run_backward",
        gain: "the simulation `no_host_work` is the most",
        link: COMPILE,
        trial: Some(&COMPILE_MODULE),
        ..NONE
    },
    RemedyEntry {
        id: "launch_blocking",
        says: &[(
            Any,
            "Unset CUDA_LAUNCH_BLOCKING=1: each launch waits until its kernel has ended. This holds if it is not set to find an \
             error.",
        )],
        when: When::If(|facts| {
            let launch = facts.api.iter().find(|row| row.name == "cudaLaunchKernel")?;
            let kernels: u64 =
                facts.devices.iter().flat_map(|device| &device.kernels).map(|row| row.durations.total()).sum();
            let count: u64 =
                facts.devices.iter().flat_map(|device| &device.kernels).map(|row| row.durations.count()).sum();
            let host_lead = &facts.device?.host_lead;
            let late = host_lead.late() as f64 / host_lead.launches().max(1) as f64;
            // A launch of a few microseconds cannot contain its kernel.
            let contains =
                launch.total_ns as f64 / launch.calls.max(1) as f64 >= kernels as f64 / count.max(1) as f64 + 5_000.0;
            (late >= 0.95 && contains && count > 0 && kernels / count.max(1) >= 20_000).then(Found::default)
        }),
        certainty: Certainty::Guess,
        recognized: "at least 95 % of the launches find the GPU idle, and a call takes longer than its kernel of over 20 us",
        gain: "unknown: launches run ahead of the GPU again",
        not_when: "an error is being looked for",
        link: CUDA_NOTES,
        trial: Some(&Trial {
            id: "launch_blocking",
            change: "launches that do not wait",
            keep: "CUDA_LAUNCH_BLOCKING unset",
            how: How::Unset("CUDA_LAUNCH_BLOCKING"),
            needs: "CUDA_LAUNCH_BLOCKING is not set",
        }),
        ..NONE
    },
];
