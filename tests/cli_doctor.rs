//! `gpuwhy doctor`, mostly on a machine without a GPU. Results that depend on the machine are compared with
//! it.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn doctor(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    Command::new(env!("CARGO_BIN_EXE_gpuwhy"))
        .arg("doctor")
        .args(arguments)
        .current_dir(folder.path())
        .env_remove("CUDA_INJECTION64_PATH")
        .env_remove("NVTX_INJECTION64_PATH")
        .env_remove("GPUWHY_OUTPUT")
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

/// Checks in the JSON output by name.
fn checks(output: &Output, name: &str) -> Vec<Value> {
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = answer["checks"].as_array().unwrap().clone();
    all.into_iter().filter(|check| check["name"] == name).collect()
}

#[test]
fn the_exit_code_says_whether_a_check_failed() {
    let output = doctor(&["--json"], &[]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let failed = answer["checks"].as_array().unwrap().iter().any(|check| check["status"] == "fail");
    assert_eq!(output.status.code(), Some(i32::from(failed)));
    assert_eq!(answer["usable"], !failed);
}

#[test]
fn everything_that_is_not_fine_comes_with_advice() {
    let output = doctor(&["--json"], &[("CUDA_VISIBLE_DEVICES", "-1")]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = answer["checks"].as_array().unwrap();
    assert!(checks.len() >= 6, "{checks:?}");
    for check in checks {
        assert!(check["finding"].as_str().is_some_and(|finding| !finding.is_empty()), "{check}");
        assert_eq!(check["status"] == "ok", check["advice"].is_null(), "{check}");
    }
}

#[test]
fn a_machine_without_the_driver_is_recognized() {
    let output = doctor(&["--json"], &[]);
    let module = &checks(&output, "kernel module")[0];
    let present = Path::new("/proc/driver/nvidia/version").exists() || Path::new("/dev/dxg").exists();
    assert_eq!(module["status"] == "ok", present);
}

#[test]
fn another_tools_library_is_a_failure() {
    let output = doctor(&["--json"], &[("CUDA_INJECTION64_PATH", "/opt/tool/libother.so")]);
    assert_eq!(output.status.code(), Some(1));
    let check = &checks(&output, "injection")[0];
    assert_eq!(check["status"], "fail");
    assert!(check["finding"].as_str().unwrap().contains("/opt/tool/libother.so"));
}

#[test]
fn a_file_that_is_no_library_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("libfake.so");
    std::fs::write(&file, "this is no library").unwrap();
    let file = file.to_str().unwrap();

    let output = doctor(&["--json", "--cupti-path", file], &[("GPUWHY_LIB", file)]);
    assert_eq!(output.status.code(), Some(1));
    let library = &checks(&output, "libprof.so")[0];
    assert_eq!(library["status"], "fail");
    assert!(library["finding"].as_str().unwrap().contains("cannot be loaded"), "{library}");
    let loading = &checks(&output, "libcupti")[0];
    assert_eq!(loading["status"], "fail", "{loading}");
}

#[test]
fn a_folder_that_cannot_be_written_is_a_failure() {
    let output = doctor(&["--json"], &[("GPUWHY_OUTPUT", "/proc/gpuwhy-%p.gpuwhy")]);
    let check = &checks(&output, "output folder")[0];
    assert_eq!(check["status"], "fail");
    assert!(check["finding"].as_str().unwrap().contains("/proc"));
}

#[test]
fn the_text_has_a_line_for_each_check_and_a_last_line() {
    let text = String::from_utf8(doctor(&[], &[]).stdout).unwrap();
    assert!(text.lines().any(|line| line.contains("driver library")), "{text}");
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("Ready") || last.starts_with("Not ready"), "{last}");
}

#[test]
fn known_bugs_of_the_libcupti_are_listed_with_what_avoids_them() {
    let replay = crate::support::built("libcupti_replay.so");
    let recording = crate::support::fixture("mlp");
    let recording = recording.to_str().unwrap();
    for (version, bugs) in [
        ("24", &["12.6 can hang", "whole CUDA graphs", "for hours"][..]),
        ("130001", &["13.0 update 1 can crash programs when it records whole CUDA graphs"]),
        ("130202", &["13.2 update 2 slows programs down"]),
        ("130401", &["13.4 update 1 can leave both tools without records"]),
    ] {
        let variables = [("GPUWHY_REPLAY", recording), ("GPUWHY_REPLAY_VERSION", version)];
        let output = doctor(&["--json", "--cupti-path", replay.to_str().unwrap()], &variables);
        let found = checks(&output, "known bugs");
        for bug in bugs {
            assert!(found[0]["finding"].as_str().unwrap().contains(bug), "{version}: {found:?}");
            assert!(found[0]["advice"].as_str().unwrap().contains("LD_PRELOAD="), "{version}: {found:?}");
        }
    }
}
