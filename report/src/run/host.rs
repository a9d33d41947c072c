//! Activity of the launching threads while devices were idle, from host samples.
//!
//! Idle time is counted in steady device time, by the gap rule. Samples taken while the device was busy do
//! not count here, because that time costs nothing. The sample totals cover the threads regardless of device
//! activity.
//!
//! A sample represents the gap that it falls into. The causes of gaps without a sample are estimated
//! (`host_estimate`). Shares are of the time that the bottleneck's share is of: of typical steps without the
//! overhead of tracing, where these represent the run.

use std::collections::BTreeMap;
use std::fmt::Write;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::{NameId, ThreadId, Timestamp};
use profiler_core::attribution::host_cause::HostCause;
use profiler_core::attribution::servers::Meaning;
use profiler_core::attribution::{Attributor, DeviceAccount, GapSamples, HostLine, LineId, LockHeldBy, LockHolder};
use profiler_core::attribution::{Seen, Stratum, is_native};
use profiler_core::leaf::{Cause, Leaf};
use profiler_core::sorting::SortRows as _;
use rustc_hash::FxHashMap;

use super::host_estimate::{ActivityKey, ActivityTime, estimate};
use super::untraced::WithoutTracing;
use super::{BetweenIterations, CallLineRow, CauseRow, DeviceReport, GapSubject, HostReport, LineRow};
use super::{LockHolderRow, MeaningRow};
use crate::text_format::names::short_path;
use crate::text_format::shortened;
use crate::words;

/// Maximum number of source lines listed.
const LINES: usize = 32;
/// Standard deviations of a 95 % confidence interval.
const CONFIDENCE: f64 = 1.96;
/// Minimum share of the time, and number of samples, of a line that is named.
const EVIDENT_SHARE: f64 = 0.02;
const EVIDENT_SAMPLES: u64 = 10;
/// Folders of frameworks, whose work between launches is no work of the program that could be moved.
const FRAMEWORKS: [&str; 9] =
    ["torch", "jax", "jaxlib", "flax", "transformers", "accelerate", "lightning", "pytorch_lightning", "deepspeed"];
/// The same of servers of language models.
const SERVERS: [&str; 4] = ["vllm", "sglang", "tensorrt_llm", "text_generation_server"];

impl LineRow {
    /// True for work in the frames of a framework.
    pub(super) fn is_of_framework(&self) -> bool {
        self.is_in(&FRAMEWORKS) || self.is_of_server()
    }

    /// True for work in the frames of a server of language models.
    pub(super) fn is_of_server(&self) -> bool {
        self.is_in(&SERVERS)
    }

    fn is_in(&self, packages: &[&str]) -> bool {
        let is_one = |file: &str| {
            // An environment may have a framework's name.
            let path = file.rsplit_once("-packages/").map_or(file, |(_, path)| path);
            packages.iter().any(|name| match path == file {
                true => file.contains(&format!("/{name}/")),
                false => path.split('/').next() == Some(name),
            })
        };
        is_one(&self.file) || self.within.as_ref().is_some_and(|(_, file)| is_one(file))
    }

    /// False for a thread without lines and without a name, and for an address in a library.
    pub(super) fn has_place(&self) -> bool {
        match self.file.is_empty() {
            true => !self.function.bytes().all(|letter| letter.is_ascii_digit()),
            false => self.line > 0 || !self.function.contains("+0x"),
        }
    }

    /// The place after its preposition: `at train.py:42 (main)`, or `in thread 1779` without lines.
    pub fn at_place(&self) -> String {
        format!("{} {}", if self.file.is_empty() { "in" } else { "at" }, self.place())
    }

    /// True if it has enough time and samples to be named.
    pub(super) fn is_evident(&self) -> bool {
        self.share >= EVIDENT_SHARE && self.samples >= EVIDENT_SAMPLES
    }

    /// True if it is the call of PyTorch's backward pass, or a thread of it without lines.
    pub(super) fn is_backward(&self) -> bool {
        if self.file.is_empty() {
            return words::is_backward_thread(&self.function);
        }
        let called = self.within.as_ref().map_or(&self.function, |(function, _)| function);
        called == "_engine_run_backward"
    }

    /// Display text: `train.py:42 (main), in torch/optim/adamw.py (step)`.
    pub fn place(&self) -> String {
        if self.file.is_empty() {
            return words::thread(&self.function);
        }
        // A native function has no line.
        let line = if self.line == 0 { String::new() } else { format!(":{}", self.line) };
        let mut place = format!("{}{line} ({})", short_path(&self.file), shortened(&self.function, 40));
        if self.is_backward() && self.within.is_some() {
            return place + ", in the backward pass";
        }
        if let Some((function, file)) = &self.within {
            let part = match self.within_ns as f64 / self.total_ns.max(1) as f64 * 100.0 {
                whole if whole >= 99.5 => String::new(),
                percent => format!("{percent:.0} % "),
            };
            let _ = write!(place, ", in {} ({part}{})", short_path(file), shortened(function, 40));
        }
        place
    }
}

impl LockHolderRow {
    /// Display text: `thread logger at log.py:42 (flush)`.
    pub fn place(&self) -> String {
        let thread = words::thread(&self.thread);
        if self.file.is_empty() {
            return thread;
        }
        format!("{thread} at {}:{} ({})", short_path(&self.file), self.line, shortened(&self.function, 40))
    }
}

impl HostReport {
    /// Builds the report from the current state; `None` when no sample was taken, none failed, and no range
    /// named a data loader.
    pub fn of(attributor: &Attributor, dictionary: &Dictionary, devices: &[DeviceReport], failed: u64) -> Option<Self> {
        let totals = attributor.sample_totals();
        let steady: u64 = devices.iter().flat_map(|device| device.steady_leaves).sum();
        let late = [Leaf::HostCpu, Leaf::HostBlocked, Leaf::DataLoading];
        let outside_cuda_ns = devices
            .iter()
            .flat_map(|device| late.map(|leaf| device.steady_leaves[leaf as usize]).into_iter().chain([built(device)]))
            .sum();
        let rows: Vec<_> = attributor.devices().flat_map(|account| host_times(attributor, account)).collect();
        let seen = estimate(&rows);
        if totals.samples == 0 && failed == 0 && seen.is_empty() {
            return None;
        }
        let mut causes: Vec<CauseRow> =
            HostCause::ALL.into_iter().map(|cause| CauseRow { cause, total_ns: 0 }).collect();
        for (key, time) in &seen {
            causes[key.cause as usize].total_ns += time.total_ns;
        }
        let of_host = seen.iter().filter(|(key, _)| key.cause != HostCause::NoRequests);
        let sampled_ns = of_host.map(|(_, time)| time.sampled_ns).sum();
        causes.retain(|row| row.total_ns > 0);
        causes.sort_rows_by_key(|row| (std::cmp::Reverse(row.total_ns), row.cause));
        let longest = devices.iter().max_by_key(|device| device.window_ns);
        let reported = longest.filter(|device| device.step_meaning.recognized_by.is_some());
        // Where the shares are of all the time, they are no part of a step.
        let step = reported.and_then(|device| {
            let typical = device.typical?;
            // As in the headline: of two kinds of steps, the mean.
            let median = || Some(device.steps.as_ref()?.duration_percentile(50));
            if device.step_kinds.is_empty() { median() } else { Some(typical.mean_ns) }
        });
        // As in the headline, without the overhead of tracing.
        let step = step.zip(longest).map(|(nanos, device)| {
            nanos as f64 * WithoutTracing::of_steps(device).step / device.step_meaning.steps() as f64
        });
        let steady = steady.max(1) as f64;
        let judged = judged_parts(devices);
        let share = |cause: HostCause, nanos: f64| nanos / steady * judged(cause.leaf().cause());
        let mut lines = line_rows(attributor, dictionary, &seen, share);
        lines.iter_mut().for_each(|row| row.step_ns = step.map(|nanos| (row.share * nanos) as u64));
        Some(Self {
            totals,
            failed,
            outside_cuda_ns,
            sampled_ns,
            causes,
            lines,
            between: BetweenIterations::of(attributor, &seen),
            calls: CallLineRow::all(attributor, dictionary),
            lock_waits: attributor.lock_holders().iter().map(|(_, samples)| samples).sum(),
            lock_handovers: {
                let holders = attributor.lock_holders().into_iter();
                holders.filter(|(holder, _)| *holder == LockHeldBy::Nobody).map(|(_, samples)| samples).sum()
            },
            lock_holders: lock_holders(attributor, dictionary),
        })
    }

    /// The same for a run without device work, of which only samples since `from` count: lines have shares of the
    /// threads' time, whatever the device did.
    pub(crate) fn watch(&mut self, attributor: &Attributor, dictionary: &Dictionary, from: Timestamp) {
        let rows = attributor.sampled_activities(from);
        let all = rows.values().map(|time| time.nanos).sum::<u64>().max(1) as f64;
        let mut seen: BTreeMap<ActivityKey, ActivityTime> = BTreeMap::new();
        for ((cause, line, thread), GapSamples { samples, nanos }) in rows {
            let key = ActivityKey { cause, line, thread: if line == LineId::NONE { thread } else { 0 } };
            let time = ActivityTime { samples, sampled_ns: nanos, total_ns: nanos, variance: 0.0 };
            seen.entry(key).or_default().add(time);
        }
        self.lines = line_rows(attributor, dictionary, &seen, |_, nanos| nanos / all);
    }

    pub(super) fn lines_of(&self, cause: Cause) -> impl Iterator<Item = &LineRow> {
        self.lines.iter().filter(move |row| row.cause.leaf().cause() == cause)
    }

    /// Idle time due to any of `causes`, nanoseconds; an estimate like [`CauseRow::total_ns`].
    pub(super) fn seen_with(&self, causes: &[HostCause]) -> u64 {
        self.causes.iter().filter(|row| causes.contains(&row.cause)).map(|row| row.total_ns).sum()
    }
}

/// Idle time of a device by what samples saw. Waits from before it was known that the device serves are for requests.
fn host_times(attributor: &Attributor, account: &DeviceAccount) -> Vec<(Stratum, Seen, GapSamples)> {
    let mut rows = account.host_times();
    for (_, seen, _) in rows.iter_mut().filter(|_| account.serves()) {
        if let Seen::Activity(cause @ (HostCause::Lock | HostCause::Poll | HostCause::Sleep), line) = seen
            && attributor.host_line(*line).and_then(|line| line.doing).is_some_and(|doing| doing.server.is_empty())
        {
            *cause = HostCause::NoRequests;
        }
    }
    rows
}

impl BetweenIterations {
    /// The parts of `seen` in functions of servers.
    fn of(attributor: &Attributor, seen: &BTreeMap<ActivityKey, ActivityTime>) -> Self {
        let (mut servers, mut rows) = (BTreeMap::<&str, u64>::new(), BTreeMap::<Meaning, MeaningRow>::new());
        for (key, time) in seen {
            let doing = attributor.host_line(key.line).and_then(|line| line.doing);
            let idle = (key.cause == HostCause::NoRequests).then_some(Meaning::NoRequests);
            let doing = doing.filter(|doing| !doing.server.is_empty());
            let Some(meaning) = idle.or(doing.map(|doing| doing.meaning)) else { continue };
            let row = rows.entry(meaning).or_insert(MeaningRow { meaning, sampled_ns: 0, total_ns: 0 });
            row.sampled_ns += time.sampled_ns;
            row.total_ns += time.total_ns;
            if let Some(doing) = doing {
                *servers.entry(doing.server).or_default() += time.total_ns;
            }
        }
        let server = servers.into_iter().max_by_key(|&(_, total_ns)| total_ns).map(|(server, _)| server);
        let mut rows: Vec<_> = rows.into_values().collect();
        rows.sort_rows_by_key(|row| std::cmp::Reverse(row.total_ns));
        Self { server, rows }
    }

    fn idle(&self) -> Option<&MeaningRow> {
        self.rows.iter().find(|row| row.meaning == Meaning::NoRequests)
    }

    /// Time in which the launching threads waited for requests: an estimate, nanoseconds.
    pub(super) fn idle_ns(&self) -> u64 {
        self.idle().map_or(0, |row| row.total_ns)
    }

    /// The part of that time that was counted as CPU work, because no sample saw it, nanoseconds.
    pub(super) fn unseen_idle_ns(&self) -> u64 {
        self.idle().map_or(0, |row| row.total_ns - row.sampled_ns)
    }
}

/// The activities by line, the largest first; `share` is that of nanoseconds of a cause.
fn line_rows(
    attributor: &Attributor,
    dictionary: &Dictionary,
    seen: &BTreeMap<ActivityKey, ActivityTime>,
    share: impl Fn(HostCause, f64) -> f64,
) -> Vec<LineRow> {
    let row = |row: Called<'_>| {
        let Called { place, cause, time, within_ns } = row;
        let name = |id: NameId| dictionary.name(id).to_owned();
        let (file, line, function, within) = match place {
            Place::Line(line) => {
                let within = line.within.map(|(function, file)| (name(function), name(file)));
                (name(line.file), line.line, name(line.function), within)
            }
            Place::Thread(place) => {
                let thread = attributor.thread(place).map(|id| thread_name(dictionary, id));
                (String::new(), 0, thread.unwrap_or_else(|| "unknown".to_owned()), None)
            }
        };
        let of = |nanos: f64| share(cause, nanos);
        // The total is a sum of many strata, so it is about normally distributed.
        let (part, deviation) = (of(time.total_ns as f64), CONFIDENCE * of(time.variance.sqrt()));
        LineRow {
            cause,
            file,
            line,
            function,
            within,
            samples: time.samples,
            sampled_ns: time.sampled_ns,
            total_ns: time.total_ns,
            within_ns,
            share: part,
            share_low: (part - deviation).max(of(time.sampled_ns as f64)),
            share_high: (part + deviation).min(1.0),
            step_ns: None,
        }
    };
    let place = |key: ActivityKey| attributor.host_line(key.line).map_or(Place::Thread(key.thread), Place::Line);
    // Line ids depend on the order of the samples; sorting by name does not.
    let mut lines: Vec<_> = seen.iter().map(|(&key, &time)| (place(key), key.cause, time)).collect();
    lines.sort_rows_by_key(|&(place, cause, time)| (std::cmp::Reverse(time.total_ns), place, cause));
    by_library(&lines, dictionary).into_iter().take(LINES).map(row).collect()
}

/// For each cause, its share of the time that the bottleneck is of, divided by its share of the steady time.
fn judged_parts(devices: &[DeviceReport]) -> impl Fn(Cause) -> f64 {
    let steps = devices.iter().all(|device| device.typical.is_some());
    let judged = |device: &DeviceReport| device.typical.filter(|_| steps).map_or(device.steady_leaves, |of| of.leaves);
    let parts = Cause::ALL.map(|cause| {
        let part = |device: &DeviceReport| {
            let (leaves, steady) = (judged(device), device.steady_leaves);
            let sum = leaves.iter().sum::<u64>().max(1) as f64;
            let share = WithoutTracing::of(device, &leaves).share(cause, cause.total(&leaves) as f64 / sum);
            (share * steady.iter().sum::<u64>() as f64, cause.total(&steady) as f64)
        };
        let (judged, steady) = devices.iter().map(part).fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
        if steady > 0.0 { judged / steady } else { 1.0 }
    });
    move |cause| Cause::ALL.into_iter().position(|known| known == cause).map_or(1.0, |at| parts[at])
}

/// Time in which kernels were built before the calls that load them.
fn built(device: &DeviceReport) -> u64 {
    let calls = device.gaps.iter().filter(|row| row.leaf == Leaf::KernelBuild);
    let calls = calls.filter(|row| matches!(row.subject, GapSubject::Call(_))).map(|row| row.totals.total_ns);
    device.steady_leaves[Leaf::KernelBuild as usize].saturating_sub(calls.sum())
}

/// Name of a thread, or its number.
fn thread_name(dictionary: &Dictionary, id: ThreadId) -> String {
    dictionary.thread_name(id).map_or_else(|| id.0.to_string(), str::to_owned)
}

fn lock_holders(attributor: &Attributor, dictionary: &Dictionary) -> Vec<LockHolderRow> {
    let rows = attributor.lock_holders().into_iter().filter_map(|(holder, samples)| match holder {
        LockHeldBy::Thread(holder) => Some((holder, samples)),
        LockHeldBy::Unknown | LockHeldBy::Nobody => None,
    });
    let name = |id: NameId| dictionary.name(id).to_owned();
    let row = |(holder, samples): (LockHolder, u64)| {
        let line = attributor.host_line(holder.line);
        LockHolderRow {
            thread: thread_name(dictionary, holder.thread),
            file: line.map(|line| name(line.file)).unwrap_or_default(),
            line: line.map_or(0, |line| line.line),
            function: line.map(|line| name(line.function)).unwrap_or_default(),
            calls_cuda: attributor.calls_cuda(holder.thread),
            samples,
        }
    };
    let mut rows: Vec<_> = rows.map(row).collect();
    // One line may have called several functions.
    rows.sort_rows_by(|a, b| (&a.thread, &a.file, a.line).cmp(&(&b.thread, &b.file, b.line)));
    rows.dedup_by(|row, before| {
        let same = (&row.thread, &row.file, row.line) == (&before.thread, &before.file, before.line);
        if same {
            before.samples += row.samples;
        }
        same
    });
    rows.sort_rows_by_key(|row| std::cmp::Reverse(row.samples));
    rows.truncate(LINES);
    rows
}

/// Where a thread was: at a line, or unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place<'a> {
    Line(&'a HostLine),
    /// Index of the thread.
    Thread(u32),
}

/// An activity with its time, and the part spent in the function that the line names.
struct Called<'a> {
    place: Place<'a>,
    cause: HostCause,
    time: ActivityTime,
    within_ns: u64,
}

/// Merges the native functions of one library that one line called into one row for each cause. Both `lines`
/// and the result are sorted by time, the largest first.
fn by_library<'a>(lines: &[(Place<'a>, HostCause, ActivityTime)], dictionary: &Dictionary) -> Vec<Called<'a>> {
    let is_native = |file: NameId| is_native(dictionary.name(file));
    let mut rows: Vec<Called<'a>> = Vec::new();
    let mut by_key = FxHashMap::default();
    for &(place, cause, time) in lines {
        let key = match place {
            Place::Line(line) => {
                let called = line.within.map(|(function, file)| (Some(function).filter(|_| !is_native(file)), file));
                Ok((line.function, line.file, line.line, called))
            }
            Place::Thread(thread) => Err(thread),
        };
        let row = *by_key.entry((key, cause)).or_insert(rows.len());
        match rows.get_mut(row) {
            Some(row) => row.time.add(time),
            None => rows.push(Called { place, cause, time, within_ns: time.total_ns }),
        }
    }
    rows.sort_rows_by_key(|row| (std::cmp::Reverse(row.time.total_ns), row.place, row.cause));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_functions_of_one_library_are_one_row_with_the_largest_named() {
        let mut dictionary = Dictionary::new();
        let mut name = |text: &str| dictionary.intern_name(text);
        let (step, train, torch, add, mul) =
            (name("step"), name("/u/train.py"), name("libtorch_cpu.so"), name("at::add"), name("at::mul"));
        let (optim, adam) = (name("/lib/site-packages/torch/optim/adamw.py"), name("AdamW.step"));
        let line = |within| HostLine { function: step, file: train, line: 7, within, doing: None };
        let time = |total_ns| ActivityTime { samples: 1, sampled_ns: total_ns, total_ns, variance: 0.0 };
        let lines = [line(Some((add, torch))), line(None), line(Some((mul, torch))), line(Some((adam, optim)))];
        let lines: Vec<_> = lines
            .iter()
            .zip([40, 35, 10, 5])
            .map(|(line, ns)| (Place::Line(line), HostCause::Code, time(ns)))
            .collect();
        let rows = by_library(&lines, &dictionary);
        let times: Vec<_> = rows.iter().map(|row| (row.time.total_ns, row.within_ns)).collect();
        assert_eq!(times, [(50, 40), (35, 35), (5, 5)]);
        assert!(matches!(rows[0].place, Place::Line(line) if line.within == Some((add, torch))));
        let row = LineRow {
            cause: HostCause::Code,
            file: "/u/train.py".to_owned(),
            line: 7,
            function: "step".to_owned(),
            within: Some(("at::add".to_owned(), "libtorch_cpu.so".to_owned())),
            samples: 3,
            sampled_ns: 50,
            total_ns: 50,
            within_ns: 40,
            share: 0.1,
            share_low: 0.1,
            share_high: 0.1,
            step_ns: None,
        };
        assert_eq!(row.place(), "train.py:7 (step), in libtorch_cpu.so (80 % at::add)");
        let called = ("_engine_run_backward".to_owned(), "/lib/site-packages/torch/autograd/graph.py".to_owned());
        let backward = LineRow { within: Some(called), ..row.clone() };
        assert_eq!(backward.place(), "train.py:7 (step), in the backward pass");
        let native = LineRow { within: None, line: 0, file: "libcudnn.so.9".to_owned(), ..row };
        assert_eq!(native.place(), "libcudnn.so.9 (step)");
    }
}
