//! The SQLite file: sums by SQL over nsys's tables are the sums of `gpuprof stats`, and everything refers to something.

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use crate::support::{Stage, stderr};
use crate::{gpuprof, play};

fn export(stage: &Stage) -> Connection {
    let (trace, out) = (stage.path("trace.gpuprof"), stage.path("out.sqlite"));
    let output = gpuprof(&[&"export", &"--to", &"sqlite", &trace, &"-o", &out]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    Connection::open_with_flags(out, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
}

fn table(stage: &Stage, name: &str) -> Vec<Value> {
    let trace = stage.path("trace.gpuprof");
    let output = gpuprof(&[&"stats", &"-r", &name, &"-f", &"json", &trace]);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Name, rows and total time, as a script of an nsys user would ask.
fn sums(database: &Connection, query: &str) -> Vec<(String, u64, u64)> {
    let mut statement = database.prepare(query).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn sql_over_the_tables_of_nsys_gives_the_statistics() {
    let stage = play("sync_item");
    let database = export(&stage);
    for (report, query, name, count) in [
        (
            "cuda_gpu_kern_sum",
            "SELECT s.value, count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL AS k
             JOIN StringIds AS s ON s.id = k.demangledName GROUP BY s.value ORDER BY 3 DESC",
            "Name",
            "Instances",
        ),
        (
            "cuda_gpu_mem_time_sum",
            "SELECT '[CUDA memcpy ' || e.label || ']', count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_MEMCPY AS m
             JOIN ENUM_CUDA_MEMCPY_OPER AS e ON e.id = m.copyKind GROUP BY 1 ORDER BY 3 DESC",
            "Operation",
            "Count",
        ),
    ] {
        let ours = table(&stage, report).into_iter().map(|row| {
            let text = row[name].as_str().unwrap().to_owned();
            (text, row[count].as_u64().unwrap(), row["Total Time (ns)"].as_u64().unwrap())
        });
        assert_eq!(sums(&database, query), ours.collect::<Vec<_>>(), "{report}");
    }
    // nsys keeps the version suffix in the table and cuts it off in the report.
    let calls = sums(
        &database,
        "SELECT s.value, count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_RUNTIME AS r
         JOIN StringIds AS s ON s.id = r.nameId GROUP BY s.value ORDER BY 3 DESC",
    );
    let ours = table(&stage, "cuda_api_sum");
    assert_eq!(calls.len(), ours.len());
    for ((name, count, total), row) in calls.iter().zip(&ours) {
        assert!(name.starts_with(row["Name"].as_str().unwrap()), "{name} {row}");
        assert_eq!((&row["Num Calls"], &row["Total Time (ns)"]), (&Value::from(*count), &Value::from(*total)));
    }
}

#[test]
fn every_reference_leads_somewhere() {
    let stage = play("graph_torch");
    let database = export(&stage);
    let number = |query: &str| -> u64 { database.query_row(query, [], |row| row.get(0)).unwrap() };
    let lost = "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL
         WHERE demangledName NOT IN (SELECT id FROM StringIds) OR shortName NOT IN (SELECT id FROM StringIds)
            OR mangledName NOT IN (SELECT id FROM StringIds)
            OR globalPid NOT IN (SELECT globalPid FROM PROCESSES)
            OR deviceId NOT IN (SELECT cudaId FROM TARGET_INFO_CUDA_DEVICE)";
    assert_eq!(number(lost), 0);
    assert_eq!(
        number("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE nameId NOT IN (SELECT id FROM StringIds)"),
        0
    );
    assert!(number("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE graphNodeId IS NOT NULL") > 0);
    assert_eq!(number("SELECT count(*) FROM TARGET_INFO_GPU WHERE name = 'NVIDIA H200' AND smCount = 132"), 1);
    // The process in the upper bits of a thread is the process.
    let foreign = "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME
         WHERE (globalTid >> 24) & 0xffffff NOT IN (SELECT pid FROM PROCESSES)";
    assert_eq!(number(foreign), 0);
    // Tables of what was not traced do not exist: nsys's reports take their existence for data.
    let synchronisations = "SELECT count(*) FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_SYNCHRONIZATION'";
    assert_eq!(number(synchronisations), 0);
    assert_eq!(number("SELECT count(*) FROM NVTX_EVENTS"), 0);
}
