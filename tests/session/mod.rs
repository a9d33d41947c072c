//! Sessions of a program that links the crate, alone and under an injected libprof.so, with a recording
//! instead of a GPU.
//!
//! Each test runs a part of this binary in a separate process, implemented in the modules below.

mod inner;
mod judged;

use std::fs;
use std::process::Command;

use crate::support::play::{inside, passes};
use crate::support::{Stage, built, report, stderr};

#[test]
fn a_session_reports_what_it_saw() {
    passes(&Stage::new(), "mlp", "session::inner::whole_recording", |_| {});
}

#[test]
fn sessions_follow_each_other_and_share_nothing() {
    let stage = Stage::new();
    passes(&stage, "mlp", "session::inner::one_after_another", |_| {});
    let (_, first) = report(&stage.path("first.gpuwhy"));
    let (_, second) = report(&stage.path("second.gpuwhy"));
    assert_eq!(first["completeness"]["end"], "clean");
    assert_eq!(second["completeness"]["end"], "clean");
    assert_eq!(fs::read_dir(stage.folder.path()).unwrap().count(), 2, "no file but those that were asked for");
}

#[test]
fn ranges_nest_by_thread_and_steps_are_found() {
    passes(&Stage::new(), "mlp", "session::inner::ranges_and_steps", |_| {});
}

#[test]
fn a_snapshot_does_not_end_a_session() {
    passes(&Stage::new(), "mlp", "session::inner::snapshot", |_| {});
}

#[test]
fn one_session_at_a_time_and_others_can_wait() {
    passes(&Stage::new(), "sync_item", "session::inner::busy", |_| {});
}

#[test]
fn a_session_is_not_waited_for_by_the_thread_that_has_it() {
    passes(&Stage::new(), "sync_item", "session::inner::within_itself", |_| {});
}

#[test]
fn a_prepared_program_may_use_cuda_before_its_first_session() {
    passes(&Stage::new(), "mlp", "session::inner::prepared", |_| {});
}

#[test]
fn an_injected_collector_is_joined_and_goes_on() {
    let stage = Stage::new();
    passes(&stage, "mlp", "session::inner::joined", |command| {
        command.env("CUDA_INJECTION64_PATH", built("libprof.so")).env("GPUWHY_OUTPUT", "trace.gpuwhy");
    });
    let (_, whole) = report(&stage.path("trace.gpuwhy"));
    let (_, part) = report(&stage.path("part.gpuwhy"));
    let kernels = |report: &serde_json::Value| report["completeness"]["records"]["kernels"].as_u64().unwrap();
    assert!(0 < kernels(&part) && kernels(&part) < kernels(&whole), "{} of {}", kernels(&part), kernels(&whole));
}

#[test]
fn a_collector_that_only_watches_gives_no_session() {
    passes(&Stage::new(), "mlp", "session::inner::watched", |command| {
        command.env("CUDA_INJECTION64_PATH", built("libprof.so")).env("GPUWHY_MODE", "monitor");
    });
    // The collector of the session records what it needs.
    passes(&Stage::new(), "sync_item", "session::inner::unwatched", |command| {
        command.env("GPUWHY_MODE", "monitor");
    });
}

#[test]
fn a_session_behind_a_tool_that_leaves_its_clock_is_refused() {
    passes(&Stage::new(), "mlp", "session::inner::another_clock", |_| {});
}

#[test]
fn without_a_library_the_error_says_what_to_do() {
    let stage = Stage::new();
    passes(&stage, "mlp", "session::inner::no_cupti", |command| {
        command.env("GPUWHY_CUPTI_PATH", "/nowhere/libcupti.so.13");
    });
    assert_eq!(fs::read_dir(stage.folder.path()).unwrap().count(), 0, "no file is left");
}

#[test]
fn without_a_driver_no_function_of_cupti_is_called() {
    let library = match released_cupti() {
        Ok(library) => library,
        Err(reason) => return println!("SKIPPED: {reason}"),
    };
    let stage = Stage::new();
    // A crash would be a signal.
    passes(&stage, "mlp", "session::inner::no_cupti", |command| {
        command.env("GPUWHY_CUPTI_PATH", &library);
    });
    assert_eq!(fs::read_dir(stage.folder.path()).unwrap().count(), 0, "no file is left");
    let output = stage.host("mlp").arg("--no-replay").env("GPUWHY_CUPTI_PATH", &library).output().unwrap();
    assert!(output.status.success() && stderr(&output).contains("no NVIDIA driver or GPU: libcuda.so.1"), "{output:?}");
}

/// The libcupti of CUDA 13.2, which crashes in any call without a driver.
fn released_cupti() -> Result<String, String> {
    if Command::new("python3")
        .args(["-c", "import ctypes; ctypes.CDLL('libcuda.so.1')"])
        .output()
        .unwrap()
        .status
        .success()
    {
        return Err("there is a driver".to_owned());
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/testing/layout-check/fetch.py");
    let package = ["nvidia-cuda-cupti", "13.2.86", "nvidia/cu13/lib/libcupti.so.13"];
    let output = Command::new("python3").arg(script).args(package).output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap().trim_end().to_owned()),
        false => Err(stderr(&output)),
    }
}

#[test]
fn a_session_that_nobody_finishes_leaves_a_trace_that_reads() {
    for (name, end) in [
        ("session::inner::dropped", "clean"),
        ("session::inner::left_open", "clean"),
        ("session::inner::killed", "abrupt"),
    ] {
        let stage = Stage::new();
        let output = inside(&stage, "mlp", name, |_| {});
        assert_eq!(output.status.success(), name != "session::inner::killed", "{name}: {output:?}");
        let (_, report) = report(&stage.path("open.gpuwhy"));
        assert_eq!(report["completeness"]["end"], end, "{name}");
        assert!(report["completeness"]["records"]["kernels"].as_u64().unwrap() > 100, "{name}");
    }
}

#[test]
fn expectations_that_fail_show_what_they_saw() {
    passes(&Stage::new(), "mlp", "session::judged::rules", |_| {});
    passes(&Stage::new(), "copy_pageable", "session::judged::copies", |_| {});
}

#[test]
fn a_baseline_is_stored_on_request_and_judges_afterwards() {
    let stage = Stage::new();
    passes(&stage, "sync_item", "session::judged::no_baseline", |_| {});
    passes(&stage, "sync_item", "session::judged::baseline", |command| {
        command.env("GPUWHY_BLESS", "1");
    });
    let stored = fs::read_to_string(stage.path("baseline.json")).unwrap();
    assert!(stored.contains("\"device\": \"NVIDIA H200\""), "{stored}");
    passes(&stage, "sync_item", "session::judged::baseline", |_| {});
    let mut faster: serde_json::Value = serde_json::from_str(&stored).unwrap();
    faster["kernels"][0]["median_ns"] = 1.into();
    fs::write(stage.path("baseline.json"), faster.to_string()).unwrap();
    passes(&stage, "sync_item", "session::judged::slower_than_baseline", |_| {});
    fs::write(stage.path("baseline.json"), "{").unwrap();
    passes(&stage, "sync_item", "session::judged::broken_baseline", |_| {});
}

#[test]
fn a_baseline_is_not_renewed_by_what_cannot_be_judged() {
    let stage = Stage::new();
    passes(&stage, "sync_item", "session::judged::nothing_to_bless", |command| {
        command.env("GPUWHY_BLESS", "1");
    });
    assert!(!stage.path("baseline.json").exists());
}
