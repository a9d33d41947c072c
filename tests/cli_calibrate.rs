//! `gpuwhy doctor --calibrate` without a GPU: a fake driver whose calls take no time, and CUPTI data from a
//! recording. Checks where the results go and how failures are handled, not the measured values.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{GPUWHY, Stage, built, fixture, stderr};

const FIXTURE: &str = "sync_item";

/// Runs the command with the fake driver and these variables.
fn calibrate(stage: &Stage, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let library = stage.path("libcuda.so.1");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/libcuda_program.c");
    if !library.exists() {
        let options = ["-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", "-o"];
        assert!(Command::new("cc").args(options).arg(&library).arg(source).status().unwrap().success());
    }
    let mut command = Command::new(GPUWHY);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GPUWHY_")) {
        command.env_remove(name);
    }
    command
        .args(["doctor", "--calibrate"])
        .args(arguments)
        .current_dir(stage.folder.path())
        .env("LD_LIBRARY_PATH", stage.folder.path())
        .env("XDG_CACHE_HOME", stage.folder.path())
        .env("GPUWHY_LIB", built("libprof.so"))
        .env("GPUWHY_CUPTI_PATH", built("libcupti_replay.so"))
        .env("GPUWHY_REPLAY", fixture(FIXTURE))
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn file(stage: &Stage) -> PathBuf {
    stage.path("gpuwhy/calibration.json")
}

/// Machines in the file, parsed as plain JSON.
fn machines(stage: &Stage) -> Vec<Value> {
    let file: Value = serde_json::from_slice(&fs::read(file(stage)).unwrap()).unwrap();
    assert_eq!(file["version"], 1);
    file["machines"].as_array().unwrap().clone()
}

#[test]
fn what_was_measured_is_kept_and_later_traces_have_it() {
    let stage = Stage::new();
    fs::create_dir(stage.path("gpuwhy")).unwrap();
    let other = r#"{"version": 1, "machines": [{"gpu": "other", "driver": "1", "cupti": 2, "processor": "p",
        "prices_ns": {"copy": 722}, "scatter_ns": {}}]}"#;
    fs::write(file(&stage), other).unwrap();
    // A mode that records nothing, and another tool's library, must not reach the program that is measured.
    let variables = [("GPUWHY_MODE", "monitor"), ("CUDA_INJECTION64_PATH", "/nowhere/libother.so")];
    let output = calibrate(&stage, &["--json"], &variables);
    assert!(output.status.success(), "{}", stderr(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let known = machines(&stage);
    assert_eq!((known.len(), &known[0]["gpu"], &known[0]["prices_ns"]["copy"]), (2, &"other".into(), &722.into()));
    for key in ["gpu", "driver", "cupti", "processor", "prices_ns", "scatter_ns"] {
        assert_eq!(known[1][key], answer[key], "{key}");
    }
    assert_eq!(known[1]["gpu"], "NVIDIA H200");
    assert_eq!(known[1]["prices_ns"].as_object().unwrap().len(), 10);
    let left: Vec<_> = fs::read_dir(stage.path("gpuwhy")).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");

    // Write a recognizable overhead.
    let text = fs::read_to_string(file(&stage)).unwrap();
    let [.., prices, _] = text.match_indices("\"kernel_launch_cold\": ").collect::<Vec<_>>()[..] else {
        panic!("{text}")
    };
    let at = prices.0 + prices.1.len();
    let end = at + text[at..].find(',').unwrap();
    fs::write(file(&stage), format!("{}4000{}", &text[..at], &text[end..])).unwrap();
    let untraced = |cache: &str| {
        let status = stage.host(FIXTURE).env("XDG_CACHE_HOME", stage.path(cache)).status().unwrap();
        assert!(status.success());
        let report = stage.report();
        fs::remove_file(stage.path("trace.gpuwhy")).unwrap();
        report["devices"][0]["untraced"].clone()
    };
    let (measured, table) = (untraced("."), untraced("empty"));
    assert_eq!((&measured["source"], &table["source"]), (&"measured".into(), &"table".into()));
    assert_ne!(measured["step_ns"], table["step_ns"]);

    fs::write(file(&stage), "{").unwrap();
    assert_eq!(untraced(".")["source"], "table", "a bad file is passed over");
}

#[test]
fn the_answer_for_people_names_the_machine_and_the_file() {
    let stage = Stage::new();
    let output = calibrate(&stage, &[], &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("What tracing adds with NVIDIA H200, driver"), "{text}");
    assert!(text.contains("launch of a kernel"), "{text}");
    assert!(text.contains(file(&stage).to_str().unwrap()), "{text}");
}

#[test]
fn a_bad_file_is_named_and_left_alone() {
    let stage = Stage::new();
    fs::create_dir(stage.path("gpuwhy")).unwrap();
    fs::write(file(&stage), "not ours").unwrap();
    let output = calibrate(&stage, &[], &[]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains(file(&stage).to_str().unwrap()) && said.contains("left as it is"), "{said}");
    assert_eq!(fs::read_to_string(file(&stage)).unwrap(), "not ours");
}

#[test]
fn what_cannot_be_measured_is_said_in_one_line_and_nothing_is_kept() {
    let stage = Stage::new();
    for (variable, reason) in [
        ("NO_DEVICE", "cannot calibrate: cuInit: there is no GPU (CUDA_ERROR_NO_DEVICE)"),
        ("FAILS_AT_LAUNCH", "cannot calibrate: the program that is measured ended with exit status: 1"),
        ("NO_RECORDS", "cannot calibrate: tracing recorded no kernel; see gpuwhy doctor"),
    ] {
        let output = calibrate(&stage, &[], &[(variable, "1")]);
        assert_eq!(output.status.code(), Some(1), "{variable}");
        assert_eq!(stderr(&output), format!("gpuwhy: {reason}\n"));
        assert!(output.stdout.is_empty() && !file(&stage).exists(), "{variable}");
    }
}

#[test]
fn without_a_driver_it_says_so() {
    let stage = Stage::new();
    let output = Command::new(GPUWHY)
        .args(["doctor", "--calibrate"])
        .env("XDG_CACHE_HOME", stage.folder.path())
        .env("GPUWHY_LIB", built("libprof.so"))
        // Hides the GPU of a machine that has one.
        .env("CUDA_VISIBLE_DEVICES", "-1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.starts_with("gpuwhy: cannot calibrate: ") && said.lines().count() == 1, "{said}");
    assert!(!file(&stage).exists());
}
