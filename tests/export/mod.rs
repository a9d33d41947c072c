//! `gpuwhy export` and `gpuwhy query` on recorded sessions: the output has the recorded data.

mod analyze;
mod chrome;
mod counters;
mod graphs;
mod hta;
mod lake;
mod lines;
mod merge;
mod parquet;
mod perfetto;
mod python;
mod query;
mod records;
mod samples;
mod sqlite;
mod stats;
mod tensorboard;
mod trace_processor;

use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{GPUWHY, Stage, stderr};
use serde_json::Value;

fn play(fixture: &str) -> Stage {
    let stage = Stage::new();
    assert!(stage.host(fixture).status().unwrap().success(), "{fixture}");
    stage
}

/// Plays the session as a process of a job; the trace is named after its rank.
fn play_rank(stage: &Stage, fixture: &str, rank: u32) {
    let mut host = stage.host(fixture);
    host.env("RANK", rank.to_string()).env("WORLD_SIZE", "2").env("GPUWHY_OUTPUT", format!("rank{rank}.gpuwhy"));
    assert!(host.status().unwrap().success(), "{fixture}");
}

fn gpuwhy(arguments: &[&dyn AsRef<OsStr>]) -> Output {
    Command::new(GPUWHY).args(arguments.iter().map(AsRef::as_ref)).output().unwrap()
}

fn chrome(stage: &Stage, name: &str) -> Value {
    let (trace, out) = (stage.path("trace.gpuwhy"), stage.path(name));
    let output = gpuwhy(&[&"export", &"--to", &"chrome", &trace, &"-o", &out]);
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
fn what_is_no_trace_is_refused_by_name_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.json");
    let bad = [("text.gpuwhy", "some text that is long enough for a header"), ("kineto.json", "{}"), ("none", "")];
    for (name, content) in bad {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        let output = gpuwhy(&[&"export", &"--to", &"chrome", &path, &"-o", &out]);
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(stderr(&output).contains(path.to_str().unwrap()), "{}", stderr(&output));
        let output = gpuwhy(&[&"query", &"stats", &path]);
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(output.stdout.is_empty() && stderr(&output).contains(name), "{}", stderr(&output));
    }
    let files: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files.len(), bad.len(), "{files:?}");
}

#[test]
fn a_cut_trace_is_exported_up_to_the_cut_and_says_so() {
    let stage = play("sync_item");
    let whole = fs::read(stage.path("trace.gpuwhy")).unwrap();
    let cut = stage.path("cut.gpuwhy");
    fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let out = stage.path("cut.json");
    let output = gpuwhy(&[&"export", &"--to", &"chrome", &cut, &"-o", &out]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("cut.gpuwhy"), "{}", stderr(&output));
    let document: Value = serde_json::from_slice(&fs::read(&out).unwrap()).unwrap();
    let whole = chrome(&stage, "whole.json");
    let kernels = |document: &Value| rows(document, "kernel").count();
    assert!((1..kernels(&whole)).contains(&kernels(&document)));
}

#[test]
fn outputs_that_would_overwrite_each_other_are_refused() {
    let stage = play("copy_pageable");
    let trace = stage.path("trace.gpuwhy");
    let elsewhere = stage.path("other");
    fs::create_dir(&elsewhere).unwrap();
    let again = elsewhere.join("trace.gpuwhy");
    fs::copy(&trace, &again).unwrap();
    let out = stage.path("out");
    let output = gpuwhy(&[&"export", &"--to", &"chrome", &trace, &again, &"-o", &out]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("trace.pt.trace.json.gz"), "{}", stderr(&output));
    assert!(!Path::new(&out).join("trace.pt.trace.json.gz").exists());
}

#[test]
fn kinds_that_a_format_has_no_place_for_are_named_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures/gpt_counters.gpuwhy");
    let report = crate::support::report(&trace).1;
    let samples = report["completeness"]["records"]["samples"].as_u64().unwrap();
    for (format, is_read_again) in [("chrome", true), ("sqlite", true), ("perfetto", false)] {
        let output = gpuwhy(&[&"export", &"--to", &format, &trace, &"-o", &folder.path().join(format)]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let said = stderr(&output);
        assert!(said.contains(&format!("no place for {samples} host samples")), "{said}");
        assert_eq!(said.contains("divides idle time otherwise"), is_read_again, "{said}");
    }
    let output = gpuwhy(&[&"export", &"--to", &"json", &trace, &"-o", &folder.path().join("json")]);
    assert!(!stderr(&output).contains("no place"), "{}", stderr(&output));
}
