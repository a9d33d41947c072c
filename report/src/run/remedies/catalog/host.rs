//! CPU work between launches.

use crate::run::framework::Framework;
use crate::run::remedies::entry::{Rank, RemedyEntry, Target, When};
use crate::run::remedies::facts::{Activity, Facts, Found};
use crate::run::remedies::gain::Gain;
use crate::run::remedies::patterns::Class;
use crate::run::remedies::trial::{How, Trial};
use crate::run::{Certainty, HostReport, LineRow, Results};
use crate::words;
use profiler_core::attribution::host_cause::HostCause;
use profiler_core::leaf::Cause;
use profiler_core::whatif::{Removed, ScenarioKind};

use super::loading::WORKER_THREADS;

use Framework::{Any, Jax, Pytorch};

const NONE: RemedyEntry = RemedyEntry { target: Target::Time(Cause::HostCpu), ..RemedyEntry::NONE };

fn gain(facts: &Facts<'_>) -> Option<Gain> {
    let part =
        facts.program.main_work.map(|(speedup, interval)| Gain { speedup, interval: Some(interval), ..Gain::NONE });
    part.or_else(|| facts.scenario(ScenarioKind::NoHostWork))
}

/// Fewest samples of collections, and their least part at one line, for it to be where they are called.
const FEWEST_COLLECTIONS: u64 = 10;
const ONE_LINE: f64 = 0.9;
/// True for work of a framework: in its frames, in a thread without lines, or in the call of a jitted function.
fn is_of_framework(facts: &Facts<'_>, row: &LineRow) -> bool {
    let calls = facts.program.framework == Jax && facts.host.is_some_and(|host| host.launches_at(row));
    row.file.is_empty() && facts.has_python() || row.is_of_framework() || calls
}

/// The launching thread does one of these in the time of the bottleneck.
fn does(facts: &Facts<'_>, activities: &[Activity]) -> Option<Found> {
    facts.doing(activities).filter(|_| facts.is(Cause::HostCpu)).map(|found| found.gaining(gain(facts)))
}

const fn of(cause: HostCause) -> Activity {
    Activity::Does(cause)
}

/// The gain of leaving nine of ten away, of the gain without any.
fn of_nine_tenths(all: Gain) -> Gain {
    let part = |speedup: f64| 1.0 / (1.0 - 0.9 * (1.0 - 1.0 / speedup.max(1.0)));
    Gain { speedup: part(all.speedup), interval: all.interval.map(|(low, high)| (part(low), part(high))), ..all }
}

pub(super) const ENTRIES: &[RemedyEntry] = &[
    RemedyEntry {
        id: "sleep",
        says: &[(Any, "Remove the sleep {there} from the loop.")],
        when: When::If(|facts| does(facts, &[of(HostCause::Sleep)])),
        results: Results::Behavior,
        certainty: Certainty::Measured,
        recognized: "most CPU work between launches is sleeping for a fixed time",
        gain: "the time at the line: 2.0x predicted, 2.54x measured",
        not_when: "it limits a rate on purpose",
        link: Some("https://docs.python.org/3/library/time.html"),
        ..NONE
    },
    RemedyEntry {
        id: "gc",
        says: &[(
            Any,
            "Keep Python's garbage collection out of the loop{at}: {what}gc.freeze() and gc.disable() after start-up with gc.collect() \
             at the end of each epoch, or a larger gc.set_threshold(). This helps when few reference cycles are made.",
        )],
        when: When::If(|facts| {
            let found = does(facts, &[of(HostCause::GarbageCollection)])?;
            // Those that the program calls are all at one line; the others come wherever objects are made.
            let rows = || {
                facts
                    .host
                    .into_iter()
                    .flat_map(|host| &host.lines)
                    .filter(|row| row.cause == HostCause::GarbageCollection)
            };
            let of_all =
                |row: &LineRow| row.samples as f64 >= ONE_LINE * rows().map(|row| row.samples).sum::<u64>() as f64;
            let only = rows().next().filter(|row| row.is_evident() && row.samples >= FEWEST_COLLECTIONS && of_all(row));
            Some(match only {
                Some(row) => {
                    let at = Some(LineRow { within: None, ..row.clone() }.place());
                    let what = match facts.source.is_some_and(|source| source.does("gc", at.as_deref())) {
                        true => "take out gc.collect(), which the line calls; or ",
                        false => "take out gc.collect() if the line calls it; if not, ",
                    };
                    Found { at, what: what.to_owned(), ..found }
                }
                None => Found { at: None, ..found },
            })
        }),
        results: Results::Behavior,
        certainty: Certainty::Measured,
        recognized: "most CPU work between launches is garbage collection in the time of steps",
        gain: "the time of it: 30x predicted, 36x measured; 0.99x where the program made cycles itself",
        not_when: "the program makes reference cycles in each step",
        link: Some("https://docs.python.org/3/library/gc.html"),
        trial: Some(&Trial {
            id: "gc",
            change: "no garbage collection after the start-up",
            keep: "gc.freeze() and gc.disable() after start-up, gc.collect() every 1,000 steps",
            how: How::Python,
            needs: "no step was made, or, where Python counts none, no garbage was collected",
        }),
        ..NONE
    },
    RemedyEntry {
        id: "gil",
        says: &[(Any, "Free the interpreter's lock (GIL) for the launching thread: {what}.")],
        target: Target::Time(Cause::HostCpu),
        when: When::If(|facts| {
            let holder = facts.host.and_then(HostReport::lock_holder);
            let what = match holder {
                Some(row) => {
                    format!("move the work of {} into a process, or to a library that releases the lock", row.place())
                }
                None => {
                    "move other Python threads that do not launch (loaders, loggers, metrics) into processes".to_owned()
                }
            };
            let gain = facts.is(Cause::HostCpu).then(|| gain(facts)).flatten();
            facts.doing(&[Activity::LockOfOther]).map(|_| Found { what, gain, ..Found::default() })
        }),
        certainty: Certainty::Measured,
        recognized: "launching threads wait for the interpreter's lock, which a thread that does not launch holds",
        gain: "the time of the waits",
        link: Some("https://docs.python.org/3/glossary.html#term-global-interpreter-lock"),
        rank: Rank::First,
        also: |facts| facts.program.activity.is_some(),
        ..NONE
    },
    RemedyEntry {
        id: "save_less",
        says: &[
            (
                Jax,
                "Write checkpoints less often, or in another thread (orbax.checkpoint.AsyncCheckpointer): they are written \
                 {there}.{detail}",
            ),
            (
                Pytorch,
                "Write checkpoints less often, or in another thread (to files: torch.distributed.checkpoint.async_save; else \
                 torch.save of a copy of the tensors there): they are written {there}.{detail}",
            ),
        ],
        short: &[
            (Jax, "write checkpoints less often, or in another thread (AsyncCheckpointer)"),
            (Any, "write checkpoints less often, or in another thread (async_save)"),
        ],
        when: When::If(|facts| {
            let reduced = ScenarioKind::ReadsReduced;
            let found = does(facts, &[Activity::Checkpoint])?;
            // The copies of a checkpoint go with it.
            let whole =
                facts.program.best_case.filter(|best| best.kind == reduced).and_then(|_| facts.scenario(reduced));
            let gain = whole.or(found.gain);
            let some = gain.map(of_nine_tenths);
            let detail =
                some.map(|some| format!(" With one of ten left: {}.", words::gain(some.speedup, some.interval)));
            Some(Found { detail: detail.unwrap_or_default(), gain, usual: some, ..found })
        }),
        results: Results::Behavior,
        gain_of: ", if none is left in the loop",
        certainty: Certainty::Measured,
        recognized: "most CPU work between launches is in torch/serialization.py, safetensors or distributed/checkpoint",
        gain: "the simulation `reads_reduced` where the copies are the larger part, else the time at the line with the copies and \
               waits: 13x and 19x predicted, 15.4x and 18.6x measured without any",
        not_when: "they are ten minutes apart already",
        subsumes: &["reduce_first"],
        link: Some("https://docs.pytorch.org/tutorials/recipes/distributed_async_checkpoint_recipe.html"),
        ..NONE
    },
    RemedyEntry {
        id: "file_output",
        says: &[(
            Any,
            "Move the input or output {there} to another thread. If it writes, call fsync less often (a crash may lose the newest \
             data); if it reads, keep in memory what is read again.",
        )],
        when: When::If(|facts| does(facts, &[of(HostCause::Io), of(HostCause::Disk)])),
        results: Results::Behavior,
        certainty: Certainty::Measured,
        recognized: "most CPU work between launches is input or output on a file, pipe or socket",
        gain: "the time at the line: 1.48x predicted, 1.70x measured",
        not_when: "the data must be on storage before the next step",
        link: Some("https://docs.python.org/3/library/logging.handlers.html"),
        ..NONE
    },
    RemedyEntry {
        id: "cores",
        says: &[
            (
                Pytorch,
                "Give the launching thread a free core: other threads or processes use them all. Run fewer of them than there are \
                 cores: processes that this program starts (of a data loader: num_workers), threads of this process \
                 (torch.set_num_threads, OMP_NUM_THREADS), other programs; or run this one where cores are free.",
            ),
            (
                Any,
                "Give the launching thread a free core: other threads or processes use them all. Run fewer of them than there are \
                 cores: processes that this program starts, threads of this process (OMP_NUM_THREADS), other programs; or run \
                 this one where cores are free.",
            ),
        ],
        when: When::If(|facts| does(facts, &[of(HostCause::Preempted)])),
        certainty: Certainty::Measured,
        recognized: "most CPU time between launches is ready to run without a free core",
        gain: "that time: 1.89x predicted, 1.72x measured",
        link: Some("https://docs.pytorch.org/docs/stable/notes/multiprocessing.html"),
        trial: Some(&WORKER_THREADS),
        ..NONE
    },
    RemedyEntry {
        id: "commands",
        says: &[(Any, "A command is started {there}: read what it reads instead, or start it less often.")],
        when: When::If(|facts| does(facts, &[Activity::StartsCommands])),
        results: Results::Behavior,
        recognized: "a fifth of the time at the main line is in subprocess.py",
        gain: "the time at the line",
        link: Some("https://docs.python.org/3/library/subprocess.html"),
        ..NONE
    },
    RemedyEntry {
        id: "wait_result",
        says: &[(
            Any,
            "The launching thread waits for another thread or process {there}: have the result ready earlier (a deeper queue), or find \
             out what keeps the other one busy.",
        )],
        when: When::If(|facts| does(facts, &[Activity::WaitsForResult])),
        results: Results::Behavior,
        recognized: "most CPU time between launches is in Condition.wait",
        gain: "the time at the line",
        link: Some("https://docs.python.org/3/library/queue.html"),
        ..NONE
    },
    RemedyEntry {
        id: "wait_other",
        says: &[(
            Any,
            "The launching thread waits for another thread or process {there}: have the result ready earlier (a deeper queue, more \
             workers), or find out what keeps the other one busy.",
        )],
        when: When::If(|facts| does(facts, &[of(HostCause::Lock), of(HostCause::Poll), of(HostCause::Child)])),
        results: Results::Behavior,
        recognized: "most CPU time between launches waits for a lock, a pipe, a socket or a child process",
        gain: "the time at the line",
        link: Some("https://docs.python.org/3/library/queue.html"),
        ..NONE
    },
    RemedyEntry {
        id: "page_faults",
        says: &[(
            Any,
            "Touch memory before the loop and reuse it: page faults and mappings on the launching thread come from fresh host buffers \
             (or from too little memory).",
        )],
        when: When::If(|facts| does(facts, &[of(HostCause::Memory)])),
        recognized: "most CPU time between launches is in the memory management of the operating system",
        gain: "that time",
        trial: Some(&Trial {
            id: "page_faults",
            change: "the C library keeps memory that the program frees",
            keep: "MALLOC_MMAP_THRESHOLD_=33554432 and MALLOC_TRIM_THRESHOLD_=2147483647",
            how: How::Set(&[("MALLOC_MMAP_THRESHOLD_", "33554432"), ("MALLOC_TRIM_THRESHOLD_", "2147483647")]),
            needs: "both variables are set so already",
        }),
        ..NONE
    },
    RemedyEntry {
        id: "move_work",
        says: &[(Any, "Move the work {there} out of the loop: do it less often, in another process, or on the GPU.")],
        when: When::If(|facts| {
            let found = does(facts, &[of(HostCause::Code)])?;
            let own = facts.main_line().is_none_or(|row| !is_of_framework(facts, row));
            (own && found.at.is_some()).then_some(found)
        }),
        results: Results::Behavior,
        recognized: "most CPU work between launches is code of the program at one line, not of PyTorch, JAX or another framework",
        gain: "the time at the line, else the simulation `no_host_work`",
        ..NONE
    },
    RemedyEntry {
        id: "framework_work",
        says: &[
            (
                Jax,
                "The CPU takes this time to call jitted functions{at} and to convert their arguments: pass arrays that are on the GPU \
                 already (jax.device_put before the loop), and run several steps in one call (jax.lax.scan within jax.jit).",
            ),
            (
                Pytorch,
                "The CPU takes this time for PyTorch's own work in each call{at}. Make calls fewer: capture the whole step in one \
                 CUDA graph (torch.cuda.graph(){detail}), or, for less, {what}.",
            ),
            (Any, "The CPU takes this time for the work of a library in each call{at}: make calls fewer and larger."),
        ],
        when: When::If(|facts| {
            let found = does(facts, &[of(HostCause::Code)])?;
            let row = facts.main_line()?;
            // A compiled model has its graphs.
            let compiled = facts.share(&[Class::Triton]) > 0.0 || facts.program.graphs.used;
            let what = if compiled { "a fused optimizer (fused=True)" } else { "torch.compile({model})" }.to_owned();
            let detail = if compiled { ", with the model compiled without reduce-overhead" } else { "" }.to_owned();
            let at = found.at.filter(|_| !row.file.is_empty());
            // Some of it remains, whatever is called. Launches go, too, and of jitted functions copies of arguments.
            let own = Removed::of(ScenarioKind::NoHostWork);
            let removed = if facts.program.framework == Jax { own.and(ScenarioKind::CopiesOverlapped) } else { own };
            let gain = found.gain.and_then(|gain| facts.at_most_without(removed).or(Some(gain.as_bound())));
            (is_of_framework(facts, row) && !row.is_of_server()).then_some(Found { at, what, detail, gain, ..found })
        }),
        subsumes: &["find_work"],
        results: Results::Rounding,
        certainty: Certainty::Guess,
        recognized: "most CPU work between launches is in frames of PyTorch, JAX, transformers or Lightning, in a thread without lines, \
                     or in the call of a jitted function",
        gain: "the time at the line, else the simulation `no_host_work`, is the most",
        ..NONE
    },
    RemedyEntry {
        id: "server_work",
        says: &[(
            Any,
            "The CPU takes this time for the server's own work{at}. If requests wait, let more of them share an iteration (vLLM: \
             --max-num-seqs, SGLang: --max-running-requests): the work then counts for more tokens.",
        )],
        when: When::If(|facts| {
            let found = does(facts, &[of(HostCause::Code)])?;
            let row = facts.main_line()?;
            row.is_of_server().then_some(Found { gain: None, ..found })
        }),
        subsumes: &["find_work"],
        results: Results::Same,
        certainty: Certainty::Guess,
        recognized: "most CPU work between launches is in frames of vLLM, SGLang, TensorRT-LLM or TGI",
        gain: "unknown: it depends on the requests that wait",
        ..NONE
    },
    RemedyEntry {
        id: "find_work",
        says: &[(
            Any,
            "Find what the launching thread does in these gaps (gpuwhy run samples it) and move it out of the loop, into another thread \
             or process.",
        )],
        when: When::If(|facts| {
            use HostCause::{Driver, OtherWait};
            let nowhere = facts.program.activity == Some(of(HostCause::Code)) && facts.program.activity_at.is_none();
            let unknown = matches!(facts.program.activity, None | Some(Activity::Does(Driver | OtherWait)));
            (facts.is(Cause::HostCpu) && (unknown || nowhere))
                .then(|| Found::default().gaining(facts.scenario(ScenarioKind::NoHostWork)))
        }),
        results: Results::Behavior,
        certainty: Certainty::Guess,
        recognized: "CPU work between launches is the bottleneck, and no samples show what it is",
        gain: "the simulation `no_host_work` is the most",
        is_generic: true,
        ..NONE
    },
];
