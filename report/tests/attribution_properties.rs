//! Invariants of every program, on random programs.
//!
//! These tests do not check that leaves name the right cause; only properties that hold for any cause.

use crate::support::{Scenario, gpu};
use gpuwhy_trace::record::{CopyKind, MemoryKind, Record, Timestamp};
use profiler_core::attribution::{Attributor, is_communication};
use profiler_core::leaf::{BUSY_COUNT, LEAF_COUNT, Leaf, Leaves};
use proptest::prelude::*;

/// One action of a host thread: how long it stays away from CUDA first, and what it does then.
#[derive(Clone, Debug)]
struct Action {
    thread: u32,
    pause: u64,
    what: u8,
    lasting: u64,
    stream: u32,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = (0..3u32, 0..300u64, 0..10u8, 0..200u64, 0..4u32)
        .prop_map(|(thread, pause, what, lasting, stream)| Action { thread, pause, what, lasting, stream });
    prop::collection::vec(action, 1..80)
}

/// Plays actions: each thread calls in order, each stream runs in order, a synchronization waits for everything.
fn play(actions: &[Action], scale: u64) -> Scenario {
    let mut scenario = Scenario::new();
    play_into(&mut scenario, actions, scale, 0, 0);
    scenario
}

/// Plays actions from `at` microseconds on threads from `first_thread`; returns the time by which all are
/// done.
fn play_into(scenario: &mut Scenario, actions: &[Action], scale: u64, at: u64, first_thread: u32) -> u64 {
    let mut clock = [at + 10 * scale; 3];
    let mut streams = [at; 4];
    for action in actions {
        let thread = first_thread + action.thread;
        let now = &mut clock[action.thread as usize];
        *now += action.pause * scale;
        let call = *now;
        let stream = &mut streams[action.stream as usize];
        let begin = (call + 7 * scale).max(*stream);
        let lasting = action.lasting * scale;
        let on = gpu(0).stream(action.stream);
        let work = match action.what {
            0..=4 => on.kernel(["gemm", "relu", "softmax", "conv", "ncclDevKernel_AllReduce"][action.what as usize]),
            5 => on.h2d(MemoryKind::Pageable, 8_192),
            6 => on.d2h(MemoryKind::Pinned, 64),
            7 => on.memset(64),
            8 => {
                let done = streams.iter().copied().max().unwrap_or(0).max(call) + 2 * scale;
                scenario.call(thread, "cudaDeviceSynchronize_v3020", call, done - call);
                *now = done + scale;
                continue;
            }
            _ => {
                scenario.call(thread, "cudaMalloc_v3020", call, lasting);
                *now = call + lasting + scale;
                continue;
            }
        };
        work.at(begin).lasting(lasting).launched(scenario, thread, call, 5 * scale);
        *now = call + 6 * scale;
        *stream = begin + lasting;
    }
    clock.into_iter().chain(streams).max().unwrap_or(at)
}

/// Start and end of device work, nanoseconds.
fn span(record: &Record) -> Option<(u64, u64)> {
    let (start, end) = match record {
        Record::Kernel(kernel) => (kernel.start, kernel.end),
        Record::Copy(copy) => (copy.start, copy.end),
        Record::Memset(memset) => (memset.start, memset.end),
        _ => return None,
    };
    Some((start.nanos(), end.nanos()))
}

/// The device work of a scenario, as starts and ends.
fn spans(scenario: &Scenario) -> Vec<(u64, u64)> {
    scenario.records.iter().filter_map(|(_, record)| span(record)).collect()
}

/// From the first start of any device work to the last end.
fn bounds(scenario: &Scenario) -> Option<(u64, u64)> {
    let spans = spans(scenario);
    Some((spans.iter().map(|span| span.0).min()?, spans.iter().map(|span| span.1).max()?))
}

/// Leaves of device 0, all 0 when it ran no work.
fn leaves_of(attributor: &Attributor) -> Leaves {
    attributor.devices().next().map_or([0; LEAF_COUNT], |account| *account.leaves())
}

/// The leaf of running device work.
fn leaf_of(record: &Record, scenario: &Scenario) -> Option<Leaf> {
    match record {
        Record::Kernel(kernel) => {
            let name = scenario.dictionary.name(scenario.dictionary.launch_config(kernel.config).name);
            Some(if is_communication(name) { Leaf::Communication } else { Leaf::Compute })
        }
        Record::Copy(copy) if copy.kind == CopyKind::HostToDevice => Some(Leaf::CopyH2dPageable),
        Record::Copy(_) => Some(Leaf::CopyD2hPinned),
        Record::Memset(_) => Some(Leaf::Memset),
        _ => None,
    }
}

/// The part of device work between two times, if there is any. Work of zero duration is at its start.
fn clipped(mut record: Record, from: u64, to: u64) -> Option<Record> {
    let Some((start, end)) = span(&record) else { return Some(record) };
    let inside = if start == end { from <= start && start < to } else { start < to && end > from };
    if !inside {
        return None;
    }
    let (start, end) = (Timestamp::from_nanos(start.max(from)), Timestamp::from_nanos(end.min(to)));
    match &mut record {
        Record::Kernel(kernel) => (kernel.start, kernel.end) = (start, end),
        Record::Copy(copy) => (copy.start, copy.end) = (start, end),
        Record::Memset(memset) => (memset.start, memset.end) = (start, end),
        _ => {}
    }
    Some(record)
}

/// `scenario` with the records that `keep` returns.
fn with_records(mut scenario: Scenario, mut keep: impl FnMut(Record) -> Option<Record>) -> Scenario {
    scenario.records =
        scenario.records.into_iter().filter_map(|(complete, record)| Some((complete, keep(record)?))).collect();
    scenario
}

/// All data about the devices that a report shows.
fn totals(attributor: &Attributor) -> String {
    let devices: Vec<_> = attributor
        .devices()
        .map(|account| {
            let causes: Vec<_> = Leaf::ALL.into_iter().map(|leaf| account.causes(leaf)).collect();
            (
                account.window_ns(),
                *account.leaves(),
                account.steady_leaves(),
                *account.overlap(),
                causes,
                account.steps(),
                account.match_rate(),
            )
        })
        .collect();
    format!("{devices:?} {:?}", attributor.completeness())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn leaves_sum_to_the_window_at_every_flush(actions in actions(), period in 50..5_000u64) {
        let scenario = play(&actions, 1);
        for account in scenario.run_with(period, 0).devices() {
            prop_assert_eq!(account.leaves().iter().sum::<u64>(), account.window_ns());
            prop_assert_eq!(account.steady_leaves().iter().sum::<u64>() + account.start_up_ns(), account.window_ns());
        }
    }

    #[test]
    fn busy_time_is_the_union_of_the_operations(actions in actions()) {
        let scenario = play(&actions, 1);
        let mut intervals = spans(&scenario);
        intervals.sort_unstable();
        let (mut union, mut covered) = (0, 0);
        for (start, end) in intervals {
            union += end.max(covered) - start.max(covered).min(end.max(covered));
            covered = covered.max(end);
        }
        let busy: u64 = scenario.run().devices().map(|account| account.leaves()[..BUSY_COUNT].iter().sum::<u64>()).sum();
        prop_assert_eq!(busy, union);
    }

    #[test]
    fn order_within_a_flush_and_its_period_do_not_matter(
        actions in actions(), seed in 1..u64::MAX, period in 50..20_000u64,
    ) {
        let scenario = play(&actions, 1);
        let reference = totals(&scenario.run_with(1_000_000, 0));
        prop_assert_eq!(&totals(&scenario.run_with(1_000_000, seed)), &reference);
        prop_assert_eq!(&totals(&scenario.run_with(period, seed)), &reference);
    }

    #[test]
    fn everything_is_joined_and_nothing_is_late(actions in actions(), period in 50..20_000u64) {
        let completeness = play(&actions, 1).run_with(period, 3).completeness();
        prop_assert_eq!(completeness.launches_without_activity, 0);
        prop_assert_eq!(completeness.activities_without_launch, 0);
        prop_assert_eq!(completeness.late_ns, 0);
    }

    #[test]
    fn busy_leaves_scale_with_time(actions in actions(), scale in 2..5u64) {
        // Idle leaves have thresholds in absolute time; busy ones have none.
        let (one, many) = (play(&actions, 1).run(), play(&actions, scale).run());
        for (small, large) in one.devices().zip(many.devices()) {
            for leaf in 0..BUSY_COUNT {
                prop_assert_eq!(small.leaves()[leaf] * scale, large.leaves()[leaf]);
            }
            prop_assert_eq!(small.window_ns() * scale, large.window_ns());
        }
    }

    #[test]
    fn empty_operations_on_other_streams_change_nothing(actions in actions()) {
        let plain = play(&actions, 1);
        let mut more = play(&actions, 1);
        let Some(account) = plain.run().devices().next().map(|account| *account.leaves()) else { return Ok(()) };
        // Only in parallel with running kernels: an operation in a gap would end the gap.
        let inside: Vec<u64> = more.records.iter().filter_map(|(_, record)| match record {
            Record::Kernel(kernel) if kernel.end > kernel.start => {
                Some((kernel.start.nanos() - crate::support::ZERO) / 1_000)
            }
            _ => None,
        }).collect();
        for (index, at) in inside.into_iter().enumerate() {
            let on = gpu(0).stream(90 + index as u32 % 2);
            on.kernel("idle_stream").at(at).lasting(0).launched(&mut more, 8, at.saturating_sub(6), 0);
        }
        let leaves = more.run().devices().next().map(|account| *account.leaves());
        prop_assert_eq!(leaves, Some(account));
    }

    /// Each part has separate threads: the cause of a gap depends on how long a thread was away, so the first
    /// gap of a part could have a different cause after another part. Busy time is the same in any case.
    #[test]
    fn a_run_is_its_intervals_and_the_idle_time_between_them(
        before in actions(), after in actions(), pause in 0..50_000u64, period in 50..20_000u64,
    ) {
        let (mut first, mut second) = (Scenario::new(), Scenario::new());
        let cut = play_into(&mut first, &before, 1, 0, 0) + pause;
        play_into(&mut second, &after, 1, cut, 10);
        let (Some((_, idle_from)), Some((idle_to, _))) = (bounds(&first), bounds(&second)) else { return Ok(()) };
        let parts = [leaves_of(&first.run_with(period, 0)), leaves_of(&second.run_with(period, 0))];
        play_into(&mut first, &after, 1, cut, 10);
        let whole = leaves_of(&first.run_with(period, 0));
        let mut between = 0;
        for leaf in 0..LEAF_COUNT {
            let sum = parts[0][leaf] + parts[1][leaf];
            prop_assert!(whole[leaf] >= sum && (leaf >= BUSY_COUNT || whole[leaf] == sum), "{leaf}");
            between += whole[leaf] - sum;
        }
        prop_assert_eq!(between, idle_to - idle_from);
    }

    /// For a cut at any point, also through running operations, busy time is exact by leaf, and idle time in
    /// total. Causes of idle time are not, since either half lacks calls or operations of the other.
    #[test]
    fn a_cut_anywhere_moves_no_busy_time(actions in actions(), per_mille in 1..1_000u64) {
        let whole = play(&actions, 1);
        let Some((start, end)) = bounds(&whole).filter(|(start, end)| start < end) else { return Ok(()) };
        let cut = start + (end - start) * per_mille / 1_000;
        let before = with_records(play(&actions, 1), |record| clipped(record, 0, cut));
        let after = with_records(play(&actions, 1), |record| clipped(record, cut, u64::MAX));
        let (Some((_, idle_from)), Some((idle_to, _))) = (bounds(&before), bounds(&after)) else {
            return Err(TestCaseError::fail("something runs on either side of the cut"));
        };
        let [whole, before, after] = [whole, before, after].map(|scenario| leaves_of(&scenario.run()));
        for leaf in 0..BUSY_COUNT {
            prop_assert_eq!(whole[leaf], before[leaf] + after[leaf], "{}", leaf);
        }
        let idle = |leaves: &Leaves| leaves[BUSY_COUNT..].iter().sum::<u64>();
        prop_assert_eq!(idle(&whole), idle(&before) + idle(&after) + idle_to - idle_from);
    }

    /// Losing an operation exposes the work that it overlapped, so one busy leaf can grow. But the time with
    /// any operation of at least a given priority only shrinks, and by no more than the lost operations of
    /// that priority lasted.
    #[test]
    fn lost_operations_cost_no_more_than_they_lasted(
        actions in actions(), lost in prop::collection::vec(0..4u8, 80), period in 50..20_000u64,
    ) {
        let whole = play(&actions, 1);
        let (mut index, mut kernels, mut lasted) = (0, 0, [0; BUSY_COUNT]);
        let rest = with_records(play(&actions, 1), |record| {
            let Some((leaf, (start, end))) = leaf_of(&record, &whole).zip(span(&record)) else { return Some(record) };
            index += 1;
            if lost[index - 1] != 0 {
                return Some(record);
            }
            kernels += u64::from(matches!(record, Record::Kernel(_)));
            lasted[leaf as usize] += end - start;
            None
        });
        let run = rest.run_with(period, 0);
        prop_assert_eq!(run.completeness().launches_without_activity, kernels);
        let (before, after) = (leaves_of(&whole.run_with(period, 0)), leaves_of(&run));
        for count in 1..=BUSY_COUNT {
            let sum = |leaves: &[u64]| leaves[..count].iter().sum::<u64>();
            prop_assert!(sum(&after) <= sum(&before) && sum(&before) - sum(&after) <= sum(&lasted), "{count}");
        }
        let idle = |leaves: &Leaves| leaves[BUSY_COUNT..].iter().sum::<u64>();
        prop_assert!(idle(&after) <= idle(&before) + lasted.iter().sum::<u64>());
    }

    /// If the device is idle before each launch, a lost kernel costs exactly the time from the return of its
    /// launch to the next launch with a recorded kernel, and only `unobserved` grows: in a loop of equal
    /// slots, x % of the records are at most x % of the time. (A kernel queued after a lost one would appear
    /// to wait, and its gap would be explained differently.)
    #[test]
    fn lost_kernels_of_an_eager_loop_become_unobserved_time(
        kernels in prop::collection::vec((1..300u64, 1..100u64, 0..5u8), 3..120), period in 50..20_000u64,
    ) {
        let (mut whole, mut rest) = (Scenario::new(), Scenario::new());
        let (mut at, mut dropped, mut expected, mut unseen_from) = (10, 0, 0, None);
        for (index, &(pause, lasting, lost)) in kernels.iter().enumerate() {
            let work = gpu(0).kernel("gemm").at(at + 7).lasting(lasting);
            work.clone().launched(&mut whole, 1, at, 5);
            // The ends stay, so that the window does.
            if lost == 0 && index > 0 && index + 1 < kernels.len() {
                rest.call(1, "cudaLaunchKernel_v7000", at, 5);
                dropped += 1;
                unseen_from.get_or_insert(at + 5);
            } else {
                work.launched(&mut rest, 1, at, 5);
                expected += unseen_from.take().map_or(0, |from| (at - from) * 1_000);
            }
            at += 7 + lasting + pause;
        }
        let run = rest.run_with(period, 0);
        let (before, after) = (leaves_of(&whole.run_with(period, 0)), leaves_of(&run));
        prop_assert_eq!(run.completeness().launches_without_activity, dropped);
        prop_assert_eq!(before.iter().sum::<u64>(), after.iter().sum::<u64>());
        prop_assert_eq!((before[Leaf::Unobserved as usize], after[Leaf::Unobserved as usize]), (0, expected));
        for leaf in Leaf::ALL.into_iter().filter(|&leaf| leaf != Leaf::Unobserved) {
            prop_assert!(after[leaf as usize] <= before[leaf as usize], "{} grows", leaf.name());
        }
    }

    #[test]
    fn no_input_makes_it_panic_or_lose_count(
        raw in prop::collection::vec((any::<u8>(), any::<u64>(), any::<u64>(), 0..6u32), 0..200),
        at in any::<u64>(),
    ) {
        use gpuwhy_trace::record::*;
        let mut scenario = Scenario::new();
        for name in ["cudaLaunchKernel_v7000", "cudaGraphLaunch_v10000", "cudaStreamBeginCapture_v1", "cudaMemcpy_v3020"] {
            scenario.call(1, name, 0, 0);
        }
        let mut attributor = Attributor::new();
        for (index, &(kind, start, end, id)) in raw.iter().enumerate() {
            let (start, end) = (Timestamp::from_nanos(start), Timestamp::from_nanos(end));
            let (correlation, thread, device) = (CorrelationId(id), ThreadId(id % 2 + 1), DeviceId(id / 3));
            let record = match kind % 5 {
                0 => Record::Kernel(Kernel { start, end, correlation, device, config: LaunchConfigId(id), ..Kernel::default() }),
                1 => Record::Copy(Copy { start, end, correlation, device, bytes: u64::MAX, ..Copy::default() }),
                2 => Record::Memset(Memset { start, end, correlation, device, ..Memset::default() }),
                3 => Record::Overhead(Overhead { start, end, thread, kind: OverheadKind::BufferFlush, ..Overhead::default() }),
                _ => Record::Api(ApiCall { start, end, thread, correlation, function: ApiFunctionId(id), return_value: id % 2 }),
            };
            attributor.push(&record, &scenario.dictionary);
            if index % 17 == 0 {
                attributor.flushed(start, &scenario.dictionary);
            }
        }
        attributor.finish(Timestamp::from_nanos(at), &scenario.dictionary);
        for account in attributor.devices() {
            prop_assert_eq!(account.leaves().iter().sum::<u64>(), account.window_ns());
        }
        let report = scenario.report_of(&attributor);
        let counts = report.completeness;
        prop_assert_eq!(
            counts.kernels + counts.copies + counts.memsets + counts.overheads + counts.api_calls,
            raw.len() as u64
        );
    }
}

/// A program that repeats the same actions, long enough for its steps to be found.
fn repeated(actions: &[Action]) -> Vec<Action> {
    actions.iter().cycle().take(actions.len() * 1_800usize.div_ceil(actions.len())).cloned().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn steps_sum_to_their_time_and_follow_each_other(actions in actions(), period in 200..50_000u64) {
        for account in play(&repeated(&actions), 1).run_with(period, 0).devices() {
            let steps = account.steps();
            prop_assert!(steps.seen >= steps.rows.len() as u64);
            for row in &steps.rows {
                prop_assert_eq!(row.leaves.iter().sum::<u64>(), row.duration());
                prop_assert!(row.operations > 0);
            }
            prop_assert!(steps.rows.windows(2).all(|pair| pair[0].end <= pair[1].start));
            prop_assert!(account.match_rate().is_none_or(|rate| (0.0..=1.0).contains(&rate)));
        }
    }

    #[test]
    fn steps_do_not_depend_on_order_or_flush_period(
        actions in actions(), seed in 1..u64::MAX, period in 200..50_000u64,
    ) {
        let scenario = play(&repeated(&actions), 1);
        let reference = totals(&scenario.run_with(1_000_000, 0));
        prop_assert_eq!(&totals(&scenario.run_with(1_000_000, seed)), &reference);
        prop_assert_eq!(&totals(&scenario.run_with(period, seed)), &reference);
    }
}
