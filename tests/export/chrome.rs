//! The JSON of the PyTorch profiler: read back by our own import, and checked row by row.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{chrome, gpuwhy, hta, nanos, play, rows};
use crate::support::{report, stderr, sum};

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
        assert_eq!(original["bottleneck"]["cause"], exported["bottleneck"]["cause"], "{fixture}");
    }
}

#[test]
fn every_record_has_a_row_and_every_arrow_two_ends() {
    let stage = play("graph_torch");
    let (document, report) = (chrome(&stage, "trace.json"), stage.report());
    let events = document["traceEvents"].as_array().unwrap();
    let is_step = |row: &&Value| row["name"].as_str().is_some_and(|name| name.starts_with("ProfilerStep#"));
    let complete = events.iter().filter(|row| row["ph"] == "X" && !is_step(row)).count() as u64;
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
    // Kernels of a graph overlap on their stream, which one line of the format cannot show.
    let mut ends: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    let mut kernels: Vec<_> = rows(&document, "kernel").collect();
    kernels.sort_by_key(|row| nanos(&row["ts"]));
    assert!(kernels.iter().any(|row| row["tid"] != row["args"]["stream"]), "on another line");
    for row in kernels {
        let (start, line) = (nanos(&row["ts"]), (row["pid"].as_u64().unwrap(), row["tid"].as_u64().unwrap()));
        let end = ends.entry(line).or_default();
        assert!(*end <= start, "two rows overlap on line {line:?}");
        *end = start + nanos(&row["dur"]);
    }
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
fn found_steps_stand_over_their_launches() {
    // More steps than the engine remembers, some with a few launches, some with a graph; and a unit that is
    // not a step.
    for fixture in ["mlp", "graph_torch", "sync_item", "resnet_workers0"] {
        let stage = play(fixture);
        let (document, report) = (chrome(&stage, "trace.json"), stage.report());
        let steps = &report["devices"][0]["steps"];
        let found: Vec<&Value> = rows(&document, "user_annotation").collect();
        if steps["recognized_by"].is_null() {
            assert!(found.is_empty(), "{fixture}: nothing tells a step");
            continue;
        }
        let seen = steps["seen"].as_u64().unwrap();
        println!("{fixture}: {} rows for {seen} steps", found.len());
        assert_eq!(found.len() as u64, seen + 1, "{fixture}: the last one is not complete");
        let span = |row: &Value| (nanos(&row["ts"]), nanos(&row["ts"]) + nanos(&row["dur"]));
        for (number, row) in found.iter().enumerate() {
            assert_eq!(row["name"].as_str().unwrap(), format!("ProfilerStep#{number}"), "{fixture}");
        }
        for pair in found.windows(2) {
            assert!(span(pair[0]).1 <= span(pair[1]).0, "{fixture}: steps follow each other");
        }
        // The launches of a step are those that the engine counts in it, on any thread.
        let mut launches: BTreeMap<u64, u64> = BTreeMap::new();
        for row in ["kernel", "gpu_memcpy", "gpu_memset"].iter().flat_map(|category| rows(&document, category)) {
            *launches.entry(row["args"]["correlation"].as_u64().unwrap()).or_default() += 1;
        }
        let calls: BTreeMap<u64, u64> = ["cuda_runtime", "cuda_driver"]
            .iter()
            .flat_map(|category| rows(&document, category))
            .map(|row| (span(row).0, row["args"]["correlation"].as_u64().unwrap()))
            .collect();
        let mut counts: Vec<u64> = found
            .iter()
            .map(|row| {
                let ids: BTreeSet<u64> = calls.range(span(row).0..span(row).1).map(|(_, id)| *id).collect();
                ids.iter().filter_map(|id| launches.get(id)).sum()
            })
            .collect();
        counts.sort_unstable();
        assert_eq!(Some(counts[counts.len() / 2]), steps["period"].as_u64(), "{fixture}");
    }
}

/// A row of a device: process, stream, start and end.
type Work = (u64, u64, u64, u64);

#[test]
fn ranges_stand_over_what_was_launched_in_them() {
    let stage = play("multi_stream");
    let (trace, steps) = hta::annotated(&stage);
    let out = stage.path("annotated.json");
    let output = gpuwhy(&[&"export", &"--to", &"chrome", &trace, &"-o", &out]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let document: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    let span = |row: &Value| (nanos(&row["ts"]), nanos(&row["ts"]) + nanos(&row["dur"]));

    let mut work: BTreeMap<u64, Vec<Work>> = BTreeMap::new();
    for row in ["kernel", "gpu_memcpy", "gpu_memset"].iter().flat_map(|category| rows(&document, category)) {
        let (args, (start, end)) = (&row["args"], span(row));
        let place = (row["pid"].as_u64().unwrap(), args["stream"].as_u64().unwrap(), start, end);
        work.entry(args["correlation"].as_u64().unwrap()).or_default().push(place);
    }
    let calls: Vec<&Value> = rows(&document, "cuda_runtime").chain(rows(&document, "cuda_driver")).collect();
    let mut wanted: Vec<Work> = Vec::new();
    for range in rows(&document, "user_annotation") {
        let (begin, end) = span(range);
        let within =
            calls.iter().filter(|call| call["tid"] == range["tid"] && span(call).0 >= begin && span(call).1 <= end);
        let correlations: BTreeSet<u64> = within.map(|call| call["args"]["correlation"].as_u64().unwrap()).collect();
        let mut streams: BTreeMap<(u64, u64), (u64, u64)> = BTreeMap::new();
        for &(device, stream, start, end) in correlations.iter().filter_map(|id| work.get(id)).flatten() {
            let span = streams.entry((device, stream)).or_insert((start, end));
            *span = (span.0.min(start), span.1.max(end));
        }
        wanted.extend(streams.into_iter().map(|((device, stream), (start, end))| (device, stream, start, end)));
    }
    let mut found: Vec<Work> = rows(&document, "gpu_user_annotation")
        .map(|row| (row["pid"].as_u64().unwrap(), row["tid"].as_u64().unwrap(), span(row).0, span(row).1))
        .collect();
    wanted.sort_unstable();
    found.sort_unstable();
    assert!(found.len() > steps, "on several streams: {} of {steps} steps", found.len());
    assert_eq!(found, wanted);
}

#[test]
fn what_the_pytorch_profiler_wrote_is_a_trace_for_every_command() {
    let stage = play("copy_pageable");
    let (trace, json) = (stage.path("trace.gpuwhy"), stage.path("trace.json.gz"));
    let output = gpuwhy(&[&"export", &"--to", &"chrome", &trace, &"-o", &json]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let table = |report: &str, file: &std::path::Path| -> Vec<Value> {
        let output = gpuwhy(&[&"query", &report, &"-f", &"json", &file]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let mut rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        // Calls lose the version suffix in such a file.
        for name in rows.iter_mut().filter_map(|row| row.get_mut("Name")) {
            *name = name.as_str().and_then(|name| name.split("_v").next()).into();
        }
        rows
    };
    for report in ["cuda_gpu_kern_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum", "cuda_api_sum"] {
        assert_eq!(table(report, &json), table(report, &trace), "{report}");
    }
    let columns = ["Queue Dur (ns)", "Kernel Dur (ns)", "DevId", "GridXYZ"];
    let launches = |file: &std::path::Path| -> Vec<Vec<Value>> {
        let row = |row: &Value| columns.iter().map(|&column| row[column].clone()).collect();
        table("cuda_kern_exec_trace", file).iter().map(row).collect()
    };
    assert_eq!(launches(&json), launches(&trace));
    let database = stage.path("kineto.sqlite");
    let output = gpuwhy(&[&"export", &"--to", &"sqlite", &json, &"-o", &database]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(table("cuda_gpu_kern_sum", &database), table("cuda_gpu_kern_sum", &trace));
    let query = "SELECT count(*) AS n FROM copies WHERE direction = 'host_to_device'";
    let asked = |file: &std::path::Path| gpuwhy(&[&"query", &file, &query]).stdout;
    assert_eq!(asked(&json), asked(&trace));
}
