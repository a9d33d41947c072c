//! Why the device was idle: the rule that explains one gap.
//!
//! A gap is judged by the operation that ends it, because that is the one that should have come sooner. Its
//! launching call splits the gap into three parts: before the call the host was late, during the call it was
//! launching, and after the call the device was slow to start or waited for something else. The host's part
//! is split further by the activity of the launching thread. Pieces are ordered and contiguous, so they sum
//! to the gap.
//!
//! Host samples show what a thread did between two calls, where there are any (`host::samples`). Other time
//! is classified by its length and by the operation that follows.
//!
//! Dependencies of a queued operation are resolved in `host::dependencies`, where events show them.

use gpuwhy_trace::record::StackId;

use super::account::DeviceAccount;
use super::gap_history::{GapHistory, InputWait};
use super::host::samples::SampleEvidence;
use super::host::thread_table::ThreadTable;
use super::host::threads::{Call, HostThread};
use super::host_cause::{HostCause, Producer, Seen, Stratum, Subject};
use super::operation::DeviceOperation;
use super::other_processes::OtherProcesses;
use super::stacks::LineId;
use crate::api::{ApiClass, BLOCKING_COPY_NANOS};
use crate::leaf::Leaf;
use crate::thresholds::{
    DISPATCH_NANOS, INPUT_GAP_NANOS, INTER_KERNEL_NANOS, LAUNCH_LATENCY_NANOS, PARKED_NANOS, SYNC_SLACK_NANOS,
};

/// The operation that ends a gap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next<'a> {
    pub(super) operation: &'a DeviceOperation,
    /// Operation that an event made it wait for.
    pub(super) producer: Option<Producer>,
    /// Processes that it may have waited for: this one uses no other device.
    pub(super) others: Option<&'a OtherProcesses>,
}

impl Next<'_> {
    /// Subject of a wait of the queued operation: the one that an event names, else the operation itself.
    fn awaited(&self) -> Subject {
        self.producer.map_or(self.operation.subject, Subject::Awaited)
    }

    /// Leaf of a wait of the queued operation from `queued` on, in a gap that opened at `from`.
    fn waiting(&self, from: u64, queued: u64) -> Leaf {
        let DeviceOperation { device, start, graph, .. } = *self.operation;
        let used = |others: &OtherProcesses| others.busy_at(device, from) || others.worked_in(device, queued, start);
        match graph {
            true => Leaf::GraphWait,
            false if self.producer.is_none() && self.others.is_some_and(used) => Leaf::OtherProcess,
            false => Leaf::DependencyWait,
        }
    }
}

/// Records the gap from the account's position to the start of `next`.
///
/// `lost_end` is the return of an earlier launch in the gap whose record is missing.
pub(super) fn explain(
    account: &mut DeviceAccount,
    history: &mut GapHistory,
    next: &Next<'_>,
    threads: &ThreadTable,
    lost_end: Option<u64>,
) {
    account.begin_gap();
    let (from, to) = (account.position(), next.operation.start);
    let launching = next.operation.launch.and_then(|launch| Some((launch, threads.rows.get(launch.thread as usize)?)));
    let Some((launch, thread)) = launching else {
        account.idle(Leaf::Unobserved, to, next.operation.subject);
        return;
    };
    if launch.start <= from {
        // Issued before the gap opened. A copy that starts inside its own call was submitted early in that
        // call; a graph whose first node starts inside the call was submitted then, because its call is long.
        let submitted = match launch.class {
            _ if to >= launch.end => launch.end,
            ApiClass::KernelLaunch => launch.end,
            ApiClass::GraphLaunch => to,
            _ => launch.start.saturating_add(LAUNCH_LATENCY_NANOS).min(launch.end),
        };
        account.idle(Leaf::LaunchApi, submitted.clamp(from, to), Subject::None);
        let (leaf, limit) = if submitted <= from {
            (Leaf::InterKernel, INTER_KERNEL_NANOS)
        } else {
            (Leaf::LaunchLatency, LAUNCH_LATENCY_NANOS)
        };
        let rest = to - account.position();
        let subject = if rest <= limit { Subject::None } else { next.awaited() };
        let leaf = if rest <= limit { leaf } else { next.waiting(from, account.position()) };
        account.idle(leaf, to, subject);
        return;
    }
    let caller = Caller { index: launch.thread, thread, threads };
    let mut slack = host_part(account, history, next, launch.start.min(to), caller, lost_end);
    let launched = launch.end.clamp(account.position(), to);
    let latency = to.min(launched.saturating_add(LAUNCH_LATENCY_NANOS));
    // A host that ran ahead would have launched while the device was busy.
    let reads = read_wait(next.operation, (launch.start, launch.end), launched - account.position(), thread);
    let (launching, subject) = reads.map_or((Leaf::LaunchApi, Subject::None), |call| (Leaf::SyncDrain, call));
    for (leaf, end, subject) in [(launching, launched, subject), (Leaf::LaunchLatency, latency, Subject::None)] {
        if slack.nanos > 0 {
            account.idle(Leaf::SyncDrain, slack.take(account.position(), end), slack.subject);
        }
        account.idle(leaf, end, subject);
    }
    let leaf = next.waiting(from, account.position().min(to));
    account.idle(leaf, to, next.awaited());
}

/// The call that launched a copy to the host, if the device was idle in it for `idle` nanoseconds before the copy:
/// for longer than it takes to issue one, such a call waits. A copy from the host is staged in that time.
fn read_wait(operation: &DeviceOperation, call: (u64, u64), idle: u64, thread: &HostThread) -> Option<Subject> {
    let to_host = matches!(operation.leaf, Leaf::CopyD2hPageable | Leaf::CopyD2hPinned | Leaf::CopyD2hOther);
    let (_, after) = thread.calls_after(call.0);
    let called = after.first().filter(|after| (after.start, after.end) == call);
    (to_host && idle > BLOCKING_COPY_NANOS).then(|| called.map_or(Subject::None, |call| Subject::Call(call.function)))
}

/// Records the part of a gap before the thread entered its launching call. Returns the lost run-ahead that
/// was not charged, for the launch to use.
fn host_part(
    account: &mut DeviceAccount,
    history: &mut GapHistory,
    next: &Next<'_>,
    to: u64,
    caller: Caller<'_>,
    lost_end: Option<u64>,
) -> Slack {
    let thread = caller.thread;
    let from = account.position();
    let (before, after) = thread.calls_after(from);
    let calls = &after[..after.iter().take_while(|call| call.start < to).count()];

    // Lost run-ahead: without waiting while the device was busy, the host would have been this much further.
    let spanning = calls.first().filter(|call| call.start < from);
    let just_ended = before.filter(|call| call.end + SYNC_SLACK_NANOS >= from);
    let wait = spanning.or(just_ended).filter(|call| call.class.waits(call.end - call.start));
    // A large read is for work on what was read, which could not have run ahead.
    let wait = wait.filter(|_| account.read_end() != from);
    let slack = Slack {
        nanos: wait.map_or(0, |call| from.saturating_sub(call.start)),
        subject: wait.map_or(Subject::None, |call| Subject::Call(call.function)),
    };

    let whole = lost_end.is_none() && !thread.has_overheads();
    let mut previous_end = before.map_or(from, |call| call.end);
    // Common case: the thread was briefly between two calls, which is one piece.
    if calls.is_empty() && whole && slack.nanos == 0 && to - previous_end <= DISPATCH_NANOS {
        account.idle(Leaf::Dispatch, to, Subject::None);
        return slack;
    }
    // No host gap is longer than the time since the previous call.
    let long = to - previous_end > INPUT_GAP_NANOS;
    let input_wait = long && recurring_input(history, next, (from, to), previous_end, calls);
    let lost_end = lost_end.unwrap_or(u64::MAX);
    let mut writer =
        Writer { account, history, caller, next, to, whole, lost_end, input_wait, slack, busy: Leaf::HostCpu };
    for call in calls {
        let (leaf, subject) = leaf_of_call(call);
        let built = writer.account.leaves()[Leaf::KernelBuild as usize];
        writer.busy = if leaf == Leaf::KernelBuild { leaf } else { Leaf::HostCpu };
        writer.host_gap(previous_end, call.start);
        writer.write(leaf, call.end.min(to), subject);
        writer.account.built(built, call.start.saturating_sub(previous_end) > DISPATCH_NANOS);
        previous_end = call.end;
    }
    writer.busy = Leaf::HostCpu;
    let built = writer.account.leaves()[Leaf::KernelBuild as usize];
    writer.host_gap(previous_end, to);
    writer.account.built(built, to.saturating_sub(previous_end) > DISPATCH_NANOS);
    writer.slack
}

fn leaf_of_call(call: &Call) -> (Leaf, Subject) {
    let lasted = call.end - call.start;
    let subject = Subject::Call(call.function);
    match call.class {
        class if class.waits(lasted) => (Leaf::SyncDrain, subject),
        ApiClass::Memory => (Leaf::Allocator, subject),
        ApiClass::LoadCode => (Leaf::KernelBuild, subject),
        class if class.launches() => (Leaf::LaunchApi, Subject::None),
        // Short calls (event record, attribute queries) are part of the framework's work for one operation.
        ApiClass::Other | ApiClass::CaptureBegin | ApiClass::CaptureEnd if lasted <= DISPATCH_NANOS => {
            (Leaf::Dispatch, Subject::None)
        }
        _ => (Leaf::RuntimeApi, subject),
    }
}

/// True if this gap is a wait for an input batch, inferred from a pattern: the thread made no CUDA call for
/// more than 1 ms and came back with a copy of at least 4 KiB from the host, and so did at least three, and
/// at least half, of the last eight such absences. A single one proves nothing, so the first two are plain
/// host time.
fn recurring_input(
    history: &mut GapHistory,
    next: &Next<'_>,
    (from, to): (u64, u64),
    mut previous_end: u64,
    calls: &[Call],
) -> bool {
    let starts = calls.iter().map(|call| (call.start, call.end)).chain(std::iter::once((to, to)));
    let mut longest = 0;
    for (start, end) in starts {
        let host_gap = start.saturating_sub(previous_end);
        if host_gap <= PARKED_NANOS && start > from {
            longest = longest.max(host_gap);
        }
        previous_end = end;
    }
    longest > INPUT_GAP_NANOS && history.recurs(next.operation.input)
}

/// The thread that launched the operation after a gap.
#[derive(Clone, Copy)]
struct Caller<'a> {
    /// Index of the thread.
    index: u32,
    thread: &'a HostThread,
    threads: &'a ThreadTable,
}

/// Records the pieces of a gap, with the tracing overhead and the unobserved time carved out.
struct Writer<'a> {
    account: &'a mut DeviceAccount,
    history: &'a mut GapHistory,
    caller: Caller<'a>,
    next: &'a Next<'a>,
    /// End of the host's part of the gap.
    to: u64,
    /// True if there is no time to carve out.
    whole: bool,
    lost_end: u64,
    /// True if host gaps that are long enough count as waits for an input batch, unless samples show
    /// otherwise.
    input_wait: bool,
    slack: Slack,
    /// Leaf of a thread that is busy outside CUDA: building kernels if the host gap ends where they are loaded.
    busy: Leaf,
}

/// Run-ahead that a wait cost before the gap opened and that is not charged to the wait yet.
struct Slack {
    nanos: u64,
    subject: Subject,
}

impl Slack {
    /// Charges the time from `from`, at most up to `to`. Returns the end of the charged time.
    fn take(&mut self, from: u64, to: u64) -> u64 {
        let taken = to.min(from.saturating_add(self.nanos));
        self.nanos -= taken.saturating_sub(from);
        taken
    }
}

impl Writer<'_> {
    /// Records the time between two calls: the first returned at `start`, the second was entered at
    /// `gap_end`.
    #[inline]
    fn host_gap(&mut self, start: u64, gap_end: u64) {
        let host_gap = gap_end.saturating_sub(start);
        let end = gap_end.clamp(self.account.position(), self.to);
        if host_gap <= DISPATCH_NANOS {
            // Too short for samples to resolve.
            self.drain(end);
            self.write(Leaf::Dispatch, end, Subject::None);
        } else {
            self.long_host_gap(start, gap_end, end);
        }
    }

    /// Records, up to `end`, time between two calls that exceeds the framework's cost per operation.
    fn long_host_gap(&mut self, start: u64, gap_end: u64, end: u64) {
        let (host_gap, next) = (gap_end - start, self.next);
        let Caller { index, thread, threads } = self.caller;
        let handover = threads.handover(index, start, gap_end);
        let claims = thread.samples.claims(start, handover, gap_end);
        let waits = handover > start
            && self.history.waits_for_threads(index, thread.samples.waited_for_thread(start, handover));
        if claims.is_empty() && waits && gap_end - handover <= DISPATCH_NANOS {
            // It waited for the other thread, and continued at once.
            self.unseen(Leaf::HostCpu, handover.min(end));
            self.drain(end);
            self.write(Leaf::Dispatch, end, Subject::None);
            return;
        }
        let rest = end - self.account.position();
        let loading = match self.history.part_of(rest) {
            Some(part) if next.operation.input => part,
            None if self.input_wait && host_gap > INPUT_GAP_NANOS => rest,
            _ => 0,
        };
        if !claims.is_empty() {
            if next.operation.input {
                self.history.seen(claims.iter().any(SampleEvidence::is_loader));
            }
            self.seen(&claims, end, host_gap > PARKED_NANOS);
        } else if host_gap > PARKED_NANOS {
            self.write(Leaf::NoWork, end, next.operation.subject);
        } else {
            if loading > 0 && !thread.samples.loader_named_before(gap_end) {
                let loaded = self.account.position() + loading;
                let late = self.late_nanos();
                self.load(loaded, next.operation.subject);
                self.note(Seen::Nothing(Leaf::DataLoading), 0, late);
                if let Some(launch) = next.operation.launch {
                    // Includes the part that ran while the device was busy.
                    let wait = InputWait { thread: launch.thread, start, end: gap_end - (end - loaded) };
                    self.history.waits.push(wait);
                }
            }
            self.unseen(self.busy, end);
        }
    }

    /// Records the rest of the host gap up to `end`, as far as host samples explain it.
    fn seen(&mut self, claims: &[SampleEvidence], end: u64, parked: bool) {
        let unseen = if parked { Leaf::NoWork } else { self.busy };
        let idle = claims.iter().rposition(SampleEvidence::sees_no_requests);
        for (index, claim) in claims.iter().enumerate() {
            let first = index == 0 || !claim.same_sample(&claims[index - 1]);
            if claim.is_loader()
                && let Some(launch) = self.next.operation.launch
            {
                // Includes the part that ran while the device was busy.
                let wait = InputWait { thread: launch.thread, start: claim.from, end: claim.to };
                self.history.waits.push(wait);
            }
            if claim.from > self.account.position() {
                self.unseen(unseen, claim.from.min(end));
            }
            self.account.sampled(claim.stack());
            let parts = claim.parts(self.account.position(), end);
            let most = parts.iter().map(|part| part.2).max();
            let mut samples = u64::from(first);
            // A scheduler that then waited for requests had found nothing to launch.
            let in_vain = claim.schedules() && idle.is_some_and(|idle| index <= idle);
            for (part, (cause, line, nanos)) in parts.into_iter().enumerate() {
                let to = self.account.position() + nanos;
                let cause = if self.busy == Leaf::KernelBuild { cause.before_load() } else { cause };
                let receives = part == 2 && claim.receives();
                let waits = in_vain || receives && self.account.serves();
                let cause = if waits { HostCause::NoRequests } else { cause };
                let native = line == LineId::NONE && claim.stack() == StackId::NONE && !parked;
                let built = if native { self.built_until(to) } else { None };
                let (cause, line) = built.map_or((cause, line), |line| (HostCause::KernelBuild, line));
                let subject = Subject::Host(cause, line);
                let late = self.late_nanos();
                match cause.leaf() {
                    Leaf::DataLoading => self.load(to, subject),
                    // Off the cores this long outside a loader: the thread is waiting for a request.
                    Leaf::HostBlocked if parked => {
                        self.write(Leaf::NoWork, to, subject);
                        continue;
                    }
                    // Running ahead would not have brought requests.
                    Leaf::NoWork => {
                        self.slack.take(self.account.position(), to);
                        self.write(Leaf::NoWork, to, subject);
                    }
                    leaf if receives => self.receive(leaf, to, subject),
                    leaf => self.late(leaf, to, subject),
                }
                // A sample counts once: for the activity that took most of the time.
                let counted = if Some(nanos) == most { std::mem::take(&mut samples) } else { 0 };
                self.note(Seen::Activity(cause, line), counted, late);
            }
        }
        self.unseen(unseen, end);
    }

    /// The line that called a compiler, if one worked while the launching thread, of which no line is known, was late
    /// up to `to`.
    fn built_until(&self, to: u64) -> Option<LineId> {
        self.caller.threads.building.line_at(self.account.position().midpoint(to))
    }

    /// Records time in which the host was late and no sample shows why.
    fn unseen(&mut self, leaf: Leaf, to: u64) {
        let built = leaf == Leaf::HostCpu && self.built_until(to).is_some();
        let leaf = if built { Leaf::KernelBuild } else { leaf };
        let late = self.late_nanos();
        self.late(leaf, to, self.next.operation.subject);
        self.note(Seen::Nothing(leaf), 0, late);
    }

    /// Total time in which the host was late or had no work.
    fn late_nanos(&self) -> u64 {
        [Leaf::HostCpu, Leaf::HostBlocked, Leaf::KernelBuild, Leaf::DataLoading, Leaf::NoWork]
            .map(|leaf| self.account.leaves()[leaf as usize])
            .iter()
            .sum()
    }

    /// Adds the time in which the host was late since `before` to its stratum; `samples` is the number of
    /// samples that saw it.
    fn note(&mut self, seen: Seen, samples: u64, before: u64) {
        let nanos = self.late_nanos() - before;
        if nanos > 0 && seen != Seen::Nothing(Leaf::NoWork) {
            let stratum = Stratum { thread: self.caller.index, before: self.next.operation.subject };
            self.account.host_time(stratum, seen, samples, nanos);
        }
    }

    /// Records time in which the host was late. Run-ahead that a wait cost comes first.
    fn late(&mut self, leaf: Leaf, to: u64, subject: Subject) {
        if leaf != Leaf::NoWork {
            self.drain(to);
        }
        self.write(leaf, to, subject);
    }

    /// Records time in which the host waited for something to come, which counts as no work if the device turns out to
    /// serve.
    fn receive(&mut self, leaf: Leaf, to: u64, subject: Subject) {
        let from = self.account.position();
        self.drain(to);
        self.account.received(Leaf::SyncDrain, from);
        let from = self.account.position();
        self.write(leaf, to, subject);
        self.account.received(leaf, from);
    }

    /// Records time in a data loader. The user can name it, so it takes precedence over the wait that exposed
    /// it. Running ahead would have hidden the loading first, so the same time is not charged to the wait
    /// again.
    fn load(&mut self, to: u64, subject: Subject) {
        self.slack.take(self.account.position(), to);
        self.write(Leaf::DataLoading, to, subject);
    }

    #[inline]
    fn drain(&mut self, to: u64) {
        if self.slack.nanos > 0 {
            let drained = self.slack.take(self.account.position(), to);
            self.write(Leaf::SyncDrain, drained, self.slack.subject);
        }
    }

    #[inline]
    fn write(&mut self, leaf: Leaf, to: u64, subject: Subject) {
        if self.whole {
            self.account.idle(leaf, to, subject);
        } else {
            self.carve(leaf, to, subject);
        }
    }

    /// Records time up to `to`, except for tracing overhead and unobserved time in it.
    #[inline(never)]
    fn carve(&mut self, leaf: Leaf, to: u64, subject: Subject) {
        let known = to.min(self.lost_end);
        let from = self.account.position();
        // During a wait the thread had no other work, so tracing cost no time.
        if leaf != Leaf::SyncDrain {
            for (start, end) in self.caller.thread.overheads_within(from, known) {
                self.account.idle(leaf, start, subject);
                self.account.idle(Leaf::Profiler, end, Subject::None);
            }
        }
        self.account.idle(leaf, known, subject);
        self.account.idle(Leaf::Unobserved, to, Subject::None);
    }
}
