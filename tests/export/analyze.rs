//! The rules of nsys against SQL over the exported tables, and against sums of the report.

use std::process::Output;

use rusqlite::Connection;
use serde_json::Value;

use super::{gpuwhy, play};
use crate::support::{Stage, stderr, sum};

fn database(stage: &Stage) -> Connection {
    let (trace, out) = (stage.path("trace.gpuwhy"), stage.path("out.sqlite"));
    let output = gpuwhy(&[&"export", &"--to", &"sqlite", &trace, &"-o", &out]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let database = Connection::open(out).unwrap();
    database
        .execute_batch(
            "CREATE TEMP VIEW work AS SELECT start, end, deviceId FROM CUPTI_ACTIVITY_KIND_KERNEL
             UNION ALL SELECT start, end, deviceId FROM CUPTI_ACTIVITY_KIND_MEMCPY;",
        )
        .unwrap();
    database
}

fn analyze(stage: &Stage, rule: &str, format: &str) -> Output {
    let output = gpuwhy(&[&"query", &rule, &"-f", &format, &stage.path("trace.gpuwhy")]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    output
}

fn rows(stage: &Stage, rule: &str) -> Vec<Value> {
    let output = analyze(stage, rule, "json");
    if output.stdout.is_empty() { Vec::new() } else { serde_json::from_slice(&output.stdout).unwrap() }
}

fn pairs(database: &Connection, query: &str) -> Vec<(u64, u64)> {
    let mut statement = database.prepare(query).unwrap();
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
}

fn of(row: &Value, columns: [&str; 2]) -> (u64, u64) {
    let [first, second] = columns.map(|column| row[column].as_u64().unwrap_or_else(|| panic!("{column} in {row}")));
    (first, second)
}

#[test]
fn gaps_are_those_that_sql_finds() {
    let stage = play("copy_pageable");
    let database = database(&stage);
    let mut wanted = pairs(
        &database,
        "SELECT gap, until FROM (SELECT start - until AS gap, until FROM (SELECT start,
             max(end) OVER (ORDER BY start, end ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS until FROM work))
         WHERE gap >= 20000",
    );
    wanted.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    assert!(wanted.len() > 10, "{}", wanted.len());
    let found = rows(&stage, "gpu_gaps:gap=0.02:rows=-1");
    let ours: Vec<_> = found.iter().map(|row| of(row, ["Duration (ns)", "Start (ns)"])).collect();
    assert_eq!(ours, wanted);
    assert_eq!((&found[0]["Row#"], &found[0]["Context ID"]), (&Value::from(1), &Value::from(1)));
    // The longest ones, as many as requested.
    assert_eq!(rows(&stage, "gpu_gaps:gap=0.02:rows=3")[..], found[..3]);
}

#[test]
fn utilization_of_all_parts_is_the_time_in_which_anything_ran() {
    let stage = play("sync_item");
    let number = |row: &Value, column: &str| row[column].as_f64().unwrap();
    let parts = rows(&stage, "gpu_time_util:threshold=100:chunks=200:rows=-1");
    let device = &stage.report()["devices"][0];
    let idle: u64 = sum(&device["leaves"]) - busy(device);
    // Parts at 100 % are not in the table and have no idle time.
    let unused: f64 =
        parts.iter().map(|row| (100.0 - number(row, "In-Use (%)")) / 100.0 * number(row, "Duration (ns)")).sum();
    // Each share is rounded to a tenth of a percent.
    let rounding: f64 = parts.iter().map(|row| number(row, "Duration (ns)") * 0.0005).sum();
    assert!((unused - idle as f64).abs() <= rounding + 1.0, "{unused} {idle} {rounding}");

    let mut parts = rows(&stage, "gpu_time_util:threshold=48:chunks=200:rows=-1");
    assert!(parts.len() > 3, "{parts:?}");
    assert!(parts.is_sorted_by_key(|row| number(row, "In-Use (%)")) && number(&parts[0], "In-Use (%)") < 48.0);
    parts.sort_by_key(|row| row["Start (ns)"].as_u64());
    let touching = parts.windows(2).filter(|two| {
        number(&two[0], "Start (ns)") + number(&two[0], "Duration (ns)") >= number(&two[1], "Start (ns)")
    });
    assert_eq!(touching.count(), 0, "parts that follow one another are one row");
}

/// Time in which a device ran any work: the sum of the leaves of work.
fn busy(device: &Value) -> u64 {
    let leaves = device["leaves"].as_object().unwrap();
    let is_work = |name: &str| name.starts_with("copy_") || ["compute", "communication", "memset"].contains(&name);
    leaves.iter().filter(|(name, _)| is_work(name)).map(|(_, nanos)| nanos.as_u64().unwrap()).sum()
}

#[test]
fn idle_causes_sum_to_the_idle_time() {
    let stage = play("sync_item");
    let device = &stage.report()["devices"][0];
    let causes = rows(&stage, "gpu_idle_causes:rows=-1");
    let total: u64 = causes.iter().map(|row| row["Total Time (ns)"].as_u64().unwrap()).sum();
    assert_eq!(total, sum(&device["leaves"]) - busy(device));
    assert_eq!(causes[0]["Cause"], "sync_drain", "{causes:?}");
}

#[test]
fn copies_that_hold_the_host_are_those_that_sql_finds() {
    let stage = play("copy_pageable");
    let database = database(&stage);
    for (rule, condition) in [
        ("cuda_memcpy_async", "s.value LIKE '%Async%' AND (m.srcKind = 0 OR m.dstKind = 0)"),
        (
            "cuda_memcpy_sync",
            "s.value NOT LIKE '%Async%' AND m.copyKind <> 8 AND NOT (m.copyKind = 1 AND m.bytes <= 65536)",
        ),
    ] {
        let query = format!(
            "SELECT m.end - m.start, m.start FROM CUPTI_ACTIVITY_KIND_MEMCPY AS m
             JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS r USING (correlationId) JOIN StringIds AS s ON s.id = r.nameId
             WHERE {condition} ORDER BY 1 DESC, 2"
        );
        let ours: Vec<_> = rows(&stage, &format!("{rule}:rows=-1"))
            .iter()
            .map(|row| of(row, ["Duration (ns)", "Start (ns)"]))
            .collect();
        assert_eq!(ours, pairs(&database, &query), "{rule}");
    }
    let query =
        "SELECT r.end - r.start, r.start FROM CUPTI_ACTIVITY_KIND_RUNTIME AS r JOIN StringIds AS s ON s.id = r.nameId
         WHERE s.value LIKE 'cudaDeviceSynchronize%' OR s.value LIKE 'cudaStreamSynchronize%' ORDER BY 1 DESC, 2";
    let waits = rows(&stage, "cuda_api_sync:rows=-1");
    let ours: Vec<_> = waits.iter().map(|row| of(row, ["Duration (ns)", "Start (ns)"])).collect();
    assert!(!ours.is_empty());
    assert_eq!(ours, pairs(&database, query));
    assert!(waits[0]["API Name"].as_str().unwrap().contains("_v"), "with its version, as nsys has it: {}", waits[0]);
}

#[test]
fn a_rule_that_finds_nothing_says_so_to_people_only() {
    let stage = play("copy_pageable");
    let text = String::from_utf8(analyze(&stage, "cuda_memset_sync", "table").stdout).unwrap();
    assert!(text.contains("(cuda_memset_sync)") && text.contains("waited for no memset"), "{text}");
    assert!(analyze(&stage, "cuda_memset_sync", "csv").stdout.is_empty());
    let output = gpuwhy(&[&"query", &"gpu_gap", &stage.path("trace.gpuwhy")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("gpu_gaps"), "{}", stderr(&output));
}
