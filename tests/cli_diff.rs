//! `gpuwhy diff` with recorded sessions, and its exit codes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{GPUWHY, Stage, fixture, stderr};
use serde_json::Value;

/// The trace of a recorded session.
fn played(stage: &Stage, name: &str) -> PathBuf {
    let trace = stage.path(&format!("{name}.gpuwhy"));
    if !trace.is_file() {
        assert!(fixture(name).is_file(), "no recording {name}");
        let output = stage.host(name).env("GPUWHY_OUTPUT", &trace).env("GPUWHY_REPORT", "off").output().unwrap();
        assert!(output.status.success(), "{name}: {}", stderr(&output));
    }
    trace
}

fn diff(a: &Path, b: &Path, arguments: &[&str]) -> Output {
    Command::new(GPUWHY).arg("diff").args(arguments).args([a, b]).output().unwrap()
}

fn json(a: &Path, b: &Path) -> (Option<i32>, Value) {
    let output = diff(a, b, &["--json"]);
    let value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    (output.status.code(), value)
}

/// The changes of a list, and their sum.
fn changes(list: &Value) -> (Vec<(&str, i64)>, i64) {
    let rows = list.as_array().unwrap().iter();
    let rows: Vec<_> = rows.map(|row| (row["name"].as_str().unwrap(), row["change_ns"].as_i64().unwrap())).collect();
    let sum = rows.iter().map(|(_, nanos)| nanos).sum();
    (rows, sum)
}

#[test]
fn loader_workers_are_a_gain_that_data_loading_explains() {
    let stage = Stage::new();
    let (a, b) = (played(&stage, "resnet_workers0"), played(&stage, "resnet_workers4"));
    let (code, document) = json(&a, &b);
    assert_eq!(code, Some(0));
    let device = &document["devices"][0];
    assert_eq!(device["outcome"], "faster", "{}", device["headline"]);
    let change = device["change_ns"].as_i64().unwrap();
    for list in ["leaf_changes", "cause_changes"] {
        let (rows, sum) = changes(&device[list]);
        assert_eq!(sum, change);
        assert_eq!(rows[0].0, "data_loading", "{}", device["headline"]);
        assert!(rows[0].1 * 2 < change, "data_loading gives most of the gain: {}", device["headline"]);
    }
    // The same kernels ran at the same speed: the loader does not run on the device.
    let kernels = device["kernels"].as_array().unwrap();
    let changed: Vec<_> = kernels.iter().filter(|row| row["speed"] != "same").map(|row| &row["name"]).collect();
    assert!(kernels.len() > 50 && changed.is_empty(), "{changed:?}");
    // Batches are in pinned memory now.
    let copies = device["copies"].as_array().unwrap();
    let added = copies.iter().find(|row| row["launches"] == "added").unwrap();
    assert!(added["name"].as_str().unwrap().contains("pinned"), "{added}");
    if !device["recordings_p"].is_null() {
        assert!(device["recordings_p"].as_f64().unwrap() < 0.001);
    }

    // The simulation of the slow run predicted the gain from the workers; pinned copies account for the rest.
    let prediction = &device["prediction"];
    let (nanos, factor) =
        (|key: &str| prediction[key].as_u64().unwrap(), |key: &str| prediction[key].as_f64().unwrap());
    assert_eq!((&prediction["kind"], &prediction["cause"]), (&"data_ready".into(), &"data_loading".into()));
    assert!((factor("predicted_speedup") - 5.67).abs() < 0.05 && (factor("actual_speedup") - 5.98).abs() < 0.05);
    assert!(nanos("actual_step_ns") < nanos("predicted_step_ns") && nanos("predicted_step_ns") < nanos("step_ns") / 5);
    let (others, sum) = changes(&prediction["other_leaf_changes"]);
    assert_eq!(others[0].0, "copy_h2d_pageable");
    assert!(others.iter().all(|(name, _)| *name != "data_loading"));
    assert!(sum.unsigned_abs() > nanos("over_best_case_ns") && sum < 0, "{prediction}");

    let text = String::from_utf8(diff(&a, &b, &[]).stdout).unwrap();
    assert!(text.starts_with("B's ") && text.contains("faster") && text.contains("waiting for data -"), "{text}");
    let predicted = [
        "Predicted from A: about 5.7x",
        "without data loading",
        "Measured: 5.",
        "more than predicted",
        "pageable memory -1.",
    ];
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(predicted.iter().all(|part| words.contains(part)), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn a_trace_is_no_different_from_itself() {
    let stage = Stage::new();
    for (name, basis) in [("gpt", None), ("resnet_workers4", Some("step"))] {
        let trace = played(&stage, name);
        let (code, document) = json(&trace, &trace);
        assert_eq!(code, Some(0));
        let device = &document["devices"][0];
        assert_eq!((device["outcome"].as_str(), device["change_ns"].as_i64()), (Some("unchanged"), Some(0)));
        assert!(device["prediction"].is_null(), "{}", device["prediction"]);
        assert_eq!((changes(&device["leaf_changes"]).0.len(), &device["a"]), (0, &device["b"]));
        let rows = device["kernels"].as_array().unwrap();
        assert!(rows.iter().all(|row| row["launches"] == "same" && row["speed"] == "same"));
        if let Some(basis) = basis {
            assert_eq!((device["basis"].as_str(), device["recordings_p"].as_f64()), (Some(basis), Some(1.0)));
        }
    }
}

#[test]
fn several_runs_are_compared_by_their_medians() {
    let stage = Stage::new();
    let side = |name: &str, fixture: &str, runs: usize| {
        let folder = stage.path(name);
        std::fs::create_dir(&folder).unwrap();
        for run in 0..runs {
            let mut host = stage.host(fixture);
            let output = host.env("GPUWHY_OUTPUT", folder.join(format!("{run}.gpuwhy"))).env("GPUWHY_REPORT", "off");
            assert!(output.status().unwrap().success());
        }
        folder
    };
    let (a, b) = (side("before", "resnet_workers4", 4), side("after", "resnet_workers0", 4));
    let (code, document) = json(&a, &b);
    assert_eq!((code, &document["runs_a"], &document["runs_b"]), (Some(0), &4.into(), &4.into()));
    let device = &document["devices"][0];
    assert_eq!((device["outcome"].as_str(), device["recordings_p"].is_null()), (Some("slower"), true));
    let p = device["runs"]["p"].as_f64().unwrap();
    assert!((p - 2.0 / 70.0).abs() < 1e-9 && device["runs"]["low"].as_f64().unwrap() > 4.0, "{}", device["runs"]);
    let text = String::from_utf8(diff(&a, &b, &[]).stdout).unwrap();
    assert!(text.contains("(4 and 4 runs, p = 0.029)") && text.contains("the median run is"), "{text}");
    let markdown = String::from_utf8(diff(&a, &b, &["--format", "markdown"]).stdout).unwrap();
    assert!(markdown.starts_with("### gpuwhy: slower\n"), "{markdown}");
    for table in ["| time of a step by cause | A | B | change |", "| in each step | A | B | change |", "| bottleneck |"]
    {
        assert!(markdown.contains(table), "{markdown}");
    }
    // A run that is there twice would count twice.
    std::fs::copy(a.join("0.gpuwhy"), a.join("copy.gpuwhy")).unwrap();
    let output = diff(&a, &b, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("A: traces 1 and 5 are of one run"), "{}", stderr(&output));
}

#[test]
fn an_export_is_no_different_from_its_trace() {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures/traces/sleeper.gpuwhy");
    let folder = tempfile::tempdir().unwrap();
    let exported = folder.path().join("sleeper.sqlite");
    let export = Command::new(GPUWHY).args(["export", "--to", "sqlite"]).arg(&trace).arg("-o").arg(&exported).output();
    assert!(exported.is_file(), "{}", stderr(&export.unwrap()));
    let text = String::from_utf8(diff(&trace, &exported, &[]).stdout).unwrap();
    assert!(text.starts_with("B's step has not changed"), "{text}");
    assert!(!text.contains("Measured") && !text.contains("data_loading"), "{text}");
    assert!(text.contains("no place changed") && text.contains("The same in each step: "), "{text}");
    assert!(text.contains("B has no host samples and A has"), "{text}");
}

#[test]
fn different_programs_are_refused() {
    let stage = Stage::new();
    let (a, b) = (played(&stage, "gpt"), played(&stage, "mlp"));
    let output = diff(&a, &b, &[]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert!(stderr(&output).contains("different programs"), "{}", stderr(&output));
    let (code, document) = json(&a, &b);
    assert_eq!(code, Some(1));
    assert!(document["refused"].as_str().unwrap().contains("different programs"), "{document}");
    assert!(document["similarity"].as_f64().unwrap() < 0.5);
}

#[test]
fn files_that_are_no_traces_are_all_named() {
    let folder = tempfile::tempdir().unwrap();
    let (missing, foreign) = (folder.path().join("missing.gpuwhy"), folder.path().join("foreign.gpuwhy"));
    std::fs::write(&foreign, "no trace").unwrap();
    let output = diff(&missing, &foreign, &[]);
    assert_eq!(output.status.code(), Some(2));
    let message = stderr(&output);
    assert!(message.contains("missing.gpuwhy") && message.contains("foreign.gpuwhy"), "{message}");
}
