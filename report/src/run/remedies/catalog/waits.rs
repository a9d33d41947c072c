//! Waiting for the GPU: values that the CPU reads, and synchronization.

use crate::run::copies::of_at_most;
use crate::run::framework::Framework;
use crate::run::remedies::entry::{CUDA_NOTES, Rank, RemedyEntry, TUNING, Target, When};
use crate::run::remedies::facts::{Facts, Found};
use crate::run::remedies::gain::Gain;
use crate::run::remedies::lines::reads_alone;
use crate::run::remedies::patterns::Class;
use crate::run::remedies::trial::{How, Trial};
use crate::run::{Certainty, Results};
use gpuwhy_trace::record::CopyKind;
use profiler_core::attribution::CallKind;
use profiler_core::leaf::Cause;
use profiler_core::whatif::ScenarioKind;

use Framework::{Any, Cupy, Jax, Native, Pytorch};

const NONE: RemedyEntry =
    RemedyEntry { target: Target::Reads, results: Results::Behavior, link: TUNING, ..RemedyEntry::NONE };

/// Fewest samples in launches of a line for their share.
const LAUNCHES: u64 = 10;

/// Kernels of selections in each step from which a loop over groups is likely; one selection has up to four.
const MANY: f64 = 64.0;
const GROUPS: &str = "If these selections take the rows of one group after the other, reduce all groups in one call: \
                      index_add_(0, group, x) or scatter_reduce (PyTorch Geometric: global_mean_pool(x, batch)). Else: ";

pub(super) const ENTRIES: &[RemedyEntry] = &[
    RemedyEntry {
        id: "mask_index",
        says: &[(
            Pytorch,
            "{detail}Replace boolean indexing and nonzero(){at}: torch.where(mask, x, 0), or multiply by the mask. The CPU waits for \
             the number of selected elements. This helps if their number itself is not needed.",
        )],
        short: &[
            (Pytorch, "use torch.where or a mask instead of boolean indexing and nonzero(), whose size the CPU reads"),
            (Any, "read no sizes of selections back from the GPU"),
        ],
        when: When::If(|facts| {
            // Within a library no line of the program waits.
            let at = facts.read_at().or_else(|| facts.launched_at(&[Class::Selection]));
            let groups = facts.code(at.as_deref()).is_none_or(|line| line.may_take_parts());
            let many = groups && facts.kernels_a_step(&[Class::Selection]) >= MANY;
            let detail = if many { GROUPS.to_owned() } else { String::new() };
            // The launches of the loop go, too, and no simulation knows which these are.
            let gain = match &*detail {
                "" => facts.scenario(ScenarioKind::NoReadbacks),
                _ => gain_with_launches(facts, at.as_deref()),
            };
            (facts.program.reads_sizes).then(|| Found { at, detail, gain, ..Found::default() })
        }),
        results: Results::Same,
        certainty: Certainty::Measured,
        recognized: "kernels that select (DeviceSelect, NonZeroOp), and reads of a few bytes after most of them",
        gain: "the simulation `no_readbacks`: 1.55x predicted, 1.475x measured",
        not_when: "the size is needed",
        subsumes: &["read_value"],
        link: CUDA_NOTES,
        rank: Rank::BeforeGraph,
        ..NONE
    },
    RemedyEntry {
        id: "pyg_edges",
        says: &[(
            Pytorch,
            "Prepare the edges once: GCNConv(..., cached=True), or torch_geometric.transforms.GCNNorm before the loop with \
             normalize=False. PyTorch Geometric selects edges in each step{at}, and the CPU waits for their number. This helps if the \
             graph stays the same.",
        )],
        when: When::If(|facts| {
            // The convolution that normalizes edges, and what it calls for that.
            let of = ["torch_geometric/nn/conv/gcn_conv", "torch_geometric/utils/loop"];
            let seen = facts.launches_in(&of) > 0.02 || facts.lines_in(&of).next().is_some();
            let found = Found { at: facts.idle_in(&of).map(|(_, at)| at), ..Found::default() };
            (seen && facts.program.reads_sizes).then(|| found.gaining(facts.scenario(ScenarioKind::NoReadbacks)))
        }),
        results: Results::Same,
        certainty: Certainty::Documented,
        recognized: "frames of GCNConv in torch_geometric, and reads of the sizes of selections",
        gain: "the simulation `no_readbacks`; the kernels that select go, too",
        not_when: "edges change from step to step",
        subsumes: &["mask_index", "read_value"],
        link: Some("https://pytorch-geometric.readthedocs.io/en/latest/generated/torch_geometric.nn.conv.GCNConv.html"),
        rank: Rank::BeforeGraph,
        ..NONE
    },
    RemedyEntry {
        id: "check_each",
        says: &[(
            Pytorch,
            "Check tensors together and later: for NaN and Inf, torch.nn.utils.get_total_norm(tensors, \
             norm_type=float(\"inf\")).isfinite() (PyTorch 2.6 or later), the largest absolute value in a few launches; for \
             something else, torch.stack of what the checks return. Read it a few steps later. The CPU reads a bool for each \
             of {what} checks a step{at}.",
        )],
        when: When::If(|facts| {
            // Repeating checks that no count is negative.
            let checks = facts.per_step(&[Class::BoolReduction])
                - facts.per_step(&[Class::Repeat]).min(facts.per_step(&[Class::BoolReduction]));
            (checks >= 8 && facts.program.small_reads).then(|| Found {
                what: checks.to_string(),
                ..Found::of(facts.read_at(), 0.0, facts.scenario(ScenarioKind::NoReadbacks))
            })
        }),
        recognized: "at least eight reductions to a bool in a step, and reads of a few bytes",
        gain: "the simulation `no_readbacks`, never more than its interval: 1.00x measured where the CPU was late anyway",
        subsumes: &["read_value"],
        link: Some("https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.get_total_norm.html"),
        rank: Rank::BeforeGraph,
        ..NONE
    },
    RemedyEntry {
        id: "clip_norm",
        says: &[(
            Pytorch,
            "Do not read the norm of the gradients: torch.nn.utils.clip_grad_norm_(..., error_if_nonfinite=False){at}. This helps \
             if a norm that is not finite needs no error.",
        )],
        when: When::If(|facts| {
            let (share, at) = facts.idle_in(&["utils/clip_grad.py"]).filter(|_| facts.program.small_reads)?;
            // The line of the program that calls it waits, too.
            let line = facts.lines_in(&["utils/clip_grad.py"]).next()?;
            let mut calls = facts.host?.calls.iter().filter(|row| matches!(row.calls, CallKind::Wait | CallKind::Copy));
            let waits = calls.any(|row| (&row.file, row.line) == (&line.file, line.line));
            waits.then(|| Found::of(Some(at), share, facts.scenario(ScenarioKind::NoReadbacks)))
        }),
        certainty: Certainty::Guess,
        recognized: "idle time in torch/nn/utils/clip_grad.py, reads of a few bytes, and waits or copies at the line that calls it",
        gain: "a part of the simulation `no_readbacks`",
        not_when: "the file is seen without a wait: clipping reads nothing by default",
        link: Some("https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html"),
        ..NONE
    },
    RemedyEntry {
        id: "unknown_size",
        says: &[(
            Pytorch,
            "Pass the size that the CPU would read: torch.repeat_interleave(x, n, output_size=N), torch.bincount(x, minlength=N). \
             The GPU is asked for it{at}. This may help where the size is known.",
        )],
        when: When::If(|facts| {
            let places = ["repeat_interleave", "bincount", "masked_select", "unique"];
            let line = facts.idle_in(&places);
            let seen = line.is_some() || facts.per_step(&[Class::Repeat]) > 0;
            let at = line.map(|(_, at)| at).or_else(|| facts.read_at());
            (seen && facts.program.small_reads).then(|| Found::of(at, 0.0, facts.scenario(ScenarioKind::NoReadbacks)))
        }),
        results: Results::Same,
        certainty: Certainty::Guess,
        recognized: "reads of a few bytes beside kernels of repeat_interleave, or in lines of bincount, masked_select or unique",
        gain: "the simulation `no_readbacks`; the kernels that find the size go, too",
        subsumes: &["read_value"],
        link: Some("https://docs.pytorch.org/docs/stable/generated/torch.repeat_interleave.html"),
        ..NONE
    },
    RemedyEntry {
        id: "read_value",
        says: &[
            (
                Jax,
                "Read results less often: keep them as arrays and convert them (float(x), jax.device_get) every n steps{detail}{at}. This \
                 helps if the CPU does not need them for the next step.",
            ),
            (
                Native,
                "Copy no single values to the CPU within the step{at}: keep them on the GPU and copy them every n steps{detail}, if the CPU does \
                 not need them sooner; a CUDA graph cannot contain them.",
            ),
            (
                Pytorch,
                "Remove the reads of single values (.item(), .cpu()){at} from the step: read them every n steps{detail}, if the CPU does not \
                 need them sooner; a CUDA graph cannot contain them.",
            ),
            (
                Cupy,
                "Remove the reads of single values (float(x), x.get(), x.item()){at} from the step: read them every n steps{detail}, if the \
                 CPU does not need them sooner; a CUDA graph cannot contain them.",
            ),
            (
                Any,
                "Read no single values from the GPU within the step{at}: read them every n steps{detail}, if the CPU does not need them sooner; \
                 a CUDA graph cannot contain them.",
            ),
        ],
        short: &[
            (Native, "copy no single values back from the GPU"),
            (Jax, "read no single values back from the GPU (float(x), jax.device_get)"),
            (Pytorch, "read no single values back from the GPU (.item(), .cpu())"),
            (Any, "read no single values back from the GPU"),
        ],
        when: When::If(|facts| {
            let reads = facts.program.first_fix == Some(ScenarioKind::NoReadbacks) || facts.program.small_reads;
            (reads && !facts.program.reads_sizes).then(|| read_less(facts, facts.read_at()))
        }),
        recognized: "copies of at most 64 bytes to the host, at least one for 1,000 kernels",
        gain: "the simulation `no_readbacks`, never more than its interval; with the launches of the line that reads, if it makes some \
               and not nearly all: 8.3x measured for a test of convergence in each sweep",
        not_when: "the next launches depend on the value",
        rank: Rank::BeforeGraph,
        ..NONE
    },
    RemedyEntry {
        id: "timer_sync",
        says: &[
            (Jax, "Call jax.block_until_ready() only where a time is measured, not in each step{at}."),
            (
                Native,
                "Do not wait for {what} within the step{at}: measure times with cudaEventElapsedTime, and order streams with \
                 cudaStreamWaitEvent. This helps if the CPU needs no result there.",
            ),
            (
                Pytorch,
                "Do not wait for {what} within the step{at}: measure times with torch.cuda.Event(enable_timing=True), and order \
                 streams with stream.wait_event(). This helps if the CPU needs no result there.",
            ),
            (
                Any,
                "Do not wait for {what} within the step{at}: measure times with CUDA events, and order streams with events. This helps \
                 if the CPU needs no result there.",
            ),
        ],
        short: &[(Any, "do not wait for the GPU within the step")],
        when: When::If(|facts| {
            let (calls, what) = facts.waits_a_step();
            let gain = facts.scenario(ScenarioKind::NoSyncs);
            let first = facts.program.first_fix == Some(ScenarioKind::NoSyncs);
            // A graph cannot contain the wait, whatever it costs.
            let before_graph = facts.is(Cause::Launch) && facts.program.graphs.fits && !facts.program.graphs.used;
            let cause = facts.is(Cause::Sync) || before_graph;
            let worth = first || cause || gain.is_some_and(|gain| gain.low() > 1.05);
            let at = facts.call_at(CallKind::Wait);
            (worth && calls >= 0.5).then(|| Found { at, gain, what: what.to_owned(), ..Found::default() })
        }),
        recognized: "a call that waits for the device, a stream or an event, but for no copy, in at least every second step, and a \
                     simulation without waits gains, or a graph fits but for it",
        gain: "the simulation `no_syncs`",
        not_when: "the GPU is busy all the time: 0.99x measured",
        link: CUDA_NOTES,
        rank: Rank::BeforeGraph,
        trial: Some(&Trial {
            id: "timer_sync",
            change: "torch.cuda.synchronize() does nothing",
            keep: "no torch.cuda.synchronize() within the loop",
            how: How::PyTorch,
            needs: "torch.cuda.synchronize() was not called",
        }),
        ..NONE
    },
    RemedyEntry {
        id: "wait_less",
        says: &[
            (
                Jax,
                "Wait for results less often: keep them as arrays, and convert them every n steps. This helps when the next step does \
                 not depend on the value.",
            ),
            (
                Native,
                "Wait for the GPU less often{at}: keep results there, and copy them every n steps; order the work with streams and \
                 events (cudaStreamWaitEvent) instead. This helps when the next launches do not depend on the value.",
            ),
            (
                Pytorch,
                "Read results less often: keep losses on the GPU and fetch them every n steps; remove .item(), .cpu() and \
                 torch.cuda.synchronize() from the loop{at}. This helps when the next launches do not depend on the value.",
            ),
            (
                Any,
                "Wait for the GPU less often{at}: keep results there, and fetch them every n steps. This helps when the next launches do \
                 not depend on the value.",
            ),
        ],
        target: Target::Time(Cause::Sync),
        when: When::If(|facts| {
            let found = Found { at: facts.call_at(CallKind::Wait), ..Found::default() };
            let other = facts.program.small_reads || facts.program.first_fix == Some(ScenarioKind::NoReadbacks);
            (facts.is(Cause::Sync) && !other).then(|| found.gaining(facts.scenario(ScenarioKind::NoSyncs)))
        }),
        recognized: "synchronization is the bottleneck, and not by reads of single values",
        gain: "the simulation `no_syncs`",
        ..NONE
    },
    RemedyEntry {
        id: "scalar_tensor",
        says: &[(
            Pytorch,
            "Make small tensors once, or pass numbers instead: torch.tensor(value, device=\"cuda\"){at} copies a few bytes and waits \
             ({what} times a step).",
        )],
        when: When::If(|facts| {
            let (small, _) = of_at_most(&facts.copied(CopyKind::HostToDevice), 64);
            let each = small as f64 / facts.steps.max(1) as f64;
            let worth = facts.busy() < 0.9 && facts.steps > 0 && each >= 4.0 && !facts.program.small_copies;
            let at = facts.copied_at(CopyKind::HostToDevice);
            worth.then(|| Found { at, what: format!("{each:.0}"), ..Found::default() })
        }),
        results: Results::Same,
        certainty: Certainty::Guess,
        recognized: "at least four copies of at most 64 bytes to the device in a step",
        gain: "unknown: making a tensor takes the CPU longer than its copy",
        ..NONE
    },
    RemedyEntry {
        id: "anomaly",
        says: &[(
            Pytorch,
            "Turn torch.autograd.set_detect_anomaly(True) off{at}: it checks each gradient for NaN and waits. This holds if no NaN \
             is being looked for.",
        )],
        when: When::If(|facts| {
            // The forward pass keeps the stack of each operation.
            let frames = ["anomaly_mode", "fx/traceback"];
            let seen = facts.launches_in(&frames) > 0.01;
            let line = facts.idle_in(&frames);
            (seen || line.is_some()).then(|| {
                let idle = line.as_ref().map_or(0.0, |(share, _)| *share);
                let reads = facts.scenario(ScenarioKind::NoReadbacks).unwrap_or(Gain::NONE);
                // A comparison, a reduction and a short read for each gradient.
                let count = facts.count_share(&[Class::BoolReduction]);
                let checks = facts.without_between((0.0, 2.0 * count), (0.0, 2.5 * count));
                let waits = if reads.speedup > checks.speedup { reads } else { checks };
                let gain = waits.and(Gain::saving(0.6 * idle, idle));
                let set = facts.lines_with("detect_anomaly").into_iter().map(|(at, _)| at).next();
                Found { at: set.or(line.map(|(_, at)| at)), gain: Some(gain), ..Found::default() }
            })
        }),
        results: Results::Same,
        certainty: Certainty::Guess,
        recognized: "frames of torch/autograd/anomaly_mode.py or torch/fx/traceback.py in the loop",
        gain: "the launches of the checks or the simulation `no_readbacks`, and three fifths to all of the idle time in these frames",
        subsumes: &["move_work"],
        link: Some("https://docs.pytorch.org/docs/stable/autograd.html"),
        trial: Some(&Trial {
            id: "anomaly",
            change: "no anomaly detection",
            keep: "no torch.autograd.set_detect_anomaly(True)",
            how: How::PyTorch,
            needs: "the program does not turn anomaly detection on",
        }),
        ..NONE
    },
];

/// Reads at this line in fewer steps. What the line launches may be computed for them alone.
pub(super) fn read_less(facts: &Facts<'_>, at: Option<String>) -> Found {
    let with_launches =
        if facts.line(at.as_deref(), reads_alone) { gain_with_launches(facts, at.as_deref()) } else { None };
    let detail = if with_launches.is_some() { ", with what is computed only for them" } else { "" };
    let gain = with_launches.or_else(|| facts.scenario(ScenarioKind::NoReadbacks));
    Found { at, detail: detail.to_owned(), gain, ..Found::default() }
}

/// Gain without the reads at this line and half of its launches to all of them; `None` if few or all are there.
fn gain_with_launches(facts: &Facts<'_>, at: Option<&str>) -> Option<Gain> {
    let rows = facts.host.into_iter().flat_map(|host| &host.calls).filter(|row| row.calls == CallKind::Launch);
    let mut of_line = rows.filter(|row| row.samples >= LAUNCHES && Some(&*row.place()) == at).map(|row| row.share);
    let share = of_line.next().filter(|share| (0.1..=0.9).contains(share))?;
    let launches = share * facts.time(Cause::Launch);
    let saved = |speedup: f64| 1.0 - 1.0 / speedup.max(1.0);
    let interval = facts.scenario(ScenarioKind::NoReadbacks).and_then(|gain| gain.interval);
    let (low, high) = interval.unwrap_or((1.0, 1.0));
    // The kernels of the other lines remain.
    let most = 1.0 - (1.0 - share) * facts.time(Cause::GpuCompute);
    Some(Gain::saving(saved(low) + 0.5 * launches, (saved(high) + launches).min(most)))
}
