//! Samples of one host thread and the evidence they provide for a host gap in which it made no CUDA call,
//! along with the ranges that the program put around its data loader.
//!
//! A sample shows where the thread was at one moment, and for how long it was on a core, ready, or off since
//! the previous sample. Samples are sparse and may be absent. So a sample covers only the host gap it falls
//! in: back to the previous sample, and ahead, until the next sample or the end of the host gap, for as long
//! as it reaches back. Other time has no evidence, and a lost sample takes its evidence with it. The claims
//! of samples are disjoint, so the parts of a host gap sum to it.
//!
//! A thread that waits for another one resumes once that one returns from its last CUDA call. Until then the
//! device had the work of the other thread, so a sample of that wait does not explain idle time after it
//! ([`SampleEvidence::after_handover`]).

use std::collections::VecDeque;

use gpuwhy_trace::record::{HostSample, InterpreterLock, StackId, ThreadState};

use super::interpreter_lock::{Others, waits_for_lock};
use crate::attribution::host_cause::HostCause;
use crate::attribution::servers::{Meaning, Role};
use crate::attribution::stacks::{LineId, StackClass, Stage};
use crate::leaf::Leaf;

/// Samples kept per thread (48 bytes each, 1.5 MiB): 109 s at 300 samples per second. Samples older than an
/// open gap are dropped sooner.
const SAMPLE_LIMIT: usize = 32_768;

/// Total samples kept for all threads, split equally, but at least [`FEWEST_SAMPLES`] per thread.
const SAMPLES_TOGETHER: usize = 32 * SAMPLE_LIMIT;
const FEWEST_SAMPLES: usize = 256;

/// Data loader ranges kept per thread (24 bytes each).
const LOADER_LIMIT: usize = 16_384;

/// A classified sample of the thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostSampleView {
    since: u64,
    at: u64,
    /// Part of the time since `since`, nanoseconds. The parts sum to at most that time.
    on_cpu: u64,
    runnable: u64,
    line: LineId,
    /// Line of the time off the cores: that of the previous sample if the thread ran again at this one.
    off_line: LineId,
    stack: StackId,
    /// True if the thread was on a core or ready for one.
    ran: bool,
    /// True if it chose the next batch of a server.
    schedules: bool,
    /// True if it was off the cores until something came: in a server, a request.
    receives: bool,
    /// Causes of the time on a core, ready for one, and off.
    causes: [HostCause; 3],
    /// Number of worker processes that it waited for; 0 if it did not wait.
    workers: u16,
}

/// Time covered by one sample, or by a range that the program put around its data loader.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleEvidence {
    pub(crate) from: u64,
    pub(crate) to: u64,
    source: SampleSource,
}

#[derive(Clone, Copy, Debug)]
enum SampleSource {
    HostSampleView(HostSampleView),
    Range(HostCause),
}

/// Time in the data loader according to the program's ranges.
#[derive(Clone, Copy, Debug)]
struct InLoader {
    start: u64,
    /// The far future while the range is open.
    end: u64,
    cause: HostCause,
}

#[derive(Debug, Default)]
pub(crate) struct HostSamples {
    samples: VecDeque<HostSampleView>,
    /// Disjoint and in order.
    loaders: VecDeque<InLoader>,
    /// Number of loaders entered within the newest one.
    within: u32,
    /// When the program first reported its loader.
    named_from: Option<u64>,
    totals: SampleTotals,
}

impl HostSampleView {
    /// Classifies a sample of a thread with the stack `class`; `others` are the threads that call CUDA.
    pub(crate) fn new(sample: &HostSample, class: StackClass, others: Others) -> Self {
        let (since, at) = (sample.since.min(sample.at).nanos(), sample.at.nanos());
        let length = at - since;
        let ran = sample.state == ThreadState::Running;
        // Without CPU times, only the state at the sample is known.
        let clocked = sample.on_cpu > 0 || sample.runnable > 0;
        let on_cpu = if ran && !clocked { length } else { sample.on_cpu.min(length) };
        let off = off_cause(sample, class, others);
        let asleep = matches!(off, HostCause::Lock | HostCause::Poll | HostCause::Sleep);
        let causes = match class.stage {
            None if class.role == Some(Role::Idles) => [HostCause::NoRequests; 3],
            None if class.role == Some(Role::Waits) && class.waits && asleep => {
                [HostCause::Code, HostCause::Preempted, HostCause::NoRequests]
            }
            // Compilers make garbage, and wait for processes that compile.
            None if class.builds => {
                let waits = matches!(off, HostCause::InterpreterLock | HostCause::Sleep | HostCause::OtherWait);
                [HostCause::KernelBuild, HostCause::Preempted, if waits { off } else { HostCause::KernelBuild }]
            }
            None if sample.collecting_garbage && sample.interpreter_lock != InterpreterLock::OtherThread => {
                [HostCause::GarbageCollection, HostCause::Preempted, off]
            }
            None => [HostCause::Code, HostCause::Preempted, off],
            Some(Stage::Inline) => [HostCause::LoaderInline; 3],
            Some(Stage::Collate) => [HostCause::LoaderCollate; 3],
            Some(Stage::Receive) => [HostCause::LoaderReceive, HostCause::LoaderReceive, wait_cause(sample)],
            Some(Stage::Start) => [HostCause::LoaderStart; 3],
            Some(Stage::Next) => [HostCause::LoaderInline, HostCause::LoaderInline, wait_cause(sample)],
        };
        let waits = !ran && matches!(class.stage, Some(Stage::Receive | Stage::Next));
        let workers = if waits { u16::try_from(sample.children).unwrap_or(u16::MAX) } else { 0 };
        let runnable = sample.runnable.min(length - on_cpu);
        let off_line = if causes[2] == HostCause::OtherWait { LineId::NONE } else { class.line };
        let receives = class.role == Some(Role::Receives) && asleep && causes[2] == off;
        let schedules = class.role.is_some_and(|role| role.meaning() == Meaning::Scheduler);
        let (line, stack) = (class.line, sample.stack);
        Self { since, at, on_cpu, runnable, line, off_line, stack, ran, schedules, receives, causes, workers }
    }

    /// Completes a sample of a running thread: it was off the cores where and why the sample before saw it.
    fn continue_wait(&mut self, before: &Self) {
        let unknown = self.ran && self.causes[2] == HostCause::OtherWait;
        if unknown && !before.ran && before.at == self.since {
            (self.causes[2], self.off_line, self.receives) = (before.causes[2], before.off_line, before.receives);
        }
    }

    /// The line that called the compiler in which the thread was.
    pub(crate) fn built_at(&self) -> Option<LineId> {
        (self.causes[0] == HostCause::KernelBuild).then_some(self.line)
    }

    /// Time of the sample before, and of this one.
    pub(crate) fn span(&self) -> (u64, u64) {
        (self.since, self.at)
    }

    /// True if the thread waited for the interpreter's lock.
    pub(crate) fn waits_for_interpreter(&self) -> bool {
        !self.ran && self.causes[2] == HostCause::InterpreterLock
    }

    /// True if the thread waited for another thread of the process.
    fn waits_for_thread(&self) -> bool {
        !self.ran && matches!(self.causes[2], HostCause::Lock | HostCause::InterpreterLock)
    }

    fn length(&self) -> u64 {
        self.at - self.since
    }

    fn is_loader(&self) -> bool {
        self.causes[0].leaf() == Leaf::DataLoading
    }

    /// `nanos` of the time that it covers, by cause. If that is less than the time since the previous sample,
    /// the activity seen at the sample comes first: the rest is as likely to have been outside the host gap.
    /// But a thread that was ready without a core comes before one that ran: the time outside is CUDA calls
    /// and gaps too short to lose a core in.
    pub(crate) fn split(&self, nanos: u64) -> [(HostCause, u64); 3] {
        let off = self.length() - self.on_cpu - self.runnable;
        let [on_cause, ready_cause, off_cause] = self.causes;
        let mut rest = nanos;
        let mut take = |part: u64| {
            let taken = part.min(rest);
            rest -= taken;
            taken
        };
        let (on, ready, away) = if self.ran {
            let (ready, on) = (take(self.runnable), take(self.on_cpu));
            (on, ready, take(off))
        } else {
            let (away, ready) = (take(off), take(self.runnable));
            (take(self.on_cpu), ready, away)
        };
        // A claim is at most as long as the time since the previous sample, so it is used up.
        debug_assert_eq!(rest, 0);
        [(on_cause, on), (ready_cause, ready), (off_cause, away)]
    }
}

impl SampleEvidence {
    /// The part of the claim that explains idle time if another thread handed over to this one at `handover`:
    /// `None` if the sample saw the wait that ended then.
    fn after_handover(mut self, handover: u64) -> Option<Self> {
        let SampleSource::HostSampleView(sample) = &mut self.source else { return Some(self) };
        if sample.at > handover {
            // It has waited until then, and spent the rest as it was seen.
            self.from = self.from.max(handover);
            let off = sample.length() - sample.on_cpu - sample.runnable;
            sample.since = sample.since.max(handover);
            let length = sample.length();
            // What it did at the sample is what it did last.
            let asleep = if sample.ran { 0 } else { off.min(length) };
            sample.runnable = sample.runnable.min(length - asleep);
            let left = length - asleep - sample.runnable;
            sample.on_cpu = if sample.ran { left } else { sample.on_cpu.min(left) };
            self.to = self.to.min(sample.at.saturating_add(length));
        } else if sample.waits_for_thread() {
            return None;
        }
        (self.from < self.to).then_some(self)
    }

    /// True if both are parts of one sample's claim.
    pub(crate) fn same_sample(&self, other: &Self) -> bool {
        match (self.source, other.source) {
            (SampleSource::HostSampleView(a), SampleSource::HostSampleView(b)) => a.at == b.at,
            _ => false,
        }
    }

    pub(crate) fn stack(&self) -> StackId {
        match self.source {
            SampleSource::HostSampleView(sample) => sample.stack,
            SampleSource::Range(_) => StackId::NONE,
        }
    }

    /// True if the sample saw the thread wait for requests.
    pub(crate) fn sees_no_requests(&self) -> bool {
        let SampleSource::HostSampleView(sample) = self.source else { return false };
        sample.causes[usize::from(!sample.ran) * 2] == HostCause::NoRequests
    }

    /// True if the thread chose the next batch of a server.
    pub(crate) fn schedules(&self) -> bool {
        matches!(self.source, SampleSource::HostSampleView(sample) if sample.schedules)
    }

    /// True if the thread, off the cores, waited for something to come: in a server, a request.
    pub(crate) fn receives(&self) -> bool {
        matches!(self.source, SampleSource::HostSampleView(sample) if sample.receives)
    }

    /// True if the thread was in a data loader.
    pub(crate) fn is_loader(&self) -> bool {
        match self.source {
            SampleSource::HostSampleView(sample) => sample.is_loader(),
            SampleSource::Range(_) => true,
        }
    }

    /// The part between `from` and `to`, by cause and line; sums to that time.
    pub(crate) fn parts(&self, from: u64, to: u64) -> [(HostCause, LineId, u64); 3] {
        let nanos = self.to.min(to).saturating_sub(self.from.max(from));
        match self.source {
            SampleSource::HostSampleView(sample) => {
                let [on, ready, off] = sample.split(nanos);
                let with = |(cause, nanos), line| (cause, line, nanos);
                [with(on, sample.line), with(ready, sample.line), with(off, sample.off_line)]
            }
            SampleSource::Range(cause) => {
                [(cause, LineId::NONE, nanos), (cause, LineId::NONE, 0), (cause, LineId::NONE, 0)]
            }
        }
    }
}

impl HostSamples {
    pub(crate) fn push(&mut self, mut sample: HostSampleView) {
        if let Some(before) = self.samples.back() {
            sample.continue_wait(before);
        }
        let totals = &mut self.totals;
        let off = sample.length() - sample.on_cpu - sample.runnable;
        totals.samples += 1;
        totals.waits_for_workers += u64::from(sample.workers > 0);
        totals.workers += u64::from(sample.workers);
        totals.collecting += u64::from(sample.causes[0] == HostCause::GarbageCollection);
        totals.covered_ns = totals.covered_ns.saturating_add(sample.length());
        totals.on_cpu_ns = totals.on_cpu_ns.saturating_add(sample.on_cpu);
        totals.runnable_ns = totals.runnable_ns.saturating_add(sample.runnable);
        if sample.is_loader() {
            totals.data_loading_ns = totals.data_loading_ns.saturating_add(sample.length());
        }
        let sum = &mut totals.off_cpu_ns[sample.causes[2] as usize];
        *sum = sum.saturating_add(off);
        // A sample is almost always the newest one.
        let index = match self.samples.back() {
            Some(last) if last.at > sample.at => self.samples.partition_point(|known| known.at <= sample.at),
            _ => self.samples.len(),
        };
        self.samples.insert(index, sample);
        if self.samples.len() > SAMPLE_LIMIT {
            self.samples.pop_front();
        }
    }

    /// Time covered by the samples since `from`, by activity and line, each counted for the largest activity.
    pub(crate) fn activities(&self, from: u64) -> impl Iterator<Item = (HostCause, LineId, u64, u64)> {
        self.samples.iter().filter(move |sample| sample.since >= from).flat_map(|sample| {
            let [on, ready, off] = sample.split(sample.length());
            let most = on.1.max(ready.1).max(off.1);
            let rows = [(on, sample.line), (ready, sample.line), (off, sample.off_line)];
            rows.map(|((cause, nanos), line)| (cause, line, u64::from(nanos == most && nanos > 0), nanos))
        })
    }

    /// Limits the samples to this thread's share among `threads`.
    pub(crate) fn limit(&mut self, threads: usize) {
        let limit = (SAMPLES_TOGETHER / threads.max(1)).max(FEWEST_SAMPLES);
        if self.samples.len() > limit {
            self.samples.drain(..self.samples.len() - limit);
            self.samples.shrink_to(2 * limit);
        }
    }

    /// Sums over all samples.
    pub(crate) fn totals(&self) -> &SampleTotals {
        &self.totals
    }

    /// The thread enters a data loader at `at`, according to the program.
    pub(crate) fn enter_loader(&mut self, at: u64, cause: HostCause) {
        if self.loaders.back().is_some_and(|newest| newest.end == u64::MAX) {
            self.within += 1;
            return;
        }
        self.named_from.get_or_insert(at);
        self.loaders.push_back(InLoader { start: at, end: u64::MAX, cause });
        if self.loaders.len() > LOADER_LIMIT {
            self.loaders.pop_front();
        }
    }

    /// The thread leaves the loader that it entered last.
    pub(crate) fn leave_loader(&mut self, at: u64) {
        if self.within > 0 {
            self.within -= 1;
        } else if let Some(newest) = self.loaders.back_mut() {
            newest.end = newest.end.min(at);
        }
    }

    /// True if the program reported its data loader before `time`: time that it did not report later is not
    /// loading.
    pub(crate) fn loader_named_before(&self, time: u64) -> bool {
        self.named_from.is_some_and(|from| from < time)
    }

    /// Claims on the host gap from `from` to `to`: disjoint, in order, within it. Another thread may have
    /// handed over to this one at `handover`, which is `from` if none did; the claims of a wait for that are
    /// left out. A range around the data loader takes precedence over samples, unless they saw the loader too:
    /// those have more detail.
    pub(crate) fn claims(&self, from: u64, handover: u64, to: u64) -> Vec<SampleEvidence> {
        let mut samples = self.claims_of_samples(from, to);
        if handover > from {
            samples = samples.into_iter().filter_map(|claim| claim.after_handover(handover)).collect();
        }
        let first = self.loaders.partition_point(|loader| loader.end <= from);
        let mut loaders = self.loaders.range(first..).take_while(|loader| loader.start < to).peekable();
        if loaders.peek().is_none() {
            return samples;
        }
        let named: Vec<(u64, u64, HostCause)> =
            loaders.map(|loader| (loader.start.max(from), loader.end.min(to), loader.cause)).collect();
        let (seen, other): (Vec<SampleEvidence>, Vec<SampleEvidence>) =
            samples.into_iter().partition(SampleEvidence::is_loader);
        let seen_times: Vec<_> = seen.iter().map(|claim| (claim.from, claim.to)).collect();
        let named_times: Vec<_> = named.iter().map(|&(from, to, _)| (from, to)).collect();
        let mut claims = seen;
        for (from, to, cause) in named {
            let parts = without((from, to), &seen_times);
            claims.extend(parts.map(|(from, to)| SampleEvidence { from, to, source: SampleSource::Range(cause) }));
        }
        for claim in other {
            let parts = without((claim.from, claim.to), &named_times);
            claims.extend(parts.map(|(from, to)| SampleEvidence { from, to, ..claim }));
        }
        claims.sort_by_key(|claim| claim.from);
        claims
    }

    /// True if the newest sample within the time saw a wait for another thread; `None` without a sample.
    pub(crate) fn waited_for_thread(&self, from: u64, to: u64) -> Option<bool> {
        let newest = self.samples.partition_point(|sample| sample.at <= to).checked_sub(1)?;
        self.samples.get(newest).filter(|sample| sample.at > from).map(HostSampleView::waits_for_thread)
    }

    fn claims_of_samples(&self, from: u64, to: u64) -> Vec<SampleEvidence> {
        let first = self.samples.partition_point(|sample| sample.at <= from);
        let mut inside = self.samples.range(first..).take_while(|sample| sample.at <= to).peekable();
        let (mut claims, mut position) = (Vec::new(), from);
        while let Some(&sample) = inside.next() {
            let ahead = inside.peek().map_or(to, |next| next.since.clamp(sample.at, to));
            let end = sample.at.saturating_add(sample.length()).min(ahead);
            for (from, to) in [(sample.since.max(position), sample.at), (sample.at, end)] {
                if from < to {
                    claims.push(SampleEvidence { from, to, source: SampleSource::HostSampleView(sample) });
                    position = to;
                }
            }
        }
        claims
    }

    /// Drops samples that no host gap from `keep_from` on can need.
    pub(crate) fn forget_before(&mut self, keep_from: u64) {
        while self.samples.front().is_some_and(|sample| sample.at < keep_from) {
            self.samples.pop_front();
        }
        while self.loaders.front().is_some_and(|loader| loader.end < keep_from) {
            self.loaders.pop_front();
        }
    }
}

/// Parts of a time span outside all of `others`, which are disjoint and in order.
fn without((from, to): (u64, u64), others: &[(u64, u64)]) -> impl Iterator<Item = (u64, u64)> {
    let first = others.partition_point(|&(_, end)| end <= from);
    let inside = others[first..].iter().take_while(move |&&(start, _)| start < to).copied();
    let mut position = from;
    inside.chain(std::iter::once((to, to))).filter_map(move |(start, end)| {
        let part = (position, start.min(to));
        position = position.max(end);
        (part.0 < part.1).then_some(part)
    })
}

/// Reason that a thread outside a data loader was off the cores.
fn off_cause(sample: &HostSample, class: StackClass, others: Others) -> HostCause {
    if waits_for_lock(sample, class, others) { HostCause::InterpreterLock } else { HostCause::of(sample.state) }
}

/// Activity of the workers while a thread waited in a data loader. One running worker is enough: batches come
/// in order, so the awaited batch may be the only unfinished one.
fn wait_cause(sample: &HostSample) -> HostCause {
    match sample {
        _ if sample.children_running > 0 => HostCause::LoaderWaitBusy,
        _ if sample.children_in_io > 0 => HostCause::LoaderWaitIo,
        _ if sample.children > 0 => HostCause::LoaderWaitIdle,
        _ => HostCause::LoaderWait,
    }
}

/// Sums over all samples of a thread, device busy or not, in nanoseconds unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleTotals {
    /// Number of host samples.
    pub samples: u64,
    /// Number of host samples during garbage collection by the interpreter.
    pub collecting: u64,
    /// Time covered by the samples.
    pub covered_ns: u64,
    /// Part of it on a core.
    pub on_cpu_ns: u64,
    /// Part of it ready and waiting for a core.
    pub runnable_ns: u64,
    /// Part of it in a data loader, on a core or off.
    pub data_loading_ns: u64,
    /// Part of it neither on a core nor ready, by the cause seen at the sample; indexed by `HostCause as
    /// usize`.
    pub off_cpu_ns: [u64; HostCause::ALL.len()],
    /// Number of host samples in which it waited for worker processes of a data loader.
    pub waits_for_workers: u64,
    /// Number of these workers, summed over those samples.
    pub workers: u64,
}

impl SampleTotals {
    pub(crate) fn add(&mut self, other: &Self) {
        self.samples += other.samples;
        self.collecting += other.collecting;
        self.covered_ns = self.covered_ns.saturating_add(other.covered_ns);
        self.on_cpu_ns = self.on_cpu_ns.saturating_add(other.on_cpu_ns);
        self.runnable_ns = self.runnable_ns.saturating_add(other.runnable_ns);
        self.data_loading_ns = self.data_loading_ns.saturating_add(other.data_loading_ns);
        for (sum, nanos) in self.off_cpu_ns.iter_mut().zip(other.off_cpu_ns) {
            *sum = sum.saturating_add(nanos);
        }
        self.waits_for_workers += other.waits_for_workers;
        self.workers = self.workers.saturating_add(other.workers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_trace::record::Timestamp;

    const PLAIN: StackClass = StackClass { stage: None, line: LineId::NONE, waits: false, builds: false, role: None };

    fn sample(since: u64, at: u64, on_cpu: u64, runnable: u64, state: ThreadState) -> HostSampleView {
        let time = Timestamp::from_nanos;
        let sample = HostSample { since: time(since), at: time(at), on_cpu, runnable, state, ..HostSample::default() };
        HostSampleView::new(&sample, PLAIN, Others::default())
    }

    fn claimed(samples: &[HostSampleView], from: u64, to: u64) -> Vec<(u64, u64)> {
        let mut all = HostSamples::default();
        for &sample in samples {
            all.push(sample);
        }
        all.claims(from, from, to).iter().map(|claim| (claim.from, claim.to)).collect()
    }

    #[test]
    fn a_sample_speaks_for_its_host_gap_only_and_ahead_as_far_as_back() {
        let at = |since, at| sample(since, at, 0, 0, ThreadState::Sleep);
        assert_eq!(claimed(&[at(0, 40)], 50, 90), [], "it fell before the host gap");
        assert_eq!(claimed(&[at(0, 100)], 50, 90), [], "it fell behind the host gap");
        assert_eq!(claimed(&[at(0, 60)], 50, 90), [(50, 60), (60, 90)]);
        assert_eq!(claimed(&[at(55, 60)], 50, 90), [(55, 60), (60, 65)]);
        assert_eq!(claimed(&[at(70, 80), at(55, 60)], 50, 90), [(55, 60), (60, 65), (70, 80), (80, 90)]);
        assert_eq!(claimed(&[at(60, 80), at(50, 60)], 50, 90), [(50, 60), (60, 80), (80, 90)]);
        // Damage: overlapping samples, and one that ends before it starts.
        assert_eq!(claimed(&[at(50, 70), at(55, 60)], 50, 90), [(55, 60), (60, 70), (70, 90)]);
        assert_eq!(claimed(&[at(70, 60)], 50, 90), []);
    }

    #[test]
    fn a_named_loader_goes_before_other_samples_and_after_those_that_saw_it() {
        let mut all = HostSamples::default();
        all.push(sample(10, 30, 20, 0, ThreadState::Running));
        let class = StackClass { stage: Some(Stage::Collate), ..PLAIN };
        let time = Timestamp::from_nanos;
        all.push(HostSampleView::new(
            &HostSample { since: time(50), at: time(60), ..HostSample::default() },
            class,
            Others::default(),
        ));
        // A loader within a loader counts as the outer one.
        for (at, enters) in [(20, true), (25, true), (26, false), (80, false), (95, true)] {
            if enters { all.enter_loader(at, HostCause::LoaderInline) } else { all.leave_loader(at) }
        }
        let claims: Vec<_> = all
            .claims(0, 0, 100)
            .iter()
            .map(|claim| (claim.from, claim.to, claim.parts(0, 100).into_iter().max_by_key(|part| part.2).unwrap().0))
            .collect();
        let (inline, collate) = (HostCause::LoaderInline, HostCause::LoaderCollate);
        let expected = [(10, 20, HostCause::Code), (20, 50, inline), (50, 60, collate), (60, 70, collate)];
        assert_eq!(claims, [&expected[..], &[(70, 80, inline), (95, 100, inline)]].concat());
        assert!(all.loader_named_before(21) && !all.loader_named_before(20));
    }

    #[test]
    fn the_parts_sum_and_what_was_seen_comes_first() {
        let sleeping = sample(0, 100, 30, 10, ThreadState::Sleep);
        assert_eq!(sleeping.split(100).map(|(_, nanos)| nanos), [30, 10, 60]);
        assert_eq!(sleeping.split(50), [(HostCause::Code, 0), (HostCause::Preempted, 0), (HostCause::Sleep, 50)]);
        let running = sample(0, 100, 30, 10, ThreadState::Running);
        assert_eq!(running.split(50), [(HostCause::Code, 30), (HostCause::Preempted, 10), (HostCause::OtherWait, 10)]);
        assert_eq!(sample(0, 100, 0, 0, ThreadState::Running).split(100)[0], (HostCause::Code, 100), "no clock");
        assert_eq!(sample(0, 100, u64::MAX, 7, ThreadState::Running).split(100)[0], (HostCause::Code, 100), "damage");
    }

    #[test]
    fn samples_are_bounded_and_forgotten() {
        let mut samples = HostSamples::default();
        for at in 1..=SAMPLE_LIMIT as u64 + 9 {
            samples.push(sample(at - 1, at, 0, 0, ThreadState::Io));
        }
        assert_eq!(samples.samples.len(), SAMPLE_LIMIT);
        samples.forget_before(SAMPLE_LIMIT as u64);
        assert_eq!(samples.samples.len(), 10);
        let totals = samples.totals();
        assert_eq!(
            (totals.samples, totals.off_cpu_ns[HostCause::Io as usize]),
            (SAMPLE_LIMIT as u64 + 9, totals.covered_ns)
        );
    }
}
