//! Evidence and advice where the launching threads were looked at: which line, and what it waited for.
//!
//! A line is named with what it costs; the advice follows the cause that has most of what was seen. Where samples speak for
//! less than half of the group's time, the inference without them stands.

use crate::attribution::host_cause::HostCause as Cause;
use crate::attribution::leaf::Group;
use crate::report::{HostReport, LineRow};
use crate::text_format::duration;

/// HostSamples must speak for this part of a group's time to replace what is inferred without them.
const SPEAKING_SHARE: f64 = 0.5;

const WAITS: [Cause; 4] = [Cause::LoaderWait, Cause::LoaderWaitBusy, Cause::LoaderWaitIo, Cause::LoaderWaitIdle];
const LOADER: [Cause; 7] = [
    Cause::LoaderInline,
    Cause::LoaderCollate,
    Cause::LoaderReceive,
    Cause::LoaderWait,
    Cause::LoaderWaitBusy,
    Cause::LoaderWaitIo,
    Cause::LoaderWaitIdle,
];

/// What was seen, when it speaks for most of `group_ns` nanoseconds of steady time.
pub(super) fn speaking(host: Option<&HostReport>, group: Group, group_ns: u64) -> Option<&HostReport> {
    let host = host?;
    let causes: Vec<Cause> = Cause::ALL.into_iter().filter(|cause| cause.leaf().group() == group).collect();
    let seen = host.seen_with(&causes);
    (seen > 0 && seen as f64 >= SPEAKING_SHARE * group_ns as f64).then_some(host)
}

/// Sentences about what was seen, the most telling first.
pub(super) fn sentences(host: &HostReport, group: Group) -> Vec<String> {
    let mut sentences: Vec<String> = host.lines_of(group).take(2).map(line_sentence).collect();
    if group == Group::DataLoading {
        if sentences.is_empty() {
            // No stack was seen: the program's own ranges say it.
            let of_group = host.causes.iter().filter(|row| row.cause.leaf().group() == group).take(2);
            let parts: Vec<_> =
                of_group.map(|row| format!("{} {}", words(row.cause), duration(row.total_ns))).collect();
            sentences.push(format!("Named by the program's ranges around its data loader: {}.", parts.join(", ")));
        }
        let waited = host.seen_with(&WAITS);
        let known = waited - host.seen_with(&[Cause::LoaderWait]);
        if known > 0 {
            let percent = |cause: Cause| host.seen_with(&[cause]) as f64 / known as f64 * 100.0;
            sentences.insert(
                sentences.len().min(1),
                format!(
                    "While it waited for the loader, worker processes were busy {:.0} %, only in input or output {:.0} \
                     %, all idle {:.0} % of the time.",
                    percent(Cause::LoaderWaitBusy),
                    percent(Cause::LoaderWaitIo),
                    percent(Cause::LoaderWaitIdle),
                ),
            );
        }
    } else {
        let of_group = host.causes.iter().filter(|row| row.cause.leaf().group() == group).take(4);
        let parts: Vec<_> = of_group.map(|row| format!("{} {}", words(row.cause), duration(row.total_ns))).collect();
        sentences.push(format!("Seen of the launching thread while the device was idle: {}.", parts.join(", ")));
    }
    sentences
}

fn line_sentence(row: &LineRow) -> String {
    let a_step = row.step_ns.map_or_else(String::new, |nanos| format!(", {} a step", duration(nanos)));
    format!("{} at {}: {:.1} % of the time{a_step}.", capitalized(words(row.cause)), row.place(), row.share * 100.0)
}

fn capitalized(words: &str) -> String {
    let mut rest = words.chars();
    rest.next().map(|first| first.to_uppercase().chain(rest).collect()).unwrap_or_default()
}

fn words(cause: Cause) -> &'static str {
    match cause {
        Cause::Code => "running code",
        Cause::GarbageCollection => "collecting garbage",
        Cause::InterpreterLock => "waiting for the interpreter's lock (GIL)",
        Cause::Lock => "waiting for a lock or queue",
        Cause::Poll => "waiting for a pipe or socket",
        Cause::Io => "in input or output",
        Cause::Disk => "waiting for storage",
        Cause::Sleep => "sleeping",
        Cause::Child => "waiting for a child process",
        Cause::Memory => "in page faults or memory mapping",
        Cause::Driver => "in a kernel driver",
        Cause::Preempted => "ready, without a free core",
        Cause::OtherWait => "off the cores",
        Cause::LoaderInline => "preparing the batch on the launching thread",
        Cause::LoaderCollate => "joining or pinning the batch on the launching thread",
        Cause::LoaderReceive => "taking the batch over from workers",
        Cause::LoaderWait | Cause::LoaderWaitBusy | Cause::LoaderWaitIo | Cause::LoaderWaitIdle => {
            "waiting for the data loader"
        }
    }
}

/// The advice for what most of the seen time of `group` had as cause; `None` when that says no more than the group.
pub(super) fn advice(host: &HostReport, group: Group) -> Option<&'static str> {
    let largest = host.causes.iter().find(|row| row.cause.leaf().group() == group)?.cause;
    if group == Group::DataLoading {
        // All waiting together against each kind of work: what the workers did only decides what to do about it.
        let of = |causes: &[Cause]| host.seen_with(causes);
        let work = LOADER.into_iter().filter(|cause| !WAITS.contains(cause)).max_by_key(|&cause| of(&[cause]))?;
        if of(&[work]) >= of(&WAITS) {
            return Some(loader_advice(work));
        }
        return Some(loader_advice(WAITS.into_iter().max_by_key(|&cause| of(&[cause]))?));
    }
    match largest {
        Cause::GarbageCollection => Some(
            "Take Python's garbage collection off the step: gc.freeze() after start-up and gc.disable() with gc.collect() \
             at epoch ends, or a larger gc.set_threshold(); helps when few cycles are made.",
        ),
        Cause::InterpreterLock => Some(
            "Free the interpreter's lock for the launching thread: move the other Python threads (loaders, loggers, \
             metrics) into processes.",
        ),
        Cause::Io | Cause::Disk => Some(
            "Move the input or output at the line above off the launching thread: write checkpoints and logs from another \
             thread, keep what is read again in memory.",
        ),
        Cause::Preempted => Some(
            "Give the launching thread a free core: fewer worker processes or threads (OMP_NUM_THREADS), more cores, or \
             pin it to one.",
        ),
        Cause::Lock | Cause::Poll | Cause::Child => Some(
            "The launching thread waits for another thread or process at the line above: have its result ready earlier \
             (a deeper queue, more workers), or find out what keeps it busy.",
        ),
        Cause::Sleep => Some("Remove the sleep at the line above from the path between launches."),
        Cause::Memory => Some(
            "Touch memory before the loop and reuse it: page faults and mappings on the launching thread come from fresh \
             host buffers (or from too little memory).",
        ),
        Cause::Code => Some(
            "Move the work at the lines above off the path between launches: do it less often, in another process, or on \
             the device.",
        ),
        _ => None,
    }
}

fn loader_advice(cause: Cause) -> &'static str {
    match cause {
        Cause::LoaderInline => {
            "Prepare batches in other processes (DataLoader num_workers > 0, pin_memory=True) and fetch the next one \
             during the step; helps while free cores remain."
        }
        Cause::LoaderCollate => {
            "Join and pin batches off the launching thread (num_workers > 0 collates in the workers; pin_memory=True pins \
             in a thread of its own), and join fewer, larger pieces."
        }
        Cause::LoaderReceive => {
            "The batch is ready and taking it over costs: return tensors rather than Python objects from the workers, \
             raise prefetch_factor, or pin in the loader's thread (pin_memory=True)."
        }
        Cause::LoaderWaitIo => {
            "The workers wait for storage or the network. Use more of them (num_workers), so that more requests are under way \
             at once; or faster or local storage, larger files (shards), a cache."
        }
        Cause::LoaderWaitIdle => {
            "The workers were idle while the step waited. If they wait for the network or a server, use more of them \
             (num_workers). If not, raise prefetch_factor, keep them alive between epochs (persistent_workers=True), and \
             look for what they wait for (a lock, a queue, the main process)."
        }
        _ => {
            "The workers do not keep up: more of them (num_workers) while free cores remain, or a cheaper transform \
             (smaller decoding, on the device, done beforehand)."
        }
    }
}
