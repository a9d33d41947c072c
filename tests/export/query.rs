//! `gpuwhy query`: answers equal the report and the statistics, over one trace and over ranks.

use std::fs;

use serde_json::{Value, json};

use super::{gpuwhy, play, play_rank};
use crate::support::{Stage, stderr};

fn asked(traces: &dyn AsRef<std::ffi::OsStr>, sql: &str) -> Vec<Value> {
    let output = gpuwhy(&[&"query", &"--format", &"json", traces, &sql]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_tables_hold_what_the_report_says() {
    let stage = play("sync_item");
    let (trace, report) = (stage.path("trace.gpuwhy"), stage.report());
    let device = &report["devices"][0];
    let leaves = asked(&trace, "SELECT leaf, duration_ns FROM leaves WHERE duration_ns > 0");
    assert!(!leaves.is_empty());
    for row in &leaves {
        assert_eq!(row["duration_ns"], device["leaves"][row["leaf"].as_str().unwrap()], "{row}");
    }
    let steps = asked(
        &trace,
        "SELECT count(*) AS steps, sum(l.ns = duration_ns) AS whole FROM steps
         JOIN (SELECT step, sum(duration_ns) AS ns FROM step_leaves GROUP BY step) AS l USING (step)",
    );
    assert!(steps[0]["steps"].as_u64().unwrap() > 0 && steps[0]["steps"] == steps[0]["whole"], "{steps:?}");
    let counters = asked(&trace, "SELECT value FROM completeness WHERE counter = 'records.kernels'");
    assert_eq!(counters, [json!({"value": report["completeness"]["records"]["kernels"]})]);
    let processes = asked(&trace, "SELECT process, verdict, run, rank FROM processes");
    let process =
        json!({"process": report["process"]["pid"], "verdict": report["verdict"]["group"], "run": "trace", "rank": 0});
    assert_eq!(processes, [process]);
}

#[test]
fn launches_join_their_kernels_in_each_way_to_write_it() {
    let stage = play("multi_stream");
    let trace = stage.path("trace.gpuwhy");
    let on = asked(&trace, "SELECT count(*) AS n FROM kernels k JOIN api a ON a.correlation = k.correlation");
    assert!(on[0]["n"].as_u64().unwrap() > 0);
    for join in ["JOIN api USING (correlation)", "NATURAL JOIN (SELECT correlation FROM api)"] {
        assert_eq!(asked(&trace, &format!("SELECT count(*) AS n FROM kernels {join}")), on, "{join}");
    }
    let all = asked(&trace, "SELECT * FROM kernels LIMIT 1");
    assert!(all[0]["name"].is_string() && all[0]["mangled_name"].is_string() && all[0]["start_ns"].is_u64());
}

#[test]
fn a_folder_is_all_its_ranks_and_a_rank_that_comes_twice_is_a_run_of_its_own() {
    let stage = Stage::new();
    play_rank(&stage, "multi_stream", 0);
    play_rank(&stage, "copy_pageable", 1);
    fs::copy(stage.path("rank1.gpuwhy"), stage.path("worker.gpuwhy")).unwrap();
    let folder = stage.folder.path();
    let rows = asked(&folder, "SELECT run, rank, world_size FROM processes ORDER BY file");
    let run = folder.file_name().unwrap().to_str().unwrap();
    let row = |run: &str, rank: u32| json!({"run": run, "rank": rank, "world_size": 2});
    assert_eq!(rows, [row(run, 0), row(run, 1), row(&format!("{run}-worker"), 1)]);
    let output = gpuwhy(&[
        &"query",
        &"--run",
        &"job",
        &folder,
        &"SELECT rank, count(*) FROM kernels WHERE run = 'job' GROUP BY 1",
    ]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 5, "a heading, its rule and two ranks, with a blank line around: {text}");
}

#[test]
fn mistakes_are_told_before_a_trace_is_read() {
    for (sql, wanted) in [
        ("SELECT dur FROM kernels", "duration_ns"),
        ("SELECT * FROM kernel", "no such table: kernel"),
        ("DELETE FROM kernels", "only a SELECT"),
    ] {
        let output = gpuwhy(&[&"query", &"there-is-no-such-trace", &sql]);
        assert_eq!(output.status.code(), Some(2), "{sql}");
        assert!(output.stdout.is_empty() && stderr(&output).contains(wanted), "{}", stderr(&output));
    }
    let output = gpuwhy(&[&"query", &"there-is-no-such-trace", &"SELECT 1"]);
    assert!(output.status.code() == Some(2) && stderr(&output).contains("there-is-no-such-trace"));
}

#[test]
fn the_document_of_the_tables_is_what_the_command_prints() {
    let output = gpuwhy(&[&"query", &"--tables"]);
    let (printed, document) =
        (String::from_utf8(output.stdout).unwrap(), include_str!("../../docs/reference/tables.md"));
    assert!(
        document.contains(&printed),
        "docs/reference/tables.md does not contain what `gpuwhy query --tables` prints"
    );
}
