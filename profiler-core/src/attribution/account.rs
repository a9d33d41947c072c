//! The accounts of one device: every nanosecond of its window entered once.
//!
//! The timeline hands over segments that touch; each goes to one leaf, to the phase and the step it falls in, and, when
//! idle, to a short log, so that an operation that arrives too late can still take the idle time it fills.

use gpuwhy_trace::record::{DeviceId, StackId, ThreadId, Timestamp};

use super::host::launches::Launch;
use super::host_cause::{GapTotals, Subject};
use super::leaf::{LEAF_COUNT, Leaf, Leaves, Overlap, Work};
use super::operation::Operation;
use super::phases::{Causes, HostLead, Phases};
use super::segments::{GapEnd, GapLaunch, Idle, IdleLog, Segment, SegmentLog};
use super::statistics::DeviceStatistics;
use crate::steps::ledger::StepLedger;
use crate::steps::{Boundary, Cut, Steady, Step, StepSeries, StepSource, Steps};

/// Names whose first appearance is noticed, one bit each (128 KiB); a damaged id must not cost more.
const KNOWN_LIMIT: u32 = 1 << 20;

/// The accounts of one device.
#[derive(Debug)]
pub struct DeviceAccount {
    id: DeviceId,
    start: u64,
    position: u64,
    leaves: Leaves,
    overlap: Overlap,
    phases: Phases,
    pub(super) steps: StepLedger,
    /// The newest idle segments.
    log: IdleLog,
    pub(super) statistics: DeviceStatistics,
    pub(super) operations: u64,
    /// Of them, those of CUDA graphs.
    pub(super) graph_operations: u64,
    /// How long those ran, nanoseconds, each for itself.
    pub(super) graph_ns: u64,
    /// Bit by name id: kernels that ran before the current position.
    known_kernels: Vec<u64>,
    /// Begins of steps since they were last taken. Once the program names its steps, only those.
    pub(super) boundaries: Vec<(u64, StepSeries)>,
    /// Where steps broke off since these were last taken: the device had no work any more, or it was no step.
    pub(super) breaks: Vec<u64>,
    named_steps: bool,
    /// When the profiler itself held the program up.
    disturbed: Vec<(Timestamp, Timestamp)>,
    /// What is entered, for who asked for it.
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
            steps: StepLedger::default(),
            log: IdleLog::default(),
            statistics: DeviceStatistics::default(),
            operations: 0,
            graph_operations: 0,
            graph_ns: 0,
            known_kernels: Vec::new(),
            boundaries: Vec::new(),
            breaks: Vec::new(),
            named_steps: false,
            disturbed: Vec::new(),
            segments: None,
        }
    }

    /// The profiler itself held the program up in this time: what ran then is not typical.
    pub(super) fn disturb(&mut self, from: Timestamp, to: Timestamp) {
        self.disturbed.push((from, to));
    }

    /// Ordinal of the device.
    pub fn id(&self) -> DeviceId {
        self.id
    }

    /// Notes what is entered from here on.
    pub(super) fn log_segments(&mut self) {
        self.segments.get_or_insert_default();
    }

    /// What was entered since this was last taken; empty unless it is noted.
    pub(super) fn take_segments(&mut self) -> Vec<Segment> {
        self.segments.as_mut().map_or_else(Vec::new, |log| log.take())
    }

    /// Which steps speak for the device.
    pub fn step_series(&self) -> StepSeries {
        self.steps.speaking_series()
    }

    /// From the begin of the first operation to the point up to which the timeline is final, which after
    /// `Attributor::finish` is the end of the last operation. Nanoseconds.
    pub fn window_ns(&self) -> u64 {
        self.position - self.start
    }

    /// The window by cause. Sums to [`window_ns`](Self::window_ns) exactly.
    pub fn leaves(&self) -> &Leaves {
        &self.leaves
    }

    /// The window without start-up, by cause.
    pub fn steady_leaves(&self) -> Leaves {
        self.phases.steady_leaves(&self.leaves)
    }

    /// How long the link to the host needs at least for the copies after start-up, nanoseconds: the busier direction at
    /// 90 % of what the link carries
    /// ([`PcieLink::shortest_copy_nanos`](gpuwhy_trace::record::PcieLink::shortest_copy_nanos)). 0 when the link is not
    /// known.
    pub fn steady_link_ns(&self) -> u64 {
        self.phases.steady_link_nanos()
    }

    /// How far launching threads ran ahead of the device after start-up.
    pub fn host_lead(&self) -> HostLead {
        self.phases.steady_lead()
    }

    /// How much of the window is start-up, nanoseconds.
    pub fn start_up_ns(&self) -> u64 {
        self.phases.steady_start().saturating_sub(self.start)
    }

    /// The time after which the verdict samples: the end of start-up, on the clock of the trace.
    pub fn steady_start(&self) -> Timestamp {
        Timestamp::from_nanos(self.phases.steady_start())
    }

    /// The steps that are remembered, found in the most trustworthy way that covers a fair part of the window.
    pub fn steps(&self) -> Steps {
        self.steps.steps()
    }

    /// The steady steps, where they speak for all of the steady time: there are enough, and the unusual ones take
    /// little.
    pub fn typical_steps(&self) -> Option<Steady> {
        let steady = self.steps.steps().steady(self.steady_start()).without(&self.disturbed);
        steady.if_typical(self.steady_leaves().iter().sum())
    }

    /// The newest windows of at least [`WINDOW_NANOS`](crate::steps::WINDOW_NANOS), whatever steps there are.
    pub fn windows(&self) -> Vec<Step> {
        self.steps.windows()
    }

    /// The newest of these, at most `count`, oldest first.
    pub fn newest_windows(&self, count: usize) -> Vec<Step> {
        self.steps.newest_windows(count)
    }

    /// Share of launches that did the same (kernel and grid) as the one a period before, 0 to 1; when steps were
    /// found by their period.
    pub fn match_rate(&self) -> Option<f64> {
        self.steps.match_rate()
    }

    /// What ran beneath what, nanoseconds.
    pub fn overlap(&self) -> &Overlap {
        &self.overlap
    }

    /// Kernels, copies and memsets on the timeline.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Operations that a CUDA graph launched.
    pub fn graph_operations(&self) -> u64 {
        self.graph_operations
    }

    /// How long the operations that a CUDA graph launched ran, nanoseconds, each for itself.
    pub fn graph_ns(&self) -> u64 {
        self.graph_ns
    }

    /// What ran, by name.
    pub fn statistics(&self) -> &DeviceStatistics {
        &self.statistics
    }

    /// What `leaf` was blamed on after start-up, the largest first.
    pub fn causes(&self, leaf: Leaf) -> Vec<(Subject, GapTotals)> {
        self.causes_of(|of| of == leaf).into_iter().map(|(_, subject, tally)| (subject, tally)).collect()
    }

    /// What all leaves were blamed on after start-up, the largest first.
    pub fn all_causes(&self) -> Vec<(Leaf, Subject, GapTotals)> {
        self.causes_of(|_| true)
    }

    fn causes_of(&self, wanted: impl Fn(Leaf) -> bool) -> Vec<(Leaf, Subject, GapTotals)> {
        let mut causes = Causes::default();
        for (&key, &tally) in self.phases.steady().iter().flat_map(|phase| &phase.causes) {
            if wanted(key.0) {
                causes.entry(key).or_default().add(tally);
            }
        }
        let mut rows: Vec<_> = causes.into_iter().map(|((leaf, subject), tally)| (leaf, subject, tally)).collect();
        rows.sort_by(|a, b| b.2.total_ns.cmp(&a.2.total_ns).then_with(|| (a.0, a.1).cmp(&(b.0, b.1))));
        rows
    }

    pub(super) fn open(&mut self, start: u64) {
        self.start = start;
        self.position = start;
        self.phases = Phases::new(start);
    }

    /// An operation begins at the current position. A kernel's first appearance is part of start-up.
    pub(super) fn begin(&mut self, operation: &Operation, cut: Option<Cut>) {
        let marked = operation.status.marked;
        let mut novel = false;
        if let Subject::Kernel(name) = operation.subject
            && name.0 < KNOWN_LIMIT
        {
            let (word, bit) = (name.0 as usize / 64, 1u64 << (name.0 % 64));
            if self.known_kernels.len() <= word {
                self.known_kernels.resize(word + 1, 0);
            }
            novel = self.known_kernels[word] & bit == 0;
            self.known_kernels[word] |= bit;
        }
        self.phases.operation(self.position, novel, &self.leaves);
        if operation.link != 0 {
            self.phases.crossed(operation.leaf, operation.link.into());
        }
        self.steps.operation(self.position, marked, cut, &self.leaves);
        if marked || cut.is_some() {
            self.cut(marked, cut);
        }
    }

    /// A step begins or breaks off at the current position.
    #[inline(never)]
    fn cut(&mut self, marked: bool, cut: Option<Cut>) {
        self.named_steps |= marked;
        let series = match cut {
            _ if marked => Some(StepSeries { source: StepSource::Annotated, period: 0 }),
            Some(Cut::Begin(Boundary { source, period, .. })) if !self.named_steps => {
                Some(StepSeries { source, period })
            }
            Some(Cut::Lost) if !self.named_steps => {
                self.breaks.push(self.position);
                None
            }
            _ => None,
        };
        self.boundaries.extend(series.map(|series| (self.position, series)));
    }

    /// The operation that began last is the first of `launch`; see [`HostLead`].
    pub(super) fn launched(&mut self, launch: &Launch, busy_until: u64) {
        self.phases.launched(launch, busy_until);
    }

    pub(super) fn start(&self) -> u64 {
        self.start
    }

    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Enters the busy time up to `to`; `running` has a bit for each running leaf.
    pub(super) fn busy(&mut self, running: u32, to: u64) {
        let top = Leaf::ALL[running.trailing_zeros() as usize];
        if running & (running - 1) != 0 {
            self.overlaps(top, running & (running - 1), to - self.position);
        }
        if let Some(log) = &mut self.segments {
            log.time(top, (self.position, to), Subject::None);
        }
        self.enter(top, to);
    }

    /// For `nanos` all leaves of which `beneath` has a bit ran beneath `top`. Only other kinds of work count: two
    /// kernels at once are one computing device.
    #[inline(never)]
    fn overlaps(&mut self, top: Leaf, mut beneath: u32, nanos: u64) {
        let Some(work) = top.work() else { return };
        let mut counted = [false; Work::ALL.len()];
        counted[work as usize] = true;
        while beneath != 0 {
            if let Some(other) = Leaf::ALL[beneath.trailing_zeros() as usize].work()
                && !std::mem::replace(&mut counted[other as usize], true)
            {
                self.overlap[work as usize][other as usize] += nanos;
            }
            beneath &= beneath - 1;
        }
    }

    /// A gap begins at the current position.
    #[inline]
    pub(super) fn begin_gap(&mut self) {
        self.phases.begin_gap();
    }

    /// A host sample with this stack speaks for the idle time that is entered next.
    #[inline]
    pub(super) fn sampled(&mut self, stack: StackId) {
        if let Some(log) = &mut self.segments {
            log.stack = stack;
        }
    }

    /// The gap that began at `from` is over: `operation` begins at the current position. It was launched by `thread`.
    #[inline]
    pub(super) fn end_gap(&mut self, from: u64, operation: &Operation, thread: Option<ThreadId>) {
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

    /// Enters idle time from the current position to `to`.
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

    /// What most idle time does not need, apart from what all does.
    #[inline(never)]
    fn note_idle(&mut self, piece: Idle, subject: Subject, logged: bool) {
        if !logged {
            self.log.push_first(piece);
        }
        if subject != Subject::None {
            self.phases.blame(piece.leaf, subject, piece.to - piece.from);
        }
        if piece.leaf == Leaf::NoWork {
            self.breaks.push(piece.from);
        }
    }

    /// Idle time from `from` to the current position, in pieces, the newest first; as far as the log reaches.
    pub(super) fn idle_since(&self, from: u64) -> impl Iterator<Item = Idle> {
        self.log.since(from)
    }

    #[inline]
    fn enter(&mut self, leaf: Leaf, to: u64) {
        self.leaves[leaf as usize] += to - self.position;
        self.position = to;
    }

    /// An operation arrived for `from..to`, which is entered already: it takes the idle time in it that the log
    /// still knows. Returns how much that was.
    pub(super) fn patch(&mut self, leaf: Leaf, from: u64, to: u64) -> u64 {
        let mut patched = 0;
        for Idle { leaf: was, from, to } in self.log.take_within(from, to) {
            self.steps.transfer(was, leaf, from, to, &self.leaves);
            self.phases.transfer(was, leaf, from, to, &self.leaves);
            self.leaves[was as usize] -= to - from;
            self.leaves[leaf as usize] += to - from;
            patched += to - from;
            if let Some(log) = &mut self.segments {
                let (from, to) = (Timestamp::from_nanos(from), Timestamp::from_nanos(to));
                log.push(Segment::Moved { was, leaf, from, to });
            }
        }
        patched
    }
}
