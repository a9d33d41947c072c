//! `gpuwhy query`: results equal the report and the statistics, over one trace and over ranks.

use std::ffi::OsStr;
use std::fs;

use gpuwhy_export::named::{NamedQuery, QueryKind};
use serde_json::{Value, json};

use super::{gpuwhy, play, play_rank};
use crate::support::{Stage, stderr};

fn asked(traces: &dyn AsRef<OsStr>, sql: &str) -> Vec<Value> {
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
    let processes = asked(&trace, "SELECT process, bottleneck, run, rank FROM processes");
    let process = json!({"process": report["process"]["pid"], "bottleneck": report["bottleneck"]["cause"], "run": "trace", "rank": 0});
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
fn mistakes_are_reported_before_a_trace_is_read() {
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
fn the_list_has_every_query_by_kind_in_a_line_and_describes_one() {
    let said = |arguments: &[&dyn AsRef<OsStr>]| String::from_utf8(gpuwhy(arguments).stdout).unwrap();
    let list = said(&[&"query", &"--list"]);
    let headings: Vec<_> = list.lines().filter(|line| line.ends_with(':')).collect();
    assert_eq!(headings.len(), 3, "{list}");
    for kind in [QueryKind::Report, QueryKind::Rule, QueryKind::Recipe] {
        for query in NamedQuery::all(kind) {
            let mut lines = list.lines().filter(|line| line.split_whitespace().next() == Some(query.name));
            assert!(lines.next().is_some_and(|line| line.ends_with(query.about)), "{}: {list}", query.name);
        }
    }
    let described = said(&[&"query", &"--list", &"gpu_gaps,waste"]);
    assert!(described.contains("--set gap=500.0  Shortest gap") && described.contains("\nwaste "), "{described}");
}

#[test]
fn sql_stands_in_front_of_the_traces_or_behind_them() {
    let stage = Stage::new();
    play_rank(&stage, "copy_pageable", 0);
    fs::rename(stage.path("rank0.gpuwhy"), stage.path("my trace.gpuwhy")).unwrap();
    let (trace, sql) = (stage.path("my trace.gpuwhy"), "SELECT count(*) AS kernels FROM kernels");
    let front = gpuwhy(&[&"query", &sql, &trace, &"--json"]);
    assert_eq!(front.status.code(), Some(0), "{}", stderr(&front));
    assert_eq!(gpuwhy(&[&"query", &"--json", &trace, &sql]).stdout, front.stdout);
    // The same for a lake, and for a recipe after an option.
    let lake = stage.path("lake");
    gpuwhy(&[&"lake", &"add", &"--tier", &"full", &trace, &"--to", &lake]);
    assert_eq!(gpuwhy(&[&"query", &sql, &lake, &"--json"]).stdout, front.stdout);
    assert_eq!(gpuwhy(&[&"query", &"--json", &"waste", &trace]).status.code(), Some(0));
}

#[test]
fn an_unknown_query_or_an_option_that_is_not_for_it_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    let cases: [(&[&dyn AsRef<OsStr>], &str); 15] = [
        (&[&"gpukernsum", &place], "did you mean cuda_gpu_kern_sum? `gpuwhy query --list` lists them"),
        (&[&"xyzzy", &place], "there is no query \"xyzzy\"; `gpuwhy query --list`"),
        (&[&place], "is a file or folder: the query stands in front of it"),
        (&[&"stats,waste", &place], "waste is a recipe, which cannot be asked together"),
        (&[&"gpu_gaps:chunks=3", &place], "gpu_gaps has no parameter chunks; it has gap, rows"),
        (&[&"cuda_api_sum", &place, &"--set", &"rows=3"], "cuda_api_sum has no parameters"),
        (&[&"SELECT 1", &place, &"--set", &"rows=3"], "--set does not apply to SQL: it is for rules and recipes"),
        (&[&"SELECT 1", &place, &"--timeunit", &"us"], "--timeunit does not apply to SQL"),
        (&[&"SELECT 1", &place, &"--engine", &"duckdb"], "--engine does not apply to SQL: it is for recipes"),
        (&[&"waste", &place, &"--filter-time", &"0/1s"], "--filter-time does not apply to waste: it is for reports"),
        (&[&"stats", &place, &"--engine", &"duckdb"], "--engine does not apply to cuda_api_sum: it is for recipes"),
        (&[&"waste", &place, &"--with", &"x"], "--with does not apply to the engine sqlite"),
        (&[&"waste", &"s3://bucket/lake", &"--pid", &"7"], "--pid does not apply to a lake: it is for traces"),
        (&[&"stats", &"s3://bucket/lake"], "recipes and SQL ask lakes"),
        (&[&"--list", &"--json"], "cannot be used with"),
    ];
    for (arguments, wanted) in cases {
        let output = gpuwhy(&[&[&"query" as &dyn AsRef<OsStr>], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{wanted}");
        assert!(output.stdout.is_empty() && stderr(&output).contains(wanted), "{wanted}: {}", stderr(&output));
    }
}

#[test]
fn the_list_of_tables_is_the_golden_file() {
    let output = gpuwhy(&[&"query", &"--tables"]);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        printed,
        include_str!("tables.txt"),
        "tests/export/tables.txt is not what `gpuwhy query --tables` prints"
    );
}
