//! What must hold for every program, on programs that nobody thought of.

mod support;

use profiler_core::attribution::Attributor;
use profiler_core::attribution::leaf::{BUSY_COUNT, Leaf};
use profiler_core::record::MemoryKind;
use proptest::prelude::*;
use support::{Scenario, gpu};

/// One thing that a host thread does: how long it stays away from CUDA first, and what it does then.
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

/// Plays actions: each thread calls in order, each stream runs in order, a synchronisation waits for everything.
fn play(actions: &[Action], scale: u64) -> Scenario {
    let mut scenario = Scenario::new();
    let mut clock = [10 * scale; 3];
    let mut streams = [0u64; 4];
    for action in actions {
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
                scenario.call(action.thread, "cudaDeviceSynchronize_v3020", call, done - call);
                *now = done + scale;
                continue;
            }
            _ => {
                scenario.call(action.thread, "cudaMalloc_v3020", call, lasting);
                *now = call + lasting + scale;
                continue;
            }
        };
        work.at(begin).lasting(lasting).launched(&mut scenario, action.thread, call, 5 * scale);
        *now = call + 6 * scale;
        *stream = begin + lasting;
    }
    scenario
}

/// Everything about the devices that a report shows.
fn books(attributor: &Attributor) -> String {
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
        let mut intervals: Vec<(u64, u64)> = scenario.records.iter().filter_map(|(_, record)| {
            use profiler_core::record::Record::*;
            let (start, end) = match record {
                Kernel(kernel) => (kernel.start, kernel.end),
                Copy(copy) => (copy.start, copy.end),
                Memset(memset) => (memset.start, memset.end),
                _ => return None,
            };
            Some((start.nanos(), end.nanos()))
        }).collect();
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
        let reference = books(&scenario.run_with(1_000_000, 0));
        prop_assert_eq!(&books(&scenario.run_with(1_000_000, seed)), &reference);
        prop_assert_eq!(&books(&scenario.run_with(period, seed)), &reference);
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
    fn empty_operations_on_other_streams_add_nothing(actions in actions()) {
        let plain = play(&actions, 1);
        let mut more = play(&actions, 1);
        let Some(account) = plain.run().devices().next().map(|account| *account.leaves()) else { return Ok(()) };
        // Beside running kernels only: an operation in a gap would rightly end it.
        let inside: Vec<u64> = more.records.iter().filter_map(|(_, record)| match record {
            profiler_core::record::Record::Kernel(kernel) if kernel.end > kernel.start => {
                Some((kernel.start.nanos() - support::ZERO) / 1_000)
            }
            _ => None,
        }).collect();
        for (index, at) in inside.into_iter().enumerate() {
            let on = gpu(0).stream(90 + index as u32 % 2);
            on.kernel("idle_stream").at(at).lasting(0).launched(&mut more, 8, at.saturating_sub(6), 0);
        }
        let leaves = more.run().devices().next().map(|account| *account.leaves());
        prop_assert_eq!(leaves.map(|l| l[..BUSY_COUNT].to_vec()), Some(account[..BUSY_COUNT].to_vec()));
    }

    #[test]
    fn no_input_makes_it_panic_or_lose_count(
        raw in prop::collection::vec((any::<u8>(), any::<u64>(), any::<u64>(), 0..6u32), 0..200),
        at in any::<u64>(),
    ) {
        use profiler_core::record::*;
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

/// A program that does the same things over and over, long enough for its steps to be found.
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
        let reference = books(&scenario.run_with(1_000_000, 0));
        prop_assert_eq!(&books(&scenario.run_with(1_000_000, seed)), &reference);
        prop_assert_eq!(&books(&scenario.run_with(period, seed)), &reference);
    }
}
