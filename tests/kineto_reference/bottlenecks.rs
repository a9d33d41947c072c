//! Each complete trace: the accounting is exact, and the bottleneck is the one that an engineer reading the
//! timeline would name.

use gpuwhy::open;
use gpuwhy_report::run::Report;
use profiler_core::leaf::{Cause, Leaf};
use profiler_core::whatif::ScenarioKind;

use super::oracle::{self, Kind, Span, Trace, merged, union, without};

/// Busy time, computation and window equal the independent ones to the nanosecond, and all time is
/// attributed.
fn check(name: &str, bottleneck: Cause) -> Option<Report> {
    let trace = Trace::load(name)?;
    let report = open(oracle::path(name)).unwrap();
    assert!(report.completeness.damage.is_empty(), "{:?}", report.completeness.damage);
    assert_eq!(report.completeness.late_ns, 0);
    assert_eq!(report.devices.len(), 1);
    let device = &report.devices[0];
    let work: Vec<Span> = trace.device_rows().map(|row| row.span).collect();
    let start = work.iter().map(|span| span.0).min().unwrap();
    let end = work.iter().map(|span| span.1).max().unwrap();
    assert_eq!(device.window_ns, (end - start) as u64);
    assert_eq!(device.leaves.iter().sum::<u64>(), device.window_ns);
    let busy: u64 = Leaf::ALL.iter().filter(|leaf| leaf.is_busy()).map(|&leaf| device.leaves[leaf as usize]).sum();
    assert_eq!(busy, union(work) as u64);
    let computing = trace.device_rows().filter(|row| row.computes()).map(|row| row.span);
    assert_eq!(device.leaves[Leaf::Compute as usize], union(computing) as u64);
    assert_eq!(report.bottleneck.cause, bottleneck, "{:?}", report.bottleneck);
    assert_agrees(&report);
    Some(report)
}

/// Advice, plan and gains of a report are consistent.
fn assert_agrees(report: &Report) {
    let bottleneck = &report.bottleneck;
    let beside = |kind: ScenarioKind| !matches!(kind, ScenarioKind::Base | ScenarioKind::GridsFilled);
    let best_cases =
        report.devices.iter().filter_map(|device| device.what_if.as_ref()).flat_map(|what_if| &what_if.best_cases);
    let largest =
        best_cases.filter(|best_case| beside(best_case.kind)).map(|best_case| best_case.speedup).fold(1.0, f64::max);
    if bottleneck.evidence.iter().any(|line| line.contains("No change on the CPU")) {
        assert!(largest < 1.15, "{bottleneck:?}");
    }
    let mut before = 1.0;
    for step in &bottleneck.plan {
        assert!(step.speedup >= 1.149 * before && step.interval.0 <= step.speedup && step.speedup <= step.interval.1);
        before = step.speedup;
    }
    if let Some(first) = bottleneck.plan.first() {
        let of_cause = ScenarioKind::without(bottleneck.cause) == Some(first.kind)
            || (bottleneck.cause == Cause::GpuCompute && first.kind == ScenarioKind::GridsFilled);
        // Waits of a busy GPU need no reason.
        let needs_none = match bottleneck.cause {
            Cause::HostCpu => true,
            Cause::GpuCompute => matches!(first.kind, ScenarioKind::NoSyncs | ScenarioKind::NoReadbacks),
            _ => false,
        };
        assert!(of_cause || first.because.is_some() || needs_none, "{bottleneck:?}");
    }
    assert!(report.summary().lines().count() <= 24, "{report}");
}

#[test]
fn resnet50_that_loads_in_its_main_thread() {
    check("resnet50_workers0", Cause::DataLoading);
}

#[test]
fn resnet50_with_four_loader_processes() {
    check("resnet50_workers4", Cause::GpuCompute);
}

#[test]
fn a_program_that_keeps_its_device_busy() {
    check("hta_ns_resolution", Cause::GpuCompute);
}

#[test]
fn a_program_whose_host_is_slow_between_launches() {
    check("hta_nccl", Cause::HostCpu);
}

#[test]
fn a_program_of_many_small_launches() {
    check("hta_df_index_resolver", Cause::Launch);
}

#[test]
fn a_program_that_exchanges_embeddings() {
    let Some(report) = check("hta_trace_diff_control", Cause::GpuCompute) else { return };
    // 18 % of a step, and 9 % to gain: named beside the bottleneck.
    let beside =
        "Communication between GPUs takes 18 % of the time, but without it only 9 % would be saved (simulated)";
    assert!(report.bottleneck.evidence.iter().any(|said| said.starts_with(beside)), "{:?}", report.bottleneck.evidence);
}

/// Deviation from nsys: its rule adds the durations of concurrent operations, so utilization exceeds 100 %.
/// Busy time is a union.
#[test]
fn concurrent_operations_do_not_add_up() {
    let Some(trace) = Trace::load("hta_trace_diff_control") else { return };
    let work: Vec<Span> = trace.device_rows().map(|row| row.span).collect();
    let (start, end) = (work.iter().map(|span| span.0).min().unwrap(), work.iter().map(|span| span.1).max().unwrap());
    // Thirty chunks, as in the rule.
    let length = (end - start) / 30;
    let mut beyond = 0;
    for chunk in 0..30 {
        let parts = oracle::clipped(&work, (start + chunk * length, start + (chunk + 1) * length));
        let sum: i64 = parts.iter().map(|(start, end)| end - start).sum();
        assert!(union(parts) <= length);
        beyond += u32::from(sum > length);
    }
    assert!(beyond > 0, "the rule of sums passes 100 % in some chunk");
}

/// The file shows when the program was in its data loader. The engine names the idle part of that, except for
/// the calls in it and gaps too short to distinguish from launching (100 us).
#[test]
fn data_loading_agrees_with_the_annotation() {
    for (name, least) in [("resnet50_workers0", 250_000_000), ("resnet50_workers4", 1_000_000)] {
        let Some(trace) = Trace::load(name) else { return };
        let report = open(oracle::path(name)).unwrap();
        let work = merged(trace.device_rows().map(|row| row.span));
        let window = (work[0].0, work[work.len() - 1].1);
        let loading = oracle::clipped(&trace.spans(Kind::DataLoader), window);
        let idle_in_loader = union(without(&loading, &work)) as u64;
        let named = report.devices[0].leaves[Leaf::DataLoading as usize];
        println!("{name}: idle in loader {idle_in_loader}, data_loading {named}");
        assert!(idle_in_loader >= least, "{idle_in_loader}");
        assert!(named <= idle_in_loader);
        assert!((idle_in_loader - named) * 50 <= idle_in_loader, "2 % at most are missing");
    }
}
