//! Accounting for one device: every nanosecond of its window is recorded exactly once.
//!
//! The timeline hands over contiguous segments. Each is added to one leaf and to the phase and step that
//! contain it. Idle segments also go to a short log, so that an operation that arrives too late can still
//! claim the idle time it fills.

use gpuwhy_trace::record::{DeviceId, StackId, ThreadId, Timestamp};

use super::builds::KernelBuilds;
use super::host_cause::{GapSamples, GapTotals, Seen, Stratum, Subject};
use super::host_lead::HostLead;
use super::operation::DeviceOperation;
use super::operation::LaunchCall;
use super::phase_work::Work;
use super::phases::{Causes, HostTimes, Phases};
use super::queue_waits::{QueueWaits, QueueWatch};
use super::segments::{GapEnd, GapLaunch, Idle, IdleLog, Segment, SegmentLog};
use super::statistics::DeviceStatistics;
use crate::leaf::{LEAF_COUNT, Leaf, Leaves, Overlap, count_overlap};
use crate::managed::{ManagedMemory, ManagedTotals};
use crate::sorting::SortRows as _;
use crate::steps::step_table::StepTable;
use crate::steps::{Boundary, Cut, Cuts, Steady, Step, StepKind, StepSeries, StepSource, Steps};
use crate::whatif::READBACK_BYTES;

/// Names tracked for their first appearance, one bit each (128 KiB); a damaged id must not cost more.
const KNOWN_LIMIT: u32 = 1 << 20;

/// Waits of a thread that are remembered until it is known whether the device serves (24 bytes each).
const RECEIVES_LIMIT: usize = 4_096;

/// Time of one device by cause.
#[derive(Debug)]
pub struct DeviceAccount {
    id: DeviceId,
    start: u64,
    position: u64,
    leaves: Leaves,
    overlap: Overlap,
    phases: Phases,
    pub(super) steps: StepTable,
    /// The newest idle segments.
    log: IdleLog,
    pub(super) statistics: DeviceStatistics,
    pub(super) operations: u64,
    /// Operations launched by CUDA graphs, included in `operations`.
    pub(super) graph_operations: u64,
    /// Sum of their durations in nanoseconds; overlapping ones count separately.
    pub(super) graph_ns: u64,
    /// Bitmap by name id: kernels that ran before the current position.
    known_kernels: Vec<u64>,
    /// Step starts since they were last taken. Once the program names its steps, or serves, only named ones, or
    /// iterations.
    pub(super) boundaries: Vec<(u64, StepSeries)>,
    /// Times since these were last taken at which steps broke off: the device ran out of work, or it was not
    /// a step.
    pub(super) breaks: Vec<u64>,
    named_steps: bool,
    /// True if the newest iterations are those of a server.
    serves: bool,
    /// Waits for something to come, which are `no_work` if the device turns out to serve.
    receives: Vec<Idle>,
    /// End of the newest copy to the host that is more than a readback.
    read_end: u64,
    /// Intervals in which the profiler itself held up the program.
    disturbed: Vec<(Timestamp, Timestamp)>,
    /// Where the device waited while kernels were built or loaded.
    queue: QueueWatch,
    pub(super) managed: ManagedMemory,
    /// Log of recorded segments, if requested.
    segments: Option<Box<SegmentLog>>,
}

impl DeviceAccount {
    pub(super) fn new(id: DeviceId) -> Self {
        Self {
            id,
            start: 0,
            position: 0,
            leaves: [0; LEAF_COUNT],
            overlap: Overlap::default(),
            phases: Phases::new(0),
            steps: StepTable::default(),
            log: IdleLog::default(),
            statistics: DeviceStatistics::default(),
            operations: 0,
            graph_operations: 0,
            graph_ns: 0,
            known_kernels: Vec::new(),
            boundaries: Vec::new(),
            breaks: Vec::new(),
            named_steps: false,
            serves: false,
            receives: Vec::new(),
            read_end: 0,
            disturbed: Vec::new(),
            queue: QueueWatch::default(),
            managed: ManagedMemory::default(),
            segments: None,
        }
    }

    /// Managed memory on the device.
    pub fn managed(&self) -> &ManagedTotals {
        self.managed.totals()
    }

    /// Marks an interval in which the profiler itself held up the program: its steps are not typical.
    pub(super) fn disturb(&mut self, from: Timestamp, to: Timestamp) {
        self.disturbed.push((from, to));
    }

    /// Ordinal of the device.
    pub fn id(&self) -> DeviceId {
        self.id
    }

    /// Starts logging the recorded segments.
    pub(super) fn log_segments(&mut self) {
        self.segments.get_or_insert_default();
    }

    /// Segments recorded since the last call; empty unless logging is on.
    pub(super) fn take_segments(&mut self) -> Vec<Segment> {
        self.segments.as_mut().map_or_else(Vec::new, |log| log.take())
    }

    /// Series of steps that represents the device.
    pub fn step_series(&self) -> StepSeries {
        self.steps.representative_series()
    }

    /// Nanoseconds from the start of the first operation to the point up to which the timeline is final.
    /// After `Attributor::finish`, that is the end of the last operation.
    pub fn window_ns(&self) -> u64 {
        self.position - self.start
    }

    /// Window by cause. Sums to [`window_ns`](Self::window_ns) exactly.
    pub fn leaves(&self) -> &Leaves {
        &self.leaves
    }

    /// Window without start-up, by cause.
    pub fn steady_leaves(&self) -> Leaves {
        self.phases.steady_leaves(&self.leaves)
    }

    /// Phases after start-up, oldest first: start and end in nanoseconds on the clock of the trace, and time by
    /// cause. A phase begins with a kernel that runs for the first time.
    pub fn phases(&self) -> Vec<(u64, u64, Leaves)> {
        self.phases.steady_times(&self.leaves)
    }

    /// Minimum time that the link to the host needs for the copies after start-up, nanoseconds: the busier
    /// direction at 90 % of the link's bandwidth
    /// ([`PcieLink::shortest_copy_nanos`](gpuwhy_trace::record::PcieLink::shortest_copy_nanos)). 0 if the
    /// link is unknown.
    pub fn steady_link_ns(&self) -> u64 {
        self.phases.steady_link_nanos()
    }

    /// How far launching threads ran ahead of the device after start-up.
    pub fn host_lead(&self) -> HostLead {
        self.phases.steady_lead()
    }

    /// Operations that started after start-up.
    pub fn steady_work(&self) -> Work {
        self.phases.steady_work()
    }

    /// Length of start-up within the window, nanoseconds.
    pub fn start_up_ns(&self) -> u64 {
        self.phases.steady_start().saturating_sub(self.start)
    }

    /// End of start-up on the clock of the trace. The bottleneck is judged from here on.
    pub fn steady_start(&self) -> Timestamp {
        Timestamp::from_nanos(self.phases.steady_start())
    }

    /// Kernels that were built or loaded after start-up while the device waited.
    pub fn kernel_builds(&self) -> KernelBuilds {
        self.phases.kernel_builds()
    }

    /// Kernels that waited in a queue behind another stream, or for an event.
    pub fn queue_waits(&self) -> QueueWaits {
        self.queue.waits
    }

    /// Remembered steps, from the most reliable source that covers a fair part of the window.
    pub fn steps(&self) -> Steps {
        self.steps.steps()
    }

    /// True if the newest iterations are those of a server: what comes while its thread waits is a request.
    pub fn serves(&self) -> bool {
        self.serves
    }

    /// Kinds of the iterations, if the steps are those of a server.
    pub fn iteration_kinds(&self) -> Vec<StepKind> {
        self.steps.iteration_kinds()
    }

    /// Time after start-up in steps that are no longer remembered, nanoseconds.
    pub fn forgotten_steps_ns(&self) -> u64 {
        self.steps.forgotten_ns(self.steady_start())
    }

    /// Steady steps, if they represent all of the steady time: there are enough of them, and unusual ones
    /// take little time.
    pub fn typical_steps(&self) -> Option<Steady> {
        let (steps, from) = (self.steps.steps(), self.steady_start());
        let steady = if self.phases.is_midway() { steps.steady_without(0, from) } else { steps.steady(from) };
        let mut steady = steady.without(&self.disturbed);
        if steps.source == StepSource::Iteration {
            steady.kinds = self.steps.iteration_kinds();
        }
        steady.if_typical(self.steady_leaves().iter().sum())
    }

    /// Newest windows of at least [`WINDOW_NANOS`](crate::steps::WINDOW_NANOS), independent of the steps.
    pub fn windows(&self) -> Vec<Step> {
        self.steps.windows()
    }

    /// Newest `count` windows at most, oldest first.
    pub fn newest_windows(&self, count: usize) -> Vec<Step> {
        self.steps.newest_windows(count)
    }

    /// Fraction of launches (0 to 1) with the same kernel and grid as the launch one period before; `None`
    /// unless steps were found by their period.
    pub fn match_rate(&self) -> Option<f64> {
        self.steps.match_rate()
    }

    /// Nanoseconds of work hidden beneath other work.
    pub fn overlap(&self) -> &Overlap {
        &self.overlap
    }

    /// Kernels, copies and memsets on the timeline.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Operations that CUDA graphs launched.
    pub fn graph_operations(&self) -> u64 {
        self.graph_operations
    }

    /// Sum of the durations of operations that CUDA graphs launched, nanoseconds; overlapping ones count
    /// separately.
    pub fn graph_ns(&self) -> u64 {
        self.graph_ns
    }

    /// Statistics by operation name.
    pub fn statistics(&self) -> &DeviceStatistics {
        &self.statistics
    }

    /// Subjects of `leaf` after start-up, largest first.
    pub fn causes(&self, leaf: Leaf) -> Vec<(Subject, GapTotals)> {
        self.causes_of(|of| of == leaf).into_iter().map(|(_, subject, totals)| (subject, totals)).collect()
    }

    /// Subjects of all leaves after start-up, largest first.
    pub fn all_causes(&self) -> Vec<(Leaf, Subject, GapTotals)> {
        self.causes_of(|_| true)
    }

    /// Idle time after start-up in long host gaps, by stratum and by what samples saw.
    pub fn host_times(&self) -> Vec<(Stratum, Seen, GapSamples)> {
        let mut times = HostTimes::default();
        for (&key, &time) in self.phases.steady().iter().flat_map(|phase| &phase.host_times) {
            times.entry(key).or_default().add(time);
        }
        let mut rows: Vec<_> = times.into_iter().map(|((stratum, seen), time)| (stratum, seen, time)).collect();
        rows.sort_unstable_by_key(|&(stratum, seen, _)| (stratum, seen));
        rows
    }

    fn causes_of(&self, wanted: impl Fn(Leaf) -> bool) -> Vec<(Leaf, Subject, GapTotals)> {
        let mut causes = Causes::default();
        for (&key, &totals) in self.phases.steady().iter().flat_map(|phase| &phase.causes) {
            if wanted(key.0) {
                causes.entry(key).or_default().add(totals);
            }
        }
        let mut rows: Vec<_> = causes.into_iter().map(|((leaf, subject), totals)| (leaf, subject, totals)).collect();
        rows.sort_rows_by(|a, b| b.2.total_ns.cmp(&a.2.total_ns).then_with(|| (a.0, a.1).cmp(&(b.0, b.1))));
        rows
    }

    pub(super) fn open(&mut self, start: u64) {
        self.start = start;
        self.position = start;
        self.phases.open(start);
    }

    /// True if the recording began while the program ran, so that it has no start-up.
    pub fn is_midway(&self) -> bool {
        self.phases.is_midway()
    }

    /// Whether the recording began while the program ran, so that it has no start-up.
    pub(super) fn set_midway(&mut self, midway: bool) {
        self.phases.set_midway(midway);
    }

    /// An operation starts at the current position. A kernel's first appearance is part of start-up.
    pub(super) fn begin(&mut self, operation: &DeviceOperation, cuts: Cuts) {
        self.queue.began(operation);
        let marked = operation.status.marked;
        let mut novel = false;
        let mut kind = u32::from(operation.subject == Subject::HostToDevice);
        if let Subject::Kernel(name) = operation.subject
            && name.0 < KNOWN_LIMIT
        {
            let (word, bit) = (name.0 as usize / 64, 1u64 << (name.0 % 64));
            if self.known_kernels.len() <= word {
                self.known_kernels.resize(word + 1, 0);
            }
            novel = self.known_kernels[word] & bit == 0;
            self.known_kernels[word] |= bit;
            kind = name.0 + 2;
        }
        self.phases.operation(self.position, novel, &self.leaves);
        self.phases.kind(kind);
        let kernel = if let Subject::Kernel(name) = operation.subject { Some(name) } else { None };
        self.phases.ran(operation, kernel);
        let to_host = matches!(operation.leaf, Leaf::CopyD2hPageable | Leaf::CopyD2hPinned | Leaf::CopyD2hOther);
        if to_host && operation.bytes > u64::from(READBACK_BYTES) {
            self.read_end = self.read_end.max(operation.end);
        }
        if operation.link != 0 {
            self.phases.crossed(operation.leaf, operation.link.into());
        }
        self.steps.operation(self.position, marked, cuts, &self.leaves);
        if marked || cuts != Cuts::default() {
            self.cut(marked, cuts);
        }
    }

    /// A step starts or breaks off at the current position.
    #[inline(never)]
    fn cut(&mut self, marked: bool, cuts: Cuts) {
        self.named_steps |= marked;
        self.serves = cuts.iteration.map_or(self.serves, |iteration| iteration.serves);
        if self.serves {
            self.move_receives();
        }
        let series = match (cuts.step, cuts.iteration) {
            _ if marked => Some(StepSeries { source: StepSource::Annotated, period: 0 }),
            _ if self.named_steps => None,
            (_, Some(_)) if self.serves => Some(StepSeries { source: StepSource::Iteration, period: 0 }),
            _ if self.serves => None,
            (Some(Cut::Begin(Boundary { source, period, .. })), _) => Some(StepSeries { source, period }),
            (Some(Cut::Lost), _) => {
                self.breaks.push(self.position);
                None
            }
            (None, _) => None,
        };
        self.boundaries.extend(series.map(|series| (self.position, series)));
    }

    /// The operation that started last is the first of `launch`; see [`HostLead`].
    pub(super) fn launched(&mut self, launch: &LaunchCall, busy_until: u64) {
        self.phases.launched(launch, busy_until);
    }

    pub(super) fn start(&self) -> u64 {
        self.start
    }

    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// End of the newest copy to the host of more than [`READBACK_BYTES`]; 0 without one.
    pub(super) fn read_end(&self) -> u64 {
        self.read_end
    }

    /// Records busy time up to `to`; `running` has a bit for each running leaf.
    pub(super) fn busy(&mut self, running: u32, to: u64) {
        let top = Leaf::ALL[running.trailing_zeros() as usize];
        if running & 1 << Leaf::Compute as u8 != 0 {
            self.managed.computed(self.position, to);
        }
        if running & (running - 1) != 0 {
            count_overlap(&mut self.overlap, top, running & (running - 1), to - self.position);
        }
        if let Some(log) = &mut self.segments {
            log.time(top, (self.position, to), Subject::None);
        }
        self.enter(top, to);
    }

    /// A gap starts at the current position.
    #[inline]
    pub(super) fn begin_gap(&mut self) {
        self.phases.begin_gap();
    }

    /// The next idle time to be recorded is explained by a host sample with this stack.
    #[inline]
    pub(super) fn sampled(&mut self, stack: StackId) {
        if let Some(log) = &mut self.segments {
            log.stack = stack;
        }
    }

    /// Kernels may have been built or loaded, in a long host gap if `built`; `before` is the time of that leaf until
    /// then.
    #[inline]
    pub(super) fn built(&mut self, before: u64, built: bool) {
        let nanos = self.leaves[Leaf::KernelBuild as usize] - before;
        if nanos > 0 {
            self.phases.built(nanos, built);
        }
    }

    /// Adds idle time of a host gap in which the host was late to its stratum.
    pub(super) fn host_time(&mut self, stratum: Stratum, seen: Seen, samples: u64, nanos: u64) {
        self.phases.host_time(stratum, seen, samples, nanos);
    }

    /// The device was idle for `nanos` up to the current position.
    #[inline]
    pub(super) fn pause(&mut self, nanos: u64) {
        self.phases.pause(nanos);
    }

    /// Closes the gap that started at `from`: `operation`, launched by `thread`, starts at the current
    /// position.
    #[inline]
    pub(super) fn end_gap(&mut self, from: u64, operation: &DeviceOperation, thread: Option<ThreadId>) {
        let Some(log) = &mut self.segments else { return };
        let launch = operation.launch.as_ref().zip(thread).map(|(launch, thread)| GapLaunch::of(launch, thread));
        log.push(Segment::Gap(GapEnd {
            from: Timestamp::from_nanos(from),
            to: Timestamp::from_nanos(operation.start),
            stream: operation.stream,
            correlation: operation.correlation,
            subject: operation.subject,
            launch,
        }));
    }

    /// Records idle time from the current position to `to`.
    #[inline]
    pub(super) fn idle(&mut self, leaf: Leaf, to: u64, subject: Subject) {
        // Most pieces of a gap are empty.
        if to > self.position {
            self.enter_idle(leaf, to, subject);
        }
    }

    #[inline(never)]
    fn enter_idle(&mut self, leaf: Leaf, to: u64, subject: Subject) {
        let piece = Idle { leaf, from: self.position, to };
        if let Some(log) = &mut self.segments {
            log.time(leaf, (self.position, to), subject);
        }
        self.enter(leaf, to);
        let logged = self.log.push(piece);
        if !logged || !matches!(subject, Subject::None) || leaf == Leaf::NoWork {
            self.note_idle(piece, subject, logged);
        }
    }

    /// Part of recording idle time that most idle time does not need.
    #[inline(never)]
    fn note_idle(&mut self, piece: Idle, subject: Subject, logged: bool) {
        if !logged {
            self.log.push_first(piece);
        }
        if subject != Subject::None {
            self.phases.root_cause(piece.leaf, subject, piece.to - piece.from);
        }
        if piece.leaf == Leaf::NoWork {
            self.breaks.push(piece.from);
        }
    }

    /// Idle time from `from` to the current position, newest piece first, as far back as the log reaches.
    pub(super) fn idle_since(&self, from: u64) -> impl Iterator<Item = Idle> {
        self.log.since(from)
    }

    #[inline]
    fn enter(&mut self, leaf: Leaf, to: u64) {
        self.leaves[leaf as usize] += to - self.position;
        self.position = to;
    }

    /// Handles an operation that arrived for the already recorded `from..to`: it claims the idle time in that
    /// range that is still in the log. Returns the amount claimed.
    pub(super) fn patch(&mut self, leaf: Leaf, from: u64, to: u64) -> u64 {
        self.receives.retain(|wait| wait.to <= from || wait.from >= to);
        let mut patched = 0;
        for Idle { leaf: was, from, to } in self.log.take_within(from, to) {
            self.transfer(was, leaf, from, to);
            patched += to - from;
        }
        patched
    }

    /// Moves recorded time to another leaf.
    fn transfer(&mut self, was: Leaf, leaf: Leaf, from: u64, to: u64) {
        self.steps.transfer(was, leaf, from, to, &self.leaves);
        self.phases.transfer(was, leaf, from, to, &self.leaves);
        self.leaves[was as usize] -= to - from;
        self.leaves[leaf as usize] += to - from;
        if let Some(log) = &mut self.segments {
            let (from, to) = (Timestamp::from_nanos(from), Timestamp::from_nanos(to));
            log.push(Segment::Moved { was, leaf, from, to });
        }
    }

    /// The thread waited for something to come from `from` to the current position, which counts as `leaf`.
    pub(super) fn received(&mut self, leaf: Leaf, from: u64) {
        // With overhead of tracing in it, it is two pieces.
        let whole = self.log.since(from).next().is_some_and(|newest| newest.leaf == leaf && newest.from == from);
        if from < self.position && whole && self.receives.len() < RECEIVES_LIMIT {
            self.receives.push(Idle { leaf, from, to: self.position });
        }
    }

    /// The device serves: what came were requests.
    #[cold]
    fn move_receives(&mut self) {
        for Idle { leaf, from, to } in std::mem::take(&mut self.receives) {
            // No operation that arrives late ran then: it would be the request's.
            drop(self.log.take_within(from, to));
            self.transfer(leaf, Leaf::NoWork, from, to);
        }
    }
}
