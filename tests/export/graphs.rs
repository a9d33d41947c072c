//! Operations of CUDA graphs in every format: the place that captured them, in traces of real programs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde_json::Value;

use super::{gpuwhy, rows};
use crate::support::{report, stderr};

const INFERENCE: &str = "traces/graph_inference";
const TRACES: [&str; 3] = [INFERENCE, "traces/graph_compiled", "graphs/training"];

/// Device work with its place, its last end before, and the call before.
const WORK: &str = "WITH work AS (
    SELECT start_ns, end_ns, correlation, captured_at, module, parent, operators, graph_node FROM kernels
    UNION ALL SELECT start_ns, end_ns, correlation, captured_at, module, parent, operators, graph_node FROM copies
    UNION ALL SELECT start_ns, end_ns, correlation, captured_at, module, parent, operators, graph_node FROM memsets),
  ordered AS (SELECT *, lag(correlation) OVER (ORDER BY start_ns) AS previous,
    max(end_ns) OVER (ORDER BY start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS free_ns FROM work)";

fn trace(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testing/fixtures/{name}.gpuwhy"))
}

fn query(sql: &str, name: &str) -> Vec<Value> {
    let output = gpuwhy(&[&"query", &sql, &"-f", &"json", &trace(name)]);
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn exported(name: &str, format: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let output = gpuwhy(&[&"export", &"--to", &format, &trace(name), &"-o", &out]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    (folder, out)
}

#[test]
fn sums_and_gaps_by_module_in_sql_are_those_of_the_report() {
    let sql = format!(
        "{WORK} SELECT module, parent, operators, captured_at IS NOT NULL AS placed, count(*) AS count,
           sum(end_ns - start_ns) AS total_ns, sum(correlation = previous AND start_ns > free_ns) AS idle_before_count,
           sum(CASE WHEN correlation = previous AND start_ns > free_ns THEN start_ns - free_ns ELSE 0 END) AS idle_before_ns
         FROM ordered WHERE graph_node IS NOT NULL GROUP BY 1, 2, 3, 4"
    );
    for name in TRACES {
        let origins = &report(&trace(name)).1["graph_origins"];
        let key = |row: &Value| ["parent", "module", "operators"].map(|part| row[part].to_string());
        let sums = |row: &Value| {
            ["count", "total_ns", "idle_before_count", "idle_before_ns"].map(|sum| row[sum].as_u64().unwrap())
        };
        let (placed, unplaced): (Vec<Value>, Vec<Value>) =
            query(&sql, name).into_iter().partition(|row| row["placed"] == 1);
        let ours: BTreeMap<_, _> = placed.iter().map(|row| (key(row), sums(row))).collect();
        let modules = origins["modules"].as_array().unwrap();
        assert_eq!(ours, modules.iter().map(|row| (key(row), sums(row))).collect(), "{name}");
        assert!(modules.iter().any(|row| row["idle_before_ns"].as_u64() > Some(0)), "{name}");
        let idle: u64 = unplaced.iter().map(|row| row["idle_before_ns"].as_u64().unwrap()).sum();
        assert_eq!(origins["unplaced_idle_before_ns"], idle, "{name}");
    }
}

/// Kernels that only one line of the program launches, with the place that captured them.
const KNOWN: [(&str, &str, &str, &str); 3] = [
    ("silu_kernel", "/tmp/app/graph_modules.py:38 in GatedMlp.forward", "GatedMlp", "Layer"),
    ("cudnn_generated_fort_native_sdpa", "/tmp/app/graph_modules.py:27 in Attention.forward", "Attention", "Layer"),
    ("256x128_64x4_1x2_h_bz_coopA_TNT", "/tmp/app/graph_modules.py:60 in Decoder.forward", "Linear", "Decoder"),
];

#[test]
fn kernels_have_the_line_and_the_module_that_captured_them() {
    for (kernel, at, module, parent) in KNOWN {
        let sql = format!(
            "SELECT graph_node IS NOT NULL AS replayed, captured_at, module, parent, count(*) AS count FROM kernels
             WHERE name LIKE '%{kernel}%' GROUP BY 1, 2, 3, 4 ORDER BY 1"
        );
        let rows = query(&sql, INFERENCE);
        let [eager, replayed] = &rows[..] else { panic!("{kernel}: {rows:?}") };
        assert_eq!(
            (&eager["replayed"], &eager["captured_at"], &eager["module"]),
            (&0.into(), &Value::Null, &Value::Null)
        );
        let place = ["captured_at", "module", "parent"].map(|part| replayed[part].as_str().unwrap());
        assert_eq!(place, [at, module, parent]);
        assert_eq!(replayed["count"].as_u64().unwrap() % 60, 0, "{replayed}");
    }
}

#[test]
fn other_formats_carry_the_same_places() {
    let (_folder, path) = exported(INFERENCE, "chrome");
    let document: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let (_sqlite, path) = exported(INFERENCE, "sqlite");
    let database = Connection::open(path).unwrap();
    let (_perfetto, path) = exported(INFERENCE, "perfetto");
    let perfetto = String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
    let (_json, path) = exported(INFERENCE, "json");
    let lines = std::fs::read_to_string(path).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (kernel, at, module, parent) in KNOWN {
        let named = |row: &&Value| row["name"].as_str().is_some_and(|name| name.contains(kernel));
        for row in rows(&document, "kernel").filter(named) {
            let of = &row["args"];
            match of["graph node id"].is_u64() {
                true => assert_eq!([&of["captured at"], &of["module"], &of["parent"]], [at, module, parent]),
                false => assert!(of["captured at"].is_null() && of["module"].is_null()),
            }
        }
        for row in lines.iter().filter(|row| row["table"] == "kernels").filter(named) {
            match row["graph_node"].is_u64() {
                true => assert_eq!([&row["captured_at"], &row["module"], &row["parent"]], [at, module, parent]),
                false => assert!(row["captured_at"].is_null() && row["module"].is_null()),
            }
        }
        let sql =
            "SELECT count(*), sum(a.value = ?2 AND m.value = ?3 AND p.value = ?4) FROM CUPTI_ACTIVITY_KIND_KERNEL AS k
            JOIN StringIds AS n ON n.id = k.demangledName LEFT JOIN StringIds AS a ON a.id = k.capturedAt
            LEFT JOIN StringIds AS m ON m.id = k.module LEFT JOIN StringIds AS p ON p.id = k.parentModule
            WHERE k.graphNodeId IS NOT NULL AND n.value LIKE '%' || ?1 || '%'";
        let (all, right): (u64, u64) =
            database.query_row(sql, [kernel, at, module, parent], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert!(all > 0 && all == right, "{kernel}: {right} of {all}");
        assert!(perfetto.contains(at), "{at}");
    }
    let unknown =
        "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE graphNodeId IS NULL AND capturedAt IS NOT NULL";
    assert_eq!(database.query_row(unknown, [], |row| row.get::<_, u64>(0)).unwrap(), 0);
}

#[test]
fn what_only_a_thread_captured_has_no_place() {
    let sql = "SELECT captured_at IS NULL AS unplaced, count(*) AS count FROM
        (SELECT captured_at, graph_node FROM kernels UNION ALL SELECT captured_at, graph_node FROM copies
         UNION ALL SELECT captured_at, graph_node FROM memsets) WHERE graph_node IS NOT NULL GROUP BY 1 ORDER BY 1";
    let counts: Vec<_> = query(sql, "graphs/training").iter().map(|row| row["count"].as_u64().unwrap()).collect();
    assert_eq!(counts, [5_280, 9_300]);
}
