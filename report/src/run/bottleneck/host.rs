//! Evidence from samples of the launching threads: the line, and what it waited for.
//!
//! A line is named with its cost; what the threads do in most of the sampled time selects remedies. If samples cover
//! less than half of the cause's time, the inference without them is used.

use profiler_core::attribution::CallKind;
use profiler_core::attribution::host_cause::HostCause;
use profiler_core::leaf::Cause;
use profiler_core::sorting::SortRows as _;
use profiler_core::whatif::{ScenarioKind as Scenario, WORTH_DOING, WhatIf};

use super::evidence::NOTABLE;
use super::main_work::{MainWork, gain_without};
use crate::run::framework::Framework;
use crate::run::remedies::Activity;
use crate::run::{CauseRow, HostReport, LineRow, LockHolderRow};
use crate::text_format::{counted, duration, percent};
use crate::words::{about, activity, capitalized};

/// Minimum share of a cause's time that host samples must cover to replace the inference without them.
const REPRESENTATIVE_SHARE: f64 = 0.5;

const WAITS: [HostCause; 4] =
    [HostCause::LoaderWait, HostCause::LoaderWaitBusy, HostCause::LoaderWaitIo, HostCause::LoaderWaitIdle];
const LOADER: [HostCause; 8] = [
    HostCause::LoaderInline,
    HostCause::LoaderCollate,
    HostCause::LoaderReceive,
    HostCause::LoaderStart,
    HostCause::LoaderWait,
    HostCause::LoaderWaitBusy,
    HostCause::LoaderWaitIo,
    HostCause::LoaderWaitIdle,
];

/// The host report, if its samples cover most of `cause_ns` nanoseconds of steady time.
pub(super) fn representative(host: Option<&HostReport>, cause: Cause, cause_ns: u64) -> Option<&HostReport> {
    let host = host?;
    let causes: Vec<HostCause> =
        HostCause::ALL.into_iter().filter(|host_cause| host_cause.leaf().cause() == cause).collect();
    let seen = host.seen_with(&causes);
    (seen > 0 && seen as f64 >= REPRESENTATIVE_SHARE * cause_ns as f64).then_some(host)
}

/// Minimum number of samples of waits for the interpreter's lock for a statement about them.
const EVIDENT_WAITS: u64 = 10;
/// Minimum part of these samples in which a thread must have held the lock for advice about it.
const HOLDER_PART: f64 = 0.2;

impl HostReport {
    /// True if samples are in calls that launch at this line itself: it calls compiled functions, which have no frame.
    pub(in crate::run) fn launches_at(&self, row: &LineRow) -> bool {
        let mut launches = self.calls.iter().filter(|call| call.calls == CallKind::Launch);
        row.within.is_none() && launches.any(|call| (&call.file, call.line) == (&row.file, row.line))
    }

    /// Who held the interpreter's lock most while launching threads waited for it; `None` if too few samples show it.
    pub(in crate::run) fn lock_holder(&self) -> Option<&LockHolderRow> {
        let enough = |row: &&LockHolderRow| row.samples as f64 >= HOLDER_PART * self.lock_waits as f64;
        self.lock_holders.first().filter(|_| self.lock_waits >= EVIDENT_WAITS).filter(enough)
    }
}
/// Minimum share of the time of an activity that is named.
const NAMED_SHARE: f64 = 0.01;
/// Least part of a line's time that an activity takes for a mention.
const NAMED_PART: f64 = 0.1;

/// The kind of wait for workers with most time; one with known workers, if there is any.
fn waits_for(host: &HostReport) -> HostCause {
    let known = WAITS.into_iter().filter(|&cause| cause != HostCause::LoaderWait && host.seen_with(&[cause]) > 0);
    known.max_by_key(|&cause| host.seen_with(&[cause])).unwrap_or(HostCause::LoaderWait)
}

/// Minimum number of samples of a thread waiting for workers from which the number of workers is derived.
const FEWEST_WAITS: u64 = 10;

/// Sentence about the number of data loader workers that would keep up. A batch is ready each time that the
/// step continues, so in the time of a step the current workers prepare the batches of one step; twice as
/// many workers prepare twice as many batches, given enough cores and storage bandwidth. The loader hands out
/// further batches before it waits, so a waiting thread has given work to all workers.
fn workers_sentence(host: &HostReport, what_if: &WhatIf) -> Option<String> {
    let totals = &host.totals;
    let (step, ready) = (what_if.step_ns()?, what_if.best_case(Scenario::DataReady)?.step_ns);
    let waits: u64 = host.seen_with(&WAITS);
    if waits_for(host) == HostCause::LoaderWaitIdle && host.seen_with(&[HostCause::LoaderWaitIdle]) > 0 {
        return None;
    }
    if totals.waits_for_workers < FEWEST_WAITS || 2 * waits < host.seen_with(&LOADER) || ready == 0 {
        return None;
    }
    let workers = (totals.workers as f64 / totals.waits_for_workers as f64).round();
    let enough = (workers * step as f64 / ready as f64).ceil();
    (enough > workers).then(|| {
        let (count, step, ready) = (counted(workers as u64, "worker"), duration(step), duration(ready));
        let prepare = if workers > 1.0 { "prepare" } else { "prepares" };
        format!(
            "{count} {prepare} the data of a step in {step}, and the step takes {ready} without waiting: about \
             {enough:.0} workers keep up."
        )
    })
}

/// Sentences about the samples, the strongest first. The cause has this `share` of the time that the headline is
/// of, and `cause_ns` of the steady time; `what_if` is that of the device with the most time.
pub(super) fn sentences(
    host: &HostReport,
    cause: Cause,
    (share, cause_ns): (f64, u64),
    what_if: Option<&WhatIf>,
    framework: Framework,
) -> Vec<String> {
    let most = what_if.and_then(|what_if| what_if.best_case(Scenario::NoHostWork)).map_or(1.0, |most| most.speedup);
    // What is gained with the copies of that work stands in the headline.
    let of_copies =
        what_if.and_then(|what_if| what_if.best_case(Scenario::ReadsReduced)).map_or(1.0, |best| best.speedup);
    let said = cause != Cause::HostCpu || of_copies > most;
    let calls = |row: &LineRow| framework == Framework::Jax && host.launches_at(row);
    let without = |row: &LineRow| if said || calls(row) { String::new() } else { line_gain(row, most) };
    let most_lines = if matches!(cause, Cause::HostCpu | Cause::KernelBuild) { 3 } else { 2 };
    let named = named_lines(host, cause).into_iter().take(most_lines);
    let mut lines = named.map(|part| line_sentence(&part, &without(&part.row)));
    let of_cause = || host.causes.iter().filter(|row| row.cause.leaf().cause() == cause);
    let locked = of_cause().next().is_some_and(|row| row.cause == HostCause::InterpreterLock);
    let (mut first, mut last) = (lines.next(), None);
    let mut beside = Vec::new();
    if cause == Cause::DataLoading {
        // Without a sampled stack, the program's own ranges show it.
        first = first.or_else(|| {
            let parts: Vec<_> =
                of_cause().take(2).map(|row| format!("{} {}", activity(row.cause), duration(row.total_ns))).collect();
            Some(format!("By the program's own ranges around its data loader: {}.", parts.join(", ")))
        });
        beside.extend(waits_sentence(host));
        beside.extend(what_if.and_then(|what_if| workers_sentence(host, what_if)));
    } else if cause != Cause::KernelBuild {
        let share = |row: &CauseRow| share * row.total_ns as f64 / cause_ns.max(1) as f64;
        let named = of_cause().enumerate().filter(|(index, row)| *index == 0 || share(row) >= NAMED_SHARE).take(4);
        let parts: Vec<_> = named.map(|(_, row)| format!("{} {}", activity(row.cause), percent(share(row)))).collect();
        last = Some(format!("The GPU was idle while the launching threads were {} of the time.", parts.join(", ")));
    }
    beside.extend(locked.then(|| lock_sentence(host)));
    first.into_iter().chain(beside).chain(lines).chain(last).collect()
}

/// Sentence about what the workers of a data loader did while it was waited for; `None` if that is unknown.
fn waits_sentence(host: &HostReport) -> Option<String> {
    let known = host.seen_with(&WAITS) - host.seen_with(&[HostCause::LoaderWait]);
    let percent = |cause: HostCause| host.seen_with(&[cause]) as f64 / known as f64 * 100.0;
    (known > 0).then(|| {
        format!(
            "While it waited for the loader, the worker processes were computing {:.0} %, only reading or writing \
             {:.0} %, and all idle {:.0} % of the time.",
            percent(HostCause::LoaderWaitBusy),
            percent(HostCause::LoaderWaitIo),
            percent(HostCause::LoaderWaitIdle),
        )
    })
}

/// Rows that are one in a sentence.
struct Part {
    /// Their sum, at the place of the first, which has the most time.
    row: LineRow,
    /// Number of places.
    places: usize,
    /// Share of each activity, the largest first.
    activities: Vec<(HostCause, f64)>,
}

/// Lines that are evidence: those with enough time and samples, the largest first. Whatever a thread does at a
/// line is one part; so are all waits for the interpreter's lock, because they have one remedy.
fn named_lines(host: &HostReport, cause: Cause) -> Vec<Part> {
    let key = |row: &LineRow| match row.cause {
        HostCause::InterpreterLock => None,
        _ => Some((row.file.clone(), row.line, row.function.clone())),
    };
    let mut groups: Vec<(_, Vec<&LineRow>)> = Vec::new();
    for row in host.lines_of(cause) {
        match groups.iter_mut().find(|(of, _)| *of == key(row)) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((key(row), vec![row])),
        }
    }
    let mut parts: Vec<Part> = groups.iter().filter_map(|(_, rows)| together(rows)).collect();
    // Waits for one lock are one part, wherever they are.
    let is_placed = |part: &Part| part.row.has_place() || part.row.cause == HostCause::InterpreterLock;
    parts.retain(|part| part.row.is_evident() && is_placed(part));
    parts.sort_rows_by_key(|part| std::cmp::Reverse(part.row.total_ns));
    parts
}

/// Sum of rows at the place of the first. Their errors are independent.
fn together(rows: &[&LineRow]) -> Option<Part> {
    let (first, rest) = rows.split_first()?;
    let mut sum = (*first).clone();
    let mut places = vec![(&first.file, first.line, &first.function)];
    let mut activities = vec![(first.cause, first.share)];
    for row in rest {
        let place = (&row.file, row.line, &row.function);
        if !places.contains(&place) {
            places.push(place);
        }
        match activities.iter_mut().find(|(cause, _)| activity(*cause) == activity(row.cause)) {
            Some((_, share)) => *share += row.share,
            None => activities.push((row.cause, row.share)),
        }
        let half = |a: f64, b: f64| a.hypot(b);
        let low = half(sum.share - sum.share_low, row.share - row.share_low);
        let high = half(sum.share_high - sum.share, row.share_high - row.share);
        sum.share += row.share;
        (sum.share_low, sum.share_high) = (sum.share - low, (sum.share + high).min(1.0));
        sum.samples += row.samples;
        sum.total_ns += row.total_ns;
        sum.step_ns = sum.step_ns.zip(row.step_ns).map(|(a, b)| a + b);
    }
    activities.sort_rows_by(|a, b| b.1.total_cmp(&a.1));
    Some(Part { row: sum, places: places.len(), activities })
}

/// Minimum share of the launching threads' time that waits for the interpreter's lock take for a mention.
const LOCK_SHARE: f64 = 0.1;

/// Sentence about who held the interpreter's lock while a launching thread waited for it.
fn lock_sentence(host: &HostReport) -> String {
    let waits = host.lock_waits;
    let share = |samples: u64| percent(samples as f64 / waits.max(1) as f64);
    let named: Vec<_> =
        host.lock_holders.iter().take(2).map(|row| format!("{} in {}", row.place(), share(row.samples))).collect();
    let samples = counted(waits, "sample");
    if host.lock_handovers > 0 {
        let held = if named.is_empty() { String::new() } else { format!("held by {}, and ", named.join(", by ")) };
        return format!(
            "In the {samples} of a wait for it, the lock was {held}on its way between launching threads in {}.",
            share(host.lock_handovers)
        );
    }
    if named.is_empty() {
        return "Which thread held the interpreter's lock (GIL) is unknown: it was not sampled.".to_owned();
    }
    format!("The interpreter's lock (GIL) was held by {} of the {samples} of a wait for it.", named.join(", by "))
}

/// Sentences about launching threads that wait for the interpreter's lock, if that takes much of their time.
/// Idle time that ends with the launch of another thread does not show these waits.
pub(super) fn locked(host: &HostReport) -> Option<[String; 2]> {
    let totals = &host.totals;
    let waited = totals.off_cpu_ns[HostCause::InterpreterLock as usize] as f64 / totals.covered_ns.max(1) as f64;
    (waited >= LOCK_SHARE && host.lock_waits >= EVIDENT_WAITS).then(|| {
        let waited = percent(waited);
        [
            format!(
                "The launching threads waited for the interpreter's lock (GIL) {waited} of the time they were sampled."
            ),
            lock_sentence(host),
        ]
    })
}

/// Waiting for the interpreter's lock, by its holder.
pub(super) fn lock_activity(host: &HostReport) -> Activity {
    let held = |by_launchers: bool| {
        let rows = host.lock_holders.iter().filter(|row| row.calls_cuda == by_launchers);
        rows.map(|row| row.samples).sum::<u64>()
    };
    let by_launchers = held(true) + host.lock_handovers;
    let enough = host.lock_waits >= EVIDENT_WAITS && by_launchers as f64 >= HOLDER_PART * host.lock_waits as f64;
    let launches = enough && by_launchers > held(false);
    if launches { Activity::LockOfLauncher } else { Activity::LockOfOther }
}

/// Gain of the program without a line, at most that without any host work.
fn line_gain(row: &LineRow, most: f64) -> String {
    let speedup = gain_without(row.share).min(most);
    // Nobody can run without a forward or a backward pass; the interpreter's lock can be free.
    let is_needed = row.cause != HostCause::InterpreterLock && (row.is_backward() || row.is_of_framework());
    if speedup < WORTH_DOING || is_needed {
        return String::new();
    }
    let more = 1.0 - 1.0 / speedup > row.share + NOTABLE;
    let why = if more { ", because a CPU that is further ahead also hides other delays" } else { "" };
    format!("; without it {} faster{why}", about(speedup, None))
}

fn line_sentence(part: &Part, without: &str) -> String {
    let Part { row, places, activities } = part;
    let others = *places as u64 - 1;
    let more = if others > 0 { format!(" and {}", counted(others, "other place")) } else { String::new() };
    let place = row.at_place() + &more;
    let largest = activities.iter().filter(|(_, share)| *share >= NAMED_PART * row.share);
    let several: Vec<_> = largest.map(|(cause, share)| format!("{} {}", activity(*cause), percent(*share))).collect();
    let (doing, detail) = match &several[..] {
        [_] => (capitalized(activity(row.cause)), String::new()),
        _ => ("The CPU's work".to_owned(), format!(": {}", several.join(", "))),
    };
    let [share, low, high] = [row.share, row.share_low, row.share_high].map(percent);
    let interval = match low == high {
        true => String::new(),
        false => format!(", {} to {high}", low.trim_end_matches(" %")),
    };
    // Kernels are not built in each step.
    match row.step_ns.filter(|_| row.cause.leaf().cause() != Cause::KernelBuild) {
        Some(nanos) => {
            format!("{doing} {place} takes {} a step ({share}{interval}{detail}){without}.", duration(nanos))
        }
        None => {
            let details = [interval.trim_start_matches(", "), detail.trim_start_matches(": ")];
            let details: Vec<_> = details.into_iter().filter(|text| !text.is_empty()).collect();
            let details = if details.is_empty() { String::new() } else { format!(" ({})", details.join(": ")) };
            format!("{doing} {place} takes {share} of the time{details}{without}.")
        }
    }
}

/// What the launching threads do in most of the sampled time of `cause`, and where: `at train.py:42 (main)`.
pub(super) fn doing(host: &HostReport, cause: Cause) -> Option<(Activity, Option<String>)> {
    if let Some(place) = started_workers(host) {
        return Some((Activity::StartsWorkers, Some(place)));
    }
    let largest = host.causes.iter().find(|row| row.cause.leaf().cause() == cause)?.cause;
    // A line with most of the time says more than the sum of an activity over all lines.
    let main = if cause == Cause::HostCpu { MainWork::of(host, &[]) } else { None };
    let largest = main.map_or(largest, |work| work.cause);
    if largest == HostCause::InterpreterLock {
        return Some((lock_activity(host), None));
    }
    // The cause and the line belong together.
    let line = host.lines.iter().find(|row| row.cause == largest);
    let activity = match line {
        Some(row) if row.is_backward() && matches!(largest, HostCause::Code | HostCause::Lock) => {
            // The advice on the backward pass names it already.
            let place = row.at_place().replace(", in the backward pass", "");
            return Some((Activity::Backward, Some(place)));
        }
        Some(row) if starts_commands(host, row) => {
            let row = LineRow { within: None, ..row.clone() };
            return Some((Activity::StartsCommands, Some(row.at_place())));
        }
        Some(row) if waits_for_condition(row) => Activity::WaitsForResult,
        Some(row) if is_checkpoint(row) => Activity::Checkpoint,
        _ => Activity::Does(if cause == Cause::DataLoading { loader_activity(host) } else { largest }),
    };
    Some((activity, line.filter(|row| row.has_place()).map(LineRow::at_place)))
}

/// Minimum share of the time, and number of samples, in which a launching thread starts processes.
const STARTS_SHARE: f64 = 0.1;
const STARTS_SAMPLES: u64 = 5;
/// Minimum part of the time at a line for what it is said to do.
const PART_OF_LINE: f64 = 0.2;

/// The line at which most of the time for starting workers of a data loader is spent, if that is much.
fn started_workers(host: &HostReport) -> Option<String> {
    let rows = || host.lines.iter().filter(|row| row.cause == HostCause::LoaderStart);
    let (share, samples) = (rows().map(|row| row.share).sum::<f64>(), rows().map(|row| row.samples).sum::<u64>());
    let first = rows().next().filter(|_| share >= STARTS_SHARE && samples >= STARTS_SAMPLES)?;
    Some(LineRow { within: None, ..first.clone() }.at_place())
}

fn within_file(row: &LineRow, part: &str) -> bool {
    row.within.as_ref().is_some_and(|(_, file)| file.contains(part))
}

/// True if the line starts commands and waits for them.
fn starts_commands(host: &HostReport, row: &LineRow) -> bool {
    let at_line = || host.lines_of(Cause::HostCpu).filter(|other| (&other.file, other.line) == (&row.file, row.line));
    let commands = at_line().filter(|other| within_file(other, "/subprocess.py"));
    let all = at_line().map(|other| other.share).sum::<f64>();
    !row.file.is_empty() && commands.map(|other| other.share).sum::<f64>() >= PART_OF_LINE * all && all > 0.0
}

/// True if a thread waits there for another one, or until a time.
fn waits_for_condition(row: &LineRow) -> bool {
    row.cause == HostCause::Lock && row.within.as_ref().is_some_and(|(function, _)| function == "Condition.wait")
}

fn is_checkpoint(row: &LineRow) -> bool {
    let files = [row.within.as_ref().map_or("", |(_, file)| file), &row.file];
    let writers = ["torch/serialization.py", "safetensors/", "distributed/checkpoint/"];
    files.iter().any(|file| writers.iter().any(|writer| file.contains(writer)))
}

/// True if most of the CPU work between launches writes a checkpoint.
pub(super) fn writes_checkpoints(host: &HostReport) -> bool {
    host.lines_of(Cause::HostCpu).next().is_some_and(is_checkpoint)
}

/// What the loader does. All waiting is compared as one sum with each kind of work: the activity of the workers
/// only selects the advice.
fn loader_activity(host: &HostReport) -> HostCause {
    let of = |causes: &[HostCause]| host.seen_with(causes);
    let work = LOADER.into_iter().filter(|cause| !WAITS.contains(cause)).max_by_key(|&cause| of(&[cause]));
    work.filter(|&work| of(&[work]) >= of(&WAITS)).unwrap_or_else(|| waits_for(host))
}
