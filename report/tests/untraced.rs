//! Predicted reports without tracing, and the source of the overhead table.

use gpuwhy_report::run::Report;
use gpuwhy_trace::cost::{Calibration, PriceSource, Prices};
use gpuwhy_trace::format::{TraceReader, TraceWriter};
use gpuwhy_trace::process_info::ProcessInfo;
use profiler_core::leaf::Cause;

use crate::support::{Scenario, gpu};

/// 60 steps of 64 times a long kernel and three tiny ones, 4.1 ms each: with a launch every 16 us the device
/// waits 10 of 64 us. Without 1.5 us of tracing per launch the host needs 58 us, and the device 57.1.
fn recurrent() -> Scenario {
    let mut scenario = Scenario::new();
    for step in 0..60 {
        let begin = 1_000 + step * 64 * 64;
        for layer in 0..64 {
            let at = begin + layer * 64;
            gpu(0).kernel("gemm").at(at + 10).lasting(50).launched(&mut scenario, 1, at, 6);
            gpu(0).kernel("add").at(at + 61).lasting(2).launched(&mut scenario, 1, at + 16, 6);
            gpu(0).kernel("bias").at(at + 64).lasting(1).launched(&mut scenario, 1, at + 32, 6);
            gpu(0).kernel("tanh").at(at + 66).lasting(1).launched(&mut scenario, 1, at + 48, 6);
        }
        scenario.pushed(1, begin, begin + 64 * 64, "step");
    }
    scenario
}

fn report(scenario: &Scenario, prices: Prices) -> Report {
    scenario.report_of(&scenario.run_priced(prices))
}

#[test]
fn a_program_that_only_tracing_makes_launch_bound_is_bound_by_its_kernels() {
    let scenario = recurrent();
    let as_recorded = scenario.report();
    assert_eq!(as_recorded.bottleneck.cause, Cause::Launch, "{as_recorded}");
    assert!(as_recorded.devices[0].untraced.is_none(), "no price is known");

    let prices = Prices { kernel_launch_cold: 1_500, kernel_gap: 216, ..Prices::default() };
    let report = report(&scenario, prices);
    let untraced = report.devices[0].untraced.unwrap();
    assert_eq!(untraced.measured_step_ns, 4_096_000);
    assert!((untraced.step_ns as f64 / 3_712_000.0 - 1.0).abs() < 0.01, "{untraced:?}");
    assert!((untraced.share_of_tracing - 0.094).abs() < 0.01, "{untraced:?}");
    assert_eq!(untraced.source, PriceSource::Measured);
    assert_eq!(report.bottleneck.cause, Cause::GpuCompute, "{report}");
    let text = report.full().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("Without gpuwhy a step takes about 3.7 ms (3.1 ms to 3.9 ms; measured with it: 4.1 ms)"),
        "{text}"
    );
    assert!(
        text.contains("Tracing itself makes this program launch-bound: without it, waiting for launches takes"),
        "{text}"
    );

    // With the overhead of the table: 3.72 ms without tracing.
    let by_table = self::report(&scenario, gpuwhy_trace::cost::prices::TABLE);
    assert_eq!(by_table.bottleneck.cause, Cause::GpuCompute, "{by_table}");
    let step = by_table.devices[0].untraced.unwrap().step_ns;
    assert!((step as f64 / 3_720_000.0 - 1.0).abs() < 0.03, "{step}");
    // If each launch were one of a sequence, it would cost less.
    let row = self::report(&scenario, Prices { kernel_launch_cold: 921, ..prices });
    assert!(row.devices[0].untraced.unwrap().step_ns > 3_840_000);
}

#[test]
fn what_tracing_takes_is_not_mentioned_where_it_is_little() {
    let report = report(&recurrent(), Prices { kernel_launch_cold: 200, ..Prices::default() });
    let untraced = report.devices[0].untraced.unwrap();
    assert!(untraced.share_of_tracing < 0.02 && untraced.share_of_tracing > 0.005, "{untraced:?}");
    assert!(!report.summary().contains("Without gpuwhy"), "{report}");
    assert!(report.full().contains("Without gpuwhy"), "{}", report.full());
    assert_eq!(report.bottleneck.cause, Cause::Launch);
}

#[test]
fn shares_without_tracing_sum_to_a_hundred_in_the_text() {
    let report = report(&recurrent(), Prices { kernel_launch_cold: 1_500, ..Prices::default() });
    let text = report.summary();
    let line = text.lines().find(|line| line.starts_with("GPU 0")).unwrap();
    let percents: Vec<u32> = line.split(" %").filter_map(|part| part.split_whitespace().last()?.parse().ok()).collect();
    assert_eq!(percents.iter().sum::<u32>(), 100, "{line}");
    assert!(percents.contains(&93), "54 of 58 us: {line}");
}

#[test]
fn calibrations_come_back_from_a_trace() {
    let prices = Prices { kernel_launch: 1_234, copy_gap: 5, ..Prices::default() };
    let written = ProcessInfo {
        gpuwhy_version: "0.2.0".to_owned(),
        calibrations: vec![Calibration { gpu: "NVIDIA L4".to_owned(), prices }],
        ..ProcessInfo::default()
    };
    let mut bytes = Vec::new();
    TraceWriter::new(&mut bytes, &written).unwrap();
    let reader = TraceReader::new(&bytes[..]).unwrap();
    assert_eq!(reader.session(), &written);
}

#[cfg(feature = "serde")]
#[test]
fn the_json_has_the_untraced_step() {
    let value =
        serde_json::to_value(report(&recurrent(), Prices { kernel_launch_cold: 1_500, ..Prices::default() })).unwrap();
    let untraced = &value["devices"][0]["untraced"];
    assert_eq!(untraced["source"], "measured");
    assert!(untraced["step_ns"].as_u64().unwrap() < 3_800_000, "{untraced}");
    assert!(untraced["share_of_tracing"].as_f64().unwrap() > 0.08, "{untraced}");
}
