//! Mode auto end to end: samples all the time, and bursts of records where the samples leave the bottleneck
//! open or where it changes. The program is a sequence of recorded ones; the samples played with it are made
//! up.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{GPUWHY, Stage, fixture, stderr};

const SECOND: u64 = 1_000_000_000;
/// Recordings, the number of times that each is played (one more for the first), and the share of the time in
/// which the device is busy by its samples. One pass takes 1.1 or 1.2 s. Samples of a partly busy device do
/// not show the cause.
const PARTS: [(&str, u64, u64); 3] = [("sync_item", 73, 50), ("multi_stream", 64, 97), ("sync_item", 54, 50)];
/// Approximate start of the second and the third part, seconds.
const CHANGES: [f64; 2] = [81.8, 156.6];
/// Each period of this length has one additional burst, seconds.
const PERIOD: u64 = 120;
const INTERVAL: u64 = 20_000_000;
const METRICS: &str = "gpc__cycles_elapsed.avg.per_second sm__cycles_active.avg.pct_of_peak_sustained_elapsed \
                       gr__cycles_active.avg.pct_of_peak_sustained_elapsed";

fn counters() -> String {
    let mut text = format!("chip GH100\ninterval {INTERVAL}\nmetrics {METRICS}\n");
    for begin in (0..240 * SECOND / INTERVAL).map(|number| number * INTERVAL) {
        let part = CHANGES.iter().filter(|&&change| begin as f64 / SECOND as f64 >= change).count();
        let busy = PARTS[part].2;
        writeln!(text, "sample {begin} {} 1.75e9 {} {busy}", begin + INTERVAL, busy - 5).unwrap();
    }
    text
}

/// Runs the first seconds of the program at ten times its speed, with these variables.
fn run(stage: &Stage, seconds: u64, settings: &[(&str, &str)]) -> Output {
    let mut host = stage.host(PARTS[0].0);
    let nvml = Path::new(GPUWHY).parent().unwrap().join("examples/libreplay_nvml.so");
    assert!(nvml.is_file(), "{} was not built: run `cargo test --workspace`", nvml.display());
    symlink(nvml, stage.path("libnvidia-ml.so.1")).unwrap();
    fs::write(stage.path("counters.txt"), counters()).unwrap();
    let then: Vec<_> = PARTS.iter().map(|&(name, times, _)| format!("{}*{times}", fixture(name).display())).collect();
    host.env("LD_PRELOAD", stage.driver()).env("LD_LIBRARY_PATH", stage.folder.path()).env("REPLAY_NVML", "power=1");
    host.env("GPUWHY_REPLAY_COUNTERS", stage.path("counters.txt")).env("GPUWHY_REPLAY_SPEED", "10");
    host.env("GPUWHY_REPLAY_THEN", then.join(","));
    host.args(["--until", &(seconds * 1_000).to_string()]);
    host.env("GPUWHY_MODE", "auto")
        // A named rate is kept on a slow machine, where decoding takes more than its share of a core.
        .env("GPUWHY_GPU_METRICS", "on:2000")
        .env("GPUWHY_FLUSH", "20ms")
        .env("GPUWHY_REPORT", "full");
    let output = host.envs(settings.iter().map(|&(name, value)| (format!("GPUWHY_{name}"), value))).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("no {pointer} in {value:#}"))
}

fn number(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {pointer} in {value:#}"))
}

fn rows<'a>(report: &'a Value, pointer: &str) -> &'a [Value] {
    report.pointer(pointer).and_then(Value::as_array).unwrap_or_else(|| panic!("no {pointer} in {report:#}"))
}

#[test]
fn both_changes_of_the_bottleneck_are_reported_soon_and_bursts_stand_beside_the_samples() {
    let stage = Stage::new();
    let output = run(&stage, 218, &[("MAX_OVERHEAD", "5%")]);
    let said = stderr(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    let report = stage.report();
    let start = number(&report, "/process/start_time_unix_ns");
    let after = |value: &Value, pointer: &str| (number(value, pointer) - start) as f64 / SECOND as f64;
    // The causes by samples cover the complete run, and sum to it.
    let monitored = &report["monitored"];
    let reported: u64 = monitored["causes"].as_object().unwrap().values().map(|part| number(part, "/ns")).sum();
    assert_eq!(reported + number(monitored, "/unresolved_ns"), number(monitored, "/window_ns"), "{monitored}");
    assert!(number(monitored, "/window_ns") > 160 * SECOND, "{monitored}");
    assert!(report["devices"].as_array().unwrap().is_empty() && report["capture"].is_null());
    // Each bottleneck is reported within 30 s of its start. A burst across a change may name another cause
    // for a moment.
    let changes = rows(&report, "/bursts/changes");
    let cause_at = |seconds: f64| {
        let newest = changes.iter().rfind(|change| after(change, "/at_unix_ns") <= seconds);
        newest.map(|change| text(change, "/cause"))
    };
    let last = changes.last().map(|change| text(change, "/cause"));
    let reported = [cause_at(CHANGES[0] - 2.0), cause_at(CHANGES[0] + 30.0), last];
    assert_eq!(reported, [Some("sync"), Some("gpu_compute"), Some("sync")], "{said}");
    assert!(said.contains("The bottleneck changed"), "{said}");
    // Bursts: the causes of each sum to its device time, and its own report has the same values.
    let bursts = rows(&report, "/bursts/rows");
    let known = bursts.iter().all(|burst| ["open", "drift"].contains(&text(burst, "/trigger")));
    assert_eq!(text(&bursts[0], "/trigger"), "open", "{said}");
    assert!(known && (2..=2 + 220 / PERIOD as usize).contains(&bursts.len()), "{said}");
    for burst in bursts {
        let causes = burst["causes_ns"].as_object().unwrap();
        let sum: u64 = causes.values().map(|nanos| nanos.as_u64().unwrap()).sum();
        assert_eq!(sum, number(burst, "/window_ns"), "{burst}");
        assert!(number(burst, "/kernels") > 100, "{burst}");
        let capture = number(burst, "/capture").to_string();
        let trace = stage.path("trace.gpuwhy");
        let one = Command::new(GPUWHY).args(["report", "--json", "--capture", &capture]).arg(trace).output().unwrap();
        let one: Value = serde_json::from_slice(&one.stdout).unwrap();
        assert_eq!(one["capture"], burst["capture"]);
        assert_eq!(one["completeness"]["records"]["kernels"], burst["kernels"]);
        assert_eq!(one["bottleneck"]["cause"], burst["bottleneck"]);
        assert!(one["monitored"].is_null() && one["bursts"].is_null(), "{one:#}");
    }
    // The overhead covers the complete run and is within the budget.
    let cost = &report["cost"];
    assert_eq!(number(cost, "/bursts"), bursts.len() as u64, "{cost}");
    assert!(cost["share_at_most"].as_f64().is_some_and(|share| share > 0.0 && share < 0.05), "{cost}");
    assert!(said.contains("Cost of recording: mode auto, launching threads slowed down"), "{said}");
    // The report of the trace has the same sentences as the one at exit.
    let again = Command::new(GPUWHY).arg("report").arg(stage.path("trace.gpuwhy")).output().unwrap();
    let again = String::from_utf8_lossy(&again.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    for wanted in ["Recorded in", "The bottleneck changed", "Monitored: GPU work was recorded in"] {
        let sentence = |text: &str| text.split_once(wanted).map(|(_, rest)| rest.chars().take(12).collect::<String>());
        assert!(sentence(&said).is_some() && sentence(&said) == sentence(&again), "{wanted}: {said}\n{again}");
    }
}

#[test]
fn bursts_are_bounded_by_their_period_and_their_budget() {
    let stage = Stage::new();
    run(&stage, PERIOD - 10, &[("MAX_OVERHEAD", "5%")]);
    let report = stage.report();
    // One burst where samples leave the bottleneck open, and one that is reserved for drift.
    assert!((1..=2).contains(&rows(&report, "/bursts/rows").len()), "{}", report["bursts"]);
    assert_eq!(report["process"]["notes"].to_string().matches("records nothing here").count(), 0);
    let stage = Stage::new();
    let output = run(&stage, 60, &[("MAX_OVERHEAD", "0.0001%")]);
    let report = stage.report();
    assert!(rows(&report, "/bursts/rows").is_empty(), "{}", report["bursts"]);
    assert_eq!(report["cost"]["records_estimate_ns"], 0);
    assert!(stderr(&output).contains("mode auto"), "{}", stderr(&output));
}

#[test]
fn a_library_whose_kernel_records_stay_on_has_no_bursts() {
    let stage = Stage::new();
    run(&stage, 60, &[("REPLAY_VERSION", "130000")]);
    let report = stage.report();
    assert!(rows(&report, "/bursts/rows").is_empty(), "{}", report["bursts"]);
    assert!(report["process"]["notes"].to_string().contains("GPUWHY_MODE=auto records nothing here"), "{report:#}");
}

#[test]
fn captures_are_not_mixed_with_mode_auto() {
    let refused =
        Command::new(GPUWHY).args(["run", "--mode", "auto", "--duration", "5", "--", "true"]).output().unwrap();
    let said = stderr(&refused);
    assert!(
        !refused.status.success() && said.contains("GPUWHY_DURATION has no effect with GPUWHY_MODE=auto"),
        "{said}"
    );
}
