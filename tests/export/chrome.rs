//! The JSON of the PyTorch profiler: read back by our own import, and row by row.

use std::collections::BTreeSet;

use crate::support::{report, sum};
use crate::{chrome, play, rows};

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
