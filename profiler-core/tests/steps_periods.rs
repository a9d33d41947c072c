//! Periods that are doubtful, start late, stop, or compete with others; and copies that shorten the detection
//! of one.

use profiler_core::steps::{LaunchKind, StepDetector, StepSource};

/// Number of launches before publication, and the published result.
type Published = (usize, Option<(StepSource, u32)>);

/// Results published over time; `is_copy` returns true for launches that copy between host and device.
fn history(symbols: impl IntoIterator<Item = u32>, is_copy: impl Fn(u32) -> bool) -> Vec<Published> {
    let mut detector = StepDetector::default();
    let (mut published, mut before) = (Vec::new(), None);
    for (number, symbol) in (1..).zip(symbols) {
        let kind = if is_copy(symbol) { LaunchKind::HostCopy } else { LaunchKind::Other };
        detector.push(symbol, 1_000, kind);
        if detector.published() != before {
            before = detector.published();
            published.push((number, before));
        }
    }
    published
}

fn of_kernels(symbols: impl IntoIterator<Item = u32>) -> Vec<Published> {
    history(symbols, |_| false)
}

fn period(period: u32) -> Option<(StepSource, u32)> {
    Some((StepSource::Period, period))
}

/// A loop of `period` launches, all different.
fn repeated(period: u32, count: usize) -> impl Iterator<Item = u32> {
    (0..period).cycle().take(count)
}

/// A loop in which one in nineteen launches is a different one each time: nine in ten equal those of the
/// previous step.
fn doubtful(period: u32, count: usize) -> Vec<u32> {
    (0..).zip(repeated(period, count)).map(|(at, symbol)| if at % 19 == 7 { 100_000 + at } else { symbol }).collect()
}

/// Launches that never recur.
fn chaos(count: u32) -> std::ops::Range<u32> {
    500_000..500_000 + count
}

#[test]
fn a_doubtful_period_needs_longer_epochs() {
    assert_eq!(of_kernels(repeated(100, 4_000)), [(512 + 512, period(100))]);
    assert_eq!(of_kernels(doubtful(100, 4_000)), [(512 + 1_024, period(100))]);
    // Four steps make an epoch, if that is longer than 512.
    assert_eq!(of_kernels(doubtful(300, 4_000)), [(512 + 1_200, period(300))]);
    // Less than a third of the first epoch could repeat the launch 350 before.
    assert_eq!(of_kernels(repeated(350, 4_000)), [(512 + 1_024 + 1_400, period(350))]);
    // Without doubt four steps are enough, too.
    assert_eq!(of_kernels(repeated(300, 4_000)), [(512 + 1_200, period(300))]);
}

#[test]
fn a_launch_that_comes_every_second_time_makes_a_step_of_two_only_in_doubt() {
    let with_other = |distance: usize, mut symbols: Vec<u32>| {
        symbols.iter_mut().step_by(distance).for_each(|symbol| *symbol = 700);
        of_kernels(symbols)
    };
    // One launch of a hundred differs: no doubt.
    assert_eq!(with_other(200, repeated(100, 8_000).collect()), [(1_024, period(100))]);
    // With one in ten, a launch that occurs in every second period may start the step; three in the first
    // epoch are not conclusive.
    assert_eq!(with_other(200, doubtful(100, 8_000)), [(512 + 1_024 + 2_048, Some((StepSource::Anchor, 200)))]);
    // One that occurs less than twice as far apart is not a step around the period.
    assert_eq!(with_other(104, doubtful(100, 8_000)), [(512 + 1_024, period(100))]);
}

#[test]
fn an_epoch_ends_early_when_most_of_it_repeats_without_exception() {
    let behind = |others: u32, of: u32| of_kernels((1_000..1_000 + others).chain(repeated(of, 2_000)));
    // A period of four fits 32 times into 128 launches, so that all of them must repeat...
    assert_eq!(behind(0, 4), [(128 + 128, period(4))]);
    assert_eq!(behind(10, 4), [(256 + 128, period(4))]);
    // ...and one of two fits more times: three quarters of 128 launches repeat.
    assert_eq!(behind(25, 2), [(128 + 64, period(2))]);
    // They still do here, but fewer than four fifths, which a period requires: the first epoch ends without
    // one.
    assert_eq!(behind(30, 2), [(128 + 64 + 64, period(2))]);
    // Less than three quarters of 128 repeat, but more of 256 do.
    assert_eq!(behind(40, 2), [(256 + 64, period(2))]);
}

#[test]
fn distances_of_a_start_do_not_keep_the_period_from_being_found() {
    // Each of sixty distances occurs twice, more than are examined; then a loop, shorter or longer than
    // those.
    for of in [20, 300] {
        let start = (100..160).flat_map(|distance| {
            let behind = move |from: u32| (from..from + distance - 1).map(move |other| 1_000 * distance + other);
            std::iter::once(distance * 1_000_000)
                .chain(behind(0))
                .chain([distance * 1_000_000])
                .chain(behind(300))
                .chain([distance * 1_000_000])
        });
        let published = of_kernels(start.chain(repeated(of, 60_000)));
        assert_eq!(published.last().map(|last| last.1), Some(period(of)), "{published:?}");
    }
}

#[test]
fn copies_that_have_nothing_between_them_are_no_steps() {
    // Ten arrays that are copied repeatedly wait for the epochs...
    assert_eq!(history(repeated(10, 2_000), |_| true), [(1_024, period(10))]);
    // ...and if there is one kernel among them, for 128 repetitions, the first of which is launch 11.
    assert_eq!(history(repeated(10, 2_000), |symbol| symbol < 9), [(10 + 128, period(10))]);
}

#[test]
fn steps_found_by_copies_are_given_up_after_four_of_them_and_twice_as_many() {
    // Five batches, 200 launches apart; no repetition after the last.
    let stops = || repeated(200, 1_001).chain(chaos(8_000));
    assert_eq!(history(stops(), |symbol| symbol == 0), [(1_001, period(200)), (1_001 + 800 + 1_600, None)]);
    // Short steps have epochs of 512 launches, as without copies.
    let short = || repeated(20, 161).chain(chaos(8_000));
    assert_eq!(history(short(), |symbol| symbol == 0), [(161, period(20)), (161 + 512 + 1_024, None)]);
}

#[test]
fn one_launch_that_comes_three_times_is_enough_to_look_at_a_period() {
    // Five kinds of launches in an order that is the same in each step, and one launch that occurs once.
    let mut noise = 77_u64;
    let mut step: Vec<u32> = vec![9];
    step.extend((1..200).map(|_| {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (noise >> 60) as u32 % 5
    }));
    assert_eq!(of_kernels(step.repeat(20)), [(512 + 800, period(200))]);
}
