//! Expectations and baselines, in processes whose GPU is a recording.

use std::time::Duration;

use gpuwhy::{Baseline, Expectations, Report, measure};

use crate::support::play::play_out;

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
    // All failures are listed.
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
