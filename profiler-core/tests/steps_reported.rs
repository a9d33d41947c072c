//! Steps around a unit that repeats: which evidence shows them, and which does not.

use profiler_core::steps::{Cut, Inside, LaunchKind, StepDetector, StepSource};

/// Function in which the host waits.
const SYNCHRONIZE: u32 = 7;

/// Final published result, and the launches at which complete steps started.
fn detect(
    launches: impl IntoIterator<Item = (u32, LaunchKind)>,
    waits: impl Fn(usize) -> Option<u32>,
) -> (StepDetector, Vec<usize>) {
    let (mut detector, mut begins) = (StepDetector::default(), Vec::new());
    for (number, (symbol, kind)) in launches.into_iter().enumerate() {
        if let Some(function) = waits(number) {
            detector.waited(function);
        }
        match detector.push(symbol, 1_000, kind) {
            Some(Cut::Begin(boundary)) if boundary.period == 160 => begins.push(number),
            _ => {}
        }
    }
    (detector, begins)
}

fn kernels(unit: u32, count: usize) -> impl Iterator<Item = (u32, LaunchKind)> {
    (0..count).map(move |launch| (launch as u32 % unit, LaunchKind::Other))
}

fn each(distance: usize) -> impl Fn(usize) -> Option<u32> {
    move |number| number.is_multiple_of(distance).then_some(SYNCHRONIZE)
}

fn period(period: u32) -> Option<(StepSource, u32)> {
    Some((StepSource::Period, period))
}

#[test]
fn a_wait_after_sixteen_layers_tells_the_step() {
    let (detector, begins) = detect(kernels(10, 16_000), each(160));
    assert_eq!(detector.published(), period(160));
    assert_eq!(detector.facts(160).inside, Some(Inside { times: 16, launches: 10 }));
    assert!(detector.facts(160).waits && !detector.facts(10).waits);
    assert!(begins.len() >= 85, "{} of 100 steps", begins.len());
    assert!(begins.iter().all(|begin| begin % 160 == 0), "{begins:?}");
}

#[test]
fn layers_that_wait_too_do_not_hide_it() {
    // A value is read after each layer, and the step ends with another function that waits.
    let waits = |number: usize| match number {
        _ if number.is_multiple_of(160) => Some(SYNCHRONIZE),
        _ => number.is_multiple_of(10).then_some(8),
    };
    assert_eq!(detect(kernels(10, 16_000), waits).0.published(), period(160));
}

#[test]
fn without_a_regular_wait_the_unit_remains() {
    let unit = |waits: &dyn Fn(usize) -> Option<u32>| detect(kernels(10, 16_000), waits).0;
    assert_eq!(unit(&|_| None).published(), period(10));
    // At different distances each time; in each unit; seven times.
    assert_eq!(unit(&|number| (number % 160 == number / 160 * 7 % 16 * 10).then_some(1)).published(), period(10));
    let in_each = unit(&|number| number.is_multiple_of(10).then_some(1));
    assert_eq!((in_each.published(), in_each.facts(10).waits), (period(10), true));
    assert_eq!(unit(&|number| (number.is_multiple_of(160) && number < 160 * 8).then_some(1)).published(), period(10));
}

#[test]
fn what_tells_a_step_is_not_taken_for_a_layer() {
    // A loss is read every sixteenth step.
    for kind in [LaunchKind::Input, LaunchKind::Optimizer] {
        let launches = kernels(10, 16_000).map(|(symbol, other)| (symbol, if symbol == 4 { kind } else { other }));
        assert_eq!(detect(launches, each(160)).0.published(), period(10), "{kind:?}");
    }
    // Nor are units that are too long for a layer.
    assert_eq!(detect(kernels(80, 32_000), each(160)).0.published(), period(80));
}

#[test]
fn another_program_part_takes_over_when_the_waits_end() {
    let other = kernels(12, 20_000).map(|(symbol, kind)| (100 + symbol, kind));
    let (detector, _) = detect(kernels(10, 16_000).chain(other), |number| {
        (number < 16_000 && number.is_multiple_of(160)).then_some(SYNCHRONIZE)
    });
    assert_eq!(detector.published(), period(12));
}

/// `steps` of 300 launches, the last of which is an optimizer's; every tenth ends with an additional copy.
fn training(steps: usize, optimizer: LaunchKind) -> Vec<(u32, LaunchKind)> {
    let step = |number: usize| {
        let kernels = (0..299).map(|launch| (launch, LaunchKind::Other)).chain([(299, optimizer)]);
        kernels.chain((number % 10 == 9).then_some((900, LaunchKind::HostCopy)))
    };
    (0..steps).flat_map(step).collect()
}

#[test]
fn ten_steps_and_a_readback_are_ten_steps() {
    let mut detector = StepDetector::default();
    let mut begins = Vec::new();
    for (number, (symbol, kind)) in training(400, LaunchKind::Optimizer).into_iter().enumerate() {
        if let Some(Cut::Begin(_)) = detector.push(symbol, if symbol == 0 { 9_000 } else { 1_000 }, kind) {
            begins.push((number, symbol));
        }
    }
    assert_eq!(detector.published(), period(300));
    assert!(begins.len() > 200, "{}", begins.len());
    let last = &begins[begins.len() - 150..];
    assert!(last.windows(2).all(|pair| matches!(pair[1].0 - pair[0].0, 300 | 301)), "{last:?}");
    // A step also starts after the expected launches: with the copy.
    assert!(last.iter().all(|begin| matches!(begin.1, 0 | 900)), "{last:?}");
    // Without an optimizer in each, ten times 300 may be a loop within the step.
    let (other, _) = detect(training(400, LaunchKind::Other), |_| None);
    assert_eq!(other.published(), period(3_001));
}

#[test]
fn micro_batches_are_no_steps_though_each_has_an_input() {
    // Eight of 121 launches, and then the optimizer.
    let batch = || std::iter::once((0, LaunchKind::Input)).chain((1..121).map(|launch| (launch, LaunchKind::Other)));
    let optimizer = (500..580).map(|launch| (launch, LaunchKind::Optimizer));
    let step: Vec<_> = (0..8).flat_map(|_| batch()).chain(optimizer).collect();
    let (detector, _) = detect(step.repeat(40), |_| None);
    assert_eq!(detector.published(), period(8 * 121 + 80));
    assert_eq!(detector.facts(1_048).inside, Some(Inside { times: 8, launches: 121 }));
}
