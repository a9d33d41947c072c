//! Parquet files read by DuckDB and by pandas: the sums are those of `gpuwhy query`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::{gpuwhy, play, play_rank, python};
use crate::support::{Stage, stderr, sum};

/// Count, sum, minimum and maximum duration by kernel, as `gpuwhy query cuda_gpu_kern_sum` prints them.
fn kernels(trace: &Path) -> BTreeMap<String, [u64; 4]> {
    let output = gpuwhy(&[&"query", &"cuda_gpu_kern_sum", &"--format", &"json", &trace]);
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let columns = ["Instances", "Total Time (ns)", "Min (ns)", "Max (ns)"];
    rows.iter()
        .map(|row| (row["Name"].as_str().unwrap().to_owned(), columns.map(|column| row[column].as_u64().unwrap())))
        .collect()
}

#[test]
fn other_readers_find_the_rows_and_sums_of_two_ranks_and_of_a_run_of_its_own() {
    let ranks = Stage::new();
    play_rank(&ranks, "multi_stream", 0);
    play_rank(&ranks, "sync_item", 1);
    let alone = play("graph_torch");
    let out = alone.path("out");
    for (traces, run) in [(ranks.folder.path(), "two ranks"), (&alone.path("trace.gpuwhy"), "graph")] {
        let output = gpuwhy(&[&"export", &"--to", &"parquet", &traces, &"--run", &run, &"-o", &out]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    assert!(out.join("run=two%20ranks/rank=1/kernels.parquet").is_file());
    let Some(found) = python::answered("parquet", "sums.py", &[&out]) else { return };
    for (place, trace) in [
        ("two ranks/0", ranks.path("rank0.gpuwhy")),
        ("two ranks/1", ranks.path("rank1.gpuwhy")),
        ("graph/0", alone.path("trace.gpuwhy")),
    ] {
        let ours = json!(kernels(&trace));
        assert_eq!(found["duckdb"][place], ours, "{place}");
        assert_eq!(found["pandas"][place], ours, "{place}");
        let rows = &found["rows"][place];
        let report = crate::support::report(&trace).1;
        let records = &report["completeness"]["records"];
        for (table, kind) in
            [("kernels", "kernels"), ("copies", "copies"), ("api", "api_calls"), ("overheads", "overheads")]
        {
            assert_eq!(rows.get(table).unwrap_or(&json!(0)), &records[kind], "{place}: {table}");
        }
        let leaves = report["devices"][0]["leaves"].as_object().unwrap();
        assert_eq!(rows["leaves"], leaves.len(), "{place}");
        assert_eq!(sum(&report["devices"][0]["leaves"]), report["devices"][0]["window_ns"].as_u64().unwrap());
    }
}
