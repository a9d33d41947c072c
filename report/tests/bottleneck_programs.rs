//! Conclusions about complete programs: about their steps, and from the simulation.

use crate::support::{Scenario, gpu};
use gpuwhy_report::run::{Bottleneck, Report};
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{Device, Loss, MemoryKind, PcieLink};
use profiler_core::leaf::Cause;
use profiler_core::whatif::ScenarioKind;

/// The sentence of a conclusion that contains `words`.
#[track_caller]
fn sentence(bottleneck: &Bottleneck, words: &str) -> String {
    let found = bottleneck.evidence.iter().chain(&bottleneck.details).find(|sentence| sentence.contains(words));
    found.unwrap_or_else(|| panic!("{words}: {:?}", bottleneck.evidence)).clone()
}

fn says(bottleneck: &Bottleneck, words: &str) -> bool {
    bottleneck.evidence.iter().chain(&bottleneck.details).any(|sentence| sentence.contains(words))
}

/// Steps of `durations` microseconds: a kernel for half the time, then the host is away.
fn stepping(devices: u32, durations: impl Iterator<Item = u64> + Clone, halves: impl Fn(u64) -> u64) -> Report {
    let mut scenario = Scenario::new();
    for device in 0..devices {
        let mut at = 1_000;
        for (index, duration) in durations.clone().enumerate() {
            let busy = halves(index as u64);
            gpu(device).kernel("k").at(at + 10).lasting(busy).launched(&mut scenario, 1 + device, at, 5);
            scenario.pushed(1 + device, at, at + duration, "step");
            at += duration;
        }
    }
    scenario.report()
}

#[test]
fn unusual_steps_are_set_aside_and_the_longest_three_named() {
    let durations = |index: u64| match index {
        50 => 16_000,
        60 => 40_000,
        70 => 30_000,
        80 => 20_000,
        _ => 10_000,
    };
    let report = stepping(1, (0..200).map(durations), |_| 5_000);
    let bottleneck = &report.bottleneck;
    assert_eq!(bottleneck.cause, Cause::HostCpu, "{}", report.summary());
    let basis = bottleneck.basis.expect("steps");
    assert_eq!(basis.set_aside, 4);
    let seen = report.devices[0].steps.as_ref().expect("steps").seen;
    assert_eq!(basis.steps + basis.set_aside, seen - 3, "the first three are warm-up");
    let aside = sentence(bottleneck, "Not counted");
    assert_eq!(
        aside,
        "Not counted: 4 steps of over 1.5 times the median: 40.0 ms (CPU running or not sampled 35.0 ms), 30.0 ms (CPU \
         running or not sampled 25.0 ms), 20.0 ms (CPU running or not sampled 15.0 ms)."
    );
    assert!(says(bottleneck, &format!("Over {} typical steps of 10.0 ms: ", basis.steps)));
    let one = stepping(1, (0..100).map(|index| if index == 50 { 16_000 } else { 10_000 }), |_| 5_000);
    assert!(says(&one.bottleneck, "Not counted: 1 step of over"), "{:?}", one.bottleneck.evidence);
}

#[test]
fn steps_of_several_devices_are_counted_together() {
    let report = stepping(2, (0..50).map(|_| 10_000), |_| 5_000);
    assert!(says(&report.bottleneck, "typical steps on 2 GPUs: "), "{:?}", report.bottleneck.evidence);
    assert_eq!(report.bottleneck.basis.expect("steps").set_aside, 0);
}

#[test]
fn a_group_that_may_be_as_large_is_named() {
    // The host is away for 3 to 7 ms of 10 ms, and allocates for the rest; fifteen steps are equal.
    let report = |allocating: [u64; 2]| {
        let mut scenario = Scenario::new();
        for step in 0..60 {
            let at = 1_000 + step * 10_000;
            gpu(0).kernel("k").at(at + 10).lasting(2_000).launched(&mut scenario, 1, at, 5);
            let allocates = allocating[(step / 15 % 2) as usize];
            scenario.call(1, "cudaMalloc_v3020", at + 2_010, allocates);
            scenario.pushed(1, at, at + 10_000, "step");
        }
        scenario.report()
    };
    let close = report([3_000, 5_500]);
    assert!(says(&close.bottleneck, "cannot be ranked safely against"), "{}", close.summary());
    let clear = report([6_000, 6_500]);
    assert_eq!(clear.bottleneck.cause, Cause::Allocator);
    assert!(!says(&clear.bottleneck, "cannot be ranked safely against"), "{}", clear.summary());
}

#[test]
fn collectives_with_small_grids_are_not_to_be_batched() {
    let best_case = |name: &str| {
        let mut scenario = Scenario::new();
        scenario.dictionary.add_device(Device { multiprocessors: 132, ..Default::default() });
        for step in 0..100 {
            let at = 1_000 + step * 2_000;
            for row in 0..16 {
                let work = gpu(0).kernel(name).blocks(2).at(at + 10 + row * 101).lasting(100);
                work.launched(&mut scenario, 1, at + row * 10, 5);
            }
            // The host waits for the last kernel.
            scenario.call(1, "cudaStreamSynchronize_v3020", at + 160, 1_480);
            scenario.pushed(1, at, at + 1_900, "step");
        }
        let what_if = scenario.report().devices.remove(0).what_if.expect("steps");
        what_if.best_case(ScenarioKind::GridsFilled).expect("replayed").speedup
    };
    assert!(best_case("softmax") > 1.1);
    assert_eq!(best_case("ncclDevKernel_AllReduce"), 1.0);
}

/// A program on a device of 132 multiprocessors.
fn on_a_device() -> Scenario {
    let mut scenario = Scenario::new();
    scenario.dictionary.add_device(Device { multiprocessors: 132, ..Default::default() });
    scenario
}

#[test]
fn copies_from_page_locked_memory_are_as_fast_as_a_known_link() {
    let gain = |link: Option<PcieLink>| {
        let mut scenario = on_a_device();
        link.into_iter().for_each(|link| scenario.dictionary.add_link(link));
        for step in 0..100 {
            let at = 1_000 + 1_000 * step;
            let copy = gpu(0).h2d(MemoryKind::Pageable, 8 << 20).at(at + 20).lasting(900);
            copy.launched(&mut scenario, 1, at, 925);
            gpu(0).kernel("k").at(at + 935).lasting(60).launched(&mut scenario, 1, at + 926, 5);
            scenario.pushed(1, at, at + 990, "step");
        }
        let what_if = scenario.report().devices.remove(0).what_if.expect("steps");
        assert_eq!(what_if.refused, None);
        what_if.best_case(ScenarioKind::CopiesOverlapped).expect("replayed").speedup
    };
    // 8 MiB need 296 us of the 900 that they took.
    let link = PcieLink { generation: 4, megatransfers: 16_000, lanes: 16, ..PcieLink::default() };
    let (known, unknown) = (gain(Some(link)), gain(None));
    assert!(known > 2.0 * unknown, "{known}, {unknown}");
}

/// Rounds of two kernels on one stream and one on another, each on a small part of the GPU, with the calls of `between`
/// before the third launch.
fn rounds_on_two_streams(between: &[&str], connections: &[(&str, &str)]) -> Report {
    let mut scenario = on_a_device();
    for round in 0..100 {
        let at = 3_050 * round;
        let kernel = |stream| gpu(0).stream(stream).kernel("part").blocks(1);
        kernel(1).at(at + 10).lasting(1_000).launched(&mut scenario, 1, at, 4);
        kernel(1).at(at + 1_012).lasting(1_000).launched(&mut scenario, 1, at + 10, 4);
        for (place, function) in (0..).zip(between) {
            scenario.call(1, function, at + 15 + place, 1);
        }
        kernel(2).at(at + 1_016).lasting(2_000).launched(&mut scenario, 1, at + 20, 4);
        scenario.call(1, "cudaDeviceSynchronize_v3020", at + 30, 3_000);
    }
    let rank_variables = connections.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    let session = ProcessInfo { process_id: 42, rank_variables, ..ProcessInfo::default() };
    Report::new(&session, &scenario.run(), &scenario.dictionary, &Loss::default(), End::Clean, Vec::new())
}

#[test]
fn streams_that_share_a_queue_are_named_with_the_setting() {
    const NAME: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
    let report = rounds_on_two_streams(&[], &[(NAME, "1")]);
    let evidence = report.bottleneck.evidence.join("\n");
    assert!(evidence.contains("behind a kernel of another stream"), "{evidence}");
    assert!(evidence.contains("CUDA_DEVICE_MAX_CONNECTIONS=1 puts all streams into one queue"), "{evidence}");
    let advice = &report.bottleneck.recommendation;
    assert!(advice.contains("Set CUDA_DEVICE_MAX_CONNECTIONS=32 (it is 1)"), "{advice}");
    let unknown = rounds_on_two_streams(&[], &[]).bottleneck;
    assert!(
        unknown.recommendation.contains("CUDA_DEVICE_MAX_CONNECTIONS=32 (8 by default)"),
        "{}",
        unknown.recommendation
    );
}

#[test]
fn waits_that_events_explain_or_that_no_queue_can_cause_are_not_those_of_a_queue() {
    let events = rounds_on_two_streams(&["cudaStreamWaitEvent_v3020"], &[]);
    let many = rounds_on_two_streams(&[], &[("CUDA_DEVICE_MAX_CONNECTIONS", "32")]);
    for report in [events, many] {
        let text = report.bottleneck.evidence.join("\n") + &report.bottleneck.recommendation;
        assert!(!text.contains("CONNECTIONS"), "{text}");
    }
}
