//! Waits of queued work while another process uses the device.

use crate::support::{Scenario, ZERO, gpu};
use gpuwhy_report::run::Report;
use gpuwhy_trace::counters::{CounterEvent, ProcessReading, ProgramName};
use gpuwhy_trace::record::{DeviceId, Timestamp};
use profiler_core::attribution::Attributor;
use profiler_core::leaf::{Cause, LEAF_COUNT, Leaf, Leaves};
use proptest::prelude::*;

/// A reading of the other process at `at` microseconds.
pub(crate) fn reading(at: u64, busy: u32) -> CounterEvent {
    CounterEvent::Process(ProcessReading {
        device: DeviceId(0),
        at: Timestamp::from_nanos(ZERO + at * 1_000),
        until: None,
        pid: 812,
        name: ProgramName::new("python3 server.py"),
        busy_percent: Some(busy),
        memory_bytes: Some(71_000_000_000),
    })
}

/// Kernels of 1 ms in pairs, launched together; the second one starts 2 ms after the first one has ended.
fn turns(count: u64, device: u32) -> Scenario {
    let mut scenario = Scenario::new();
    for index in 0..count {
        let at = 1_000 + index * 4_000;
        gpu(device).kernel("first").at(at).lasting(1_000).launched(&mut scenario, 1, at - 20, 5);
        gpu(device).kernel("second").at(at + 3_000).lasting(1_000).launched(&mut scenario, 1, at - 10, 5);
    }
    scenario
}

fn leaves(attributor: &Attributor) -> Leaves {
    attributor.devices().next().map_or([0; LEAF_COUNT], |account| *account.leaves())
}

#[test]
fn queued_work_waits_for_the_process_that_uses_the_device() {
    let scenario = turns(20, 0);
    let waits = |readings: &[CounterEvent]| {
        let leaves = leaves(&scenario.run_beside(readings));
        [Leaf::OtherProcess, Leaf::DependencyWait].map(|leaf| leaves[leaf as usize] / 1_000)
    };
    assert_eq!(waits(&[]), [0, 40_000], "nobody was seen");
    assert_eq!(waits(&[reading(500, 66)]), [40_000, 0]);
    assert_eq!(waits(&[reading(500, 0)]), [0, 40_000], "it is there, and idle");
    assert_eq!(waits(&[reading(90_000, 66)]), [0, 40_000], "it came later");
    // From the tenth pair on.
    assert_eq!(waits(&[reading(500, 66), reading(40_000, 0)]), [20_000, 20_000]);
    // Work may wait for another device of this process.
    let mut both = turns(20, 0);
    gpu(1).kernel("other").at(1_000).lasting(10).launched(&mut both, 2, 900, 5);
    let attributor = both.run_beside(&[reading(500, 66)]);
    assert_eq!(leaves(&attributor)[Leaf::OtherProcess as usize], 0);
}

pub(crate) fn judged(readings: &[CounterEvent]) -> Report {
    let scenario = turns(400, 0);
    scenario.report_of(&scenario.run_beside(readings))
}

#[test]
fn the_bottleneck_names_the_process() {
    let report = judged(&[reading(500, 66)]);
    let bottleneck = &report.bottleneck;
    assert_eq!(bottleneck.cause, Cause::OtherProcess, "{}", report.summary());
    assert!((0.45..0.55).contains(&bottleneck.share), "{}", bottleneck.share);
    let says = |words: &str| bottleneck.evidence.iter().any(|sentence| sentence.contains(words));
    assert!(
        says("python3 server.py (pid 812) used the GPU 66 % of the time, and 71.0 GB"),
        "{:?}",
        bottleneck.evidence
    );
    assert!(says("With the GPU alone"), "{:?}", bottleneck.evidence);
    assert!(bottleneck.recommendation.contains("another GPU"), "{}", bottleneck.recommendation);
    let without = judged(&[]);
    assert_eq!(without.bottleneck.cause, Cause::CannotTell);
    assert!(without.devices[0].other_processes.is_empty());
}

/// Kernels one after the other for 8 s, and readings of another process, one each second.
fn beside(readings: u64, busy: u32) -> Report {
    let mut scenario = Scenario::new();
    for index in 0..8_000 {
        let at = 1_000 + index * 1_000;
        gpu(0).kernel("only").at(at).lasting(990).launched(&mut scenario, 1, at - 900, 5);
    }
    let readings: Vec<_> = (0..readings).map(|index| reading(2_000_000 + index * 1_000_000, busy)).collect();
    scenario.report_of(&scenario.run_beside(&readings))
}

#[test]
fn a_process_that_shares_the_gpu_is_named_from_three_readings_on() {
    let named = |report: &Report| {
        let said = report.bottleneck.evidence.iter().any(|sentence| sentence.contains("python3 server.py (pid 812)"));
        assert_eq!(report.bottleneck.cause, Cause::GpuCompute, "{}", report.summary());
        assert_eq!(said, report.bottleneck.recommendation.contains("another GPU"), "{}", report.summary());
        said
    };
    assert!(named(&beside(3, 60)));
    assert!(!named(&beside(2, 60)), "one reading may be of what ran before");
    assert!(!named(&beside(3, 10)));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) })]

    /// Readings only rename waits of queued work; each nanosecond keeps one cause.
    #[test]
    fn readings_move_waits_only(readings in prop::collection::vec((0..160_000u64, 0..3u32), 0..20)) {
        let mut readings = readings;
        readings.sort_unstable();
        let readings: Vec<_> = readings.into_iter().map(|(at, busy)| reading(at, busy)).collect();
        let scenario = turns(40, 0);
        let with = scenario.run_beside(&readings);
        for account in with.devices() {
            prop_assert_eq!(account.leaves().iter().sum::<u64>(), account.window_ns());
        }
        let mut pair = [leaves(&with), leaves(&scenario.run_beside(&[]))];
        let moved = [Leaf::OtherProcess, Leaf::DependencyWait];
        let sums = pair.each_mut().map(|leaves| {
            moved.map(|leaf| std::mem::take(&mut leaves[leaf as usize])).iter().sum::<u64>()
        });
        prop_assert_eq!(sums[0], sums[1]);
        prop_assert_eq!(pair[0], pair[1]);
    }
}
