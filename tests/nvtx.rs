//! Ranges of the program end to end without a GPU: a host program that uses NVTX as C programs do, libprof.so
//! loaded for NVTX and for CUDA, a recorded session that plays at the same time, and the resulting trace.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::trace::ranges;
use crate::support::{Stage, stderr};
use gpuwhy_trace::record::{RangeEvent, RangeEventKind};

fn count(ranges: &[RangeEvent], kind: RangeEventKind) -> usize {
    ranges.iter().filter(|range| range.kind == kind).count()
}

/// Checks the ranges of the host program, see `testing/cupti-replay/host/ranges.rs`.
fn assert_complete(trace: &Path) {
    let (ranges, names) = ranges(trace);
    let counts =
        [RangeEventKind::Push, RangeEventKind::Pop, RangeEventKind::Start, RangeEventKind::End, RangeEventKind::Mark];
    assert_eq!(counts.map(|kind| count(&ranges, kind)), [2001, 2001, 1, 1, 1]);
    assert!(ranges.is_sorted_by_key(|range| range.at), "in the order of time");

    let text = |range: &RangeEvent| [range.domain, range.message, range.category].map(|id| names.name(id).to_owned());
    let worker: Vec<_> = ranges.iter().filter(|range| names.name(range.domain) == "worker").collect();
    assert_eq!(worker.len(), 4000);
    for (number, step) in worker.chunks(4).enumerate() {
        let step: [&RangeEvent; 4] = step.try_into().unwrap();
        assert_eq!(step.map(|range| range.kind), {
            use RangeEventKind::{Pop, Push};
            [Push, Push, Pop, Pop]
        });
        assert_eq!(text(step[0]), ["worker".to_owned(), format!("step {number}"), "training".to_owned()]);
        assert_eq!(text(step[1]), ["worker", "compute", ""]);
        assert_eq!(text(step[3]), ["worker", "", ""]);
        assert!(step.iter().all(|range| range.thread == step[0].thread && range.range_id == 0));
    }
    let main: Vec<_> = ranges.iter().filter(|range| names.name(range.domain).is_empty()).collect();
    assert_eq!(
        main.iter().map(|range| names.name(range.message)).collect::<Vec<_>>(),
        ["main", "whole run", "", "", "done"]
    );
    assert_eq!((main[1].kind, main[1].range_id), (RangeEventKind::Start, main[2].range_id));
    assert!(main[1].range_id != 0 && main[0].thread != worker[0].thread);
    assert_eq!(names.thread_name(worker[0].thread), Some("range worker"));
    assert_eq!(names.thread_name(main[0].thread), None);
}

#[test]
fn ranges_from_before_and_after_the_start_are_in_the_trace() {
    for when in ["before", "after"] {
        let stage = Stage::new();
        let output = stage.host("multi_stream").args(["--ranges", when]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert_complete(&stage.path("trace.gpuwhy"));
        assert!(!stderr(&output).contains("no NVTX ranges"), "{}", stderr(&output));
    }
}

#[test]
fn ranges_of_the_end_are_in_the_trace_of_a_monitored_run() {
    let stage = Stage::new();
    let mut host = stage.host("multi_stream");
    // They are fetched only at the end.
    let output = host.args(["--ranges", "after"]).envs([("GPUWHY_MODE", "auto"), ("GPUWHY_FLUSH", "10s")]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_complete(&stage.path("trace.gpuwhy"));
}

#[test]
fn with_the_cuda_variable_alone_ranges_are_seen_from_there_on() {
    let stage = Stage::new();
    let output =
        stage.host("multi_stream").env_remove("NVTX_INJECTION64_PATH").args(["--ranges", "after"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_complete(&stage.path("trace.gpuwhy"));
}

#[test]
fn the_report_says_why_there_are_no_ranges() {
    // Another thread may be reading the environment: too late to change it.
    let threads = Stage::new();
    let mut host = threads.host("multi_stream");
    host.env_remove("NVTX_INJECTION64_PATH").args(["--ranges", "before"]);
    // Another tool receives the ranges.
    let other = Stage::new();
    let mut taken = other.host("multi_stream");
    taken.env("NVTX_INJECTION64_PATH", "/opt/tool/libother.so");
    for (stage, host, reason) in [(&threads, &mut host, "gpuwhy run"), (&other, &mut taken, "/opt/tool/libother.so")] {
        assert!(host.status().unwrap().success());
        assert_eq!(ranges(&stage.path("trace.gpuwhy")).0, []);
        let notes = stage.report()["process"]["notes"].to_string();
        assert!(notes.contains("no NVTX ranges") && notes.contains(reason), "{notes}");
    }
}

#[test]
fn a_program_without_cuda_leaves_nothing() {
    let stage = Stage::new();
    let mut host = stage.host("multi_stream");
    let output = host.env_remove("CUDA_INJECTION64_PATH").args(["--ranges", "before"]).output().unwrap();
    assert!(output.status.success());
    assert!(!stderr(&output).contains("gpuwhy:"), "{}", stderr(&output));
    assert_eq!(fs::read_dir(stage.folder.path()).unwrap().count(), 0);
}

#[test]
fn a_forked_child_adds_nothing() {
    for (when, child, first) in [
        ("before", "exit", "before"),
        ("after", "exit", "before"),
        ("end", "exit", "after"),
        ("after", "nothing", "after"),
    ] {
        let stage = Stage::new();
        let mut host = stage.host("multi_stream");
        let output = host.args(["--fork", when, "--child", child, "--ranges", first]).output().unwrap();
        assert!(output.status.success(), "{when} {child}: {}", stderr(&output));
        assert_eq!(fs::read_dir(stage.folder.path()).unwrap().count(), 1, "{when} {child}");
        assert_complete(&stage.path("trace.gpuwhy"));
    }
}

#[test]
fn ranges_do_not_change_the_answer() {
    let answers = [&["--print", "x"], &["--ranges", "before"]].map(|arguments| {
        let stage = Stage::new();
        assert!(stage.host("sync_item").args(arguments).status().unwrap().success());
        let report = stage.report();
        BTreeMap::from(["bottleneck", "devices"].map(|key| (key, report[key].clone())))
    });
    assert_eq!(answers[0], answers[1]);
}
