//! `gpuprof export --to chrome` and `gpuprof stats` on recorded sessions: what is written is what was recorded.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use support::{GPUPROF, Stage, report, stderr, sum};

fn play(fixture: &str) -> Stage {
    let stage = Stage::new();
    assert!(stage.host(fixture).status().unwrap().success(), "{fixture}");
    stage
}

fn gpuprof(arguments: &[&dyn AsRef<OsStr>]) -> Output {
    Command::new(GPUPROF).args(arguments.iter().map(AsRef::as_ref)).output().unwrap()
}

fn chrome(stage: &Stage, name: &str) -> Value {
    let (trace, out) = (stage.path("trace.gpuprof"), stage.path(name));
    let output = gpuprof(&[&"export", &"--to", &"chrome", &trace, &"-o", &out]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let bytes = fs::read(&out).unwrap();
    if !name.ends_with(".gz") {
        return serde_json::from_slice(&bytes).unwrap();
    }
    let mut text = String::new();
    flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn rows<'a>(document: &'a Value, category: &'a str) -> impl Iterator<Item = &'a Value> {
    document["traceEvents"].as_array().unwrap().iter().filter(move |row| row["ph"] == "X" && row["cat"] == category)
}

/// Microseconds with three decimals as nanoseconds.
fn nanos(time: &Value) -> u64 {
    (time.as_f64().unwrap() * 1000.0).round() as u64
}

#[test]
fn our_own_import_of_the_export_gives_every_nanosecond_the_same_cause() {
    for fixture in ["copy_pageable", "multi_stream", "graph_torch", "sync_item", "resnet_workers0"] {
        let stage = play(fixture);
        chrome(&stage, "trace.json.gz");
        let (original, exported) = (stage.report(), report(&stage.path("trace.json.gz")).1);
        for (ours, theirs) in
            original["devices"].as_array().unwrap().iter().zip(exported["devices"].as_array().unwrap())
        {
            assert_eq!(ours["window_ns"], theirs["window_ns"], "{fixture}");
            assert_eq!(ours["leaves"], theirs["leaves"], "{fixture}");
        }
        assert_eq!(original["verdict"]["group"], exported["verdict"]["group"], "{fixture}");
    }
}

#[test]
fn every_record_has_a_row_and_every_arrow_two_ends() {
    let stage = play("graph_torch");
    let (document, report) = (chrome(&stage, "trace.json"), stage.report());
    let events = document["traceEvents"].as_array().unwrap();
    let complete = events.iter().filter(|row| row["ph"] == "X").count() as u64;
    assert_eq!(complete, sum(&report["completeness"]["records"]));
    let ends = |phase: &str| -> Vec<u64> {
        let arrows = events.iter().filter(|row| row["ph"] == phase);
        let mut ids: Vec<u64> = arrows.map(|row| row["id"].as_u64().unwrap()).collect();
        ids.sort_unstable();
        ids
    };
    let starts = ends("s");
    assert_eq!(starts, ends("f"));
    assert_eq!(starts.iter().collect::<BTreeSet<_>>().len(), starts.len(), "one arrow a launch");
    let calls = rows(&document, "cuda_runtime").filter(|row| row["name"] == "cudaGraphLaunch").count();
    assert!(calls > 0 && rows(&document, "kernel").any(|row| row["args"]["graph id"].is_u64()));
    let (threads, lines): (BTreeSet<_>, BTreeSet<_>) = (
        events.iter().filter(|row| row["ph"] == "X").map(|row| (row["pid"].as_u64(), row["tid"].as_u64())).collect(),
        events
            .iter()
            .filter(|row| row["name"] == "thread_name")
            .map(|row| (row["pid"].as_u64(), row["tid"].as_u64()))
            .collect(),
    );
    assert_eq!(threads, lines, "every line has a name");
}

#[test]
fn the_statistics_are_those_of_the_rows() {
    let stage = play("sync_item");
    let document = chrome(&stage, "trace.json");
    let trace = stage.path("trace.gpuprof");
    let table = |name: &str| -> Vec<Value> {
        let output = gpuprof(&[&"stats", &"--report", &name, &"--format", &"json", &trace]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    for (name, category, count) in
        [("cuda_gpu_kern_sum", "kernel", "Instances"), ("cuda_api_sum", "cuda_runtime", "Num Calls")]
    {
        let mut groups: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for row in rows(&document, category) {
            groups.entry(row["name"].as_str().unwrap()).or_default().push(nanos(&row["dur"]));
        }
        let table = table(name);
        for (group, mut durations) in groups {
            durations.sort_unstable();
            let row = table.iter().find(|row| row["Name"].as_str().is_some_and(|name| name.starts_with(group)));
            let row = row.unwrap_or_else(|| panic!("{name} lacks {group}"));
            assert_eq!(row[count], durations.len(), "{group}");
            assert_eq!(row["Total Time (ns)"], durations.iter().sum::<u64>(), "{group}");
            assert_eq!(row["Min (ns)"], durations[0], "{group}");
            assert_eq!(row["Max (ns)"], durations[durations.len() - 1], "{group}");
            let middle = durations[(durations.len() - 1) / 2] + durations[durations.len() / 2];
            assert_eq!(row["Med (ns)"].as_f64().unwrap(), middle as f64 / 2.0, "{group}");
        }
        let shares: f64 = table.iter().map(|row| row["Time (%)"].as_f64().unwrap()).sum();
        assert!((shares - 100.0).abs() < 0.05 * table.len() as f64 + 0.01, "{shares}");
    }

    let kernels = rows(&document, "kernel").count();
    let executions = table("cuda_kern_exec_trace");
    assert_eq!(executions.len(), kernels, "every kernel has its launch");
    let starts: Vec<u64> = executions.iter().map(|row| row["API Start (ns)"].as_u64().unwrap()).collect();
    assert!(starts.is_sorted());
    for row in &executions {
        let [call, queue, kernel, total] =
            ["API Dur (ns)", "Queue Dur (ns)", "Kernel Dur (ns)", "Total Dur (ns)"].map(|column| row[column].as_u64());
        if let Some(queue) = queue {
            assert_eq!(call.unwrap() + queue + kernel.unwrap(), total.unwrap(), "{row}");
        }
    }
    let counted: u64 = table("cuda_kern_exec_sum").iter().map(|row| row["Count"].as_u64().unwrap()).sum();
    assert_eq!(counted, kernels as u64);

    let operations = table("cuda_gpu_trace");
    let copies = rows(&document, "gpu_memcpy").count() + rows(&document, "gpu_memset").count();
    assert_eq!(operations.len(), kernels + copies);
    assert!(operations.iter().any(|row| row["Name"] == "[CUDA memcpy Device-to-Host]"));
}

#[test]
fn a_stretch_of_time_counts_what_overlaps_it() {
    let stage = play("copy_pageable");
    let trace = stage.path("trace.gpuprof");
    let rows = |filter: &str| -> usize {
        let output = gpuprof(&[&"stats", &"-r", &"cuda_gpu_trace", &"-f", &"csv", &"--filter-time", &filter, &trace]);
        String::from_utf8(output.stdout).unwrap().lines().count().saturating_sub(1)
    };
    let all = rows("/");
    // The stretches meet in a point, which what runs across it overlaps from both sides.
    let halves = rows("/400ms") + rows("400ms/");
    assert!(all > 0 && halves >= all && halves <= all + 2, "{all} {halves}");
    assert_eq!(rows("1000s/"), 0);
}

#[test]
fn what_is_no_trace_is_refused_by_name_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.json");
    let bad = [("text.gpuprof", "some text that is long enough for a header"), ("kineto.json", "{}"), ("none", "")];
    for (name, content) in bad {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        let output = gpuprof(&[&"export", &"--to", &"chrome", &path, &"-o", &out]);
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(stderr(&output).contains(path.to_str().unwrap()), "{}", stderr(&output));
        let output = gpuprof(&[&"stats", &path]);
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(output.stdout.is_empty() && stderr(&output).contains(name), "{}", stderr(&output));
    }
    let files: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files.len(), bad.len(), "{files:?}");
}

#[test]
fn a_cut_trace_is_exported_up_to_the_cut_and_says_so() {
    let stage = play("multi_stream");
    let whole = fs::read(stage.path("trace.gpuprof")).unwrap();
    let cut = stage.path("cut.gpuprof");
    fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let out = stage.path("cut.json");
    let output = gpuprof(&[&"export", &"--to", &"chrome", &cut, &"-o", &out]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("cut.gpuprof"), "{}", stderr(&output));
    let document: Value = serde_json::from_slice(&fs::read(&out).unwrap()).unwrap();
    let whole = chrome(&stage, "whole.json");
    let kernels = |document: &Value| rows(document, "kernel").count();
    assert!((1..kernels(&whole)).contains(&kernels(&document)));
}

#[test]
fn outputs_that_would_overwrite_each_other_are_refused() {
    let stage = play("copy_pageable");
    let trace = stage.path("trace.gpuprof");
    let elsewhere = stage.path("other");
    fs::create_dir(&elsewhere).unwrap();
    let again = elsewhere.join("trace.gpuprof");
    fs::copy(&trace, &again).unwrap();
    let out = stage.path("out");
    let output = gpuprof(&[&"export", &"--to", &"chrome", &trace, &again, &"-o", &out]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("trace.pt.trace.json.gz"), "{}", stderr(&output));
    assert!(!Path::new(&out).join("trace.pt.trace.json.gz").exists());
}
