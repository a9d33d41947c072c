//! Reports of traces whose programs were also run with the fix: the line, the cause and the gain that the
//! report names, next to what was measured (`testing/fixtures/traces/README.md`).

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{GPUWHY, stderr};

/// The JSON report of a trace, from its records.
fn report(name: &str) -> Value {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures/traces").join(format!("{name}.gpuwhy"));
    let output = Command::new(GPUWHY).args(["report", "--recompute", "--json"]).arg(trace).output().unwrap();
    assert!(output.status.success(), "{name}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Share of the time that the report gives to a line, over all activities there.
fn share_at(report: &Value, line: u64) -> f64 {
    let lines = report["host"]["lines"].as_array().unwrap().iter();
    lines.filter(|row| row["line"] == line).map(|row| row["share"].as_f64().unwrap()).sum()
}

/// Predicted gain of a scenario.
fn gain(report: &Value, kind: &str) -> f64 {
    let scenarios = report["devices"][0]["what_if"]["scenarios"].as_array().unwrap();
    scenarios.iter().find(|scenario| scenario["kind"] == kind).and_then(|found| found["speedup"].as_f64()).unwrap()
}

fn recommendation(report: &Value) -> &str {
    report["bottleneck"]["recommendation"].as_str().unwrap()
}

#[track_caller]
fn assert_within(value: f64, low: f64, high: f64) {
    assert!((low..=high).contains(&value), "{value}: {low} to {high}");
}

#[test]
fn a_sleep_has_its_share_and_its_line() {
    let report = report("sleeper");
    // 3.06 of 5.86 ms of a step.
    assert_within(share_at(&report, 79), 0.48, 0.54);
    assert!(recommendation(&report).starts_with("Remove the sleep at programs2.py:79"), "{}", recommendation(&report));
    // 2.54x without it.
    assert_within(gain(&report, "no_host_work"), 2.0, 3.2);
}

#[test]
fn writing_a_log_has_its_line() {
    let report = report("file_log");
    // 41 % by leaving it out.
    assert_within(share_at(&report, 31), 0.30, 0.45);
    assert!(recommendation(&report).contains("programs2.py:31"), "{}", recommendation(&report));
}

#[test]
fn two_busy_processes_a_core_are_named_as_no_free_core() {
    assert!(recommendation(&report("busy_cores")).starts_with("Give the launching thread a free core"));
}

#[test]
fn needless_copies_within_the_gpu_have_their_gain() {
    let report = report("d2d_clones");
    // 16.8x without them.
    assert_within(gain(&report, "device_copies_gone"), 14.0, 18.0);
    assert_eq!(report["bottleneck"]["plan"][0]["kind"], "device_copies_gone");
}

#[test]
fn work_on_a_result_belongs_to_the_read_of_it() {
    let numpy = report("numpy_post");
    // argmax takes 62 % of a step, and the whole is 13.4x as fast with argmax on the GPU.
    assert_within(share_at(&numpy, 86), 0.45, 0.65);
    assert_eq!(numpy["bottleneck"]["plan"][0]["kind"], "reads_reduced");
    assert_within(gain(&numpy, "reads_reduced"), 12.0, 18.0);
    let checkpoint = report("checkpoint");
    assert!(recommendation(&checkpoint).starts_with("Write the checkpoint at programs2.py:37"));
    // 15.4x without it.
    assert_within(gain(&checkpoint, "reads_reduced"), 12.0, 18.0);
}

#[test]
fn a_program_with_two_phases_is_judged_from_its_start() {
    let report = report("changing");
    let evidence = report["bottleneck"]["evidence"].to_string();
    assert!(evidence.contains("0 ns to 2.51 s: memory copies 99 %; 2.51 s to 3.19 s: kernel launches"), "{evidence}");
    assert_eq!(report["bottleneck"]["cause"], "copy");
}
