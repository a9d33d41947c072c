//! Observed activity of a launching thread as far as it explains idle device time, and the possible causes.

use crate::api::ApiClass;
use crate::attribution::host_activity::{CallSeen, HostActivity};
use crate::attribution::host_cause::HostCause;
use crate::leaf::{Cause, Leaf};

/// Observed activity of a thread. The discriminant indexes [`SeenTimes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum ThreadActivity {
    /// In a data loader.
    Loader,
    /// Certainly outside CUDA, and for a long time: asleep, in I/O, waiting for a child or a core, collecting
    /// garbage; or in a call that loads code or builds a graph.
    HostOnly,
    /// In a call that launches.
    Launching,
    /// In a call that waits for the device.
    Waiting,
    /// In a call that copies; it is unknown whether bytes crossed the link at that time.
    Copying,
    /// In a call that copies, while bytes crossed the link to the host.
    Moving,
    /// In a call that allocates or frees.
    Allocating,
    /// On a core, outside CUDA.
    Code,
    /// On a core; unknown if within CUDA, as the sample has no native functions.
    Unseen,
    /// Waiting, possibly for the device, for another thread or for something else.
    Unclear,
}

/// Number of states.
pub(super) const SEEN_COUNT: usize = ThreadActivity::Unclear as usize + 1;

/// Traffic over the link to the host, bytes per nanosecond, above which a copying call counts as moving data:
/// twice that of launches alone. Copies from pageable memory move 3 to 12 (docs/design/monitoring.md).
const MOVING_TRAFFIC: f64 = 1.0;

/// Times by `Seen as usize`.
pub(super) type SeenTimes = [f64; SEEN_COUNT];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CauseSet(u16);

impl CauseSet {
    const ALL: Self = Self(u16::MAX);

    const fn of(cause: Cause) -> Self {
        Self(1 << cause as u16)
    }

    const fn with(self, cause: Cause) -> Self {
        Self(self.0 | Self::of(cause).0)
    }

    /// True if `cause` is in the set.
    pub(super) const fn has(self, cause: Cause) -> bool {
        self.0 & Self::of(cause).0 != 0
    }

    /// True if the set contains only `cause`.
    pub(super) const fn is_only(self, cause: Cause) -> bool {
        self.0 == Self::of(cause).0
    }
}

impl ThreadActivity {
    /// All states, in the order of their discriminants.
    pub(super) const ALL: [Self; SEEN_COUNT] = [
        Self::Loader,
        Self::HostOnly,
        Self::Launching,
        Self::Waiting,
        Self::Copying,
        Self::Moving,
        Self::Allocating,
        Self::Code,
        Self::Unseen,
        Self::Unclear,
    ];

    /// Possible causes of idle device time during this state. While the device is `partly` busy, any idle
    /// time may be the short gaps between queued operations, which belong to launches.
    pub(super) const fn causes(self, partly: bool) -> CauseSet {
        let own = match self {
            Self::Loader => CauseSet::of(Cause::DataLoading),
            Self::HostOnly => CauseSet::of(Cause::HostCpu),
            Self::Launching => CauseSet::of(Cause::Launch),
            Self::Waiting => CauseSet::of(Cause::Sync),
            Self::Copying => CauseSet::of(Cause::Copy).with(Cause::Launch).with(Cause::Sync),
            Self::Moving => CauseSet::of(Cause::Copy),
            Self::Allocating => CauseSet::of(Cause::Allocator),
            Self::Code => CauseSet::of(Cause::HostCpu),
            Self::Unseen => CauseSet::of(Cause::HostCpu).with(Cause::Launch).with(Cause::Allocator),
            Self::Unclear => CauseSet::ALL,
        };
        if partly { own.with(Cause::Launch) } else { own }
    }

    /// State of a copying call, given the traffic on the link to the host (bytes per nanosecond): without
    /// any, it waits for the device, like `.item()`.
    pub(super) fn with_traffic(self, traffic: Option<f64>) -> Self {
        match (self, traffic) {
            (Self::Copying, Some(rate)) if rate >= MOVING_TRAFFIC => Self::Moving,
            (Self::Copying, Some(_)) => Self::Waiting,
            (seen, _) => seen,
        }
    }

    /// True if the thread may have waited for the device.
    pub(super) const fn may_wait(self) -> bool {
        matches!(self, Self::Waiting | Self::Copying | Self::Unseen | Self::Unclear)
    }

    fn of_call(call: CallSeen) -> Self {
        match call {
            CallSeen::Unseen => Self::Unseen,
            CallSeen::Outside => Self::Code,
            CallSeen::InsideUnknown => Self::Unclear,
            CallSeen::Inside(class) => match class {
                ApiClass::KernelLaunch | ApiClass::GraphLaunch | ApiClass::Memset => Self::Launching,
                ApiClass::Copy | ApiClass::BlockingCopy => Self::Copying,
                ApiClass::Synchronize | ApiClass::Query => Self::Waiting,
                ApiClass::Memory => Self::Allocating,
                ApiClass::LoadCode | ApiClass::Load | ApiClass::GraphBuild => Self::HostOnly,
                // Part of a framework's work per operation.
                ApiClass::CaptureBegin | ApiClass::CaptureEnd | ApiClass::Other => Self::Unseen,
            },
        }
    }
}

/// Time since the previous sample by observed state, nanoseconds. `moment` is the state at the sample itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeenParts {
    pub(super) parts: [(ThreadActivity, u64); 3],
    /// True if the thread was off the cores, in the same place, the entire time.
    pub(super) is_still: bool,
}

impl SeenParts {
    /// States of `activity`; `ran`: the thread was on a core, or ready for one, at the sample.
    pub(super) fn new(activity: &HostActivity, ran: bool) -> Self {
        let [on, ready, off] = activity.parts;
        let by_cause = |cause: HostCause| match cause {
            cause if cause.leaf() == Leaf::DataLoading => ThreadActivity::Loader,
            HostCause::GarbageCollection
            | HostCause::Preempted
            | HostCause::Io
            | HostCause::Disk
            | HostCause::Sleep
            | HostCause::Child => ThreadActivity::HostOnly,
            HostCause::Code => ThreadActivity::Unseen,
            _ => ThreadActivity::Unclear,
        };
        // The stack is from that moment: the rest of the time is classified by the thread's CPU times alone.
        let by_stack = |cause: HostCause| match by_cause(cause) {
            ThreadActivity::Loader => ThreadActivity::Loader,
            seen => match activity.call {
                CallSeen::Inside(_) | CallSeen::InsideUnknown => ThreadActivity::of_call(activity.call),
                CallSeen::Outside if cause == HostCause::Code => ThreadActivity::Code,
                CallSeen::Outside | CallSeen::Unseen => seen,
            },
        };
        let on_seen = if ran { by_stack(on.0) } else { by_cause(on.0) };
        let off_seen = if ran { by_cause(off.0) } else { by_stack(off.0) };
        let is_still = !ran && on.1 == 0 && ready.1 == 0;
        Self { parts: [(on_seen, on.1), (by_cause(ready.0), ready.1), (off_seen, off.1)], is_still }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discriminants_follow_the_list_and_every_state_leaves_a_cause() {
        for (index, seen) in ThreadActivity::ALL.into_iter().enumerate() {
            assert_eq!(seen as usize, index);
            assert_ne!(seen.causes(false).0, 0);
            assert!(seen.causes(true).has(Cause::Launch), "{seen:?}");
        }
        assert!(ThreadActivity::Loader.causes(false).is_only(Cause::DataLoading));
        assert!(!ThreadActivity::Loader.causes(true).is_only(Cause::DataLoading));
    }

    #[test]
    fn the_stack_speaks_for_the_moment_and_clocks_for_the_rest() {
        let launch = CallSeen::Inside(ApiClass::KernelLaunch);
        let parts = [(HostCause::Code, 30), (HostCause::Preempted, 0), (HostCause::Lock, 70)];
        let seen = |call, ran| SeenParts::new(&HostActivity { parts, call }, ran).parts.map(|part| part.0);
        assert_eq!(seen(launch, true), [ThreadActivity::Launching, ThreadActivity::HostOnly, ThreadActivity::Unclear]);
        assert_eq!(seen(launch, false), [ThreadActivity::Unseen, ThreadActivity::HostOnly, ThreadActivity::Launching]);
        assert_eq!(
            seen(CallSeen::Outside, true),
            [ThreadActivity::Code, ThreadActivity::HostOnly, ThreadActivity::Unclear]
        );
        assert_eq!(
            seen(CallSeen::Outside, false),
            [ThreadActivity::Unseen, ThreadActivity::HostOnly, ThreadActivity::Unclear]
        );
        let loading = [(HostCause::LoaderInline, 30), (HostCause::LoaderInline, 0), (HostCause::LoaderWait, 70)];
        let loader = SeenParts::new(&HostActivity { parts: loading, call: launch }, true);
        assert_eq!(loader.parts.map(|part| part.0), [ThreadActivity::Loader; 3], "its copies belong to it");
    }
}
