//! Expectations, baselines and benchmarks, in processes whose GPU is a recording.

use std::time::Duration;

use gpuwhy::{Baseline, Bench, BenchError, Expectations, Report, measure};

use crate::support::play::{play_out, play_until};

fn whole() -> Report {
    measure(|_| play_out()).unwrap().1
}

fn failure(report: &Report, expectations: Expectations) -> String {
    expectations.check(report).unwrap_err().to_string()
}

#[test]
#[ignore = "run by its outer half"]
fn rules() {
    let report = whole();
    let (kernels, name) = (report.completeness.kernels, &report.devices[0].kernels[0].name);
    let calls = |function: &str| report.api.iter().find(|row| row.name == function).map_or(0, |row| row.calls);
    let any = Expectations::new;
    let part = &name[..20];
    let slow = Duration::from_secs(1);
    any()
        .kernels_at_most(kernels)
        .launches_at_most(kernels)
        .busy_at_least(0.03)
        .kernel_at_most(part, slow)
        .assert(&report);
    assert!(
        failure(&report, any().kernels_at_most(7)).starts_with(&format!("{kernels} kernels, at most 7 expected: "))
    );
    let launches =
        calls("cudaLaunchKernel") + calls("cudaLaunchKernelExC") + calls("cuLaunchKernel") + calls("cuLaunchKernelEx");
    assert!(failure(&report, any().launches_at_most(7)).starts_with(&format!("{launches} launching calls")));
    assert!(failure(&report, any().no_sync()).contains("Synchronize"));
    assert!(failure(&report, any().no_allocation()).contains("alloc"));
    let busy = failure(&report, any().busy_at_least(0.99));
    assert!(busy.starts_with("device 0 was busy") && busy.contains("idle: "), "{busy}");
    let fast = failure(&report, any().kernel_at_most(part, Duration::from_nanos(1)));
    assert!(fast.contains("median") && fast.contains("at most 1 ns expected"), "{fast}");
    assert!(failure(&report, any().kernel_at_most("no such kernel", slow)).contains("there are"));
    // All that fail are told.
    let two = any().kernels_at_most(0).no_sync().check(&report).unwrap_err();
    assert_eq!(two.texts().len(), 2);
    let mut incomplete = report.clone();
    incomplete.completeness.loss.dropped_by_cupti = 3;
    let text = failure(&incomplete, any().kernels_at_most(0));
    assert!(text.contains("CUPTI dropped 3 records") && text.lines().count() == 1, "{text}");
}

#[test]
#[ignore = "run by its outer half"]
fn copies() {
    let report = whole();
    let text = failure(&report, Expectations::new().no_pageable_copy());
    assert!(
        text.contains("copies from or to pageable memory, none expected") && text.contains("host_to_device"),
        "{text}"
    );
}

fn within(ratio: f64) -> Result<(), gpuwhy::Failures> {
    let baseline = Baseline::new("baseline.json").case("recorded");
    let report = whole();
    let name = report.devices[0].kernels[0].name.clone();
    Expectations::new().kernel_within(name, ratio, &baseline).check(&report)
}

#[test]
#[ignore = "run by its outer half"]
fn baseline() {
    within(1.05).unwrap();
}

#[test]
#[ignore = "run by its outer half"]
fn no_baseline() {
    assert!(within(1.05).unwrap_err().to_string().contains("GPUWHY_BLESS=1"));
}

#[test]
#[ignore = "run by its outer half"]
fn slower_than_baseline() {
    let text = within(1.05).unwrap_err().to_string();
    assert!(text.contains("of baseline.json"), "{text}");
}

#[test]
#[ignore = "run by its outer half"]
fn nothing_to_bless() {
    let within = |name: &str, report: &Report| {
        failure(report, Expectations::new().kernel_within(name, 1.05, &Baseline::new("baseline.json")))
    };
    let report = whole();
    let all = within("", &report);
    assert!(all.contains("a baseline is of one"), "{all}");
    let mut incomplete = report.clone();
    incomplete.completeness.loss.dropped_by_cupti = 1;
    assert!(within(&report.devices[0].kernels[0].name, &incomplete).contains("cannot be judged"));
}

#[test]
#[ignore = "run by its outer half"]
fn broken_baseline() {
    assert!(within(1.05).unwrap_err().to_string().starts_with("baseline.json: "));
}

/// Plays 20 ms of the recording more.
fn repetition() -> impl FnMut() {
    let mut millis = 400;
    move || {
        millis += 20;
        play_until(millis);
    }
}

fn copies_of_20_ms(name: &str) -> Bench<'_> {
    Bench::new(name).warm_up(3).repetitions(10)
}

#[test]
#[ignore = "run by its outer half"]
fn bench() {
    let bench = copies_of_20_ms("20 ms of copies").bytes(1 << 30).flops(1e9);
    let measured = bench.precision(gpuwhy::Precision::Single).run(repetition()).unwrap();
    assert_eq!((measured.times_ns().len(), measured.missing(), &*measured.device().name), (10, 0, "NVIDIA H200"));
    assert!(measured.times_ns().iter().all(|&nanos| (1_000..40_000_000).contains(&nanos)), "{:?}", measured.times_ns());
    assert!(measured.times_ns().is_sorted() && measured.quantile_ns(0.5) == measured.times_ns()[4]);
    let rate = (1_u64 << 30) as f64 / measured.median_ns() as f64;
    assert_eq!(measured.gigabytes_per_second(), Some(rate));
    assert!(measured.memory_share().unwrap() > 0.0 && measured.roofline().unwrap().ridge.unwrap() > 1.0);
    let text = measured.to_string();
    assert!(text.starts_with(measured.name()), "{text}");
    assert!(text.contains("GB/s") && text.contains("TFLOP/s") && text.contains("roof"), "{text}");
    println!("{text}");
    let serde_json::Value::Object(fields) = serde_json::to_value(&measured).unwrap() else { panic!("no object") };
    let documented = include_str!("../../docs/reference/report.md");
    let unknown: Vec<_> = fields.keys().filter(|field| !documented.contains(&format!("`{field}`"))).collect();
    assert!(unknown.is_empty(), "docs/reference/report.md does not define {unknown:?}");
    let nothing = Bench::new("nothing").warm_up(0).repetitions(2).run(|| {});
    assert!(matches!(nothing, Err(BenchError::NothingRan)), "{nothing:?}");
}

#[test]
#[ignore = "run by its outer half"]
fn failing_bench() {
    let (mut play, mut calls) = (repetition(), 0);
    let failed = copies_of_20_ms("copies").try_run(|| {
        play();
        calls += 1;
        if calls == 5 { Err("invalid value") } else { Ok(()) }
    });
    assert_eq!(failed.unwrap_err().to_string(), "a launch failed: invalid value");
    assert_eq!(calls, 5);
    // Its session is closed.
    copies_of_20_ms("copies").run(play).unwrap();
}

/// The baseline, in the case that its outer half has changed or not.
fn against_baseline() -> Result<(), gpuwhy::Failures> {
    let measured = copies_of_20_ms("copies").run(repetition()).unwrap();
    measured.within(1.5, &Baseline::new("bench.json"))
}

#[test]
#[ignore = "run by its outer half"]
fn bench_baseline() {
    against_baseline().unwrap();
}

#[test]
#[ignore = "run by its outer half"]
fn slower_bench() {
    let text = against_baseline().unwrap_err().to_string();
    assert!(text.starts_with("copies: median ") && text.contains("at most 1 ns (1.5 x 1 ns of bench.json)"), "{text}");
}
