//! Ranges that a program names: assignment of device work and idle time, on synthetic programs.

use crate::support::{Scenario, gpu};
use gpuwhy_report::run::{RangeRow, RangesReport};
use gpuwhy_trace::record::{MemoryKind, RangeEventKind as Kind, Record};
use profiler_core::attribution::{Attributor, RangeStyle};
use profiler_core::leaf::{Cause, Leaf};
use profiler_core::steps::StepSource;
use proptest::prelude::*;

fn rows(scenario: &Scenario) -> RangesReport {
    scenario.report().ranges.expect("there are ranges")
}

fn row<'a>(report: &'a RangesReport, name: &str) -> &'a RangeRow {
    report.rows.iter().find(|row| row.name() == name).unwrap_or_else(|| panic!("{name}: {report:?}"))
}

/// Forward in a step: two kernels launched in `forward`, one after it in `step`.
fn nested() -> Scenario {
    let mut scenario = Scenario::new();
    gpu(0).kernel("before").at(90).lasting(10).launched(&mut scenario, 1, 80, 5);
    scenario.pushed(1, 100, 400, "train");
    scenario.pushed(1, 110, 200, "forward");
    gpu(0).kernel("gemm").at(1_000).lasting(100).launched(&mut scenario, 1, 120, 5);
    gpu(0).stream(8).kernel("relu").at(1_050).lasting(250).launched(&mut scenario, 1, 140, 5);
    gpu(0).kernel("loss").at(1_400).lasting(50).launched(&mut scenario, 1, 300, 5);
    // Another thread's work is not included.
    gpu(0).stream(9).kernel("other").at(1_500).lasting(50).launched(&mut scenario, 2, 150, 5);
    scenario
}

#[test]
fn work_belongs_to_the_ranges_of_its_launch() {
    let report = rows(&nested());
    let forward = row(&report, "forward");
    assert_eq!((forward.host.durations.count(), forward.host.durations.total()), (1, 90_000));
    assert_eq!((forward.operations, forward.device_ns), (2, 350_000));
    assert_eq!(forward.projected.durations.total(), 300_000, "from the begin of gemm to the end of relu");
    assert_eq!((forward.mean_level, forward.mean_children), (1.0, 0.0));
    let kernels: Vec<_> = forward.kernels.iter().map(|(name, of)| (name.as_str(), of.total())).collect();
    assert_eq!(kernels, [("relu", 250_000), ("gemm", 100_000)]);
    let train = row(&report, "train");
    assert_eq!((train.operations, train.device_ns), (3, 400_000));
    assert_eq!(train.projected.durations.total(), 450_000);
    assert_eq!((train.mean_level, train.mean_children, train.kernels.len()), (0.0, 1.0, 3));
    assert_eq!((report.open, report.counts), (0, Default::default()));
}

#[test]
fn idle_time_belongs_to_the_range_in_which_the_host_spent_it() {
    let mut scenario = Scenario::new();
    gpu(0).kernel("first").at(100).lasting(100).launched(&mut scenario, 1, 90, 5);
    // Of 5 ms of Python between two launches, 2 ms are in `loss` and 1 ms in `backward`.
    scenario.pushed(1, 1_000, 3_000, "loss");
    scenario.pushed(1, 4_200, 5_300, "backward");
    gpu(0).kernel("second").at(5_210).lasting(100).launched(&mut scenario, 1, 5_200, 5);
    let report = rows(&scenario);
    let loss = row(&report, "loss");
    assert_eq!((loss.causes(), loss.device_ns), (vec![(Leaf::HostCpu, 2_000_000)], 0));
    let backward = row(&report, "backward");
    let causes = [(Leaf::HostCpu, 1_000_000), (Leaf::LaunchApi, 5_000), (Leaf::LaunchLatency, 5_000)];
    assert_eq!((backward.causes(), backward.device_ns), (causes.to_vec(), 100_000));
    let summary = scenario.report().full().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        summary.contains("Range backward: 1 time, median 1.1 ms on the CPU and 100.0 us on the GPU")
            && summary.contains("GPU idle in it for 1.0 ms on average, most of it CPU running or not sampled (1.0 ms)"),
        "{summary}"
    );
}

#[test]
fn started_ranges_overlap_and_end_anywhere() {
    let mut scenario = Scenario::new();
    scenario.range(1, 100, Kind::Start, "request", 7);
    scenario.range(1, 150, Kind::Start, "request", 8);
    gpu(0).kernel("a").at(200).lasting(10).launched(&mut scenario, 1, 160, 5);
    scenario.range(2, 300, Kind::End, "", 7);
    gpu(0).kernel("b").at(400).lasting(10).launched(&mut scenario, 1, 350, 5);
    scenario.range(2, 500, Kind::End, "", 8);
    scenario.range(2, 600, Kind::End, "", 9);
    scenario.range(1, 610, Kind::Pop, "", 0);
    scenario.range(1, 620, Kind::Push, "left open", 0);
    let report = rows(&scenario);
    let request = row(&report, "request");
    assert_eq!(request.style, RangeStyle::StartEnd);
    assert_eq!((request.host.durations.min(), request.host.durations.max()), (200_000, 350_000));
    // The first is in `a`, the second in both.
    assert_eq!((request.operations, request.projected.durations.count()), (3, 2));
    assert_eq!((report.counts.unmatched, report.open), (2, 1));
}

#[test]
fn domains_do_not_nest_in_each_other() {
    let mut scenario = nested();
    let domain = scenario.dictionary.intern_name("library");
    scenario.pushed(1, 115, 130, "call");
    let last = scenario.records.len();
    for (_, record) in &mut scenario.records[last - 2..] {
        if let Record::Range(event) = record {
            event.domain = domain;
        }
    }
    let report = rows(&scenario);
    let call = row(&report, "library:call");
    assert_eq!((call.operations, call.mean_level), (1, 0.0));
    assert_eq!(row(&report, "forward").operations, 2, "one of them is in both");
}

#[test]
fn counters_share_a_row_and_tables_are_bounded() {
    let mut scenario = Scenario::new();
    for index in 0..1_300u64 {
        scenario.pushed(1, 10 * index, 10 * index + 5, &format!("ProfilerStep#{index}"));
        scenario.pushed(2, 10 * index, 10 * index + 5, &format!("name{index}"));
    }
    for depth in 0..70u64 {
        scenario.range(3, 20_000 + depth, Kind::Push, "deep", 0);
    }
    for depth in 0..70u64 {
        scenario.range(3, 20_100 + depth, Kind::Pop, "", 0);
    }
    let report = rows(&scenario);
    assert_eq!(row(&report, "ProfilerStep#*").host.durations.count(), 1_300);
    assert_eq!(report.rows.len(), 1_024);
    // 277 names too many (one row belongs to the steps, and `deep` was last), and all 70 levels of `deep`
    // have none.
    assert_eq!(report.counts.table_overflow, (1_300 - 1_023) + 70);
    assert_eq!((report.counts.unmatched, report.open), (0, 0));
}

#[test]
fn steps_are_taken_from_ranges_from_the_third_on() {
    let mut scenario = Scenario::new();
    for step in 0..30u64 {
        let at = 1_000 + step * 1_000;
        scenario.pushed(1, at, at + 900, &format!("step {step}"));
        scenario.pushed(1, at + 100, at + 200, "train_batch");
        for kernel in 0..3 {
            let work = gpu(0).kernel(["a", "b", "c"][kernel as usize]).at(at + 200 + kernel * 100).lasting(90);
            work.launched(&mut scenario, 1, at + 20 + kernel * 10, 5);
        }
    }
    let report = scenario.report();
    let steps = report.devices[0].steps.as_ref().unwrap();
    assert_eq!((steps.source, steps.seen), (StepSource::Annotated, 30 - 2 - 1));
    assert!(steps.rows.iter().all(|step| step.duration() == 1_000_000 && step.operations == 3));
    let mut once = nested();
    once.pushed(1, 50, 5_000, "train_step");
    assert!(once.report().devices[0].steps.as_ref().is_none_or(|steps| steps.source != StepSource::Annotated));
}

/// A loop that loads its batch for 5 ms before each step, in PyTorch's range for it.
fn loading(named: bool) -> Scenario {
    let mut scenario = Scenario::new();
    for step in 0..10u64 {
        let at = 1_000 + step * 10_000;
        if named {
            let name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
            scenario.pushed(1, at + 2_000, at + 7_000, name);
        }
        gpu(0).h2d(MemoryKind::Pageable, 1 << 20).at(at + 8_010).lasting(90).launched(
            &mut scenario,
            1,
            at + 8_000,
            110,
        );
        gpu(0).kernel("step").at(at + 8_120).lasting(1_000).launched(&mut scenario, 1, at + 8_112, 5);
    }
    scenario
}

#[test]
fn a_named_loader_is_data_loading_and_the_pattern_steps_back() {
    let of = |scenario: &Scenario, leaf: Leaf| scenario.leaves()[leaf as usize] / 1_000;
    let unnamed = loading(false);
    assert_eq!(of(&unnamed, Leaf::DataLoading), (10 - 3) * 8_880, "the whole gap, from the third on");
    let named = loading(true);
    // There are nine gaps between the ten steps.
    assert_eq!(of(&named, Leaf::DataLoading), 9 * 5_000);
    assert_eq!(
        of(&named, Leaf::HostCpu) + of(&named, Leaf::DataLoading),
        of(&unnamed, Leaf::HostCpu) + of(&unnamed, Leaf::DataLoading)
    );
    let report = named.report();
    assert_eq!(report.bottleneck.cause, Cause::DataLoading);
    let evidence = report.bottleneck.evidence.join("\n");
    assert!(evidence.contains("ranges around its data loader: preparing the batch"), "{evidence}");
}

/// A range of a synthetic program: pause before it, length of the part before its launch, presence of a
/// nested range, thread.
type Step = (u64, u64, bool, u8);

fn play(steps: &[Step]) -> Scenario {
    let mut scenario = Scenario::new();
    let mut clock = [100u64; 2];
    let mut device = 100;
    for &(pause, before, within, thread) in steps {
        let (thread, now) = (u32::from(thread), &mut clock[usize::from(thread)]);
        let begin = *now + pause + 1;
        let launch = begin + before + 3;
        scenario.range(thread, begin, Kind::Push, "outer", 0);
        if within {
            scenario.range(thread, begin + 1, Kind::Push, "inner", 0);
        }
        device = device.max(launch) + 9;
        gpu(0).kernel("k").at(device).lasting(20).launched(&mut scenario, thread, launch, 5);
        device += 20;
        if within {
            scenario.range(thread, launch + 6, Kind::Pop, "", 0);
        }
        scenario.range(thread, launch + 7, Kind::Pop, "", 0);
        *now = launch + 8;
    }
    scenario
}

fn totals(attributor: &Attributor) -> String {
    let mut rows: Vec<_> = attributor
        .ranges()
        .into_iter()
        .map(|(totals, inside)| {
            let mut kernels: Vec<_> = inside.kernels.iter().map(|(name, of)| format!("{name:?} {of:?}")).collect();
            kernels.sort();
            format!("{totals:?} {} {:?} {kernels:?}", inside.device_ns, inside.idle)
        })
        .collect();
    rows.sort();
    format!("{rows:?} {:?}", attributor.range_counts())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) })]

    #[test]
    fn ranges_change_no_leaf_and_hold_no_more_than_there_is(
        steps in prop::collection::vec((0..3_000u64, 0..3_000u64, any::<bool>(), 0..2u8), 1..40),
        period in 50..20_000u64,
    ) {
        let scenario = play(&steps);
        let mut plain = play(&steps);
        plain.records.retain(|(_, record)| !matches!(record, Record::Range(_)));
        let with = scenario.run_with(period, 0);
        let leaves = with.devices().next().map(|account| *account.leaves()).unwrap();
        prop_assert_eq!(leaves, plain.run_with(period, 0).devices().next().map(|account| *account.leaves()).unwrap());
        let report = scenario.report_of(&with).ranges.unwrap();
        let outer = row(&report, "outer");
        prop_assert_eq!(outer.host.durations.count(), steps.len() as u64);
        // Each kernel is in an outer range, and there is one device.
        prop_assert_eq!(outer.device_ns, leaves[Leaf::Compute as usize]);
        for leaf in Leaf::ALL.into_iter().filter(|leaf| !leaf.is_busy()) {
            prop_assert!(outer.idle[leaf as usize] <= leaves[leaf as usize]);
        }
        if let Some(inner) = report.rows.iter().find(|row| row.message == "inner") {
            prop_assert!(inner.device_ns <= outer.device_ns && inner.operations <= outer.operations);
            prop_assert!(inner.causes().iter().all(|&(leaf, nanos)| nanos <= outer.idle[leaf as usize]));
        }
    }

    #[test]
    fn delivery_does_not_matter(
        steps in prop::collection::vec((0..3_000u64, 0..3_000u64, any::<bool>(), 0..2u8), 1..40),
        seed in 1..u64::MAX,
        period in 50..20_000u64,
    ) {
        let scenario = play(&steps);
        let reference = totals(&scenario.run_with(1_000_000, 0));
        prop_assert_eq!(&totals(&scenario.run_with(1_000_000, seed)), &reference);
        prop_assert_eq!(&totals(&scenario.run_with(period, seed)), &reference);
    }
}
