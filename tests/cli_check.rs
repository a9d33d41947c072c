//! `gpuwhy check` with recorded sessions: rules that hold and fail, output formats and exit codes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{GPUWHY, Stage, stderr};
use serde_json::Value;

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
    let failing: [(&[&str], &str); 8] = [
        (&["--kernels-at-most", "7"], "54081 kernels, at most 7 expected"),
        (&["--launches-at-most", "7"], "launching calls, at most 7 expected"),
        (&["--no-sync"], "calls waited for the device, none expected"),
        (&["--no-allocation"], "calls allocated memory, none expected"),
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
    assert!(markdown.contains("| ok | at most 1000000 kernels |") && markdown.contains(failure), "{markdown}");
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
    let (code, _, output) = check(&trace, &["--baseline", file, "--bless", "--no-sync"]);
    assert!(code == Some(2) && stderr(&output).contains("--bless stores what"), "{output:?}");
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
    let monitored = Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures/traces/mon_d2d_clones.gpuwhy");
    let (_, text, _) = check(&monitored, &["--share-at-most", "data_loading=50"]);
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
