//! HolisticTraceAnalysis, from the Python package index, analyzes the output of `gpuwhy export --to chrome`,
//! and its numbers equal ours.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::{TraceReader, TraceWriter};
use gpuwhy_trace::record::{RangeEvent, RangeEventKind, Record};
use serde_json::Value;

use super::{play, python};
use crate::support::{GPUWHY, Stage, stderr};

/// HTA's result for a folder; `None` when HTA is unavailable here.
fn analyzed(folder: &Path, annotation: &[&str]) -> Option<Value> {
    let mut arguments: Vec<&dyn AsRef<OsStr>> = vec![&folder];
    arguments.extend(annotation.iter().map(|annotation| annotation as &dyn AsRef<OsStr>));
    python::answered("hta", "analyze.py", &arguments)
}

fn export(arguments: &[&Path]) {
    let output = Command::new(GPUWHY).args(["export", "--to", "chrome"]).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

/// HTA's three parts of a device's time, and their sum, equal ours to the microsecond, the precision of its
/// doubles.
fn same_times(hta: &Value, report: &Value) {
    let device = &report["devices"][0];
    let leaf = |name: &str| device["leaves"][name].as_u64().unwrap() as f64 / 1e3;
    let leaves = device["leaves"].as_object().unwrap();
    let other: f64 = leaves.keys().filter(|name| name.starts_with("copy_") || *name == "memset").map(|n| leaf(n)).sum();
    let window = device["window_ns"].as_u64().unwrap() as f64 / 1e3;
    let compute = leaf("compute");
    for (column, ours) in [
        ("kernel_time(us)", window),
        ("compute_time(us)", compute),
        ("non_compute_time(us)", other),
        ("idle_time(us)", window - compute - other - leaf("communication")),
    ] {
        let theirs = hta[column].as_f64().unwrap();
        assert!((theirs - ours).abs() < 1.0, "{column}: HTA {theirs}, gpuwhy {ours}");
    }
}

#[test]
fn two_ranks_are_analyzed_and_the_times_are_ours() {
    let stages = ["multi_stream", "copy_pageable"].map(play);
    let folder = tempfile::tempdir().unwrap();
    let traces: Vec<PathBuf> = stages
        .iter()
        .enumerate()
        .map(|(number, stage)| {
            let named = stage.path(&format!("rank{number}.gpuwhy"));
            fs::rename(stage.path("trace.gpuwhy"), &named).unwrap();
            named
        })
        .collect();
    export(&[&traces[0], &traces[1], Path::new("-o"), folder.path()]);
    let Some(result) = analyzed(folder.path(), &[]) else { return };
    assert_eq!(result["ranks"], serde_json::json!([0, 1]));
    assert_eq!(result["failed"], serde_json::json!({}));
    for (rank, trace) in traces.iter().enumerate() {
        let report = crate::support::report(trace).1;
        same_times(&result["found"]["temporal"][rank.to_string()], &report);
        assert!(result["found"]["launches"][rank.to_string()].as_u64().unwrap() > 0);
    }
}

#[test]
fn a_graph_is_analyzed_and_the_times_are_ours() {
    let stage = play("graph_torch");
    let folder = tempfile::tempdir().unwrap();
    export(&[&stage.path("trace.gpuwhy"), Path::new("-o"), folder.path()]);
    let Some(result) = analyzed(folder.path(), &[]) else { return };
    assert_eq!(result["failed"], serde_json::json!({}));
    same_times(&result["found"]["temporal"]["0"], &stage.report());
}

/// Calls per step in [`annotated`].
const STEP_CALLS: usize = 200;

/// The trace with a range `step` around every [`STEP_CALLS`] calls of the thread that launches most.
pub fn annotated(stage: &Stage) -> (PathBuf, usize) {
    let mut reader = TraceReader::new(fs::File::open(stage.path("trace.gpuwhy")).unwrap()).unwrap();
    let mut items = Vec::new();
    while let Some(item) = reader.next_event().unwrap() {
        items.push(item);
    }
    let (session, mut dictionary, _) = reader.into_parts();
    let mut calls: Vec<_> = items
        .iter()
        .filter_map(|item| match item {
            Event::Record(Record::Api(call)) => Some(*call),
            _ => None,
        })
        .collect();
    let thread = calls[calls.len() / 2].thread;
    calls.retain(|call| call.thread == thread);
    calls.sort_by_key(|call| call.start);
    let (step, none) = (dictionary.intern_name("step"), dictionary.intern_name(""));
    let mut steps = 0;
    let path = stage.path("annotated.gpuwhy");
    let mut writer = TraceWriter::new(fs::File::create(&path).unwrap(), &session).unwrap();
    for interval in calls.chunks_exact(STEP_CALLS) {
        let push = RangeEvent {
            at: interval[0].start,
            thread,
            kind: RangeEventKind::Push,
            message: step,
            domain: none,
            category: none,
            ..RangeEvent::default()
        };
        let pop = RangeEvent { at: interval[STEP_CALLS - 1].end, kind: RangeEventKind::Pop, message: none, ..push };
        writer.event(&Event::Record(Record::Range(push)), &dictionary).unwrap();
        writer.event(&Event::Record(Record::Range(pop)), &dictionary).unwrap();
        steps += 1;
    }
    for item in items.iter().filter(|item| matches!(item, Event::Record(_) | Event::End(..))) {
        writer.event(item, &dictionary).unwrap();
    }
    writer.close(&dictionary).unwrap();
    (path, steps)
}

#[test]
fn annotated_steps_become_profiler_steps_that_have_a_critical_path() {
    let stage = play("multi_stream");
    let (trace, steps) = annotated(&stage);
    let folder = tempfile::tempdir().unwrap();
    export(&[&trace, Path::new("--step-range"), Path::new("step"), Path::new("-o"), folder.path()]);
    let Some(result) = analyzed(folder.path(), &["ProfilerStep"]) else { return };
    assert_eq!(result["failed"], serde_json::json!({}));
    let found = &result["found"];
    assert_eq!(found["steps"], steps);
    for analysis in ["difference", "critical_path"] {
        assert!(found[analysis].as_u64().unwrap() > 0, "{analysis}: {found:#}");
    }
}
