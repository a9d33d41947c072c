//! A lake of recorded sessions: it has the data of the added traces, and recipes give the same result for
//! both.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gpuwhy_export::lake::visit;
use gpuwhy_export::tables::Cell;
use serde_json::{Value, json};

use super::{gpuwhy, play_rank};
use crate::support::{GPUWHY, Stage, stderr};

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() { found.extend(files(&entry)) } else { found.push(entry) }
    }
    found.sort();
    found
}

/// Result for a lake, or for traces as the run `job`.
fn asked(recipe: &str, place: &Path) -> Vec<Value> {
    let mut arguments: Vec<&dyn AsRef<OsStr>> = vec![&"query", &recipe, &place, &"--json"];
    if !place.join("processes").exists() {
        arguments.extend([&"--run" as &dyn AsRef<OsStr>, &"job"]);
    }
    let output = gpuwhy(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn recipes_answer_the_same_from_traces_from_a_lake_and_after_compaction() {
    let ranks = Stage::new();
    play_rank(&ranks, "multi_stream", 0);
    play_rank(&ranks, "sync_item", 1);
    let lake = ranks.path("lake");
    // One node after the other.
    for rank in ["rank0.gpuwhy", "rank1.gpuwhy"] {
        let trace = ranks.path(rank);
        let output = gpuwhy(&[&"lake", &"add", &"--tier", &"full", &"--run", &"job", &trace, &"--to", &lake]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let before = files(&lake);
    let recipes = ["waste", "causes", "kernels", "copies", "calls", "imbalance", "runs", "loss"];
    let answers: Vec<_> = recipes.iter().map(|recipe| asked(recipe, &lake)).collect();
    for (recipe, answer) in recipes.iter().zip(&answers) {
        assert!(*recipe == "loss" || !answer.is_empty(), "{recipe}");
        assert_eq!(*answer, asked(recipe, ranks.folder.path()), "{recipe}");
    }
    let output = gpuwhy(&[&"lake", &"compact", &lake]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let after = files(&lake);
    assert!(after.len() < before.len(), "{after:?}");
    assert!(after.iter().all(|file| file.extension().is_some_and(|ending| ending == "parquet")), "{after:?}");
    for (recipe, answer) in recipes.iter().zip(&answers) {
        assert_eq!(*answer, asked(recipe, &lake), "{recipe}");
    }
    // A compaction killed before it removed the old file: after the next one each row exists once.
    let kernels = after.iter().find(|file| file.to_string_lossy().contains("/kernels/")).unwrap();
    let old = kernels.with_file_name("part-old-1.parquet");
    fs::copy(kernels, &old).unwrap();
    let list = format!("{}\npart-old-1.parquet", kernels.file_name().unwrap().to_string_lossy());
    fs::write(kernels.with_file_name("_gpuwhy-compaction"), list).unwrap();
    assert_eq!(gpuwhy(&[&"lake", &"compact", &lake]).status.code(), Some(0));
    assert_eq!(files(&lake), after);
}

#[test]
fn pipes_are_not_opened_and_links_in_a_lake_are_not_followed() {
    let ranks = Stage::new();
    play_rank(&ranks, "multi_stream", 0);
    let (lake, trace, elsewhere) = (ranks.path("lake"), ranks.path("rank0.gpuwhy"), ranks.path("elsewhere"));
    let add = |run: &str| gpuwhy(&[&"lake", &"add", &trace, &"--run", &run, &"--to", &lake]);
    assert_eq!(add("x").status.code(), Some(0));
    fs::create_dir(&elsewhere).unwrap();
    let of_run = files(&lake).iter().find(|file| file.to_string_lossy().contains("/processes/")).unwrap().clone();
    let folder = of_run.parent().unwrap();
    // Where the run y would be written, in a folder of the lake and in one of Parquet files.
    std::os::unix::fs::symlink(&elsewhere, folder.with_file_name("run=y")).unwrap();
    let out = ranks.path("out");
    fs::create_dir(&out).unwrap();
    std::os::unix::fs::symlink(&elsewhere, out.join("run=y")).unwrap();
    let exported = gpuwhy(&[&"export", &"--to", &"parquet", &trace, &"--run", &"y", &"-o", &out]);
    for output in [add("y"), exported] {
        let said = stderr(&output);
        assert!(output.status.code() == Some(2) && said.contains("run=y: this is a symbolic link"), "{said}");
    }
    assert!(files(&elsewhere).is_empty());
    for pipe in ["part-a-1.parquet", "_gpuwhy-compaction"] {
        assert!(Command::new("mkfifo").arg(folder.join(pipe)).status().unwrap().success());
        let output = if pipe.starts_with('_') {
            gpuwhy(&[&"lake", &"compact", &lake])
        } else {
            gpuwhy(&[&"query", &"SELECT run FROM processes", &lake])
        };
        let said = stderr(&output);
        assert_eq!(said.contains("a part of a lake is a file"), pipe.starts_with("part"), "{said}");
        fs::remove_file(folder.join(pipe)).unwrap();
    }
}

#[test]
fn a_rank_is_added_once_and_secrets_are_not() {
    let ranks = Stage::new();
    play_rank(&ranks, "copy_pageable", 0);
    let (lake, trace) = (ranks.path("a lake"), ranks.path("rank0.gpuwhy"));
    let output = gpuwhy(&[&"lake", &"add", &trace, &"--run", &"a/b", &"--to", &lake]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let before = files(&lake);
    assert!(before.iter().all(|file| file.to_string_lossy().contains("/run=a%2Fb/part-")), "{before:?}");
    assert!(!before.iter().any(|file| file.starts_with(lake.join("kernels"))), "{before:?}");
    let output = gpuwhy(&[&"lake", &"add", &trace, &"--run", &"a/b", &"--to", &lake]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("has rank 0 of the run a/b already"), "{}", stderr(&output));
    assert_eq!(files(&lake), before);
    let runs = asked("runs", &lake);
    assert_eq!((runs.len(), runs[0]["run"].as_str()), (1, Some("a/b")));
    let processes = before.iter().find(|file| file.starts_with(lake.join("processes"))).unwrap();
    let bytes = fs::read(processes).unwrap();
    let folder = ranks.folder.path().to_str().unwrap().as_bytes();
    assert!(!bytes.windows(folder.len()).any(|window| window == folder), "the path of the trace is in the lake");
}

/// Runs and ranks of a lake.
fn runs_and_ranks(lake: &Path) -> Vec<(String, i64)> {
    let output = gpuwhy(&[&"query", &"SELECT run, rank FROM processes ORDER BY 1, 2", &lake, &"--json"]);
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    rows.iter().map(|row| (row["run"].as_str().unwrap().to_owned(), row["rank"].as_i64().unwrap())).collect()
}

#[test]
fn a_lake_has_the_name_that_the_run_has_everywhere() {
    for (variables, wanted) in [
        (&[("GPUWHY_RUN", "nightly-42")][..], "nightly-42"),
        (&[("SLURM_JOB_ID", "3"), ("SLURM_STEP_ID", "0")], "3.0"),
        (&[("TORCHELASTIC_RUN_ID", "none"), ("MASTER_ADDR", "localhost"), ("MASTER_PORT", "29500")], "rt"),
        (&[], "rt"),
    ] {
        let stage = Stage::new();
        for rank in [0, 1] {
            let mut host = stage.host("copy_pageable");
            for name in
                ["GPUWHY_RUN", "SLURM_JOB_ID", "SLURM_STEP_ID", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"]
            {
                host.env_remove(name);
            }
            host.env("RANK", rank.to_string()).env("GPUWHY_OUTPUT", format!("rt/rank{rank}.gpuwhy"));
            assert!(host.envs(variables.iter().copied()).status().unwrap().success());
        }
        let (lake, traces) = (stage.path("lake"), stage.path("rt"));
        let output = gpuwhy(&[&"lake", &"add", &traces, &"--to", &lake]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(runs_and_ranks(&lake), [(wanted.to_owned(), 0), (wanted.to_owned(), 1)], "{variables:?}");
    }
}

#[test]
fn programs_without_a_rank_stay_apart() {
    let stage = Stage::new();
    for folder in ["job1", "job2", "night"] {
        let mut host = stage.host("copy_pageable");
        assert!(host.env("GPUWHY_OUTPUT", format!("{folder}/gpuwhy-1.gpuwhy")).status().unwrap().success());
    }
    let add = |lake: &str, traces: &[&str]| {
        let lake = stage.path(lake);
        let traces: Vec<_> = traces.iter().map(|trace| stage.path(trace)).collect();
        let mut arguments: Vec<&dyn AsRef<OsStr>> = vec![&"lake", &"add", &"--to", &lake];
        arguments.extend(traces.iter().map(|trace| trace as &dyn AsRef<OsStr>));
        gpuwhy(&arguments)
    };
    let names = |lake: &str| runs_and_ranks(&stage.path(lake)).into_iter().map(|(run, _)| run).collect::<Vec<_>>();
    let (first, second) = ("job1/gpuwhy-1.gpuwhy", "job2/gpuwhy-1.gpuwhy");
    assert_eq!(add("at once", &[first, second]).status.code(), Some(0));
    assert_eq!(names("at once"), ["job1", "job2"]);
    for trace in [first, second] {
        assert_eq!(add("one by one", &[trace]).status.code(), Some(0));
    }
    assert_eq!(names("one by one"), ["job1", "job2"]);
    let output = gpuwhy(&[&"lake", &"compact", &stage.path("one by one")]);
    assert!(stderr(&output).contains("files of different runs stay apart"), "{}", stderr(&output));
    // Every night into the same file.
    let output = add("nights", &["night/gpuwhy-1.gpuwhy"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for night in [first, second] {
        fs::copy(stage.path(night), stage.path("night/gpuwhy-1.gpuwhy")).unwrap();
        let output = add("nights", &["night/gpuwhy-1.gpuwhy"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        // The same program once more.
        let output = add("nights", &["night/gpuwhy-1.gpuwhy"]);
        assert!(output.status.code() == Some(2) && stderr(&output).contains("already"), "{}", stderr(&output));
    }
    let found = names("nights");
    assert_eq!((found[0].as_str(), found[1].as_str(), found.len()), ("night", "night-gpuwhy-1", 3), "{found:?}");
    assert!(found[2].starts_with("night-gpuwhy-1-"), "{found:?}");
    // Two of one folder.
    fs::copy(stage.path(first), stage.path("job2/other.gpuwhy")).unwrap();
    assert_eq!(add("two", &["job2"]).status.code(), Some(0));
    assert_eq!(names("two").len(), 2);
    let trace = stage.path(first);
    for refused in [
        &[&"lake" as &dyn AsRef<OsStr>, &"add", &trace, &"--to", &"s3://bucket/lake"][..],
        &[&"lake", &"compact", &"s3://bucket/lake"],
    ] {
        let output = gpuwhy(refused);
        assert!(
            output.status.code() == Some(2) && stderr(&output).contains("writes to no object store"),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn what_is_no_lake_recipe_or_engine_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = folder.path().join("none");
    let refused = |arguments: &[&dyn AsRef<OsStr>], what: &str| {
        let output = gpuwhy(arguments);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(what), "{}", stderr(&output));
    };
    refused(&[&"lake", &"compact", &folder.path()], "this folder is no lake");
    refused(&[&"lake", &"compact", &nothing], "none: No such file");
    refused(&[&"query", &"stragler", &folder.path()], "did you mean stragglers?");
    refused(&[&"query", &"waste", &folder.path(), &"--set", &"rows=0"], "from 1 to 100000");
    refused(&[&"query", &"waste"], "name a lake, or traces");
    refused(&[&"query", &"waste", &"s3://bucket/lake"], "reads no object store itself");
    let program = folder.path().join("duckdb");
    refused(&[&"query", &"waste", &"s3://b/l", &"--engine", &"duckdb", &"--with", &program], "cannot be started");
    let output = gpuwhy(&[&"query", &"waste", &"--engine", &"print"]);
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("WITH by_cause AS"), "{}", stderr(&output));
    let output = gpuwhy(&[&"query", &"--list", &"late_because"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("--set excess_us=20"), "{}", stderr(&output));
}

#[test]
fn a_lake_has_all_steps_of_a_run_that_has_more_than_the_report() {
    let ranks = Stage::new();
    play_rank(&ranks, "sync_item", 0);
    let (lake, trace) = (ranks.path("lake"), ranks.path("rank0.gpuwhy"));
    let output = gpuwhy(&[&"report", &"--json", &trace]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let seen = report["devices"][0]["steps"]["seen"].as_u64().unwrap();
    assert!(seen > 2 * 1_024, "the engine remembers 1,024 of {seen} steps");
    let output = gpuwhy(&[&"lake", &"add", &trace, &"--run", &"job", &"--to", &lake]);
    let said = stderr(&output);
    assert!(output.status.code() == Some(0) && said.contains(&format!("; all {seen} steps of 1 rank\n")), "{said}");
    let asked = |place: &Path, sql: &str| -> Vec<Value> {
        let output = gpuwhy(&[&"query", &place, &sql, &"--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let sql =
        "SELECT count(*) AS steps, count(DISTINCT step) AS numbers, min(step) AS first, max(step) AS last FROM steps";
    assert_eq!(asked(&trace, sql), [json!({"steps": seen, "numbers": seen, "first": 0, "last": seen - 1})]);
    let sql = "SELECT count(*) AS whole, sum(l.ns = duration_ns) AS equal FROM steps s
        JOIN (SELECT step, sum(duration_ns) AS ns FROM step_leaves GROUP BY step) l ON l.step = s.step";
    assert_eq!(asked(&trace, sql), [json!({"whole": seen, "equal": seen})], "leaves sum to each step");
    let sql = "SELECT a.step FROM steps a JOIN steps b ON b.step = a.step + 1 WHERE b.start_ns < a.end_ns";
    assert!(asked(&trace, sql).is_empty(), "steps follow each other");
    let left_out = asked(&trace, "SELECT value FROM completeness WHERE counter = 'steps_left_out'");
    assert_eq!(left_out, [json!({"value": 0})]);
    // The lake has the same rows, step by step.
    let cells = |place: &Path| {
        let output = gpuwhy(&[&"query", &"heatmap", &place, &"--json", &"--set", &"steps=1", &"--set", &"rows=100000"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        rows.iter().map(|row| [row["first_step"].clone(), row["cell_ns"].clone()]).collect::<Vec<_>>()
    };
    let of_lake = cells(&lake);
    assert_eq!(of_lake.len() as u64, seen);
    assert_eq!(of_lake, cells(&trace));
}

#[test]
fn estimated_times_are_in_parquet_files_as_in_a_query() {
    let folder = tempfile::tempdir().unwrap();
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures/traces/d2d_clones.gpuwhy");
    let (lake, out) = (folder.path().join("lake"), folder.path().join("out"));
    for command in [["lake", "add", "--to"].as_slice(), &["export", "--to", "parquet", "-o"]] {
        let place = if command[0] == "lake" { &lake } else { &out };
        let output = Command::new(GPUWHY).args(command).arg(place).arg(&trace).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{command:?}: {}", stderr(&output));
    }
    let sum = "SELECT sum(estimated_ns + low_ns + high_ns) AS ns FROM kernel_lines";
    let output = gpuwhy(&[&"query", &trace, &sum, &"--json"]);
    let wanted = serde_json::from_slice::<Value>(&output.stdout).unwrap()[0]["ns"].as_f64().unwrap();
    for place in [lake.join("kernel_lines"), out] {
        let is_lines = |file: &PathBuf| file.to_string_lossy().contains("kernel_lines");
        let file = files(&place).into_iter().find(is_lines).unwrap();
        let mut found = 0.0;
        visit(&file, &["estimated_ns", "low_ns", "high_ns"], &mut |cells| {
            found += cells.iter().map(|cell| if let Cell::Real(nanos) = cell { *nanos } else { 0.0 }).sum::<f64>();
            Ok(())
        })
        .unwrap();
        assert!(wanted > 1e6 && (found - wanted).abs() < 1.0, "{found} {wanted}");
    }
}

#[test]
fn a_lake_that_cannot_be_written_keeps_no_new_folder() {
    let folder = tempfile::tempdir().unwrap();
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures/gpt_counters.gpuwhy");
    let lake = folder.path().join("lake");
    fs::create_dir(&lake).unwrap();
    // A file blocks the name of a folder.
    fs::write(lake.join("completeness"), "mine").unwrap();
    let output = gpuwhy(&[&"lake", &"add", &trace, &"--to", &lake]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("completeness"), "{}", stderr(&output));
    let left: Vec<_> = fs::read_dir(&lake).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["completeness"]);
}

/// True if a process runs; false for a zombie.
fn runs(process: &str) -> bool {
    let status = fs::read_to_string(Path::new("/proc").join(process).join("stat")).unwrap_or_default();
    status.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[test]
fn an_engine_and_what_it_starts_end_with_the_recipe() {
    let stage = Stage::new();
    play_rank(&stage, "sync_item", 0);
    let lake = stage.path("lake");
    let added = gpuwhy(&[&"lake", &"add", &"--run", &"job", &stage.path("rank0.gpuwhy"), &"--to", &lake]);
    assert_eq!(added.status.code(), Some(0), "{}", stderr(&added));
    let (engine, said, temporary) = (stage.path("python3"), stage.path("said"), stage.path("temporary"));
    fs::create_dir(&temporary).unwrap();
    let script = format!("#!/bin/sh\nsleep 600 &\necho $$ $! > {0}.new && mv {0}.new {0}\nwait\n", said.display());
    fs::write(&engine, script).unwrap();
    fs::set_permissions(&engine, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for (signal, code) in [("-TERM", Some(143)), ("-KILL", None)] {
        let mut command = Command::new(GPUWHY);
        command.args(["query", "waste"]).arg(&lake).args(["--engine", "duckdb", "--with"]).arg(&engine);
        let mut child = command.env("TMPDIR", &temporary).stderr(Stdio::null()).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !said.exists() {
            assert!(Instant::now() < deadline && child.try_wait().unwrap().is_none(), "the engine was not started");
            std::thread::sleep(Duration::from_millis(5));
        }
        let engines = fs::read_to_string(&said).unwrap();
        fs::remove_file(&said).unwrap();
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), code);
        while let Some(process) = engines.split_whitespace().find(|process| runs(process)) {
            assert!(Instant::now() < deadline, "{signal}: {process} of {engines} still runs");
            std::thread::sleep(Duration::from_millis(5));
        }
        if code.is_some() {
            assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
        }
    }
}

#[test]
fn an_empty_answer_says_why() {
    let stage = Stage::new();
    play_rank(&stage, "copy_pageable", 0);
    let output = gpuwhy(&[&"query", &"stragglers", &stage.path("rank0.gpuwhy")]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("no rows: there are no collectives here"), "{}", stderr(&output));
    let lake = stage.path("lake");
    gpuwhy(&[&"lake", &"add", &stage.path("rank0.gpuwhy"), &"--to", &lake]);
    let output = gpuwhy(&[&"query", &"kernels", &lake]);
    assert!(
        stderr(&output).contains("no kernels here") && stderr(&output).contains("--tier full"),
        "{}",
        stderr(&output)
    );
}
