//! `gpuwhy check` with recorded sessions: rules that hold and fail, output formats and exit codes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{GPUWHY, Stage, stderr};
use serde_json::{Value, json};

fn played(stage: &Stage, name: &str) -> PathBuf {
    let trace = stage.path(&format!("{name}.gpuwhy"));
    let output = stage.host(name).env("GPUWHY_OUTPUT", &trace).env("GPUWHY_REPORT", "off").output().unwrap();
    assert!(output.status.success(), "{name}: {}", stderr(&output));
    trace
}

fn check(trace: &Path, arguments: &[&str]) -> (Option<i32>, String, Output) {
    let output = Command::new(GPUWHY).arg("check").args(arguments).arg(trace).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), output)
}

#[test]
fn limits_hold_or_show_what_was_seen() {
    let stage = Stage::new();
    let trace = played(&stage, "mlp");
    let (code, text, output) = check(
        &trace,
        &[
            "--kernels-at-most",
            "60000",
            "--bottleneck",
            "launch,sync",
            "--share-at-most",
            "data_loading=1",
            "--step-at-most=1s",
        ],
    );
    assert_eq!(code, Some(0), "{}", stderr(&output));
    assert_eq!(text.lines().count(), 5, "{text}");
    assert!(text.lines().skip(1).all(|line| line.starts_with("  ok    ")), "{text}");
    // It waits for the device and allocates before its steps only.
    let (code, text, _) = check(&trace, &["--no-sync", "--no-allocation"]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text, _) = check(&foreign("malloc_async"), &["--no-allocation"]);
    assert!(
        code == Some(1) && text.contains("80 calls allocated memory, none expected: 80 x cudaMallocAsync"),
        "{text}"
    );
    let failing: [(&[&str], &str); 6] = [
        (&["--kernels-at-most", "7"], "54081 kernels, at most 7 expected"),
        (&["--launches-at-most", "7"], "launching calls, at most 7 expected"),
        (&["--busy-at-least", "99%"], "device 0 was busy"),
        (&["--not-bottleneck", "launch"], "the bottleneck is launch (58.3 %), which is excluded"),
        (&["--share-at-most", "launch=5"], "launch takes 58.3 % of the time of device 0, at most 5.0 % expected"),
        (&["--step-at-most", "100us"], "at most 100.0 us expected"),
    ];
    for (arguments, wanted) in failing {
        let (code, text, output) = check(&trace, arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {}", stderr(&output));
        assert!(text.contains("  FAIL  ") && text.contains(wanted), "{arguments:?}: {text}");
    }
}

#[test]
fn what_start_up_does_is_not_judged_where_steps_repeat() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide/ci.md");
    let guide = fs::read_to_string(guide).unwrap();
    let limits = guide.lines().find_map(|line| line.trim().strip_prefix("limits: ")).unwrap();
    // It copies its weights, allocates and waits before its steps.
    let limits: Vec<&str> = limits.split_whitespace().chain(["--no-sync", "--no-allocation"]).collect();
    let (code, text, _) = check(&fixture("traces/sleeper"), &limits);
    assert_eq!((code, text.matches("  ok  ").count()), (Some(0), limits.len()), "{text}");
    let (code, text, _) = check(&fixture("traces/numpy_post"), &limits);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("after start-up") && text.contains("steps of device 0"), "{text}");
    assert!(text.contains("ok    no call allocates memory"), "{text}");
}

#[test]
fn every_form_says_the_same() {
    let stage = Stage::new();
    let trace = played(&stage, "sync_item");
    let limits = ["--no-sync", "--kernels-at-most", "1000000"];
    let form = |name: &str| check(&trace, &[&limits[..], &["--format", name]].concat());
    let (code, json, _) = form("json");
    let document: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &document["passed"], &document["bottleneck"]), (Some(1), &false.into(), &"sync".into()));
    let rules = document["rules"].as_array().unwrap();
    assert_eq!(rules.iter().map(|rule| rule["passed"].as_bool().unwrap()).collect::<Vec<_>>(), [true, false]);
    let failure = rules[1]["failure"].as_str().unwrap();
    let (_, markdown, _) = form("markdown");
    assert!(markdown.starts_with("### gpuwhy check: ") && markdown.contains("\n|---|---|\n"), "{markdown}");
    assert!(
        markdown.contains("| ok | at most 1000000 kernels |") && markdown.contains(&failure.replace('_', "\\_")),
        "{markdown}"
    );
    let named = profiled(&stage, "@a.json", "![x](https://y) *b* @c #1");
    let (_, markdown, _) = check(&named, &["--kernel-at-most", "c=1ns", "--format", "markdown"]);
    let name = "!\\[x\\](https:<!-- -->//y) \\*b\\* @<!-- -->c #<!-- -->1";
    assert!(markdown.contains("/@<!-- -->a.json\n") && markdown.contains(&format!(": {name}: median")), "{markdown}");
    let (_, github, _) = form("github");
    assert!(github.starts_with("::error title=gpuwhy check::") && github.contains(failure), "{github}");
    assert_eq!(github.lines().count(), 1);
    let (code, github, _) = check(&trace, &["--kernels-at-most", "1000000", "--format", "github"]);
    assert!(code == Some(0) && github.starts_with("::notice title=gpuwhy check::"), "{github}");
}

#[test]
fn a_baseline_is_stored_on_request_and_judges_afterwards() {
    let stage = Stage::new();
    let trace = played(&stage, "mlp");
    let baseline = stage.path("perf.json");
    let file = baseline.to_str().unwrap();
    let limits = ["--baseline", file, "--case", "small", "--step-within", "1.03"];
    let (code, text, _) = check(&trace, &limits);
    assert!(code == Some(1) && text.contains("nothing about \"step\" on NVIDIA H200 in case \"small\""), "{text}");
    assert!(!baseline.exists());
    assert_eq!(check(&trace, &[&limits[..], &["--bless"]].concat()).0, Some(0));
    assert_eq!(check(&trace, &limits).0, Some(0));
    let mut stored: Value = serde_json::from_str(&fs::read_to_string(&baseline).unwrap()).unwrap();
    let median = stored["kernels"][0]["median_ns"].as_u64().unwrap();
    stored["kernels"][0]["median_ns"] = 1000.into();
    fs::write(&baseline, stored.to_string()).unwrap();
    let (code, text, _) = check(&trace, &limits);
    assert!(code == Some(1) && text.contains("median step") && text.contains("perf.json"), "{text}");
    // A baseline is one run: a difference within the variation between runs is reported but does not fail.
    stored["kernels"][0]["median_ns"] = (median * 8 / 10).into();
    fs::write(&baseline, stored.to_string()).unwrap();
    let (code, text, _) = check(&trace, &limits);
    assert!(code == Some(0) && text.contains("  open  ") && text.contains("one run each"), "{text}");
    let (_, github, _) = check(&trace, &[&limits[..], &["--format", "github"]].concat());
    assert!(github.starts_with("::warning title=gpuwhy check::"), "{github}");
    fs::write(&baseline, "{").unwrap();
    for arguments in [&limits[..], &[&limits[..], &["--bless"]].concat()] {
        let (code, text, output) = check(&trace, arguments);
        assert!(code == Some(2) && text.is_empty() && stderr(&output).contains("perf.json: EOF"), "{output:?}");
    }
    let (code, _, output) = check(&trace, &["--baseline", file, "--bless", "--no-sync"]);
    assert!(code == Some(2) && stderr(&output).contains("--bless stores what"), "{output:?}");
}

/// A trace of the PyTorch profiler with three steps of 100 us and one kernel in each.
fn profiled(stage: &Stage, file: &str, kernel: &str) -> PathBuf {
    let row = |kind: &str, name: &str, start: u64, duration: u64, correlation: u64| {
        let (process, thread) = if kind == "kernel" { (0, 7) } else { (100, 100) };
        json!({"ph": "X", "cat": kind, "name": name, "ts": start, "dur": duration, "pid": process, "tid": thread,
            "args": {"correlation": correlation, "device": 0, "context": 1, "stream": 7}})
    };
    let rows = (0..3).flat_map(|step| {
        let start = 1000 + 100 * step;
        [
            row("user_annotation", &format!("ProfilerStep#{step}"), start, 100, 0),
            row("cuda_runtime", "cudaLaunchKernel", start + 5, 5, 10 + step),
            row("kernel", kernel, start + 20, 20, 10 + step),
        ]
    });
    let path = stage.path(file);
    fs::write(&path, json!({"traceEvents": rows.collect::<Vec<_>>()}).to_string()).unwrap();
    path
}

#[test]
fn a_kernel_named_step_does_not_replace_the_step_in_a_baseline() {
    let stage = Stage::new();
    let trace = profiled(&stage, "trace.json", "step");
    let baseline = stage.path("perf.json");
    let limits = ["--baseline", baseline.to_str().unwrap(), "--step-within", "1.03", "--kernel-within", "step=1.05"];
    let (code, _, output) = check(&trace, &[&limits[..], &["--bless"]].concat());
    assert_eq!(code, Some(0), "{output:?}");
    let stored: Value = serde_json::from_str(&fs::read_to_string(&baseline).unwrap()).unwrap();
    let stored: Vec<_> =
        stored["kernels"].as_array().unwrap().iter().map(|row| (&row["kernel"], &row["median_ns"])).collect();
    assert_eq!(stored, [(&"kernel step".into(), &20_000.into()), (&"step".into(), &100_000.into())]);
    assert_eq!(check(&trace, &limits).0, Some(0));
}

#[test]
fn memory_in_use_and_its_growth_have_a_limit() {
    let limits = ["--memory-at-most", "2.7GB", "--no-memory-growth"];
    let (code, text, _) = check(&fixture("traces/mem"), &limits);
    assert_eq!((code, text.matches("  ok  ").count()), (Some(0), 2), "{text}");
    let failing: [(PathBuf, &[&str], &str); 3] = [
        (fixture("traces/serving"), &limits, "132.7 GB of device 0 were in use, at most 2.7 GB expected"),
        (foreign("malloc_async"), &limits, "no reading of the memory in use"),
        (
            fixture("traces/checkpoint"),
            &["--no-memory-growth"],
            "cannot tell whether memory of device 0 grows: too few steps",
        ),
    ];
    for (trace, limits, wanted) in failing {
        let (code, text, _) = check(&trace, limits);
        assert!(code == Some(1) && text.contains(wanted), "{text}");
    }
}

fn foreign(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testing/fixtures/foreign/{name}.sqlite.gz"))
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testing/fixtures/{name}.gpuwhy"))
}

#[test]
fn a_module_has_a_limit_in_the_mean_of_the_recorded_replays() {
    let inference = fixture("traces/graph_inference");
    let (code, text, _) = check(&inference, &["--module-at-most", "Attention=120us", "--module-at-most=Decoder=405us"]);
    assert!(code == Some(0) && text.matches("  ok    module ").count() == 2, "{text}");
    let slow = ["--module-at-most", "Attention=110us"];
    for (trace, arguments, found) in [
        (
            "traces/graph_inference",
            &slow[..],
            "Attention: mean 118.4 us of 60 recorded replays, at most 110.0 us expected",
        ),
        (
            "traces/graph_bursts_one_id",
            &["--module-at-most", "Attention=80us"],
            "Attention: mean 83.2 us of 7121 recorded replays",
        ),
        ("traces/graph_inference", &["--module-at-most", "attention=1s"], "\"attention\"; the nearest are Attention; "),
        ("traces/graph_inference", &["--module-at-most", "Mlp=1s"], "the nearest are GatedMlp; "),
        ("traces/hf_generate", &slow, "no CUDA graph was replayed"),
        ("traces/compiled_whole_graphs", &slow, "record with GPUWHY_CUDA_GRAPH_TRACE=node"),
        ("traces/graph_jax", &slow, "no `forward` of a class ran when CUDA graphs were captured"),
        ("traces/mon_d2d_clones", &slow, "device work was not recorded, as in mode monitor"),
    ] {
        let (code, text, _) = check(&fixture(trace), arguments);
        assert!(code == Some(1) && text.contains("  FAIL  module ") && text.contains(found), "{trace}: {text}");
    }
}

#[test]
fn a_module_is_compared_with_its_time_in_a_baseline() {
    let stage = Stage::new();
    let baseline = stage.path("perf.json");
    let file = baseline.to_str().unwrap();
    let limits = ["--baseline", file, "--module-within", "Attention=1.02"];
    let [inference, training] = ["traces/graph_inference", "graphs/training"].map(fixture);
    let (code, text, _) = check(&inference, &limits);
    assert!(code == Some(1) && text.contains("nothing about \"module Attention\" on NVIDIA H200"), "{text}");
    assert_eq!(check(&inference, &[&limits[..], &["--bless"]].concat()).0, Some(0));
    let stored: Value = serde_json::from_str(&fs::read_to_string(&baseline).unwrap()).unwrap();
    assert_eq!((&stored["kernels"][0]["median_ns"], &stored["kernels"][0]["launches"]), (&118_423.into(), &60.into()));
    assert_eq!(check(&inference, &limits).0, Some(0));
    // Its forward pass is 3 % slower.
    let (code, text, _) = check(&training, &limits);
    let found = "Attention: mean 122.2 us of 60 recorded replays, at most 120.8 us (1.02 x 118.4 us of ";
    assert!(code == Some(1) && text.contains(found), "{text}");
    assert_eq!(check(&training, &["--baseline", file, "--module-within", "Attention=1.05"]).0, Some(0));
}

#[test]
fn several_runs_pass_fail_or_are_inconclusive() {
    let stage = Stage::new();
    let folder = stage.path("runs");
    fs::create_dir(&folder).unwrap();
    for run in 0..4 {
        fs::rename(played(&stage, "mlp"), folder.join(format!("{run}.gpuwhy"))).unwrap();
    }
    let baseline = stage.path("perf.json");
    let limits = ["--runs", "--baseline", baseline.to_str().unwrap(), "--step-within", "1.03"];
    assert_eq!(check(&folder, &[&limits[..], &["--bless"]].concat()).0, Some(0));
    let mut stored: Value = serde_json::from_str(&fs::read_to_string(&baseline).unwrap()).unwrap();
    let median = stored["kernels"][0]["median_ns"].as_u64().unwrap();
    assert_eq!(stored["kernels"][0]["runs_ns"].as_array().unwrap().len(), 4);
    let mut judged = |percent: [u64; 4]| {
        stored["kernels"][0]["runs_ns"] = percent.map(|part| median * 100 / part).to_vec().into();
        fs::write(&baseline, stored.to_string()).unwrap();
        check(&folder, &limits)
    };
    let (code, text, _) = judged([99, 100, 101, 102]);
    assert!(code == Some(0) && text.contains("  ok  "), "{text}");
    let (code, text, _) = judged([105, 106, 107, 108]);
    assert!(code == Some(1) && text.contains("times the baseline (1.050 to 1.080; 4 and 4 runs)"), "{text}");
    let (code, text, _) = judged([100, 102, 104, 106]);
    assert!(code == Some(0) && text.contains("  open  ") && text.contains("inconclusive"), "{text}");
    // Counts must hold in each run, and limits on times in one at least.
    let (code, text, _) = check(&folder, &["--runs", "--kernels-at-most", "10", "--step-at-most", "1us"]);
    assert!(code == Some(1) && text.matches("in 4 of 4 runs, first in run 1").count() == 2, "{text}");
    assert_eq!(text.matches("  FAIL  ").count(), 2, "one answer for all runs: {text}");
    let one = folder.join("0.gpuwhy");
    let alone = check(&one, &["--kernels-at-most", "10", "--step-at-most", "1us"]);
    let as_runs = check(&one, &["--runs", "--kernels-at-most", "10", "--step-at-most", "1us"]);
    assert_eq!((alone.0, alone.1), (as_runs.0, as_runs.1), "one run is judged as without --runs");
    fs::copy(folder.join("0.gpuwhy"), folder.join("copy.gpuwhy")).unwrap();
    let (code, _, output) = check(&folder, &["--runs", "--no-sync"]);
    assert!(code == Some(2) && stderr(&output).contains("traces 1 and 5 are of one run"), "{output:?}");
}

#[test]
fn what_cannot_be_judged_has_codes_of_its_own() {
    let stage = Stage::new();
    let trace = played(&stage, "mlp");
    let (code, _, output) = check(&trace, &[]);
    assert!(code == Some(2) && stderr(&output).contains("no limit is given"), "{output:?}");
    for wrong in [["--step-within", "1.1"], ["--bottleneck", "slow"], ["--busy-at-least", "120"]] {
        assert_eq!(check(&trace, &wrong).0, Some(2), "{wrong:?}");
    }
    let bytes = fs::read(&trace).unwrap();
    let cut = stage.path("cut.gpuwhy");
    fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let (code, text, _) = check(&cut, &["--no-sync"]);
    assert!(code == Some(3) && text.contains("incomplete"), "{code:?}: {text}");
    let none = stage.path("none.gpuwhy");
    let (code, _, output) = check(&none, &["--no-sync"]);
    assert!(code == Some(2) && stderr(&output).contains("none.gpuwhy"), "{output:?}");
    let (code, _, output) = check(&trace, &["--no-sync", "--capture", "7"]);
    assert!(code == Some(2) && stderr(&output).contains("no capture 7"), "{output:?}");
    let (_, text, _) = check(&fixture("traces/mon_d2d_clones"), &["--share-at-most", "data_loading=50"]);
    assert!(text.contains("device work was not recorded"), "{text}");
}

#[test]
fn a_price_says_what_causes_cost_and_fixes_save() {
    let stage = Stage::new();
    let trace = played(&stage, "mlp");
    let report = |arguments: &[&str]| {
        let output = Command::new(GPUWHY).arg("report").args(arguments).arg(&trace).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, text) = report(&["--price", "2.5USD"]);
    assert_eq!(code, Some(0));
    assert!(text.contains("One GPU at 2.50 USD an hour: 60.00 USD a day: waiting for launches 35.00 USD"), "{text}");
    assert!(text.contains("Fix 1 saves about 44.07 USD a day for the same work (40.72 USD to 45.06 USD)."), "{text}");
    let document: Value = serde_json::from_str(&report(&["--price", "2.5", "--json"]).1).unwrap();
    let price = &document["price"];
    let causes: f64 = price["causes_a_day"].as_object().unwrap().values().map(|cost| cost.as_f64().unwrap()).sum();
    assert!((causes - 60.0).abs() < 1e-6 && price["a_day"] == 60.0, "{price}");
    // Savings per day by the speedup of 3.77.
    let speedup = document["bottleneck"]["plan"][0]["speedup"].as_f64().unwrap();
    let saved = price["fixes"][0]["saved_a_day"].as_f64().unwrap();
    assert!((saved - 60.0 * (1.0 - 1.0 / speedup)).abs() < 1e-9, "{price}");
    assert_eq!(report(&["--price", "0"]).0, Some(2));
    assert!(!report(&["--json"]).1.contains("\"price\""));
}
