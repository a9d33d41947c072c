//! Exact timing of step detection, launch by launch: what is published after how many launches, and where
//! steps start and are lost.

use profiler_core::steps::{Boundary, Cut, LaunchKind, StepDetector, StepSource};

/// Symbol, kind and preceding pause of each launch.
type Launches = Vec<(u32, LaunchKind, u32)>;

fn kernels(symbols: impl IntoIterator<Item = u32>) -> Launches {
    symbols.into_iter().map(|symbol| (symbol, LaunchKind::Other, 1_000)).collect()
}

/// With these symbols as launches of graphs.
fn with_graphs(symbols: impl IntoIterator<Item = u32>, is_graph: impl Fn(u32) -> bool) -> Launches {
    let kind = |symbol| if is_graph(symbol) { LaunchKind::Graph } else { LaunchKind::Other };
    symbols.into_iter().map(|symbol| (symbol, kind(symbol), 1_000)).collect()
}

type Published = Option<(StepSource, u32)>;

/// Events with the number of the launch that caused them, starting at 1.
type Numbered<T> = Vec<(usize, T)>;

/// All published results, and all cuts.
fn detect(launches: &Launches) -> (Numbered<Published>, Numbered<Cut>) {
    let mut detector = StepDetector::default();
    let (mut published, mut cuts) = (Vec::new(), Vec::new());
    let mut before = None;
    for (number, &(symbol, kind, pause)) in (1..).zip(launches) {
        cuts.extend(detector.push(symbol, pause, kind).map(|cut| (number, cut)));
        if detector.published() != before {
            before = detector.published();
            published.push((number, before));
        }
    }
    (published, cuts)
}

fn first_published(launches: &Launches) -> Option<(usize, u32)> {
    detect(launches).0.first().and_then(|&(number, published)| Some((number, published?.1)))
}

/// Launches of a loop of `period` launches, all different.
fn repeated(period: u32, count: usize) -> impl Iterator<Item = u32> {
    (0..period).cycle().take(count)
}

#[test]
fn a_period_is_published_when_two_epochs_agree() {
    // 512 launches are an epoch; one in which a period occurred 32 times without exception ends sooner: after
    // 64, 128 or 256. But the first 64 have only 62 that could repeat the launch 2 before, and 64 is the
    // minimum.
    for (period, known) in [(2, 192), (3, 256), (4, 256), (5, 512), (8, 512), (9, 1_024), (100, 1_024)] {
        assert_eq!(first_published(&kernels(repeated(period, 2_000))), Some((known, period)));
    }
}

#[test]
fn a_fifth_of_an_epoch_may_be_others() {
    let behind = |others: u32| first_published(&kernels((1_000..1_000 + others).chain(repeated(3, 2_000))));
    // 100 of the 125 launches that could repeat the one 3 before do so.
    assert_eq!(behind(25), Some((256, 3)));
    assert_eq!(behind(26), Some((256 + 128, 3)));
}

#[test]
fn a_graph_is_a_step_when_its_distance_came_eight_times() {
    let every = |distance: u32| first_published(&with_graphs(repeated(distance, 3_000), |symbol| symbol == 0));
    assert_eq!(every(3), Some((8 * 3 + 1, 3)));
    assert_eq!(every(10), Some((8 * 10 + 1, 10)));
    // Distances of more than 64 launches wait for the epochs.
    assert_eq!(every(64), Some((8 * 64 + 1, 64)));
    assert_eq!(every(65), Some((1_024, 65)));
}

#[test]
fn what_lies_between_the_graphs_must_be_the_same_seven_times() {
    // The launch in the middle of the third step is a different one: launches 8 and 11 do not equal the one 3
    // before.
    let other = repeated(3, 200).enumerate().map(|(number, symbol)| if number == 7 { 77 } else { symbol });
    assert_eq!(first_published(&with_graphs(other, |symbol| symbol == 0)), Some((34, 3)));
    // A different one each time.
    let never =
        repeated(3, 100).enumerate().map(|(number, symbol)| if symbol == 1 { 100 + number as u32 } else { symbol });
    assert_eq!(first_published(&with_graphs(never, |symbol| symbol == 0)), None);
    // A distance that changes starts over: from the second graph, which follows five launches, eight
    // distances of 3.
    let late = [0, 1, 2, 3, 4].into_iter().chain(repeated(3, 60));
    assert_eq!(first_published(&with_graphs(late, |symbol| symbol == 0)), Some((5 + 8 * 3 + 1, 3)));
}

#[test]
fn sixteen_graphs_are_followed_at_a_time() {
    let all = |count: u32| first_published(&with_graphs(repeated(count, 3_000), |_| true));
    assert_eq!(all(16), Some((8 * 16 + 1, 16)));
    assert_eq!(all(17), Some((1_024, 17)));
}

#[test]
fn what_stops_to_repeat_is_given_up_after_two_epochs_the_second_twice_as_long() {
    let stops = kernels(repeated(16, 2_048).chain(10_000..20_000));
    let (published, cuts) = detect(&stops);
    assert_eq!(published, [(1_024, Some((StepSource::Period, 16))), (2_048 + 512 + 1_024, None)]);
    // The step itself is lost when it has lasted for more than two periods.
    let lost: Vec<usize> = cuts.iter().filter(|(_, cut)| *cut == Cut::Lost).map(|&(number, _)| number).collect();
    let begin = cuts.iter().rev().find(|(_, cut)| matches!(cut, Cut::Begin(_))).unwrap().0;
    assert_eq!(lost, [begin + 33, 2_048 + 512 + 1_024]);
}

/// Sixty steps of 20 launches, the first of which has the longest pause before it, and then `more`: the cuts
/// from there on, numbered from 0.
fn behind_steps(more: impl IntoIterator<Item = u32>) -> Vec<(usize, Cut)> {
    let symbols = repeated(20, 1_200).chain(more);
    let pause = |symbol| if symbol == 0 { 9_000 } else { 1_000 };
    let launches = symbols.map(|symbol| (symbol, LaunchKind::Other, pause(symbol))).collect();
    let (published, cuts) = detect(&launches);
    assert_eq!(published, [(1_024, Some((StepSource::Period, 20)))]);
    cuts.into_iter().filter(|&(number, _)| number > 1_200).map(|(number, cut)| (number - 1_201, cut)).collect()
}

fn begin(launches: u32, matched: u32) -> Cut {
    Cut::Begin(Boundary { source: StepSource::Period, period: 20, launches, matched })
}

#[test]
fn a_step_begins_behind_the_longest_pause_and_counts_what_repeats() {
    assert_eq!(behind_steps(repeated(20, 60)), [(0, begin(20, 20)), (20, begin(20, 20)), (40, begin(20, 20))]);
    // Two launches are replaced: they differ from those before, and the ones after differ from them.
    let others =
        repeated(20, 60).enumerate().map(|(number, symbol)| if number == 5 || number == 7 { 99 } else { symbol });
    assert_eq!(behind_steps(others), [(0, begin(20, 20)), (20, begin(20, 18)), (40, begin(20, 18))]);
}

#[test]
fn an_inserted_launch_makes_a_longer_step() {
    let inserted = (0..6).chain([99]).chain(6..20).chain(repeated(20, 41));
    // Six launches match the ones 20 launches before; of the next step, those after the inserted one do.
    let expected = [(0, begin(20, 20)), (21, begin(21, 6)), (41, begin(20, 14)), (61, begin(20, 20))];
    assert_eq!(behind_steps(inserted), expected);
}

#[test]
fn half_a_period_is_the_shortest_step() {
    let cut_short = |launches: u32| -> Vec<usize> {
        let cuts = behind_steps((0..launches).chain(repeated(20, 41)));
        cuts.into_iter().map(|(number, _)| number).collect()
    };
    assert_eq!(cut_short(10), [0, 10, 30, 50]);
    assert_eq!(cut_short(9), [0, 29, 49]);
}

#[test]
fn steps_are_lost_after_two_periods_and_begin_again_where_they_did() {
    let others = |count: u32| behind_steps([0].into_iter().chain(500..500 + count).chain(repeated(20, 21)));
    // 41 launches since the start of the step are too many; one less is not.
    let [(0, _), (41, Cut::Lost), (42, again), (62, _)] = others(41)[..] else { panic!("{:?}", others(41)) };
    assert_eq!(again, begin(0, 0));
    let [(0, _), (40, Cut::Begin(Boundary { launches: 40, .. })), (60, _)] = others(39)[..] else {
        panic!("{:?}", others(39))
    };
}

#[test]
fn a_begin_that_is_another_launch_counts_when_its_surroundings_stay() {
    // Of the eight launches before, six must be those of a period before.
    let begins = |changed: &[usize]| -> Vec<usize> {
        let symbols =
            repeated(20, 61).enumerate().map(|(number, symbol)| if changed.contains(&number) { 99 } else { symbol });
        behind_steps(symbols).into_iter().map(|(number, _)| number).collect()
    };
    assert_eq!(begins(&[20]), [0, 20, 40, 60]);
    assert_eq!(begins(&[20, 19, 12]), [0, 20, 40, 60]);
    assert_eq!(begins(&[20, 19, 12, 11]), [0, 20, 40, 60], "the ninth does not count");
    assert_eq!(begins(&[20, 19, 15, 12]), [0, 40, 60], "one step of two");
}

#[test]
fn a_graph_takes_over_when_no_step_has_begun_for_two_periods() {
    let launches = |loops: usize, graph_every: u32| {
        let behind = repeated(graph_every, 400).map(|symbol| symbol + 100);
        detect(&with_graphs(repeated(20, loops).chain(behind), |symbol| symbol == 100)).0
    };
    // Steps of 20 launches are over; nine graphs are 8 x 10 launches apart.
    let known = (1_024, Some((StepSource::Period, 20)));
    assert_eq!(launches(1_200, 10)[..2], [known, (1_200 + 81, Some((StepSource::Period, 10)))]);
    // They end as they become known: at the ninth graph the wait has lasted 40 launches, and two periods are
    // not over.
    assert_eq!(launches(1_023, 5)[..2], [known, (1_023 + 46, Some((StepSource::Period, 5)))]);
}

#[test]
fn a_launch_of_that_moment_alone_begins_no_steps() {
    // Shortly before the period becomes known, a different launch comes after a long pause.
    let mut launches = kernels(repeated(20, 2_000));
    launches[1_010] = (999, LaunchKind::Other, 90_000);
    let (published, cuts) = detect(&launches);
    assert_eq!(published, [(1_024, Some((StepSource::Period, 20)))]);
    assert!(cuts.len() >= (2_000 - 1_024) / 20 - 1, "{cuts:?}");
}
