//! The SQLite file: sums by SQL over nsys's tables are those of `gpuwhy query`, and every reference is valid.

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use super::{gpuwhy, play};
use crate::support::{Stage, stderr};

fn export(stage: &Stage) -> Connection {
    let (trace, out) = (stage.path("trace.gpuwhy"), stage.path("out.sqlite"));
    let output = gpuwhy(&[&"export", &"--to", &"sqlite", &trace, &"-o", &out]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    Connection::open_with_flags(out, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
}

fn table(stage: &Stage, name: &str) -> Vec<Value> {
    let trace = stage.path("trace.gpuwhy");
    let output = gpuwhy(&[&"query", &name, &"-f", &"json", &trace]);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Name, rows and total time, as in a script of an nsys user.
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
    // nsys keeps the version suffix in the table and removes it in the report.
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
    // The upper bits of a thread id are the process id.
    let foreign = "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME
         WHERE (globalTid >> 24) & 0xffffff NOT IN (SELECT pid FROM PROCESSES)";
    assert_eq!(number(foreign), 0);
    // Tables for kinds that were not traced do not exist: nsys's reports treat an existing table as data.
    let synchronizations = "SELECT count(*) FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_SYNCHRONIZATION'";
    assert_eq!(number(synchronizations), 0);
    assert_eq!(number("SELECT count(*) FROM NVTX_EVENTS"), 0);
}

/// Ranges, and the kernels whose launching calls lie in them, in SQL as an nsys user would write it.
const LAUNCHED_WITHIN: &str = "FROM NVTX_EVENTS AS n
    JOIN StringIds AS t ON t.id = n.textId
    JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS r ON r.globalTid = n.globalTid AND r.start >= n.start AND r.end <= n.end
    JOIN CUPTI_ACTIVITY_KIND_KERNEL AS k ON k.correlationId = r.correlationId
    WHERE n.eventType IN (59, 60)";

#[test]
fn ranges_project_as_sql_over_the_tables_says() {
    let stage = play("multi_stream");
    drop(export(&stage));
    let path = stage.path("out.sqlite");
    let database = Connection::open(&path).unwrap();
    // The recording has no ranges: nested and overlapping ones are added around its calls.
    database
        .execute_batch(
            "INSERT INTO StringIds VALUES (99000001, 'outer'), (99000002, 'inner');
             CREATE TEMP TABLE calls AS SELECT globalTid, start, end, row_number() OVER (ORDER BY start) AS n
                 FROM CUPTI_ACTIVITY_KIND_RUNTIME;
             INSERT INTO NVTX_EVENTS (start, end, eventType, globalTid, textId, domainId)
                 SELECT min(start) - 2, max(end) + 2, 59, globalTid, 99000001, 0 FROM calls GROUP BY globalTid, n / 400;
             INSERT INTO NVTX_EVENTS (start, end, eventType, globalTid, textId, domainId)
                 SELECT min(start) - 1, max(end) + 1, 59, globalTid, 99000002, 0 FROM calls
                 WHERE n % 400 BETWEEN 20 AND 379 GROUP BY globalTid, n / 40;
             INSERT INTO NVTX_EVENTS (start, end, eventType, rangeId, globalTid, textId, domainId)
                 SELECT start - 1, end + 1, 60, n, globalTid, 99000002, 0 FROM calls WHERE n % 7 = 0;",
        )
        .unwrap();
    let rows = |report: &str| -> Vec<Value> {
        let output = gpuwhy(&[&"query", &report, &"-f", &"json", &path]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let query = format!(
        "SELECT ':' || value || kind, count(*), sum(last - first) FROM
             (SELECT t.value, n.eventType AS kind, min(k.start) AS first, max(k.end) AS last {LAUNCHED_WITHIN}
              GROUP BY n.rowid) GROUP BY 1 ORDER BY 3 DESC"
    );
    let kind = |row: &Value| if row["Style"] == "PushPop" { 59 } else { 60 };
    let number = |row: &Value, column: &str| row[column].as_u64().unwrap();
    // The query ignores copies, so the ranges that are compared may contain only kernels.
    database
        .execute_batch(
            "DROP TABLE IF EXISTS CUPTI_ACTIVITY_KIND_MEMCPY; DROP TABLE IF EXISTS CUPTI_ACTIVITY_KIND_MEMSET",
        )
        .unwrap();
    let ours: Vec<_> = rows("nvtx_gpu_proj_sum")
        .iter()
        .map(|row| {
            let name = format!("{}{}", row["Range"].as_str().unwrap(), kind(row));
            (name, number(row, "Range Instances"), number(row, "Total Proj Time (ns)"))
        })
        .collect();
    assert_eq!(ours.len(), 3, "{ours:?}");
    assert_eq!(ours, sums(&database, &query));
    let trace = rows("nvtx_gpu_proj_trace");
    assert_eq!(trace.len() as u64, ours.iter().map(|row| row.1).sum::<u64>());

    let query = format!(
        "SELECT ':' || t.value || n.eventType || k.demangledName, count(*), sum(k.end - k.start) {LAUNCHED_WITHIN}
         GROUP BY n.textId, n.eventType, n.globalTid, k.demangledName"
    );
    let mut wanted: Vec<(u64, u64)> =
        sums(&database, &query).into_iter().map(|(_, count, total)| (total, count)).collect();
    wanted.sort_unstable_by(|a, b| b.cmp(a));
    let kernels = rows("nvtx_kern_sum");
    assert!(kernels.is_sorted_by_key(|row| row["NVTX Range"].as_str()));
    let (outside, within): (Vec<_>, Vec<_>) = kernels.iter().partition(|row| row["NVTX Range"].is_null());
    let launched: u64 = outside.iter().map(|row| number(row, "Kern Inst")).sum();
    let query = "SELECT '', count(*), 0 FROM CUPTI_ACTIVITY_KIND_KERNEL AS k
                 JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS r USING (correlationId)
                 WHERE NOT EXISTS (SELECT 1 FROM NVTX_EVENTS AS n WHERE n.eventType IN (59, 60)
                     AND n.globalTid = r.globalTid AND n.start <= r.start AND n.end >= r.end)";
    assert_eq!(launched, sums(&database, query)[0].1, "in no range");
    let mut ours: Vec<_> =
        within.iter().map(|row| (number(row, "Total Time (ns)"), number(row, "Kern Inst"))).collect();
    ours.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(ours, wanted);

    let pushed = rows("nvtx_pushpop_trace");
    for row in pushed.iter().filter(|row| row["Lvl"] == 1) {
        assert_eq!(row["Name"], ":inner");
        assert_eq!(row["NameTree"], "--:inner");
        assert_eq!(row["RangeStack"], format!(":{}:{}", row["ParentId"], row["RangeId"]));
    }
    let outer = pushed.iter().find(|row| row["Lvl"] == 0 && row["NumChild"] != 0).unwrap();
    assert_eq!(number(outer, "DurChild (ns)") + number(outer, "DurNonChild (ns)"), number(outer, "Duration (ns)"));
}
