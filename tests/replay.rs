//! The main path end to end without a GPU: buffers recorded on an NVIDIA H200, played by the replay library
//! through the real libprof.so into a trace, and from the trace into a report.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::support::record::record;
use crate::support::{GPUWHY, Stage, counted, fixtures, keeps_up, report, stderr, sum};
use cupti_sys::recording::{Meta, RecordingWriter};
use cupti_sys::{CompletedBuffer, Domain, Kind, RecordSizes};
use serde_json::{Value, json};

fn number(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("{pointer} in {value:#}"))
}

/// Expected bottlenecks of the recorded programs; each was written to have one.
const BOTTLENECKS: &[(&str, &str)] = &[
    ("gpt", "gpu_compute"),
    ("mlp", "launch"),
    ("resnet_workers0", "data_loading"),
    ("copy_pageable", "copy"),
    ("sync_item", "sync"),
    ("graph_torch", "gpu_compute"),
    ("resnet_workers4", "gpu_compute"),
    ("multi_stream", "gpu_compute"),
    ("graph_dense", "launch"),
];

#[test]
fn recorded_programs_get_their_bottleneck() {
    for &(fixture, bottleneck) in BOTTLENECKS {
        let stage = Stage::new();
        assert!(stage.host(fixture).status().unwrap().success(), "{fixture}");
        let report = stage.report();
        assert_eq!(report.pointer("/bottleneck/cause").unwrap(), bottleneck, "{fixture}: {:#}", report["bottleneck"]);
        assert!(!report["bottleneck"]["evidence"].as_array().unwrap().is_empty(), "{fixture}");
        assert_agrees(fixture, &report);
    }
}

/// Advice, plan and gains are consistent: a report has no gain only if no best case shows one, and a plan
/// starts with the bottleneck or has a reason why not.
fn assert_agrees(fixture: &str, report: &Value) {
    let bottleneck = &report["bottleneck"];
    let scenarios = report["devices"][0]["what_if"]["scenarios"].as_array().unwrap();
    let beside = scenarios.iter().filter(|scenario| scenario["kind"] != "grids_filled");
    let largest = beside.filter_map(|scenario| scenario["speedup"].as_f64()).fold(1.0, f64::max);
    if bottleneck["evidence"].to_string().contains("No change on the CPU") {
        assert!(largest < 1.15, "{fixture}: {bottleneck:#}");
    }
    let mut before = 1.0;
    for step in bottleneck["plan"].as_array().unwrap() {
        let [low, speedup, high] = ["low", "speedup", "high"].map(|field| step[field].as_f64().unwrap());
        assert!(speedup >= 1.149 * before && low <= speedup && speedup <= high, "{fixture}: {step:#}");
        before = speedup;
    }
    let first = &bottleneck["plan"][0];
    let fixes: &[&str] = match bottleneck["cause"].as_str().unwrap() {
        "data_loading" => &["data_ready"],
        "launch" => &["launches_free", "copies_joined"],
        "sync" => &["no_syncs", "no_readbacks"],
        "copy" => &["copies_overlapped", "copies_joined", "reads_reduced", "device_copies_gone"],
        "gpu_compute" => &["grids_filled"],
        other => panic!("{fixture}: {other}"),
    };
    let of_cause = first["kind"].as_str().is_none_or(|kind| fixes.contains(&kind));
    assert!(of_cause || first["because"].is_string(), "{fixture}: {bottleneck:#}");
}

#[test]
fn every_recorded_record_arrives_and_every_nanosecond_has_one_cause() {
    for fixture in fixtures() {
        let stage = Stage::new();
        let output = stage.host(&fixture).arg("--counts").output().unwrap();
        assert!(output.status.success(), "{fixture}: {}", stderr(&output));
        let report = stage.report();
        // It also delivers one context and the devices of its host, which do not count as records.
        let devices = if fixture == "managed" { 2 } else { 1 };
        let delivered = counted(&stderr(&output), "delivered");
        assert_eq!(sum(&report["completeness"]["records"]) + 1 + devices, delivered, "{fixture}");
        for counter in
            ["dropped_by_cupti", "dropped_by_gpuwhy", "unknown_kinds", "bad_timestamps", "activities_without_launch"]
        {
            assert_eq!(number(&report, &format!("/completeness/{counter}")), 0, "{fixture}: {counter}");
        }
        assert_eq!(report["completeness"]["end"], "clean", "{fixture}");
        for device in report["devices"].as_array().unwrap() {
            assert!(number(device, "/window_ns") > 0);
            if !device["untraced"].is_null() {
                let (step, share) =
                    (number(device, "/untraced/step_ns"), device["untraced"]["share_of_tracing"].as_f64());
                // Of two kinds of steps it is the mean.
                let median = number(device, "/steps/median_ns");
                assert!(step <= median || device["step_kinds"] != json!([]), "{fixture}: {:#}", device["untraced"]);
                assert!((0.0..0.8).contains(&share.unwrap()), "{fixture}: {:#}", device["untraced"]);
                assert_eq!(device["untraced"]["source"], "table", "{fixture}: recorded on an H200");
            }
            assert_eq!(sum(&device["leaves"]), number(device, "/window_ns"), "{fixture}");
        }
    }
}

#[test]
fn much_that_has_come_is_flushed_before_its_time() {
    let stage = Stage::new();
    // 14 MiB of records, faster than the flush period.
    let output = stage.host("mlp").arg("--counts").env("GPUWHY_FLUSH", "10s").output().unwrap();
    // The end flushes twice.
    let flushes = counted(&stderr(&output), "flushes");
    assert!(flushes > 2, "{flushes} flushes");
}

#[test]
fn the_report_at_exit_is_the_report_from_the_trace() {
    for fixture in ["mlp", "multi_stream"] {
        let stage = Stage::new();
        let output = stage.host(fixture).output().unwrap();
        let again = Command::new(GPUWHY).arg("report").arg(stage.path("trace.gpuwhy")).output().unwrap();
        let live = stderr(&output);
        let live = live.rsplit_once("trace: ").unwrap().0;
        assert_eq!(live.trim(), String::from_utf8(again.stdout).unwrap().trim(), "{fixture}");
    }
}

#[test]
fn flush_period_and_buffer_memory_do_not_change_the_answer() {
    let mut answers = Vec::new();
    for (flush, memory) in [("10ms", "8M"), ("100ms", "64M"), ("10s", "256M")] {
        let stage = Stage::new();
        let mut host = stage.host("resnet_workers4");
        assert!(host.env("GPUWHY_FLUSH", flush).env("GPUWHY_BUFFER_MEMORY", memory).status().unwrap().success());
        let report = stage.report();
        answers.push((report["devices"].clone(), report["bottleneck"].clone()));
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[1], answers[2]);
}

#[test]
fn small_grids_in_a_row_are_found_however_records_come() {
    // In addition to its graphs it launches 2,000 kernels of one block, one after the other.
    let gains: Vec<f64> = ["10ms", "10s"]
        .into_iter()
        .map(|flush| {
            let stage = Stage::new();
            assert!(stage.host("graph_dense").env("GPUWHY_FLUSH", flush).status().unwrap().success());
            let report = stage.report();
            let scenarios = report.pointer("/devices/0/what_if/scenarios").and_then(Value::as_array).unwrap();
            let filled = scenarios.iter().find(|scenario| scenario["kind"] == "grids_filled").unwrap();
            filled["speedup"].as_f64().unwrap()
        })
        .collect();
    assert!(gains[0] > 1.15 && gains[0] == gains[1], "{gains:?}");
}

#[test]
fn the_program_does_not_notice() {
    let stage = Stage::new();
    let output = stage.host("sync_item").args(["--print", "loss 0.25", "--exit-code", "7"]).output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.stdout, b"loss 0.25\n");
    // When turned off, gpuwhy writes no output and no file.
    let stage = Stage::new();
    let mut host = stage.host("sync_item");
    let output = host.env("GPUWHY_OUTPUT", "off").env("GPUWHY_REPORT", "off").output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(fs::read_dir(stage.folder.path()).unwrap().count(), 0);
}

#[test]
fn whoever_leaves_without_an_exit_handler_leaves_a_trace_that_reads() {
    for leave in ["_exit", "abort", "kill"] {
        let stage = Stage::new();
        let mut host = stage.host("sync_item");
        keeps_up(&mut host, (1..=8).map(|tenth| tenth * 100)).env("GPUWHY_REPLAY_SPEED", "1");
        host.args(["--exit", leave, "--until", "900"]).env("GPUWHY_FLUSH", "20ms");
        let _ = host.output().unwrap();
        let (code, report) = report(&stage.path("trace.gpuwhy"));
        assert_eq!(report["completeness"]["end"], "abrupt", "{leave}");
        assert!(number(&report, "/completeness/records/kernels") > 1000, "{leave}: {:#}", report["completeness"]);
        assert_eq!(sum(&report["devices"][0]["leaves"]), number(&report, "/devices/0/window_ns"), "{leave}");
        assert!(code == 0 || code == 1, "{leave}: {code}");
    }
}

#[test]
fn a_forked_child_is_left_alone() {
    for (when, child) in [("before", "exit"), ("after", "nothing"), ("after", "exit"), ("end", "exit")] {
        let stage = Stage::new();
        let output = stage.host("multi_stream").args(["--fork", when, "--child", child]).output().unwrap();
        assert!(output.status.success(), "{when} {child}: {}", stderr(&output));
        assert_eq!(fs::read_dir(stage.folder.path()).unwrap().count(), 1, "{when} {child}");
        assert_eq!(stderr(&output).matches("trace: ").count(), 1, "{when} {child}: {}", stderr(&output));
        assert_eq!(stage.report()["completeness"]["end"], "clean");
    }
}

/// From the conclusion to the records, as the documentation shows it.
#[test]
fn the_documentation_shows_what_a_recorded_program_prints() {
    let stage = Stage::new();
    assert!(stage.host("mlp").status().unwrap().success());
    let output = Command::new(GPUWHY).arg("report").arg(stage.path("trace.gpuwhy")).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let screen = &printed[printed.find("Bottleneck: ").unwrap()..];
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide/reading-the-report.md");
    let text = fs::read_to_string(page).unwrap();
    assert!(text.contains(screen.trim_end()), "the page shows another report than\n{screen}");
}

#[test]
fn a_live_bottleneck_appears_while_the_program_runs() {
    let stage = Stage::new();
    let mut host = stage.host("mlp");
    // The device has work from 2.5 to 3.5 s.
    keeps_up(&mut host, (26..35).map(|tenth| tenth * 100)).env("GPUWHY_LIVE", "200ms").env("GPUWHY_REPLAY_SPEED", "1");
    let output = host.output().unwrap();
    let text = stderr(&output);
    let live: Vec<_> = text.lines().filter(|line| line.starts_with("gpuwhy [") && line.contains("GPU busy")).collect();
    assert!(live.len() >= 2, "{text}");
}

#[test]
fn names_follow_the_pattern_and_nothing_is_overwritten() {
    let stage = Stage::new();
    fs::write(stage.path("run-9.gpuwhy"), "precious").unwrap();
    let mut host = stage.host("copy_pageable");
    assert!(host.env("GPUWHY_OUTPUT", "run-%q{RANK}.gpuwhy").env("RANK", "9").status().unwrap().success());
    assert_eq!(fs::read(stage.path("run-9.gpuwhy")).unwrap(), b"precious");
    assert_eq!(report(&stage.path("run-9-1.gpuwhy")).0, 0);
}

#[test]
fn trouble_is_said_in_one_line_and_the_program_goes_on() {
    let cases: &[(&str, &str, &str)] = &[
        ("GPUWHY_OUTPUT", "/proc/nowhere/x.gpuwhy", "/proc/nowhere/x.gpuwhy"),
        ("GPUWHY_LIVE", "sometimes", "GPUWHY_LIVE"),
        ("GPUWHY_OUTPTU", "x.gpuwhy", "did you mean GPUWHY_OUTPUT?"),
        ("GPUWHY_CUPTI_PATH", "/nowhere/libcupti.so.13", "/nowhere/libcupti.so.13"),
    ];
    for (variable, value, expected) in cases {
        let stage = Stage::new();
        let output = stage.host("copy_pageable").arg("--print").arg("done").env(variable, value).output().unwrap();
        assert!(stderr(&output).contains(expected), "{variable}: {}", stderr(&output));
        if *variable != "GPUWHY_CUPTI_PATH" {
            assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"done\n"[..]), "{variable}");
        }
    }
}

#[test]
fn a_stderr_that_nobody_reads_neither_kills_nor_holds_up() {
    // Without a reader: a write would raise SIGPIPE, which kills by default.
    let stage = Stage::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut host = stage.host("copy_pageable");
    let status = host.args(["--exit-code", "7"]).env("GPUWHY_LOG", "debug").stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(7), "{status}");
    assert_eq!(stage.report()["completeness"]["end"], "clean");

    // With a reader that never reads, and a full pipe.
    let stage = Stage::new();
    let (_reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&[b'x'; 65_536]).unwrap();
    let status = stage.host("copy_pageable").args(["--exit-code", "7"]).stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(7), "{status}");
    assert_eq!(stage.report()["completeness"]["end"], "clean");
}

#[test]
fn a_recording_of_a_replay_replays_the_same() {
    let first = Stage::new();
    assert!(first.host("multi_stream").env("GPUWHY_RAW_RECORDING", "again.cupti").status().unwrap().success());
    let second = Stage::new();
    let mut host = second.host("multi_stream");
    assert!(host.env("GPUWHY_REPLAY", first.path("again.cupti")).status().unwrap().success());
    assert_eq!(first.report()["devices"], second.report()["devices"]);
}

#[test]
fn a_process_that_only_looks_at_the_gpu_leaves_no_trace() {
    const START: u64 = 1_790_000_000_000_000_000;
    const MALLOC: u32 = 20;
    let sizes = [(Kind::OVERHEAD, 48), (Kind::RUNTIME, 40), (Kind::CONCURRENT_KERNEL, 224)];
    let at = |micros: u64| START + micros * 1_000;
    // Seen on an H200 in processes that only call cuInit: CUPTI's own resources.
    let overhead = |micros| {
        let (begin, end) = ((24, at(micros)), (32, at(micros + 1)));
        record(Kind::OVERHEAD, 48, &[begin, end], &[(4, 3 << 16), (8, 2), (12, 1), (16, 77), (40, 0)])
    };
    let times = [(8, at(50)), (16, at(60))];
    let call = record(Kind::RUNTIME, 40, &times, &[(4, MALLOC), (24, 1), (28, 77), (32, 9), (36, 0)]);
    let looks = vec![overhead(10), overhead(20)];
    let works = [looks.clone(), vec![call, overhead(70)]].concat();
    for (records, expected) in [(looks, None), (works, Some((3, 1)))] {
        let meta = Meta { cupti_version: 130_001, start: START, sizes: sizes.to_vec(), ..Meta::default() };
        let mut writer = RecordingWriter::new(Vec::new(), &meta).unwrap();
        writer.api_name(Domain::RUNTIME, MALLOC, "cudaMalloc_v3020").unwrap();
        let buffer = CompletedBuffer::from_bytes(&records.concat(), 0, 0).unwrap();
        writer.buffer(&buffer, &RecordSizes::from_pairs(&sizes), at(100)).unwrap();
        let stage = Stage::new();
        fs::write(stage.path("session.cupti"), writer.finish().unwrap()).unwrap();
        let output = stage.host("gpt").env("GPUWHY_REPLAY", stage.path("session.cupti")).output().unwrap();
        assert!(output.status.success() && stderr(&output).contains("Recorded "), "{}", stderr(&output));
        let found = stage.path("trace.gpuwhy").exists().then(|| {
            let report = stage.report();
            let records = |kind| number(&report, &format!("/completeness/records/{kind}"));
            (records("overheads"), records("api_calls"))
        });
        assert_eq!(found, expected, "what came before the first call is in the trace too");
    }
}
