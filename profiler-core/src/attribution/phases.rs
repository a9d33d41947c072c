//! Splits the window into phases that start with a new kernel, so that the bottleneck can be judged without
//! start-up.
//!
//! A kernel that runs for the first time means that the program is still starting up: code is loaded,
//! libraries choose their algorithms, caches are filled. So a new phase starts with each such kernel.
//! Start-up ends with the first phase that repeats the same work for long enough without a long pause
//! (`is_steady`): a program that then does something else, such as an evaluation, is not starting up
//! again. If there is no such phase, start-up ends with the last new kernel within the first half of all
//! operations. Half the operations rather than half the time, because start-up is long and has few operations.
//!
//! If builds of kernels do not last, start-up goes on for as long as they take most of the time: one for a new shape
//! has no new name. So a phase starts after each build, too.
//!
//! A recording that began while the program ran has no start-up: there, a kernel is new to the recording alone.
//!
//! The time of the newest phase is the growth of the device's accounts since the phase started, so recording
//! time costs it no work.

use gpuwhy_trace::record::NameId;
use rustc_hash::FxHashMap;

use super::builds::{Builds, KernelBuilds};
use super::host_cause::{GapSamples, GapTotals, Seen, Stratum, Subject};
use super::host_lead::HostLead;
use super::operation::{DeviceOperation, LaunchCall};
use super::phase_work::{LinkTime, Work};
use crate::leaf::{LEAF_COUNT, Leaf, Leaves};

/// Maximum number of phases; beyond that, the two adjacent ones with the fewest operations are joined, of those that
/// only a build divides if there are any.
const LIMIT: usize = 64;
/// Operations of a steady phase, and how frequently one of them repeats in it.
const STEADY_OPERATIONS: u64 = 20;
const STEADY_REPEATS: u32 = 10;
/// Minimum length of a steady phase, nanoseconds and as a fraction of the window.
const STEADY_NANOS: u64 = 200_000_000;
const STEADY_PART: u64 = 20;
/// Longest pause in a steady phase, as a fraction of its length.
const PAUSE_PART: u64 = 5;

/// Distinct causes of a phase with separate rows; further ones go to the row without subject.
const CAUSE_LIMIT: usize = 1_024;

/// Distinct causes tracked per gap; each piece of a further one counts as a gap.
const GAP_CAUSES: usize = 64;

/// Distinct strata and activities of a phase with separate rows (56 bytes each); time of further ones counts
/// as not sampled, in a stratum of its own.
const HOST_TIME_LIMIT: usize = 4_096;

/// Idle time in long host gaps, by stratum and sampled activity.
pub(super) type HostTimes = FxHashMap<(Stratum, Seen), GapSamples>;

/// Idle time by leaf and subject.
pub(super) type Causes = FxHashMap<(Leaf, Subject), GapTotals>;

/// Interval from one new kernel to the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Phase {
    /// Start, nanoseconds on the clock of the trace.
    start: u64,
    operations_before: u64,
    /// True if it starts with no new kernel but after a build.
    after_build: bool,
    /// True if one kind of operation repeats.
    repeats: bool,
    /// Longest idle time between two operations, nanoseconds.
    longest_pause: u64,
    /// Time by cause, once the phase is over.
    leaves: Leaves,
    pub(super) causes: Causes,
    pub(super) host_times: HostTimes,
    lead: HostLead,
    link: LinkTime,
    work: Work,
}

/// All phases, which together are the window.
#[derive(Debug)]
pub(super) struct Phases {
    rows: Vec<Phase>,
    builds: Builds,
    /// True if kernels were built since the newest operation.
    built: bool,
    /// True if the recording began while the program ran.
    midway: bool,
    operations: u64,
    /// Start of the newest operation.
    end: u64,
    /// By kind of operation: start of the phase in which it ran last, and the number of times there.
    repeats: Vec<(u64, u32)>,
    /// Accounts of the device at the start of the newest phase.
    leaves_at_begin: Leaves,
    /// Causes of the newest gap up to now: a gap in several pieces counts once for each cause.
    of_gap: Vec<((Leaf, Subject), u64)>,
}

impl Phases {
    /// The first phase, from `start`, when the accounts are empty.
    pub(super) fn new(start: u64) -> Self {
        Self {
            rows: vec![Phase::new(start, 0)],
            builds: Builds::default(),
            built: false,
            midway: false,
            operations: 0,
            end: start,
            repeats: Vec::new(),
            leaves_at_begin: [0; LEAF_COUNT],
            of_gap: Vec::new(),
        }
    }

    /// The timeline starts at `start`.
    pub(super) fn open(&mut self, start: u64) {
        let builds = std::mem::take(&mut self.builds);
        *self = Self { midway: self.midway, builds, ..Self::new(start) };
    }

    /// True if the recording began while the program ran.
    pub(super) fn is_midway(&self) -> bool {
        self.midway
    }

    /// Whether the recording began while the program ran.
    pub(super) fn set_midway(&mut self, midway: bool) {
        self.midway = midway;
    }

    /// An operation starts at `at`, up to which `leaves`, the accounts of the device, are complete; `novel`:
    /// for the first time.
    pub(super) fn operation(&mut self, at: u64, novel: bool, leaves: &Leaves) {
        if novel || self.built {
            self.begin(at, leaves);
            if let Some(last) = self.rows.last_mut() {
                last.after_build = !novel;
            }
            self.built = false;
        }
        self.operations += 1;
        self.end = at;
    }

    /// The device was idle for `nanos` while kernels were built or loaded; `built` if that is a build.
    pub(super) fn built(&mut self, nanos: u64, built: bool) {
        self.builds.push(self.operations, nanos, built);
        self.built |= built;
    }

    /// Builds after start-up.
    pub(super) fn kernel_builds(&self) -> KernelBuilds {
        let start = self.steady().first().map_or(0, |row| row.operations_before);
        self.builds.within(start, self.operations)
    }

    /// The newest operation is of this kind.
    #[inline]
    pub(super) fn kind(&mut self, kind: u32) {
        if self.rows.last().is_some_and(|last| !last.repeats) {
            self.count(kind as usize);
        }
    }

    #[inline(never)]
    fn count(&mut self, kind: usize) {
        let Some(last) = self.rows.last_mut() else { return };
        if self.repeats.len() <= kind {
            self.repeats.resize(kind + 1, (u64::MAX, 0));
        }
        let (phase, count) = &mut self.repeats[kind];
        if *phase != last.start {
            (*phase, *count) = (last.start, 0);
        }
        *count += 1;
        last.repeats = *count >= STEADY_REPEATS;
    }

    /// The device was idle for `nanos` before the newest operation, which the newest phase still contains.
    #[inline]
    pub(super) fn pause(&mut self, nanos: u64) {
        if let Some(last) = self.rows.last_mut() {
            last.longest_pause = last.longest_pause.max(nanos);
        }
    }

    fn begin(&mut self, at: u64, leaves: &Leaves) {
        if let Some(last) = self.rows.last_mut() {
            if last.operations_before == self.operations && last.start == at {
                return;
            }
            last.leaves = difference(leaves, &self.leaves_at_begin);
        }
        self.rows.push(Phase::new(at, self.operations));
        self.leaves_at_begin = *leaves;
        if self.rows.len() > LIMIT {
            self.join_the_smallest();
        }
    }

    /// Idle time from here on belongs to another gap than before.
    #[inline]
    pub(super) fn begin_gap(&mut self) {
        self.of_gap.clear();
    }

    /// Adds a piece to a cause of the newest gap. Returns the number of additional gaps with this cause (0 or
    /// 1), and its total in this gap.
    fn in_gap(&mut self, cause: (Leaf, Subject), nanos: u64) -> (u64, u64) {
        // A host activity is one cause, regardless of its line: the lines are parts of one row.
        let same = |known: (Leaf, Subject)| match (known, cause) {
            ((a, Subject::Host(did, _)), (b, Subject::Host(does, _))) => (a, did) == (b, does),
            (known, cause) => known == cause,
        };
        if let Some((_, so_far)) = self.of_gap.iter_mut().find(|(known, _)| same(*known)) {
            *so_far += nanos;
            return (0, *so_far);
        }
        if self.of_gap.len() < GAP_CAUSES {
            self.of_gap.push((cause, nanos));
        }
        (1, nanos)
    }

    /// Assigns `nanos` of idle time in the newest phase to `subject`.
    #[inline(never)]
    pub(super) fn root_cause(&mut self, leaf: Leaf, subject: Subject, nanos: u64) {
        let (count, longest_ns) = self.in_gap((leaf, subject), nanos);
        let Some(last) = self.rows.last_mut() else { return };
        let full = last.causes.len() >= CAUSE_LIMIT && !last.causes.contains_key(&(leaf, subject));
        let subject = if full { Subject::None } else { subject };
        last.causes.entry((leaf, subject)).or_default().add(GapTotals { count, total_ns: nanos, longest_ns });
    }

    /// Adds idle time in a long host gap to the newest phase.
    pub(super) fn host_time(&mut self, stratum: Stratum, seen: Seen, samples: u64, nanos: u64) {
        let Some(last) = self.rows.last_mut() else { return };
        let full = last.host_times.len() >= HOST_TIME_LIMIT && !last.host_times.contains_key(&(stratum, seen));
        let key = if full { (Stratum::default(), Seen::Nothing(Leaf::HostCpu)) } else { (stratum, seen) };
        last.host_times.entry(key).or_default().add(GapSamples { samples, nanos });
    }

    /// An operation of the newest phase is the first of `launch`; see [`HostLead`].
    pub(super) fn launched(&mut self, launch: &LaunchCall, busy_until: u64) {
        if let Some(last) = self.rows.last_mut() {
            last.lead.add(launch, busy_until);
        }
    }

    /// An operation of the newest phase, a copy of this leaf, needs the host link for `nanos`.
    pub(super) fn crossed(&mut self, leaf: Leaf, nanos: u64) {
        if let Some(last) = self.rows.last_mut() {
            last.link.add(leaf, nanos);
        }
    }

    /// The newest operation, a kernel of this name or something else.
    pub(super) fn ran(&mut self, operation: &DeviceOperation, kernel: Option<NameId>) {
        if let Some(last) = self.rows.last_mut() {
            last.work.add(operation, kernel);
        }
    }

    /// Work after start-up.
    pub(super) fn steady_work(&self) -> Work {
        let mut work = Work::default();
        self.steady().iter().for_each(|row| work.merge(&row.work));
        work
    }

    /// Minimum time that the copies after start-up need the host link.
    pub(super) fn steady_link_nanos(&self) -> u64 {
        let mut link = LinkTime::default();
        self.steady().iter().for_each(|row| link.merge(&row.link));
        link.nanos()
    }

    /// Launch leads after start-up.
    pub(super) fn steady_lead(&self) -> HostLead {
        let mut lead = HostLead::default();
        self.steady().iter().for_each(|row| lead.merge(&row.lead));
        lead
    }

    /// Moves `from..to` from one leaf to another. `leaves`: the accounts before the move.
    pub(super) fn transfer(&mut self, was: Leaf, is: Leaf, from: u64, to: u64, leaves: &Leaves) {
        let (was, is) = (was as usize, is as usize);
        let Some((newest, over)) = self.rows.split_last_mut() else { return };
        // Joining an adjacent phase may have moved a boundary: only time that is present can be taken.
        let has = leaves[was].wrapping_sub(self.leaves_at_begin[was]);
        let mut end = to;
        let taken = end.saturating_sub(newest.start.max(from)).min(has);
        end = end.min(newest.start);
        // The rest moves in the accounts at the start of the newest phase.
        let rest = to - from - taken;
        self.leaves_at_begin[was] = self.leaves_at_begin[was].wrapping_sub(rest);
        self.leaves_at_begin[is] = self.leaves_at_begin[is].wrapping_add(rest);
        for row in over.iter_mut().rev() {
            let begin = row.start.max(from);
            if begin >= end {
                break;
            }
            let nanos = (end - begin).min(row.leaves[was]);
            row.leaves[was] -= nanos;
            row.leaves[is] += nanos;
            end = begin;
        }
    }

    /// The phases after start-up, oldest first.
    pub(super) fn steady(&self) -> &[Phase] {
        if self.midway {
            return &self.rows;
        }
        let begin = self.rows.first().map_or(0, |row| row.start);
        let shortest = STEADY_NANOS.max(self.end.saturating_sub(begin) / STEADY_PART);
        // A build alone does not end a phase.
        let begins: Vec<usize> = (0..self.rows.len()).filter(|&index| !self.rows[index].after_build).collect();
        let steady = |of: usize| {
            let next = begins.get(of + 1).copied().unwrap_or(self.rows.len());
            let (end, before) =
                self.rows.get(next).map_or((self.end, self.operations), |next| (next.start, next.operations_before));
            let parts = self.rows.get(begins[of]..next).unwrap_or_default();
            let first = parts.first()?;
            let repeats = parts.iter().any(|row| row.repeats);
            let longest_pause = parts.iter().map(|row| row.longest_pause).max().unwrap_or_default();
            let whole = (first.start, first.operations_before, repeats, longest_pause);
            is_steady(whole, end, before, shortest).then_some(begins[of])
        };
        let last_new = || {
            let early = |row: &Phase| !row.after_build && row.operations_before <= self.operations / 2;
            self.rows.iter().rposition(early)
        };
        let first = (0..begins.len()).find_map(steady).or_else(last_new).unwrap_or(0);
        &self.rows[self.after_builds(first)..]
    }

    /// The last phase in the first half of the operations from the phase `first` on until which builds take most of the
    /// time, if builds do not last.
    fn after_builds(&self, first: usize) -> usize {
        let Some((steady, after)) = self.rows.get(first..).and_then(<[Phase]>::split_first) else { return first };
        if self.builds.within(steady.operations_before, self.operations).last() {
            return first;
        }
        let built = |row: &Phase| {
            let nanos = self.builds.nanos_between(steady.operations_before, row.operations_before);
            row.operations_before <= steady.operations_before.midpoint(self.operations)
                && self.operations - row.operations_before >= STEADY_OPERATIONS
                && 2 * nanos >= row.start - steady.start
        };
        after.iter().rposition(built).map_or(first, |index| first + 1 + index)
    }

    /// Start, end and time by cause of each phase after start-up, oldest first; `leaves` are the accounts of the
    /// device.
    pub(super) fn steady_times(&self, leaves: &Leaves) -> Vec<(u64, u64, Leaves)> {
        let rows = self.steady();
        let ends = rows.iter().skip(1).map(|next| next.start).chain([self.end]);
        let newest = difference(leaves, &self.leaves_at_begin);
        let mut times: Vec<(u64, u64, Leaves)> = Vec::new();
        for (index, (row, end)) in rows.iter().zip(ends).enumerate() {
            let leaves = if index + 1 == rows.len() { newest } else { row.leaves };
            match times.last_mut().filter(|_| row.after_build) {
                Some((_, until, sum)) => (*until, *sum) = (end, total(sum, &leaves)),
                None => times.push((row.start, end, leaves)),
            }
        }
        times
    }

    pub(super) fn steady_start(&self) -> u64 {
        self.steady().first().map_or(0, |row| row.start)
    }

    /// Time after start-up of `leaves`, the accounts of the device.
    pub(super) fn steady_leaves(&self, leaves: &Leaves) -> Leaves {
        let over = self.steady().split_last().map_or(&[][..], |(_, over)| over);
        over.iter().fold(difference(leaves, &self.leaves_at_begin), |sum, row| total(&sum, &row.leaves))
    }

    fn join_the_smallest(&mut self) {
        let end = |index: usize| self.rows.get(index + 1).map_or(self.operations, |next| next.operations_before);
        let size = |index: usize| end(index + 1) - self.rows[index].operations_before;
        // The start of a phase with a new kernel says more.
        let order = |&index: &usize| (!self.rows[index + 1].after_build, size(index));
        let Some(index) = (0..self.rows.len() - 1).min_by_key(order) else { return };
        let Phase { leaves, causes, host_times, lead, link, work, repeats, longest_pause, .. } =
            self.rows.remove(index + 1);
        let newest = index + 1 == self.rows.len();
        let row = &mut self.rows[index];
        if newest {
            // The newest phase now starts where the previous one did.
            self.leaves_at_begin = difference(&self.leaves_at_begin, &row.leaves);
        } else {
            row.leaves = total(&row.leaves, &leaves);
        }
        row.repeats |= repeats;
        row.longest_pause = row.longest_pause.max(longest_pause);
        row.lead.merge(&lead);
        row.link.merge(&link);
        row.work.merge(&work);
        for (key, totals) in causes {
            row.causes.entry(key).or_default().add(totals);
        }
        for (key, time) in host_times {
            row.host_times.entry(key).or_default().add(time);
        }
    }
}

/// Modulo 2^64, so that moving past time about never underflows in between.
fn difference(a: &Leaves, b: &Leaves) -> Leaves {
    std::array::from_fn(|leaf| a[leaf].wrapping_sub(b[leaf]))
}

fn total(a: &Leaves, b: &Leaves) -> Leaves {
    std::array::from_fn(|leaf| a[leaf].wrapping_add(b[leaf]))
}

impl Phase {
    fn new(start: u64, operations_before: u64) -> Self {
        Self { start, operations_before, ..Self::default() }
    }
}

/// True if a phase, which ends at `end` after `operations` of the window, is at least `shortest` long and repeats the
/// same work without a long pause. The phase is its start, the operations before it, whether it repeats work, and its
/// longest pause.
fn is_steady(
    (start, before, repeats, longest_pause): (u64, u64, bool, u64),
    end: u64,
    operations: u64,
    shortest: u64,
) -> bool {
    let length = end.saturating_sub(start);
    repeats && operations - before >= STEADY_OPERATIONS && length >= shortest && longest_pause <= length / PAUSE_PART
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Phases with the accounts of their device.
    struct DevicePhases {
        phases: Phases,
        leaves: Leaves,
    }

    impl DevicePhases {
        fn new() -> Self {
            Self { phases: Phases::new(0), leaves: [0; LEAF_COUNT] }
        }

        /// A long start-up of few operations, then many.
        fn program() -> Self {
            let mut device = Self::new();
            device.operation(0, true);
            device.add(Leaf::HostCpu, 9_000);
            device.phases.root_cause(Leaf::HostCpu, Subject::None, 9_000);
            device.operation(9_000, true);
            for step in 0..100 {
                device.add(Leaf::Compute, 10);
                // A new kernel shortly before the end, too.
                device.operation(9_010 + 10 * step, step == 90);
            }
            device
        }

        fn operation(&mut self, at: u64, novel: bool) {
            self.phases.operation(at, novel, &self.leaves);
        }

        fn add(&mut self, leaf: Leaf, nanos: u64) {
            self.leaves[leaf as usize] += nanos;
        }

        /// Times of each phase.
        fn times(&self) -> Vec<Leaves> {
            let (newest, over) =
                (difference(&self.leaves, &self.phases.leaves_at_begin), self.phases.rows.split_last());
            over.map_or(&[][..], |(_, over)| over).iter().map(|row| row.leaves).chain([newest]).collect()
        }
    }

    #[test]
    fn start_up_is_what_comes_before_the_last_new_kernel_of_the_first_half() {
        let device = DevicePhases::program();
        let steady = device.phases.steady_leaves(&device.leaves);
        assert_eq!(device.phases.steady_start(), 9_000);
        assert_eq!((steady[Leaf::HostCpu as usize], steady[Leaf::Compute as usize]), (0, 1_000));
        assert!(device.phases.steady().iter().all(|phase| phase.causes.is_empty()));
    }

    #[test]
    fn start_up_goes_on_while_builds_take_most_of_the_time() {
        // Each of eight builds is ten times as long as the step behind it; then a hundred steps.
        let program = |builds: u64| {
            let mut device = DevicePhases::new();
            device.operation(0, true);
            let mut at = 0;
            for step in 0..108 {
                if step < 8 {
                    device.add(Leaf::KernelBuild, builds);
                    device.phases.built(builds, true);
                    at += builds;
                }
                device.operation(at, false);
                device.add(Leaf::Compute, 10);
                at += 10;
            }
            (device.phases.steady_start(), device.phases.kernel_builds())
        };
        assert_eq!(program(100).0, 8 * 100 + 7 * 10);
        assert_eq!(program(100).1, KernelBuilds::default());
        // Here other work takes longer.
        let (start, builds) = program(5);
        assert_eq!((start, builds.count, builds.last()), (20, 6, false), "until the second");
    }

    #[test]
    fn joining_keeps_every_nanosecond_and_the_large_intervals() {
        let mut device = DevicePhases::program();
        for novelty in 0..1_000 {
            device.add(Leaf::Dispatch, 1);
            device.operation(20_000 + novelty, true);
        }
        let times = device.times();
        assert!(times.len() <= LIMIT);
        assert_eq!(times.iter().flatten().sum::<u64>(), 9_000 + 1_000 + 1_000);
        assert!(times.iter().any(|leaves| leaves[Leaf::Compute as usize] == 910), "the 91 steps stay together");
    }

    #[test]
    fn the_busier_direction_of_the_link_counts_and_joining_keeps_it() {
        let mut device = DevicePhases::new();
        for at in 0..1_000 {
            device.operation(at, true);
            device.phases.crossed(Leaf::CopyH2dPageable, 2);
            device.phases.crossed(Leaf::CopyH2dPinned, 1);
            device.phases.crossed(Leaf::CopyD2hPinned, 2);
            device.phases.crossed(Leaf::CopyD2d, 50);
        }
        let mut whole = LinkTime::default();
        device.phases.rows.iter().for_each(|row| whole.merge(&row.link));
        assert_eq!(whole.nanos(), 3_000);
        // A phase starts with each operation, so start-up ends with the first half of the operations, as far
        // as joining preserves that cut.
        let steady = device.phases.steady_link_nanos();
        assert!((1_500..3_000).contains(&steady), "{steady}");
    }

    #[test]
    fn a_transfer_crosses_boundaries() {
        let compute = |device: &DevicePhases| -> Vec<u64> {
            device.times().iter().map(|leaves| leaves[Leaf::Compute as usize]).collect()
        };
        let mut device = DevicePhases::new();
        for at in [0, 100, 200] {
            device.operation(at, true);
            device.add(Leaf::HostCpu, 100);
        }
        for (from, to) in [(50, 120), (190, 230)] {
            device.phases.transfer(Leaf::HostCpu, Leaf::Compute, from, to, &device.leaves);
            device.leaves[Leaf::HostCpu as usize] -= to - from;
            device.leaves[Leaf::Compute as usize] += to - from;
        }
        assert_eq!(compute(&device), [50, 30, 30]);
        assert!(device.times().iter().all(|leaves| leaves.iter().sum::<u64>() == 100));
    }
}
