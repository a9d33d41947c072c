//! `gpuwhy merge`: the traces that it accepts, and its output about ranks.

use std::fs;

use serde_json::{Value, json};

use super::{gpuwhy, play, play_rank};
use crate::support::{Stage, stderr};

#[test]
fn ranks_are_compared_and_what_is_not_known_is_said() {
    let stage = Stage::new();
    // In reverse: ranks are sorted by their number, not by their files.
    play_rank(&stage, "multi_stream", 1);
    play_rank(&stage, "copy_pageable", 0);
    let folder = stage.folder.path();
    let output = gpuwhy(&[&"merge", &"--json", &folder]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let compared: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&compared["world_size"], &compared["collectives"]), (&json!(2), &json!(0)));
    for rank in 0..2 {
        let report = crate::support::report(&stage.path(&format!("rank{rank}.gpuwhy"))).1;
        let row = &compared["ranks"][rank];
        assert_eq!((&row["rank"], &row["window_ns"]), (&json!(rank), &report["devices"][0]["window_ns"]));
        assert_eq!(
            (&row["bottleneck"], &row["leaves"]),
            (&report["bottleneck"]["cause"], &report["devices"][0]["leaves"])
        );
    }
    let text = String::from_utf8(gpuwhy(&[&"merge", &folder]).stdout).unwrap();
    assert!(text.contains("who waits for whom is not known"), "{text}");
}

#[test]
fn traces_that_are_no_ranks_of_one_job_are_refused_by_name() {
    let alone = play("copy_pageable");
    let output = gpuwhy(&[&"merge", &alone.path("trace.gpuwhy")]);
    assert!(output.status.code() == Some(2) && stderr(&output).contains("trace.gpuwhy: the trace has no rank"));
    let stage = Stage::new();
    play_rank(&stage, "copy_pageable", 0);
    fs::copy(stage.path("rank0.gpuwhy"), stage.path("worker.gpuwhy")).unwrap();
    let output = gpuwhy(&[&"merge", &stage.folder.path()]);
    assert!(output.status.code() == Some(2) && stderr(&output).contains("worker.gpuwhy: another trace has its rank"));
}
