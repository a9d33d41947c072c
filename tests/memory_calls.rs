//! Owners of device memory end to end: calls of the driver by the host program, as CUPTI's callbacks report them, and
//! NVML's readings, through libprof.so to the trace and the report.

use std::fs::File;
use std::io::BufReader;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceReader;
use gpuwhy_trace::memory_call::{MemoryCall, MemoryFunction};

use crate::support::{GPUWHY, Stage, stderr};

const MIB: u64 = 1 << 20;

/// A program that takes and gives memory before and after its first kernels, on a device with 1 GiB in use.
fn program(stage: &Stage, usage: &str) -> Command {
    let mut host = stage.host("resnet_workers0");
    let nvml = Path::new(GPUWHY).parent().unwrap().join("examples/libreplay_nvml.so");
    assert!(nvml.is_file(), "{} was not built: run `cargo test --workspace`", nvml.display());
    symlink(nvml, stage.path("libnvidia-ml.so.1")).unwrap();
    host.env("LD_PRELOAD", stage.driver()).env("LD_LIBRARY_PATH", stage.folder.path());
    host.env("REPLAY_NVML", format!("used={}", 1 << 30)).env("GPUWHY_REPLAY_SPEED", "1");
    host.env("GPUWHY_CUDA_MEMORY_USAGE", usage);
    let allocate = |address: u64, bytes: u64| format!("cuMemAlloc_v2;0;&{address};{bytes}");
    let calls = [
        "cuDevicePrimaryCtxRetain;0;&112;0".to_owned(),
        "cuLibraryLoadData;0;&7;0".to_owned(),
        allocate(0x10_0000_0000, 100 * MIB),
        allocate(0x20_0000_0000, 300 * MIB),
        format!("cuMemAlloc_v2;2;&1;{}", 1_u64 << 40),
        // On device 0; released while it is mapped.
        format!("cuMemCreate;0;&9;{};&1:1;0", 20 * MIB),
        format!("cuMemMap;0;{};{};0;9;0", 0x30_0000_0000_u64, 20 * MIB),
        "cuMemRelease;0;9".to_owned(),
        "cuStreamBeginCapture_v2;0;1;1".to_owned(),
        allocate(0x40_0000_0000, 2 * MIB),
        "cuStreamEndCapture;0;1;&1".to_owned(),
        "cuMemAllocManaged;0;&77;4096;1".to_owned(),
    ];
    host.args(["--call", &format!("1:memory={}", calls.join(","))]);
    host.args(["--call", &format!("1500:memory=cuMemFree_v2;0;{}", 0x20_0000_0000_u64)]);
    host
}

/// The calls in the trace, and the dictionary for them.
fn calls(stage: &Stage) -> (Vec<MemoryCall>, Dictionary) {
    let file = File::open(stage.path("trace.gpuwhy")).unwrap();
    let mut reader = TraceReader::new(BufReader::new(file)).unwrap();
    let mut calls = Vec::new();
    while let Some(item) = reader.next_event().unwrap() {
        if let Event::MemoryCall(call) = item {
            calls.push(*call);
        }
    }
    (calls, reader.into_parts().1)
}

#[test]
fn calls_that_take_or_give_memory_come_into_the_trace_with_their_library() {
    use MemoryFunction as F;
    let stage = Stage::new();
    let output = program(&stage, "on").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let (calls, dictionary) = calls(&stage);
    let found: Vec<_> =
        calls.iter().map(|call| (call.function, call.bytes / MIB, call.result, call.captures)).collect();
    let expected = [
        (F::RetainContext, 0, 0, false),
        (F::LoadModule, 0, 0, false),
        (F::Allocate, 100, 0, false),
        (F::Allocate, 300, 0, false),
        (F::Allocate, 1 << 20, 2, false),
        (F::Create, 20, 0, false),
        (F::Map, 20, 0, false),
        (F::Release, 0, 0, false),
        (F::Allocate, 2, 0, true),
        (F::AllocateManaged, 0, 0, false),
        (F::Free, 0, 0, false),
    ];
    assert_eq!(found, expected);
    assert!(calls.iter().all(|call| call.start <= call.end && call.thread.0 > 0));
    assert_eq!((calls[2].address, calls[4].address), (0x10_0000_0000, 0), "not written by a failed call");
    // The program called the driver, whose part the replay library plays.
    let library = |call: &MemoryCall| call.library.map(|name| dictionary.name(name));
    let known = if cfg!(target_arch = "x86_64") { Some("gpuwhy-replay-host") } else { None };
    assert_eq!([library(&calls[2]), library(&calls[5]), library(&calls[10])], [known, known, None]);
}

#[test]
fn without_a_request_no_call_is_recorded() {
    let stage = Stage::new();
    let output = program(&stage, "off").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(calls(&stage).0, []);
}

#[test]
fn owners_sum_to_the_reading() {
    let stage = Stage::new();
    let output = program(&stage, "on").env("GPUWHY_REPORT", "full").output().unwrap();
    let text = stderr(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(output.status.success() && text.contains("At the peak: "), "{text}");
    let report = stage.report();
    let device = &report["memory"]["devices"][0];
    let owners = device["owners"].as_array().unwrap();
    let sum = |field: &str| owners.iter().map(|row| row[field].as_i64().unwrap()).sum::<i64>();
    assert_eq!([sum("peak_bytes"), sum("bytes")], [1 << 30; 2], "{owners:?}");
    // What the program held at the end; the driver had it in use all the time, so that the context explains the rest.
    let of = |owner: &str| owners.iter().find(|row| row["owner"] == owner).map(|row| row["bytes"].as_u64().unwrap());
    let known = if cfg!(target_arch = "x86_64") { "program" } else { "unread" };
    assert_eq!((of(known), of("graph_pools")), (Some(120 * MIB), Some(2 * MIB)), "{owners:?}");
    let unnamed = owners.last().unwrap();
    assert_eq!(unnamed["owner"], "unnamed");
    assert!(unnamed["least"].as_i64() <= unnamed["most"].as_i64() && owners[0]["least"].is_null(), "{owners:?}");
    assert_eq!(report["completeness"]["dropped_memory_calls"], 0);
}
