//! Why the device was idle: the rule that explains one gap.
//!
//! A gap is judged by the operation that ends it, because that is the one that should have come sooner. Its launching
//! call splits the gap into three: before the call the host was late, during the call it was launching, after the
//! call the device was slow to start or waited for something else. The host's part is then told apart by what the
//! launching thread did in it. Pieces come in order and touch, so their sum is the gap.
//!
//! What a thread did between two calls is told by the samples of it, where there are any (`host::samples`); other time
//! goes by how long it was and by what came next.
//!
//! Not here: what a queued operation waited for, which `host::dependencies` tells where events do.

use super::account::DeviceAccount;
use super::api::ApiClass;
use super::host::samples::SampleEvidence;
use super::host::threads::{Call, HostThread};
use super::host_cause::{Producer, Subject};
use super::leaf::Leaf;
use super::operation::Operation;
use crate::thresholds::{
    DISPATCH_NANOS, INPUT_GAP_NANOS, INTER_KERNEL_NANOS, LAUNCH_LATENCY_NANOS, PARKED_NANOS, SYNC_SLACK_NANOS,
};

/// The operation that ends a gap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next<'a> {
    pub(super) operation: &'a Operation,
    /// What an event made it wait for.
    pub(super) producer: Option<Producer>,
}

impl Next<'_> {
    /// What a wait of the queued operation is blamed on: what an event names, else the operation itself.
    fn awaited(&self) -> Subject {
        self.producer.map_or(self.operation.subject, Subject::Awaited)
    }
}

/// What is known of the host gaps of one device that an input batch ended.
///
/// Samples are too sparse for short gaps: a gap without a sample is split like the ones with samples. A sample falls
/// anywhere in a gap, so the part of the samples that saw the data loader is the part of such gaps that is loading.
#[derive(Debug, Default)]
pub(super) struct InputGaps {
    /// For the last eight gaps with a host gap of more than 1 ms, the newest in the lowest bit: whether an input
    /// copy ended it. The second number says how many bits are filled.
    long: (u8, u8),
    /// The newest that a sample fell into.
    gaps: u64,
    /// How many of them a sample saw in a data loader.
    loading: u64,
    /// Input waits explained since they were last taken.
    pub(super) waits: Vec<InputWait>,
}

impl InputGaps {
    /// Gaps that count: from twice as many on, the older half is forgotten.
    const NEWEST: u64 = 64;

    /// A host gap of more than 1 ms ended, with an input copy or without: whether such copies end them so often that it
    /// is a wait for one.
    fn recurs(&mut self, input: bool) -> bool {
        let (bits, filled) = &mut self.long;
        *bits = (*bits << 1) | u8::from(input);
        *filled = (*filled + 1).min(8);
        let inputs = bits.count_ones() as u8;
        input && inputs >= 3 && inputs * 2 >= *filled
    }

    fn seen(&mut self, loader: bool) {
        self.gaps += 1;
        self.loading += u64::from(loader);
        if self.gaps >= 2 * Self::NEWEST {
            (self.gaps, self.loading) = (self.gaps / 2, self.loading / 2);
        }
    }

    /// How much of `nanos` in such a gap is loading; `None` until three were seen.
    fn part_of(&self, nanos: u64) -> Option<u64> {
        (self.gaps >= 3).then(|| (u128::from(nanos) * u128::from(self.loading) / u128::from(self.gaps)) as u64)
    }
}

/// A host thread waited for an input batch, nanoseconds on the clock of the trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct InputWait {
    /// Index of the thread.
    pub(super) thread: u32,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Enters the gap from the account's position to the begin of `next`.
///
/// `thread` is the launching thread; `lost_end` the return of an earlier launch in the gap whose record is missing.
pub(super) fn explain(
    account: &mut DeviceAccount,
    inputs: &mut InputGaps,
    next: &Next<'_>,
    thread: Option<&HostThread>,
    lost_end: Option<u64>,
) {
    account.begin_gap();
    let (from, to) = (account.position(), next.operation.start);
    let (Some(launch), Some(thread)) = (next.operation.launch, thread) else {
        account.idle(Leaf::Unobserved, to, next.operation.subject);
        return;
    };
    let waiting = if next.operation.graph { Leaf::GraphWait } else { Leaf::DependencyWait };
    if launch.start <= from {
        // Issued before the gap opened. A copy that begins inside its own call was submitted early in it.
        let submitted = if to < launch.end && launch.class != ApiClass::KernelLaunch {
            launch.start.saturating_add(LAUNCH_LATENCY_NANOS).min(launch.end)
        } else {
            launch.end
        };
        account.idle(Leaf::LaunchApi, submitted.clamp(from, to), Subject::None);
        let (leaf, limit) = if submitted <= from {
            (Leaf::InterKernel, INTER_KERNEL_NANOS)
        } else {
            (Leaf::LaunchLatency, LAUNCH_LATENCY_NANOS)
        };
        let rest = to - account.position();
        let subject = if rest <= limit { Subject::None } else { next.awaited() };
        account.idle(if rest <= limit { leaf } else { waiting }, to, subject);
        return;
    }
    let mut slack = host_part(account, inputs, next, launch.start.min(to), thread, lost_end);
    let launched = launch.end.clamp(account.position(), to);
    let latency = to.min(launched.saturating_add(LAUNCH_LATENCY_NANOS));
    // A host that had run ahead would have launched while the device was busy.
    for (leaf, end) in [(Leaf::LaunchApi, launched), (Leaf::LaunchLatency, latency)] {
        if slack.nanos > 0 {
            account.idle(Leaf::SyncDrain, slack.take(account.position(), end), slack.subject);
        }
        account.idle(leaf, end, Subject::None);
    }
    account.idle(waiting, to, next.awaited());
}

/// Enters the part of a gap in which the launching thread had not come to its launch yet. What it does not charge of
/// the run-ahead lost is left for the launch.
fn host_part(
    account: &mut DeviceAccount,
    inputs: &mut InputGaps,
    next: &Next<'_>,
    to: u64,
    thread: &HostThread,
    lost_end: Option<u64>,
) -> Slack {
    let from = account.position();
    let (before, after) = thread.calls_after(from);
    let calls = &after[..after.iter().take_while(|call| call.start < to).count()];

    // Run-ahead lost: had the host not waited while the device was busy, it would have been that much further on.
    let spanning = calls.first().filter(|call| call.start < from);
    let just_ended = before.filter(|call| call.end + SYNC_SLACK_NANOS >= from);
    let wait = spanning.or(just_ended).filter(|call| call.class.waits(call.end - call.start));
    let slack = Slack {
        nanos: wait.map_or(0, |call| from.saturating_sub(call.start)),
        subject: wait.map_or(Subject::None, |call| Subject::Call(call.function)),
    };

    let whole = lost_end.is_none() && !thread.has_overheads();
    let mut previous_end = before.map_or(from, |call| call.end);
    // Mostly the thread was between two calls, and briefly: that is one piece.
    if calls.is_empty() && whole && slack.nanos == 0 && to - previous_end <= DISPATCH_NANOS {
        account.idle(Leaf::Dispatch, to, Subject::None);
        return slack;
    }
    // No host gap is longer than all of the time since the call before.
    let long = to - previous_end > INPUT_GAP_NANOS;
    let input_wait = long && recurring_input(inputs, next, (from, to), previous_end, calls);
    let lost_end = lost_end.unwrap_or(u64::MAX);
    let mut writer = Writer { account, inputs, thread, next, to, whole, lost_end, input_wait, slack };
    for call in calls {
        writer.host_gap(previous_end, call.start);
        let (leaf, subject) = leaf_of_call(call);
        writer.write(leaf, call.end.min(to), subject);
        previous_end = call.end;
    }
    writer.host_gap(previous_end, to);
    writer.slack
}

fn leaf_of_call(call: &Call) -> (Leaf, Subject) {
    let lasted = call.end - call.start;
    let subject = Subject::Call(call.function);
    match call.class {
        class if class.waits(lasted) => (Leaf::SyncDrain, subject),
        ApiClass::Memory => (Leaf::Allocator, subject),
        class if class.launches() => (Leaf::LaunchApi, Subject::None),
        // Short calls (event record, attribute queries) are part of what the framework does for one operation.
        ApiClass::Other | ApiClass::CaptureBegin | ApiClass::CaptureEnd if lasted <= DISPATCH_NANOS => {
            (Leaf::Dispatch, Subject::None)
        }
        _ => (Leaf::RuntimeApi, subject),
    }
}

/// Whether this gap is a wait for an input batch, inferred from a pattern: the thread stayed away from CUDA for more
/// than 1 ms, came back with a copy of at least 4 KiB from the host, and so did at least three, and at least half, of
/// the last eight such absences. A single one proves nothing, so the first two are plain host time.
fn recurring_input(
    inputs: &mut InputGaps,
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
    longest > INPUT_GAP_NANOS && inputs.recurs(next.operation.input)
}

/// Enters the pieces of a gap, with what the tracing library took and what is unknowable carved out.
struct Writer<'a> {
    account: &'a mut DeviceAccount,
    inputs: &'a mut InputGaps,
    thread: &'a HostThread,
    next: &'a Next<'a>,
    /// Where the host's part of the gap ends.
    to: u64,
    /// There is nothing to carve out.
    whole: bool,
    lost_end: u64,
    /// Host gaps that are long enough are waits for an input batch, should samples not know better.
    input_wait: bool,
    slack: Slack,
}

/// Run-ahead that a wait had cost before the gap opened and that is not charged to it yet.
struct Slack {
    nanos: u64,
    subject: Subject,
}

impl Slack {
    /// Charges the time from `from` on, at most to `to`: up to where.
    fn take(&mut self, from: u64, to: u64) -> u64 {
        let taken = to.min(from.saturating_add(self.nanos));
        self.nanos -= taken.saturating_sub(from);
        taken
    }
}

impl Writer<'_> {
    /// Enters the time between two calls, of which the first returned at `start` and the second was entered at
    /// `gap_end`.
    #[inline]
    fn host_gap(&mut self, start: u64, gap_end: u64) {
        let host_gap = gap_end.saturating_sub(start);
        let end = gap_end.clamp(self.account.position(), self.to);
        if host_gap <= DISPATCH_NANOS {
            // Shorter than what samples resolve.
            self.drain(end);
            self.write(Leaf::Dispatch, end, Subject::None);
        } else {
            self.long_host_gap(start, gap_end, end);
        }
    }

    /// Enters up to `end` the time between two calls that is more than the framework's cost of one operation.
    fn long_host_gap(&mut self, start: u64, gap_end: u64, end: u64) {
        let (host_gap, next) = (gap_end - start, self.next);
        let claims = self.thread.samples.claims(start, gap_end);
        let rest = end - self.account.position();
        let loading = match self.inputs.part_of(rest) {
            Some(part) if next.operation.input => part,
            None if self.input_wait && host_gap > INPUT_GAP_NANOS => rest,
            _ => 0,
        };
        if !claims.is_empty() {
            if next.operation.input {
                self.inputs.seen(claims.iter().any(SampleEvidence::is_loader));
            }
            self.seen(&claims, end, host_gap > PARKED_NANOS);
        } else if host_gap > PARKED_NANOS {
            self.write(Leaf::NoWork, end, next.operation.subject);
        } else {
            if loading > 0 && !self.thread.samples.loader_named_before(gap_end) {
                let loaded = self.account.position() + loading;
                self.load(loaded, next.operation.subject);
                if let Some(launch) = next.operation.launch {
                    // Also what the device hid of it.
                    let wait = InputWait { thread: launch.thread, start, end: gap_end - (end - loaded) };
                    self.inputs.waits.push(wait);
                }
            }
            self.late(Leaf::HostCpu, end, next.operation.subject);
        }
    }

    /// Enters what is left of the host gap up to `end`, as far as samples speak for it by what they saw.
    fn seen(&mut self, claims: &[SampleEvidence], end: u64, parked: bool) {
        let unseen = if parked { Leaf::NoWork } else { Leaf::HostCpu };
        for claim in claims {
            if claim.is_loader()
                && let Some(launch) = self.next.operation.launch
            {
                // Also what the device hid of it.
                let wait = InputWait { thread: launch.thread, start: claim.from, end: claim.to };
                self.inputs.waits.push(wait);
            }
            if claim.from > self.account.position() {
                self.late(unseen, claim.from.min(end), self.next.operation.subject);
            }
            self.account.sampled(claim.stack());
            for (cause, nanos) in claim.parts(self.account.position(), end) {
                let to = self.account.position() + nanos;
                let subject = Subject::Host(cause, claim.line());
                match cause.leaf() {
                    Leaf::DataLoading => self.load(to, subject),
                    // Off the cores for so long outside a loader, it waits to be asked.
                    Leaf::HostBlocked if parked => self.write(Leaf::NoWork, to, subject),
                    leaf => self.late(leaf, to, subject),
                }
            }
        }
        self.late(unseen, end, self.next.operation.subject);
    }

    /// Enters time in which the host was late, the run-ahead that a wait had cost it first.
    fn late(&mut self, leaf: Leaf, to: u64, subject: Subject) {
        if leaf != Leaf::NoWork {
            self.drain(to);
        }
        self.write(leaf, to, subject);
    }

    /// Enters time in a data loader. That is what the user can name, so it goes before the wait that exposed it;
    /// running ahead would have hidden it first, so that nothing more is charged to the wait for as long.
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

    /// Enters time up to `to`, but for what tracing took of it and what is unknowable.
    #[inline(never)]
    fn carve(&mut self, leaf: Leaf, to: u64, subject: Subject) {
        let known = to.min(self.lost_end);
        let from = self.account.position();
        // In a wait the thread had nothing else to do, so tracing cost nothing.
        if leaf != Leaf::SyncDrain {
            for (start, end) in self.thread.overheads_within(from, known) {
                self.account.idle(leaf, start, subject);
                self.account.idle(Leaf::Profiler, end, Subject::None);
            }
        }
        self.account.idle(leaf, known, subject);
        self.account.idle(Leaf::Unobserved, to, Subject::None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_of_gaps_that_is_loading_follows_the_newest_ones() {
        let mut gaps = InputGaps::default();
        let mut see = |count, loader| {
            (0..count).for_each(|_| gaps.seen(loader));
            gaps.part_of(1_280_000)
        };
        assert_eq!(see(2, true), None, "two prove nothing");
        assert_eq!(see(1, true), Some(1_280_000));
        assert_eq!(see(97, true), Some(1_280_000));
        // 100 of 127.
        assert_eq!(see(27, false), Some(1_280_000 * 100 / 127));
        // One more makes twice as many as count: half of them are forgotten, and the part stays.
        assert_eq!(see(1, false), Some(1_000_000));
        // 50 of 127, then 25 of 64.
        assert_eq!(see(63, false), Some(1_280_000 * 50 / 127));
        assert_eq!(see(1, false), Some(500_000));
        assert_eq!(see(63, true), Some(1_280_000 * (25 + 63) / 127));
    }
}
