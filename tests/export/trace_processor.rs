//! Perfetto's own trace processor, as WebAssembly from the npm registry, loads the exports without errors,
//! and its SQL returns our counts and sums.
//!
//! Needs Node.js, npm and the registry; without them the tests print `SKIPPED` and the reason.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::{TraceReader, TraceWriter};
use gpuwhy_trace::record::{Record, Timestamp};
use serde_json::{Value, json};

use super::{gpuwhy, play, play_rank};
use crate::support::{Stage, stderr};

/// The unpacked package, or the reason why there is none.
fn package() -> Result<&'static Path, &'static str> {
    static PACKAGE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    PACKAGE.get_or_init(unpacked).as_deref().map_err(String::as_str)
}

/// Unpacks only the package itself: the engine does not need its dependencies.
fn unpacked() -> Result<PathBuf, String> {
    let wanted: Value = serde_json::from_str(include_str!("trace_processor/package.json")).unwrap();
    let (name, version) = wanted["dependencies"].as_object().unwrap().iter().next().unwrap();
    let package = format!("{name}@{}", version.as_str().unwrap());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("trace_processor");
    let made = folder.join("made-from.txt");
    if fs::read_to_string(&made).is_ok_and(|made| made == package) {
        return Ok(folder.join("package"));
    }
    fs::create_dir_all(&folder).unwrap();
    let packed = done(Command::new("npm").args(["pack", "--silent", &package]).current_dir(&folder))?;
    let archive = packed.lines().last().unwrap_or_default().to_owned();
    let assets = "package/assets/trace-processor";
    done(Command::new("tar").args(["-xzf", &archive, assets]).current_dir(&folder))?;
    fs::remove_file(folder.join(archive)).unwrap();
    fs::write(made, package).unwrap();
    Ok(folder.join("package"))
}

fn done(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(stderr(&output).lines().last().unwrap_or("failed").to_owned()),
    }
}

/// Rows of each query; `None` when no trace processor is available.
fn asked(trace: &Path, queries: &[&str]) -> Option<Vec<Value>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/export/trace_processor/ask.mjs");
    let node = Command::new("node").arg("--version").output();
    let package = package().map_err(str::to_owned).and_then(|package| node.map(|_| package).map_err(|e| e.to_string()));
    let package = match package {
        Ok(package) => package,
        Err(reason) => {
            println!("SKIPPED: no trace processor: {reason}");
            return None;
        }
    };
    let output = Command::new("node").arg(script).arg(package).arg(trace).args(queries).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["errors"], json!([]), "{}", trace.display());
    Some(found["answers"].as_array().unwrap().clone())
}

/// Count and total time of the kernels of a trace, by our own query.
fn kernels(trace: &Path) -> [u64; 2] {
    let sql = "SELECT count(*) AS n, sum(duration_ns) AS ns FROM kernels";
    let output = gpuwhy(&[&"query", &"-f", &"json", &trace, &sql]);
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    ["n", "ns"].map(|column| rows[0][column].as_u64().unwrap())
}

/// The trace with every kernel 50 % longer, so that it overlaps the next one of its stream.
fn overlapping(stage: &Stage) -> PathBuf {
    let mut reader = TraceReader::new(File::open(stage.path("trace.gpuwhy")).unwrap()).unwrap();
    let mut items = Vec::new();
    while let Some(item) = reader.next_event().unwrap() {
        items.push(item);
    }
    let (session, dictionary, _) = reader.into_parts();
    let path = stage.path("overlapping.gpuwhy");
    let mut writer = TraceWriter::new(File::create(&path).unwrap(), &session).unwrap();
    for mut item in items {
        if let Event::Record(Record::Kernel(kernel)) = &mut item {
            let longer = kernel.end.since(kernel.start) / 2;
            kernel.end = Timestamp::from_nanos(kernel.end.nanos() + longer);
        }
        if matches!(item, Event::Record(_) | Event::End(..)) {
            writer.event(&item, &dictionary).unwrap();
        }
    }
    writer.close(&dictionary).unwrap();
    path
}

const KERNELS: &str = "SELECT count(*) AS n, sum(dur) AS ns FROM slice WHERE category = 'kernel'";

#[test]
fn kernels_that_overlap_on_a_stream_and_two_processes_in_a_file_are_whole() {
    let stage = play("gpt");
    let trace = overlapping(&stage);
    let sql = "SELECT count(*) AS n FROM (SELECT end_ns > lead(start_ns) OVER (PARTITION BY stream ORDER BY start_ns) AS o FROM kernels) WHERE o";
    let output = gpuwhy(&[&"query", &"-f", &"csv", &trace, &sql]);
    let overlaps: u64 = String::from_utf8_lossy(&output.stdout).lines().last().unwrap().parse().unwrap();
    assert!(overlaps > 100, "{overlaps}");
    let out = stage.path("overlapping.perfetto-trace");
    assert_eq!(gpuwhy(&[&"export", &"--to", &"perfetto", &trace, &"-o", &out]).status.code(), Some(0));
    let Some(found) = asked(&out, &[KERNELS]) else { return };
    let [n, ns] = kernels(&trace);
    assert_eq!(found[0], json!([{"n": n, "ns": ns}]));

    let ranks = Stage::new();
    play_rank(&ranks, "multi_stream", 0);
    play_rank(&ranks, "sync_item", 1);
    let merged = ranks.path("merged.perfetto-trace");
    let output = gpuwhy(&[&"merge", &ranks.folder.path(), &"-o", &merged]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let by_rank = "SELECT substr(p.name, 1, 6) AS rank, count(*) AS n, sum(s.dur) AS ns
                   FROM slice s JOIN track t ON s.track_id = t.id JOIN track p ON t.parent_id = p.id
                   WHERE s.category = 'kernel' GROUP BY 1 ORDER BY 1";
    let processes = "SELECT count(DISTINCT pid) AS n FROM process WHERE name LIKE 'rank _: %'";
    let flows = "SELECT count(*) AS n FROM flow f JOIN slice a ON f.slice_out = a.id JOIN slice b ON f.slice_in = b.id
                 WHERE a.category LIKE 'cuda%' AND b.category IN ('kernel', 'copy', 'memset')";
    let Some(found) = asked(&merged, &[by_rank, processes, flows, "SELECT count(*) AS n FROM flow"]) else { return };
    let row = |rank: u32| {
        let [n, ns] = kernels(&ranks.path(&format!("rank{rank}.gpuwhy")));
        json!({"rank": format!("rank {rank}"), "n": n, "ns": ns})
    };
    assert_eq!(found[0], json!([row(0), row(1)]));
    assert_eq!(found[1], json!([{"n": 2}]));
    assert!(found[2] == found[3] && found[2][0]["n"].as_u64().unwrap() > 0, "every arrow joins a call and its work");
}

#[test]
fn the_json_is_loaded_with_every_row_and_arrow() {
    // The kernels of the graph overlap on one stream.
    for fixture in ["graph_torch", "sync_item"] {
        let stage = play(fixture);
        let (trace, out) = (stage.path("trace.gpuwhy"), stage.path("trace.json"));
        assert_eq!(gpuwhy(&[&"export", &"--to", &"chrome", &trace, &"-o", &out]).status.code(), Some(0));
        let Some(found) = asked(&out, &[KERNELS, "SELECT count(*) AS n FROM flow"]) else { return };
        let [n, ns] = kernels(&trace);
        assert_eq!(found[0], json!([{"n": n, "ns": ns}]), "{fixture}");
        let text = fs::read_to_string(&out).unwrap();
        assert_eq!(found[1][0]["n"], text.matches(r#""ph": "s""#).count(), "{fixture}");
    }
}
