//! What a report knows, in the form that the conditions of remedies need.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use gpuwhy_trace::record::{CopyKind, Timestamp};
use profiler_core::attribution::host_cause::HostCause;
use profiler_core::attribution::statistics::OctaveTotals;
use profiler_core::attribution::{CallKind, is_library, is_optimizer};
use profiler_core::counters::roofs::Limit;
use profiler_core::leaf::{Cause, Leaf, Leaves, WorkKind};
use profiler_core::whatif::{BestCase, Removed, ScenarioKind};

use super::entry::RemedyEntry;
use super::gain::Gain;
use super::obstacles::Obstacle;
use super::patterns::{Class, Classes};
use crate::launch_site::LaunchSite;
use crate::run::code::{Code, Parse};
use crate::run::framework::{Framework, runs_python};
use crate::run::{
    ApiRow, CallLineRow, DeviceReport, GraphOrigins, HostReport, KernelLines, LineRow, SampledLaunches, SourceLines,
    call_lines,
};
use crate::text_format::names::short_path;
use crate::text_format::shortened;

/// Part of the kernel time of a device that its steps must cover for a step to stand for all of it.
const COVERED: f64 = 0.5;
/// Least part of the sampled time of kernels that a line must have launched to be named.
const MAIN_LINE: f64 = 0.3;
/// Least part of it that the lines of one function must have launched for the first of them to be named.
const MAIN_FUNCTION: f64 = 0.8;
/// Least part of the copies that go in one direction for their line to be that of all.
const NEARLY_ALL: f64 = 0.9;
/// Functions that wait for the whole device, for a stream and for an event, and what waits there.
const WAITS: [(&[&str], &str); 3] = [
    (&["cudaDeviceSynchronize", "cuCtxSynchronize"], "the GPU (cudaDeviceSynchronize)"),
    (&["cudaStreamSynchronize", "cuStreamSynchronize"], "a stream (cudaStreamSynchronize)"),
    (&["cudaEventSynchronize", "cuEventSynchronize"], "an event (cudaEventSynchronize)"),
];
/// Fewest samples in launches for a line to be named.
const EVIDENT_SAMPLES: u64 = 5;
/// Fewest samples in launches for shares of them.
const FEWEST_LAUNCHES: u64 = 10;

/// What the launching threads do in the time of the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::run) enum Activity {
    /// Mostly this.
    Does(HostCause),
    /// Starting worker processes of a data loader.
    StartsWorkers,
    /// The CPU's part of the backward pass.
    Backward,
    /// Starting other programs.
    StartsCommands,
    /// Waiting for a condition that another thread signals.
    WaitsForResult,
    /// Writing a checkpoint.
    Checkpoint,
    /// Waiting for the interpreter's lock, which a thread that launches too holds.
    LockOfLauncher,
    /// Waiting for the interpreter's lock, which another thread holds.
    LockOfOther,
}

/// How well the launches fit CUDA graphs.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::run) struct GraphFacts {
    /// The launches repeat well enough for a graph.
    pub(in crate::run) fits: bool,
    /// Graphs launch most of the work.
    pub(in crate::run) used: bool,
    /// Nearly all of the work comes from graphs of few operations.
    pub(in crate::run) is_split: bool,
    /// The first thing in a step that a graph cannot contain.
    pub(in crate::run) obstacle: Option<Obstacle>,
}

/// Kernels that waited in a queue behind a kernel of another stream.
#[derive(Clone, Copy, Debug)]
pub(in crate::run) struct SharedQueue {
    /// Share of the time of a device that they waited, 0 to 1.
    pub(in crate::run) share: f64,
    /// Value of CUDA_DEVICE_MAX_CONNECTIONS; `None` if it is not set or not known.
    pub(in crate::run) connections: Option<u64>,
}

/// What the choice of the bottleneck found out: the facts that sentences and remedies share.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::run) struct Program<'a> {
    pub(in crate::run) cause: Option<Cause>,
    pub(in crate::run) framework: Framework,
    /// Its share of steady time, 0 to 1.
    pub(in crate::run) share: f64,
    pub(in crate::run) graphs: GraphFacts,
    /// Most launches are small copies.
    pub(in crate::run) small_copies: bool,
    /// The host reads values of a few bytes.
    pub(in crate::run) small_reads: bool,
    /// Most of these are sizes of selections.
    pub(in crate::run) reads_sizes: bool,
    /// Not few are other values.
    pub(in crate::run) reads_values: bool,
    /// The scenario of the first step of the plan.
    pub(in crate::run) first_fix: Option<ScenarioKind>,
    /// The best case that the bottleneck's fix is judged by.
    pub(in crate::run) best_case: Option<BestCase>,
    pub(in crate::run) activity: Option<Activity>,
    /// Where the thread is: `at train.py:42 (main)`.
    pub(in crate::run) activity_at: Option<&'a str>,
    /// Speedup (1: none) without the largest part of the CPU work between launches, with the interval that contains
    /// nine of ten programs.
    pub(in crate::run) main_work: Option<(f64, (f64, f64))>,
    /// The largest limit of the computation, if hardware counters show one, and true if it is in the L1 cache.
    pub(in crate::run) limit: Option<(Limit, bool)>,
    /// Another process used much of the GPU.
    pub(in crate::run) shared: bool,
    /// Streams share a hardware queue.
    pub(in crate::run) shared_queue: Option<SharedQueue>,
    /// Measuring kernels made steps longer.
    pub(in crate::run) stretched: bool,
    /// Kernels are the only CPU work between launches.
    pub(in crate::run) builds_only: bool,
}

/// A recognized remedy.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// The line, without its preposition.
    pub(super) at: Option<String>,
    /// Words for `{what}` in the sentence.
    pub(super) what: String,
    /// Words for `{detail}` in the sentence; it is complete without them.
    pub(super) detail: String,
    /// Number for `{share}` in the sentence, 0 to 1.
    pub(super) share: f64,
    /// `None` if nothing predicts it.
    pub(super) gain: Option<Gain>,
    /// Gain of the usual form of the change, for the order, if `gain` is that of more.
    pub(super) usual: Option<Gain>,
    /// Something speaks against the condition in the sentence: it is not said first.
    pub(super) doubted: bool,
}

impl Found {
    pub(super) fn of(at: Option<String>, share: f64, gain: impl Into<Option<Gain>>) -> Self {
        Self { at, share, gain: gain.into(), ..Self::default() }
    }

    pub(super) fn at(at: Option<String>) -> Option<Self> {
        Some(Self { at, ..Self::default() })
    }

    pub(super) fn gaining(self, gain: Option<Gain>) -> Self {
        Self { gain, ..self }
    }
}

/// A kernel with its part of the work.
#[derive(Clone, Debug)]
pub(super) struct Kernel<'a> {
    pub(super) name: &'a str,
    pub(super) classes: Classes,
    /// Share of the time of kernels, 0 to 1.
    pub(super) share: f64,
    /// Share of the kernels, 0 to 1.
    pub(super) of_count: f64,
    /// Its median duration, nanoseconds.
    pub(super) median_ns: u64,
    /// Share of the multiprocessors with a block, 0 to 1; 1 if unknown.
    pub(super) filled: f64,
}

/// Lines that launched or captured work, the calls of CUDA, and its setting for queues.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::run) struct CallFacts<'a> {
    pub(in crate::run) lines: Option<&'a KernelLines>,
    pub(in crate::run) origins: Option<&'a GraphOrigins>,
    pub(in crate::run) api: &'a [ApiRow],
    /// CUDA_DEVICE_MAX_CONNECTIONS
    pub(in crate::run) connections: Option<&'a str>,
    /// Command line of the program; empty if unknown.
    pub(in crate::run) command: &'a [String],
    /// Start of tracing.
    pub(in crate::run) start: Timestamp,
    /// Lines of source code, if the trace has some and its reader a parser.
    pub(in crate::run) source: Option<&'a ParsedLines<'a>>,
}

/// A parser with the remedies and conditions that need it.
#[derive(Clone, Copy, Debug)]
pub struct CodeReader {
    pub(super) parse: Parse,
    /// Entries that only a parsed line opens.
    pub(super) entries: &'static [RemedyEntry],
    /// True if the line does what the remedy with this id is about.
    pub(super) fits: fn(&str, &Code) -> bool,
}

/// Most lines that a report has parsed: a trace names 16, but it may come from anyone.
const MOST_PARSED: usize = 64;

/// Parsed lines by file and number; `None` where nothing could be parsed.
type Known = BTreeMap<(String, u32), Option<Rc<Code>>>;

/// The lines of a trace, parsed when they are asked for.
#[derive(Debug)]
pub(in crate::run) struct ParsedLines<'a> {
    lines: &'a SourceLines,
    pub(super) reader: CodeReader,
    known: RefCell<Known>,
}

impl<'a> ParsedLines<'a> {
    /// `None` without lines or without a parser.
    pub(in crate::run) fn new(lines: &'a SourceLines, reader: Option<CodeReader>) -> Option<Self> {
        let reader = reader.filter(|_| !lines.is_empty())?;
        Some(Self { lines, reader, known: RefCell::default() })
    }

    /// The line at a place such as `train.py:42 (main)`.
    pub(super) fn at(&self, place: &str) -> Option<Rc<Code>> {
        let (file, line) = self.lines.find(place)?;
        self.parsed(file, line)
    }

    /// True if the line at a place does what the remedy with this id is about.
    pub(super) fn does(&self, id: &str, at: Option<&str>) -> bool {
        at.and_then(|at| self.at(at)).is_some_and(|line| (self.reader.fits)(id, &line))
    }

    /// Lines that contain `word`, with their places.
    pub(super) fn with(&self, word: &str) -> Vec<(String, Rc<Code>)> {
        let lines = self.lines.containing(word);
        let lines =
            lines.filter_map(|(file, line)| Some((format!("{}:{line}", short_path(file)), self.parsed(file, line)?)));
        lines.collect()
    }

    fn parsed(&self, file: &str, line: u32) -> Option<Rc<Code>> {
        let parse = || self.lines.file(file).and_then(|rows| (self.reader.parse)(rows, line)).map(Rc::new);
        let (mut known, key) = (self.known.borrow_mut(), (file.to_owned(), line));
        let room = known.len() < MOST_PARSED || known.contains_key(&key);
        room.then(|| known.entry(key).or_insert_with(parse).clone()).flatten()
    }
}

/// Facts about a report.
pub(in crate::run) struct Facts<'a> {
    pub(super) program: Program<'a>,
    pub(super) devices: &'a [DeviceReport],
    pub(super) host: Option<&'a HostReport>,
    pub(super) api: &'a [ApiRow],
    pub(super) kernels: Vec<Kernel<'a>>,
    /// Kernels of a step in launch order, as places in `kernels`; `None` for other operations. Empty without steps.
    pub(super) order: Vec<Option<usize>>,
    /// Their shares of the time of kernels.
    pub(super) order_shares: Vec<f64>,
    /// Number of steps seen; 0 if unknown.
    pub(super) steps: u64,
    /// The device with the most time.
    pub(super) device: Option<&'a DeviceReport>,
    lines: Option<&'a KernelLines>,
    origins: Option<&'a GraphOrigins>,
    leaves: Leaves,
    pub(super) source: Option<&'a ParsedLines<'a>>,
}

impl<'a> Facts<'a> {
    pub(in crate::run) fn new(
        program: Program<'a>,
        devices: &'a [DeviceReport],
        host: Option<&'a HostReport>,
        CallFacts { lines, origins, api, source, .. }: CallFacts<'a>,
    ) -> Self {
        let device = devices.iter().max_by_key(|device| device.steady_leaves.iter().sum::<u64>());
        let leaves =
            device.map_or([0; _], |device| device.typical.map_or(device.steady_leaves, |typical| typical.leaves));
        let (kernels, order, order_shares) = device.map(kernels_of).unwrap_or_default();
        let seen =
            |device: &DeviceReport| device.step_meaning.steps() * device.steps.as_ref().map_or(0, |steps| steps.seen);
        let steps = device.map_or(0, seen);
        Self {
            program,
            devices,
            host,
            api,
            kernels,
            order,
            order_shares,
            steps,
            device,
            lines,
            origins,
            leaves,
            source,
        }
    }

    /// Share of steady time due to `cause`, 0 to 1.
    pub(super) fn time(&self, cause: Cause) -> f64 {
        cause.total(&self.leaves) as f64 / self.leaves.iter().sum::<u64>().max(1) as f64
    }

    /// Share of steady time in which the device works, 0 to 1.
    pub(super) fn busy(&self) -> f64 {
        self.busy_ns() as f64 / self.leaves.iter().sum::<u64>().max(1) as f64
    }

    fn busy_ns(&self) -> u64 {
        Leaf::ALL.into_iter().filter(|leaf| leaf.is_busy()).map(|leaf| self.leaves[leaf as usize]).sum()
    }

    /// True if `cause` is the bottleneck.
    pub(super) fn is(&self, cause: Cause) -> bool {
        self.program.cause == Some(cause)
    }

    /// Share of kernel time in kernels of these classes, 0 to 1.
    pub(super) fn share(&self, classes: &[Class]) -> f64 {
        self.of(classes).map(|kernel| kernel.share).sum()
    }

    /// Share of the kernels that are of these classes, 0 to 1.
    pub(super) fn count_share(&self, classes: &[Class]) -> f64 {
        self.of(classes).map(|kernel| kernel.of_count).sum()
    }

    pub(super) fn of(&self, classes: &[Class]) -> impl Iterator<Item = &Kernel<'a>> {
        self.kernels.iter().filter(move |kernel| kernel.classes.has_any(classes))
    }

    /// Kernels of these classes in a step; 0 without steps.
    pub(super) fn per_step(&self, classes: &[Class]) -> usize {
        let is = |place: &&Option<usize>| place.is_some_and(|place| self.kernels[place].classes.has_any(classes));
        self.order.iter().filter(is).count()
    }

    /// Kernels of these classes that ran, for each step; 0 without steps.
    pub(super) fn kernels_a_step(&self, classes: &[Class]) -> f64 {
        let rows = self.devices.iter().flat_map(|device| &device.kernels);
        let of = rows.filter(|row| Classes::of(&row.name).has_any(classes));
        let count: u64 = of.map(|row| row.durations.count()).sum();
        if self.steps == 0 { 0.0 } else { count as f64 / self.steps as f64 }
    }

    /// At most the gain of a step with the work that stays without these costs; `None` without a simulation.
    pub(super) fn at_most_without(&self, removed: Removed) -> Option<Gain> {
        let what_if = self.device?.what_if.as_ref().filter(|what_if| what_if.refused.is_none())?;
        Some(what_if.busy.most(removed)).filter(|most| most.is_finite()).map(Gain::at_most)
    }

    /// The validated simulation of a scenario; `None` if there is none.
    pub(super) fn scenario(&self, kind: ScenarioKind) -> Option<Gain> {
        let what_if = self.device?.what_if.as_ref().filter(|what_if| what_if.refused.is_none())?;
        let best_case = what_if.best_case(kind).filter(|best_case| best_case.speedup.is_finite())?;
        Some(Gain { speedup: best_case.speedup, interval: best_case.interval, ..Gain::NONE })
    }

    /// The line that launched most of the kernels of these classes, or captured them into a CUDA graph: the line that
    /// replays the graph says nothing about its kernels.
    pub(super) fn launched_at(&self, classes: &[Class]) -> Option<String> {
        let wanted = |kernel: &str| Classes::of(kernel).has_any(classes);
        let lines = self.lines.into_iter().flat_map(|lines| &lines.launches);
        let launched = lines.filter(|row| row.place.line > 0 && wanted(&row.kernel));
        let launched = launched.map(|row| (&row.place, row.estimated_ns, row.samples));
        let captured: Vec<_> = self.origins.into_iter().flat_map(|origins| origins.captured(&wanted)).collect();
        // These are exact: one is enough.
        let exact = captured.iter().map(|&(place, nanos)| (place, nanos as f64, EVIDENT_SAMPLES));
        let key = |place: &LaunchSite| (place.file.clone(), place.line, place.function.clone());
        let mut places: Vec<((String, u32, String), f64, u64)> = Vec::new();
        for (place, more, seen) in launched.chain(exact) {
            let place = key(place);
            match places.iter_mut().find(|(known, ..)| *known == place) {
                Some((_, nanos, samples)) => {
                    *nanos += more;
                    *samples += seen;
                }
                None => places.push((place, more, seen)),
            }
        }
        let known: f64 = places.iter().map(|(_, nanos, _)| nanos).sum();
        // Nodes without a place run these kernels as well.
        let kernels = self.devices.iter().flat_map(|device| &device.kernels).filter(|row| wanted(&row.name));
        let all =
            if captured.is_empty() { known } else { known.max(kernels.map(|row| row.durations.total() as f64).sum()) };
        let ((file, line, function), nanos, samples) = places.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        // Of several lines of one function, that with the most time stands for it.
        let of_function = places.iter().filter(|((of, _, name), ..)| (of, name) == (file, function));
        let of_function: f64 = of_function.map(|(_, nanos, _)| nanos).sum();
        (*samples >= EVIDENT_SAMPLES && (*nanos >= MAIN_LINE * all || of_function >= MAIN_FUNCTION * all))
            .then(|| format!("{}:{line} ({})", short_path(file), shortened(function, 40)))
    }

    /// A remedy for kernels of these classes, at their line.
    pub(super) fn found(&self, classes: &[Class], share: f64, gain: impl Into<Option<Gain>>) -> Found {
        Found::of(self.launched_at(classes), share, gain)
    }

    /// Line of most calls of this kind.
    pub(super) fn call_at(&self, kind: CallKind) -> Option<String> {
        self.host.and_then(|host| call_lines::main_place(host, kind))
    }

    /// Line of most reads: of the waits, or of waits and copies together if the copies are reads.
    pub(super) fn read_at(&self) -> Option<String> {
        self.host.and_then(|host| call_lines::read_place(host, self.all_copies_go(CopyKind::DeviceToHost)))
    }

    /// True if nearly all copies after start-up go in this direction.
    fn all_copies_go(&self, kind: CopyKind) -> bool {
        let count = |wanted: &dyn Fn(Leaf) -> bool| {
            let copies = Leaf::ALL.into_iter().filter(|&leaf| leaf.work() == Some(WorkKind::Copy) && wanted(leaf));
            copies.map(|leaf| self.device.map_or(0, |device| device.steady_work.operations(leaf))).sum::<u64>() as f64
        };
        count(&|leaf| leaf.copy_kind() == Some(kind)) >= NEARLY_ALL * count(&|_| true)
    }

    /// Share of the time of copies that those of this direction take, where nothing else ran, 0 to 1.
    pub(super) fn copies_going(&self, kind: CopyKind) -> f64 {
        let time = |wanted: &dyn Fn(Leaf) -> bool| -> u64 {
            Leaf::ALL.into_iter().filter(|&leaf| wanted(leaf)).map(|leaf| self.leaves[leaf as usize]).sum()
        };
        let all = time(&|leaf| leaf.work() == Some(WorkKind::Copy));
        time(&|leaf| leaf.copy_kind() == Some(kind)) as f64 / all.max(1) as f64
    }

    /// Copies of this direction after start-up, by size.
    pub(super) fn copied(&self, kind: CopyKind) -> Vec<OctaveTotals> {
        self.device.map(|device| device.steady_work.copies(|leaf| leaf.copy_kind() == Some(kind))).unwrap_or_default()
    }

    /// Line of most calls that copy in this direction. Samples do not have the direction of a call, so it is known
    /// where nearly all copies go this way, or where the CPU is in calls that do for half of the GPU's busy time.
    pub(super) fn copied_at(&self, kind: CopyKind) -> Option<String> {
        let waited = |leaf: &Leaf| leaf.is_pageable() && leaf.copy_kind() == Some(kind);
        let waited: u64 = Leaf::ALL.into_iter().filter(waited).map(|leaf| self.leaves[leaf as usize]).sum();
        let most = 2 * u128::from(waited) >= u128::from(self.busy_ns().max(1));
        (self.all_copies_go(kind) || most)
            .then(|| self.host.and_then(|host| call_lines::main_place(host, CallKind::Copy)))
            .flatten()
    }

    /// Share of sampled launches whose innermost frames contain one of these parts, in the file or the function.
    pub(super) fn launches_in(&self, parts: &[&str]) -> f64 {
        // The kernels of short launches are not known, their frames are, of the lines with most samples.
        self.share_of_launches(&[], parts).unwrap_or_else(|| {
            let rows =
                || self.host.into_iter().flat_map(|host| &host.calls).filter(|row| row.calls == CallKind::Launch);
            let all = rows().next().map_or(0.0, CallLineRow::samples_of_kind);
            let seen: u64 = rows().map(|row| row.samples_in(parts)).sum();
            if all < FEWEST_LAUNCHES as f64 { 0.0 } else { seen as f64 / all }
        })
    }

    /// Share of sampled launches that are of kernels of these classes (of all if there are none) and in frames with one
    /// of these parts.
    pub(super) fn launches_of(&self, classes: &[Class], parts: &[&str]) -> f64 {
        self.share_of_launches(classes, parts).unwrap_or_default()
    }

    /// The same; `None` of few samples.
    fn share_of_launches(&self, classes: &[Class], parts: &[&str]) -> Option<f64> {
        let wanted = |row: &SampledLaunches| {
            let LaunchSite { file, function, within, .. } = &row.place;
            let is_of = classes.is_empty() || Classes::of(&row.kernel).has_any(classes);
            is_of && is_within(file, function, within.as_ref(), parts)
        };
        let rows = || self.lines.into_iter().flat_map(|lines| &lines.launches);
        let all: u64 = rows().map(|row| row.samples).sum();
        let seen: u64 = rows().filter(|row| wanted(row)).map(|row| row.samples).sum();
        (all >= FEWEST_LAUNCHES).then(|| seen as f64 / all as f64)
    }

    /// Lines in idle time whose frames contain one of these parts.
    pub(super) fn lines_in<'b>(&'b self, parts: &'b [&str]) -> impl Iterator<Item = &'b LineRow> {
        let lines = self.host.into_iter().flat_map(|host| &host.lines);
        lines.filter(|row| is_within(&row.file, &row.function, row.within.as_ref(), parts))
    }

    /// Share of steady time that is idle in lines whose frames contain one of these parts, with the first place.
    pub(super) fn idle_in(&self, parts: &[&str]) -> Option<(f64, String)> {
        let share: f64 = self.lines_in(parts).map(|row| row.share).sum();
        let first = self.lines_in(parts).find(|row| row.is_evident())?;
        Some((share, first.place()))
    }

    /// Part of the idle time at lines of Python that is in frames with one of these parts, 0 to 1; 0 of few samples.
    pub(super) fn python_within(&self, parts: &[&str]) -> f64 {
        let lines = || self.host.into_iter().flat_map(|host| &host.lines).filter(|row| row.file.ends_with(".py"));
        let all: f64 = lines().map(|row| row.share).sum();
        if lines().map(|row| row.samples).sum::<u64>() < FEWEST_LAUNCHES {
            return 0.0;
        }
        self.lines_in(parts).filter(|row| row.file.ends_with(".py")).map(|row| row.share).sum::<f64>() / all.max(1e-9)
    }

    /// Calls of these functions after start-up, for each step; 0 without steps.
    pub(super) fn calls_a_step(&self, names: &[&str]) -> f64 {
        let named = self.api.iter().filter(|row| names.contains(&row.name.as_str()));
        let calls: u64 = named.map(|row| row.steady_calls).sum();
        if self.steps == 0 { 0.0 } else { calls as f64 / self.steps as f64 }
    }

    /// Calls that wait for the device, a stream or an event, for each step, without those for a copy; with words for
    /// the most frequent kind.
    pub(super) fn waits_a_step(&self) -> (f64, &'static str) {
        let [device, stream, event] = WAITS.map(|(names, _)| self.calls_a_step(names));
        let is_copy = |leaf: &Leaf| leaf.work() == Some(WorkKind::Copy) && *leaf != Leaf::CopyD2d;
        let copies = Leaf::ALL.into_iter().filter(is_copy);
        let copies = copies.flat_map(|leaf| self.devices.iter().map(move |of| of.steady_work.operations(leaf)));
        let of_copies = copies.sum::<u64>() as f64 / self.steps.max(1) as f64;
        // The runtime of JAX waits for streams and events by itself.
        let parts = if self.program.framework == Framework::Jax { 0.0 } else { (stream + event - of_copies).max(0.0) };
        let most = if parts <= device {
            0
        } else if stream >= event {
            1
        } else {
            2
        };
        (device + parts, WAITS[most].1)
    }

    /// The activity in the time of the bottleneck, with its place.
    pub(super) fn doing(&self, activities: &[Activity]) -> Option<Found> {
        let activity = self.program.activity?;
        let at = self.program.activity_at.map(|at| at.trim_start_matches("at ").to_owned());
        activities.contains(&activity).then_some(Found { at, ..Found::default() })
    }

    /// The line with most of the CPU work between launches that runs on a core.
    pub(super) fn main_line(&self) -> Option<&'a LineRow> {
        self.host?.lines.iter().find(|row| row.cause == HostCause::Code)
    }

    /// True if a sampled stack has a frame in a file with this part in its path.
    pub(super) fn runs_in(&self, file: &str) -> bool {
        self.lines_in(&[file]).next().is_some() || self.launches_in(&[file]) > 0.0
    }

    /// True if something is launched by the backward pass, or by an optimizer, which needs one.
    pub(super) fn has_backward_pass(&self) -> bool {
        let named = |name: &str| {
            is_optimizer(name) || ["_backward", "Backward", "dgrad", "wgrad"].iter().any(|part| name.contains(part))
        };
        // This kernel has the word in its name wherever it is launched.
        let rows = || self.devices.iter().flat_map(|device| &device.kernels);
        let mut others = rows().filter(|row| !row.name.contains("indexing_backward_kernel"));
        let parts = ["torch/autograd/", "_engine_run_backward"];
        others.any(|row| named(&row.name)) || self.launches_in(&parts) > 0.0 || self.lines_in(&parts).next().is_some()
    }

    /// False if samples of Python show no module of PyTorch: the program computes with functions of its own.
    pub(super) fn has_model(&self) -> bool {
        !self.has_python() || self.has_backward_pass() || self.runs_in("torch/nn/")
    }

    /// True if the line at this place does what the remedy with this id is about; false without the line.
    pub(super) fn fits_line(&self, id: &str, at: Option<&str>) -> bool {
        self.source.is_some_and(|source| source.does(id, at))
    }

    /// True if a sampled line is one of Python.
    pub(super) fn has_python(&self) -> bool {
        runs_python(self.host)
    }

    /// Lines that build kernels, the one with the most time first.
    fn building(&self) -> impl Iterator<Item = &'a LineRow> {
        self.host.into_iter().flat_map(|host| host.lines_of(Cause::KernelBuild))
    }

    /// True if kernels are built in frames that contain one of these parts for at least half of the time: another
    /// compiler may be seen beside it, in a thread of its own.
    pub(super) fn builds_in(&self, parts: &[&str]) -> bool {
        let all: f64 = self.building().map(|row| row.share).sum();
        let within = self.lines_in(parts).filter(|row| row.cause.leaf().cause() == Cause::KernelBuild);
        all > 0.0 && 2.0 * within.map(|row| row.share).sum::<f64>() >= all
    }

    /// Where kernels are built, and what removing that gains. Python's line says more than the compiler's library.
    pub(super) fn built_here(&self) -> Found {
        // A thread without lines has no file.
        let python =
            |row: &&LineRow| !row.file.is_empty() && row.within.as_ref().is_none_or(|(_, file)| file.ends_with(".py"));
        let line = self.building().find(python).or_else(|| self.building().find(|row| !row.file.is_empty()));
        // The frames of a library alone are no place in the program.
        let line = line.filter(|row| !is_library(&row.file));
        let gain = self.program.builds_only.then(|| self.scenario(ScenarioKind::NoHostWork)).flatten();
        // Without a simulation: other kernels are needed in their place, and the work around the builds goes with them
        // (a server gained 1.7x to 2.3x of 2.7x, a program that compiled for each length 519x of 11x).
        let (built, around) = (self.time(Cause::KernelBuild), self.time(Cause::HostCpu));
        let gain = gain.or_else(|| self.is(Cause::KernelBuild).then(|| Gain::saving(0.6 * built, built + around)));
        Found { at: line.map(place_of_build), gain, ..Found::default() }
    }

    /// Major and minor compute capability as one number: 90 for Hopper; 0 if unknown.
    pub(super) fn capability(&self) -> u32 {
        self.device.map_or(0, |device| 10 * device.device.compute_capability[0] + device.device.compute_capability[1])
    }

    /// Rate of TF32 in tensor cores relative to fp32 on CUDA cores, by the data sheets (dense).
    pub(super) fn tf32_rate(&self) -> f64 {
        let name = self.device.map_or("", |device| device.device.name.as_str());
        match self.capability() {
            0..80 => 1.0,
            80 => 8.0,
            86..=89 if name.contains("RTX") || name.contains("GeForce") => 1.0,
            86..=89 => 2.0,
            120.. => 1.0,
            _ => 7.4,
        }
    }

    /// The same for bf16 (float16 before Ampere).
    pub(super) fn half_rate(&self) -> f64 {
        match self.capability() {
            0..70 => 1.0,
            70..80 => 8.0,
            80 => 16.0,
            86..=89 | 120.. => 2.0 * self.tf32_rate().max(1.0),
            _ => 14.8,
        }
    }
}

/// True if a frame contains one of these parts.
fn is_within(file: &str, function: &str, callee: Option<&(String, String)>, parts: &[&str]) -> bool {
    let has = |text: &str| parts.iter().any(|part| text.contains(part));
    has(file) || has(function) || callee.is_some_and(|(function, file)| has(function) || has(file))
}

/// The line, without a function of Python's own library that it calls.
fn place_of_build(line: &LineRow) -> String {
    let of_python = |file: &str| file.contains("/lib/python3") && !file.contains("-packages/");
    let within = line.within.clone().filter(|(_, file)| !of_python(file));
    LineRow { within, ..line.clone() }.at_place().trim_start_matches("at ").to_owned()
}

/// Kernels of a step, or of the whole time where steps cover little of it; their order in a step, and their shares.
fn kernels_of(device: &DeviceReport) -> (Vec<Kernel<'_>>, Vec<Option<usize>>, Vec<f64>) {
    let mut kernels: Vec<(Kernel<'_>, u64, u64)> = Vec::new();
    let all: u64 = device.kernels.iter().map(|row| row.durations.total()).sum();
    let kernel = |name, median_ns| {
        let row = device.kernels.iter().find(|row| row.name == name);
        let filled = row.and_then(|row| row.geometry).map_or(1.0, |geometry| geometry.sm_efficiency);
        Kernel { name, classes: Classes::of(name), share: 0.0, of_count: 0.0, median_ns, filled }
    };
    let (mut order, mut times) = (Vec::new(), Vec::new());
    if let Some(sequence) = &device.sequence {
        let mut known: Vec<Option<usize>> = vec![None; sequence.names.len()];
        for (place, (index, operation)) in sequence.places.iter().enumerate() {
            times.push(operation.total_ns as f64);
            if !matches!(operation.leaf, Leaf::Compute) {
                order.push(None);
                continue;
            }
            let name = sequence.name(place);
            let at = *known[*index as usize].get_or_insert_with(|| {
                kernels.push((kernel(name, operation.total_ns / sequence.steps.max(1)), 0, 0));
                kernels.len() - 1
            });
            kernels[at].1 += operation.total_ns;
            kernels[at].2 += 1;
            order.push(Some(at));
        }
    }
    let in_step: u64 = kernels.iter().map(|(_, nanos, _)| nanos).sum();
    let steps = device.sequence.as_ref().map_or(1, |sequence| sequence.steps.max(1));
    let seen = device.steps.as_ref().map_or(0, |steps| steps.seen);
    // All steps are taken to be like these.
    if (in_step as f64 / steps as f64) * (seen as f64) < COVERED * all as f64 && (in_step as f64) < COVERED * all as f64
    {
        (kernels, order, times) = (Vec::new(), Vec::new(), Vec::new());
        for row in &device.kernels {
            kernels.push((kernel(&row.name, row.durations.median()), row.durations.total(), row.durations.count()));
        }
    }
    let whole: u64 = kernels.iter().map(|(_, nanos, _)| nanos).sum();
    let count: u64 = kernels.iter().map(|(.., count)| count).sum();
    for (kernel, nanos, of) in &mut kernels {
        kernel.share = *nanos as f64 / whole.max(1) as f64;
        kernel.of_count = *of as f64 / count.max(1) as f64;
    }
    times.iter_mut().for_each(|time| *time /= whole.max(1) as f64);
    (kernels.into_iter().map(|(kernel, ..)| kernel).collect(), order, times)
}
