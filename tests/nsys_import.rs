//! SQLite files of Nsight Systems as input: our exports give the same report, and files of other versions are
//! read as far as possible.

use std::path::Path;
use std::process::Command;

use crate::support::{GPUWHY, Stage, report, stderr};
use rusqlite::Connection;
use serde_json::Value;

/// Fields of the process that such a file lacks. It has only the process id, the program's name, the host and
/// the gpuwhy version that recorded it.
const NOT_KEPT: [&str; 5] = ["parent_pid", "command", "driver_version", "driver_cuda_version", "cupti_version"];

/// Lists the differences of two documents. Fractions are summed in a different order, so sums may differ in
/// their last digits.
fn differences(path: &str, left: &Value, right: &Value, found: &mut Vec<String>) {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            for name in left.keys().chain(right.keys().filter(|name| !left.contains_key(*name))) {
                let null = Value::Null;
                let side = |object: &serde_json::Map<String, Value>| object.get(name).cloned().unwrap_or(null.clone());
                differences(&format!("{path}/{name}"), &side(left), &side(right), found);
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (number, (left, right)) in left.iter().zip(right).enumerate() {
                differences(&format!("{path}/{number}"), left, right, found);
            }
        }
        (Value::Number(a), Value::Number(b)) if a.is_f64() && b.is_f64() => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            if (a - b).abs() > 1e-12 * a.abs().max(b.abs()) {
                found.push(format!("{path}: {a} {b}"));
            }
        }
        _ if left == right => {}
        _ => found.push(format!("{path}: {left} {right}")),
    }
}

fn export(trace: &Path, out: &Path) {
    let output = Command::new(GPUWHY).args(["export", "--to", "sqlite", "-o"]).arg(out).arg(trace).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

fn assert_same_report(stage: &Stage) {
    let (trace, database) = (stage.path("trace.gpuwhy"), stage.path("trace.sqlite"));
    export(&trace, &database);
    let (_, mut before) = report(&trace);
    let (code, mut after) = report(&database);
    assert_eq!(code, 0);
    let notes = after["process"]["notes"].to_string();
    assert!(notes.contains("imported from") && notes.contains("gpuwhy"), "{notes}");
    for document in [&mut before, &mut after] {
        // Overhead of tracing.
        document.as_object_mut().unwrap().remove("cost");
        let process = document["process"].as_object_mut().unwrap();
        process.remove("notes");
        NOT_KEPT.iter().for_each(|name| drop(process.remove(*name)));
    }
    let mut found = Vec::new();
    differences("", &before, &after, &mut found);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn what_was_exported_comes_back_as_the_same_report() {
    for fixture in ["sync_item", "copy_pageable", "graph_torch", "resnet_workers0"] {
        let stage = Stage::new();
        assert!(stage.host(fixture).status().unwrap().success(), "{fixture}");
        assert_same_report(&stage);
    }
}

#[test]
fn ranges_come_back_with_their_domains_and_nesting() {
    let stage = Stage::new();
    assert!(stage.host("multi_stream").args(["--ranges", "after"]).status().unwrap().success());
    assert_same_report(&stage);
    let (_, document) = report(&stage.path("trace.sqlite"));
    let rows = document["ranges"]["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["domain"] == "worker" && row["message"] == "compute"));
}

#[test]
fn every_command_takes_such_a_file() {
    let stage = Stage::new();
    assert!(stage.host("sync_item").status().unwrap().success());
    let (trace, database) = (stage.path("trace.gpuwhy"), stage.path("trace.sqlite"));
    export(&trace, &database);
    let stats = |file: &Path| {
        let output = Command::new(GPUWHY).args(["query", "cuda_gpu_trace", "-f", "csv"]).arg(file).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        output.stdout
    };
    assert_eq!(stats(&trace), stats(&database));
    let again = stage.path("again.sqlite");
    export(&database, &again);
    assert_eq!(stats(&trace), stats(&again));
    let output = Command::new(GPUWHY).arg("diff").args([&trace, &database]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

/// A file as an older version might write it: without most columns, and with two processes.
fn old_file(path: &Path) {
    let database = Connection::open(path).unwrap();
    let (one, other) = ((1i64 << 48) | (100 << 24), (1i64 << 48) | (200 << 24));
    database
        .execute_batch(&format!(
            "CREATE TABLE StringIds (id INTEGER, value TEXT);
             INSERT INTO StringIds VALUES (1, 'gemm(float*)'), (2, 'cudaLaunchKernel_v7000');
             CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
                 correlationId INTEGER, globalPid INTEGER, demangledName INTEGER);
             INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100, 200, 0, 7, 1, {one}, 1), (300, 450, 0, 7, 2, {one}, 1),
                 (100, 900, 0, 7, 1, {other}, 99);
             CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER,
                 globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER);
             INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (50, 60, 0, {one} + 5, 1, 2, 0),
                 (250, 260, 0, {one} + 5, 2, 2, 0), (50, 60, 0, {other} + 9, 1, 2, 0);"
        ))
        .unwrap();
}

#[test]
fn a_file_of_an_older_version_is_read_as_far_as_it_goes() {
    let stage = Stage::new();
    let path = stage.path("old.sqlite");
    old_file(&path);
    let (code, document) = report(&path);
    assert_eq!(code, 0);
    assert_eq!(document["process"]["pid"], 100, "the one with more kernels");
    let notes = document["process"]["notes"].to_string();
    for said in [
        "other processes in the file are left out (--pid chooses one): 200 (unnamed, 1 operation on GPU 0)",
        "when tracing began",
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        "NVTX_EVENTS",
    ] {
        assert!(notes.contains(said), "{said}: {notes}");
    }
    let kernels = &document["devices"][0]["kernels"][0];
    assert_eq!((&kernels["name"], &kernels["total_ns"]), (&Value::from("gemm(float*)"), &Value::from(250)));
    assert_eq!(document["completeness"]["activities_without_launch"], 0);
    assert_eq!(document["api"][0]["name"], "cudaLaunchKernel");
}

/// Adds a second process to the export of a recorded session: a copy of the first, a millisecond later.
fn two_processes(path: &Path) -> i64 {
    let database = Connection::open(path).unwrap();
    let first: i64 = database.query_row("SELECT globalPid FROM PROCESSES", [], |row| row.get(0)).unwrap();
    let second = (first >> 48 << 48) | (4_000_000 << 24);
    let moved = second - first;
    for (table, thread) in [
        ("CUPTI_ACTIVITY_KIND_KERNEL", "globalPid"),
        ("CUPTI_ACTIVITY_KIND_MEMCPY", "globalPid"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid"),
    ] {
        database
            .execute_batch(&format!(
                "CREATE TEMP TABLE copied AS SELECT * FROM {table};
                 UPDATE copied SET start = start + 1000000, end = end + 1000000, {thread} = {thread} + {moved};
                 INSERT INTO {table} SELECT * FROM copied; DROP TABLE copied;"
            ))
            .unwrap();
    }
    // Remove one kernel, so that the first process has more device work.
    database
        .execute_batch(&format!(
            "INSERT INTO PROCESSES (globalPid, pid, name) VALUES ({second}, 4000000, 'evaluate');
             DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid = (SELECT max(rowid) FROM CUPTI_ACTIVITY_KIND_KERNEL);"
        ))
        .unwrap();
    first >> 24 & 0xff_ffff
}

#[test]
fn of_several_processes_one_is_read_and_others_can_be_chosen() {
    let stage = Stage::new();
    assert!(stage.host("copy_pageable").status().unwrap().success());
    let (trace, database) = (stage.path("trace.gpuwhy"), stage.path("two.sqlite"));
    export(&trace, &database);
    let first = two_processes(&database);
    let kernels = |document: &Value| document["completeness"]["records"]["kernels"].as_u64().unwrap();
    let (_, alone) = report(&trace);
    let (code, newest) = report(&database);
    assert_eq!((code, &newest["process"]["pid"]), (0, &Value::from(first)));
    assert_eq!(kernels(&newest), kernels(&alone), "none of the other's");
    assert!(newest["process"]["notes"].to_string().contains("4000000 (evaluate, "), "{}", newest["process"]["notes"]);

    let gpuwhy = |arguments: &[&str]| Command::new(GPUWHY).args(arguments).arg(&database).output().unwrap();
    let output = gpuwhy(&["report", "--json", "--pid", "4000000"]);
    let other: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&other["process"]["pid"], &other["process"]["command"][0]), (&4_000_000.into(), &"evaluate".into()));
    assert_eq!(kernels(&other), kernels(&alone) - 1);
    assert_eq!(other["completeness"]["activities_without_launch"], 0);
    let output = gpuwhy(&["query", "cuda_api_trace", "--pid", "4000000", "-f", "json"]);
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert!(!rows.is_empty() && rows.iter().all(|row| row["Pid"] == 4_000_000), "{}", stderr(&output));

    let output = gpuwhy(&["query", "stats", "--pid", "77"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains(&format!("no process 77 in this file, but {first} (")), "{}", stderr(&output));
    let output = Command::new(GPUWHY).args(["report", "--pid", "77"]).arg(&trace).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("files of Nsight Systems and torch.profiler; this file has only one"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_database_of_something_else_is_refused_by_name() {
    let stage = Stage::new();
    let path = stage.path("mail.sqlite");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE inbox (subject TEXT);").unwrap();
    for command in [&["report"][..], &["query", "stats"], &["export", "--to", "json"]] {
        let output = Command::new(GPUWHY).args(command).arg(&path).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{command:?}");
        let said = stderr(&output);
        assert!(said.contains("mail.sqlite") && said.contains("StringIds"), "{said}");
    }
}

#[test]
fn a_view_in_the_place_of_a_table_is_refused() {
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT";
    for (table, view) in [
        ("StringIds", format!("CREATE VIEW StringIds AS {endless} i AS id, 'x' AS value FROM n")),
        (
            "CUPTI_ACTIVITY_KIND_KERNEL",
            format!(
                "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS {endless} i AS start, i + 1 AS end, 0 AS deviceId FROM n"
            ),
        ),
    ] {
        let stage = Stage::new();
        let path = stage.path("old.sqlite");
        old_file(&path);
        Connection::open(&path).unwrap().execute_batch(&format!("DROP TABLE {table}; {view};")).unwrap();
        let output = Command::new(GPUWHY).args(["query", "stats"]).arg(&path).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(&format!("{table} is a view")), "{}", stderr(&output));
    }
}

#[test]
fn a_view_beside_the_tables_is_nobodys_business() {
    let stage = Stage::new();
    let path = stage.path("old.sqlite");
    old_file(&path);
    Connection::open(&path).unwrap().execute_batch("CREATE VIEW mine AS SELECT * FROM StringIds").unwrap();
    assert_eq!(report(&path).0, 0);
}

#[test]
fn a_file_in_wal_mode_is_read_and_nothing_is_left_beside_it() {
    let stage = Stage::new();
    let path = stage.path("old.sqlite");
    old_file(&path);
    Connection::open(&path).unwrap().query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
    let files = || std::fs::read_dir(path.parent().unwrap()).unwrap().count();
    let before = files();
    assert_eq!(report(&path).0, 0);
    assert_eq!(files(), before);
    std::fs::write(stage.path("old.sqlite-wal"), "not brought in").unwrap();
    let (code, document) = report(&path);
    assert_eq!(code, 0);
    assert!(document["process"]["notes"].to_string().contains("old.sqlite-wal are not read"), "{document}");
}

#[test]
fn numbers_that_cannot_be_are_counted() {
    let stage = Stage::new();
    let path = stage.path("old.sqlite");
    old_file(&path);
    let database = Connection::open(&path).unwrap();
    database
        .execute_batch(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, bytes INTEGER,
                 copyKind INTEGER, correlationId INTEGER);
             INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (100, 200, 0, -1, 1, 3), (300, 400, 4294967296, 5, 1, 4),
                 (500, 600, 0, 7, 1, 5);",
        )
        .unwrap();
    let (_, document) = report(&path);
    let notes = document["process"]["notes"].to_string();
    assert!(notes.contains("2 rows of CUPTI_ACTIVITY_KIND_MEMCPY with a negative size"), "{notes}");
    let output = Command::new(GPUWHY).args(["query", "-f", "csv"]).arg(&path).arg("SELECT bytes FROM copies").output();
    assert_eq!(String::from_utf8(output.unwrap().stdout).unwrap(), "bytes\n0\n5\n7\n");
}
