//! `gpuwhy report --html`: the timeline of every recording matches its report, and the page works in a
//! browser.
//!
//! The browser test needs Node.js with the packages of `page/ui`, and Chromium, which `tests/browser.sh`
//! downloads; without them the tests print `SKIPPED` and the reason.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use gpuwhy_page_reader::{self as read, Numbers};
use serde_json::Value;

use crate::support::{Stage, built, fixtures, report, stderr};

/// Exit code of `browser.mjs` without Chromium.
const NO_BROWSER: i32 = 3;

fn play(fixture: &str) -> Stage {
    let stage = Stage::new();
    let output = stage.host(fixture).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    stage
}

/// Page of a played recording.
fn page(stage: &Stage, options: &[&str]) -> PathBuf {
    let path = stage.path("page.html");
    let mut command = Command::new(built("gpuwhy"));
    let output = command.arg("report").arg("--html").arg(&path).args(options).arg(stage.path("trace.gpuwhy")).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    path
}

/// Bytes of a block of the page.
fn block(page: &str, name: &str) -> Vec<u8> {
    read::block(page, name).unwrap()
}

/// Checks that a page has the report of its trace, and that the lanes of each device sum to it. `what` is for
/// messages.
fn assert_page_is_report(page: &Path, report: &Value, what: &str) {
    let text = fs::read_to_string(page).unwrap();
    let manifest: Value = serde_json::from_slice(&block(&text, "doc")).unwrap();
    // Both are large: the command shows the difference.
    assert!(&manifest["report"] == report, "{what}: the page has another report than `gpuwhy report --json`");
    let timeline = &manifest["timeline"];
    let intervals = timeline["intervals"].as_u64().unwrap() as usize;
    let lanes = timeline["lanes"].as_array().unwrap();
    let devices = manifest["report"]["devices"].as_array().unwrap();
    assert_eq!(lanes.iter().filter(|lane| lane["kind"] == "device").count(), devices.len());
    for device in devices {
        let lane = lanes.iter().find(|lane| lane["kind"] == "device" && lane["device"] == device["id"]).unwrap();
        let leaves = manifest["leaves"].as_array().unwrap();
        let mut sums = vec![0; leaves.len()];
        let bytes = block(&text, &lane["sums"].to_string());
        let mut numbers = Numbers(&bytes);
        for _ in 0..numbers.number() {
            let key = numbers.number() as usize;
            sums[key] = (0..intervals).map(|_| numbers.number()).sum();
        }
        let mut segments = vec![0; leaves.len()];
        let columns = lane["columns"].as_array().unwrap().len();
        for chunk in lane["chunks"].as_array().unwrap() {
            let count = chunk["count"].as_u64().unwrap() as usize;
            for event in read::events(&block(&text, &chunk["block"].to_string()), count, columns) {
                segments[event.values[0] as usize % 32] += event.duration;
            }
        }
        for (index, words) in leaves.iter().enumerate() {
            let wanted = device["leaves"][words["name"].as_str().unwrap()].as_u64().unwrap();
            assert_eq!((sums[index], segments[index]), (wanted, wanted), "{what}: {}", words["name"]);
        }
    }
    let of = |kinds: &[&str]| -> u64 {
        let lanes = lanes.iter().filter(|lane| kinds.contains(&lane["kind"].as_str().unwrap()));
        lanes.map(|lane| lane["embedded"].as_u64().unwrap()).sum()
    };
    let records = &manifest["report"]["completeness"]["records"];
    let work: u64 = ["kernels", "copies", "memsets"].iter().map(|kind| records[kind].as_u64().unwrap()).sum();
    assert_eq!(of(&["stream"]), work, "{what}");
    assert_eq!(of(&["thread"]), records["api_calls"].as_u64().unwrap(), "{what}");
    let without_launch = &manifest["report"]["completeness"]["activities_without_launch"];
    assert_eq!(&timeline["lost"]["launches_unknown"], without_launch, "{what}");
}

#[test]
fn the_lanes_of_every_recording_are_its_report() {
    for fixture in fixtures() {
        let stage = play(&fixture);
        assert_page_is_report(&page(&stage, &[]), &stage.report(), &fixture);
    }
    let stage = with_counters();
    assert_page_is_report(&page(&stage, &[]), &stage.report(), "with counters");
}

/// Traces of PyTorch and of Nsight Systems give the same page as those of gpuwhy.
/// Mode monitor records no GPU work; the page has what it records, from its first to its last time.
#[test]
fn the_page_of_a_monitored_run_has_its_samples() {
    let stage = Stage::new();
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures/traces/mon_d2d_clones.gpuwhy");
    fs::copy(trace, stage.path("trace.gpuwhy")).unwrap();
    let text = fs::read_to_string(page(&stage, &[])).unwrap();
    let manifest: Value = serde_json::from_slice(&block(&text, "doc")).unwrap();
    let timeline = &manifest["timeline"];
    let window = timeline["window_ns"].as_u64().unwrap();
    assert!(manifest["report"]["devices"].as_array().unwrap().is_empty() && window > 1_000_000_000, "{timeline}");
    let lanes = timeline["lanes"].as_array().unwrap();
    let samples = lanes.iter().find(|lane| lane["kind"] == "samples").unwrap();
    assert!(samples["embedded"].as_u64() > Some(100), "{samples}");
    let start = manifest["report"]["process"]["start_time_unix_ns"].as_u64();
    let origin: u64 = timeline["origin_unix_ns"].as_str().unwrap().parse().unwrap();
    assert_eq!(timeline["after_start_ns"].as_u64(), start.map(|start| origin - start), "{manifest}");
}

#[test]
fn files_of_other_profilers_give_pages() {
    let stage = play("multi_stream");
    for (format, name) in [("chrome", "kineto.json"), ("chrome", "kineto.json.gz"), ("sqlite", "nsys.sqlite")] {
        let (file, out) = (stage.path(name), stage.path(&format!("{name}.html")));
        let run = |arguments: &[&dyn AsRef<std::ffi::OsStr>]| {
            let output = gpuwhy(stage.folder.path(), arguments);
            assert_eq!(output.status.code(), Some(0), "{name}: {}", stderr(&output));
        };
        run(&[&"export", &"--to", &format, &"-o", &file, &stage.path("trace.gpuwhy")]);
        run(&[&"report", &"--html", &out, &file]);
        let text = fs::read_to_string(&out).unwrap();
        let shown = serde_json::from_slice::<Value>(&block(&text, "doc")).unwrap()["report"].take();
        assert_page_is_report(&out, &shown, name);
        // The steps of a Kineto trace are marks in the report and ranges for code that reads it record by
        // record.
        let (code, json) = report(&file);
        assert_eq!(code, 0);
        assert_eq!(shown["devices"][0]["leaves"], json["devices"][0]["leaves"], "{name}");
        assert_eq!(shown["bottleneck"]["cause"], json["bottleneck"]["cause"], "{name}");
        assert_eq!(shown["completeness"]["records"], json["completeness"]["records"], "{name}");
    }
}

/// The steps that the page moves in simulations are those whose means are in the report.
#[test]
fn replayed_steps_are_as_long_as_the_report_says() {
    for fixture in ["mlp", "sync_item", "resnet_workers0"] {
        let stage = Stage::new();
        // Samples are of the program that plays: on a busy machine each step would have another cause.
        let output = stage.host(fixture).env("GPUWHY_SAMPLING", "off").output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let text = fs::read_to_string(page(&stage, &[])).unwrap();
        let manifest: Value = serde_json::from_slice(&block(&text, "doc")).unwrap();
        let replay = &manifest["timeline"]["replay"];
        let steps = replay["steps"].as_array().unwrap();
        assert_eq!(steps.len(), 3, "{fixture}");
        let scenarios = manifest["report"]["devices"][0]["what_if"]["scenarios"].as_array().unwrap();
        let nanos = |value: &Value| value.as_u64().unwrap() as f64;
        for (index, variant) in replay["variants"].as_array().unwrap().iter().enumerate() {
            let ends: Vec<f64> = steps.iter().map(|step| nanos(&step["ends"][index])).collect();
            let mean = ends.iter().sum::<f64>() / ends.len() as f64;
            if index == 0 {
                for (step, end) in steps.iter().zip(&ends) {
                    let real = nanos(&step["to"]) - nanos(&step["from"]);
                    assert!((end / real - 1.0).abs() < 0.02, "{fixture}: {end} of {real}");
                }
            }
            // Only typical steps.
            let Some(row) = scenarios.iter().find(|row| row["kind"] == variant[0]) else { continue };
            let known = nanos(&row["step_ns"]);
            assert!((mean / known - 1.0).abs() < 0.25, "{fixture}: {}: {mean} of {known}", variant[0]);
        }
        for step in steps {
            let bytes = block(&text, &step["block"].to_string());
            let variants = replay["variants"].as_array().unwrap().len();
            let mut numbers = Numbers(&bytes);
            (0..step["count"].as_u64().unwrap() * (4 + 2 * variants as u64)).for_each(|_| _ = numbers.number());
            assert!(numbers.0.is_empty(), "{fixture}");
        }
    }
}

#[test]
fn a_page_is_not_replaced_unasked_and_a_bad_file_gives_none() {
    let stage = play("copy_pageable");
    let path = page(&stage, &[]);
    let gpuwhy = |arguments: &[&dyn AsRef<std::ffi::OsStr>]| -> Output {
        Command::new(built("gpuwhy")).args(arguments.iter().map(|argument| argument.as_ref())).output().unwrap()
    };
    let trace = stage.path("trace.gpuwhy");
    let output = gpuwhy(&[&"report", &"--html", &path, &trace]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("page.html"), "{}", stderr(&output));
    assert_eq!(gpuwhy(&[&"report", &"--force", &"--html", &path, &trace]).status.code(), Some(0));
    let onto_itself = gpuwhy(&[&"report", &"--force", &"--html", &trace, &trace]);
    assert_eq!(onto_itself.status.code(), Some(2), "{}", stderr(&onto_itself));
    let nonsense = stage.path("nonsense.gpuwhy");
    fs::write(&nonsense, "no trace").unwrap();
    let output = gpuwhy(&[&"report", &"--html", &stage.path("none.html"), &nonsense]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("nonsense.gpuwhy") && !stage.path("none.html").exists(), "{}", stderr(&output));
    let output = gpuwhy(&[&"report", &"--html", &stage.path("two.html"), &trace, &trace]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let stdout = gpuwhy(&[&"report", &"--html", &"-", &trace]).stdout;
    assert!(stdout.starts_with(b"<!doctype html>") && stdout.ends_with(b"</html>\n"));
}

/// `page/ui` with its packages, or the reason why there is none.
fn ui() -> Result<&'static Path, &'static str> {
    static UI: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    UI.get_or_init(prepared).as_deref().map_err(String::as_str)
}

/// A copy in the target folder, so that no packages are installed in the source tree.
fn prepared() -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
    let (from, to) = (source.join("ui"), copy.join("ui"));
    let node = Command::new("node").arg("--version").output().map_err(|error| format!("node: {error}"))?;
    if !node.status.success() {
        return Err("node does not run".to_owned());
    }
    for folder in ["assets", "ui/src", "ui/test"] {
        let to = copy.join(folder);
        let _ = fs::remove_dir_all(&to);
        fs::create_dir_all(&to).unwrap();
        for entry in fs::read_dir(source.join(folder)).unwrap().map(Result::unwrap) {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
    let lock = fs::read(from.join("package-lock.json")).unwrap();
    let same = fs::read(to.join("package-lock.json")).is_ok_and(|known| known == lock);
    for name in
        ["build.mjs", "browser.mjs", "firefox.mjs", "test.mjs", "package.json", "tsconfig.json", "package-lock.json"]
    {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
    let modules = to.join("node_modules");
    if from.join("node_modules").is_dir() {
        if !modules.exists() {
            symlink(from.join("node_modules"), &modules).unwrap();
        }
    } else if !same || !modules.is_dir() {
        let output = Command::new("npm").args(["ci", "--silent"]).current_dir(&to).output();
        let output = output.map_err(|error| format!("npm: {error}"))?;
        if !output.status.success() {
            let _ = fs::remove_file(to.join("package-lock.json"));
            return Err(format!("npm ci: {}", stderr(&output).lines().last().unwrap_or("failed")));
        }
    }
    Ok(to)
}

/// Output of a script of `page/ui`; `None` when it cannot run here.
fn node(arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> Option<Output> {
    let folder = match ui() {
        Ok(folder) => folder,
        Err(reason) => {
            println!("SKIPPED: no packages for page/ui: {reason}");
            return None;
        }
    };
    let arguments = arguments.iter().map(|argument| argument.as_ref());
    let mut command = Command::new("node");
    // Location of Chromium from tests/browser.sh.
    let chromium = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("chromium");
    if chromium.is_dir() {
        command.env("PLAYWRIGHT_BROWSERS_PATH", chromium);
    }
    Some(command.args(arguments).current_dir(folder).output().unwrap())
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(output))
}

#[test]
fn the_committed_script_is_what_the_sources_build() {
    let Some(output) = node(&[&"build.mjs", &"--check"]) else { return };
    assert!(output.status.success(), "{}", said(&output));
    let Some(output) = node(&[&"node_modules/typescript/bin/tsc", &"--noEmit"]) else { return };
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn the_modules_of_the_page_pass_their_tests() {
    let Some(output) = node(&[&"test.mjs"]) else { return };
    assert!(output.status.success(), "{}", said(&output));
}

/// Runs a script of `page/ui` that opens the page of a trace in a browser. False if it cannot run here.
fn opened(script: &str, stage: &Stage) -> bool {
    let (page, json) = (page(stage, &["--force"]), stage.path("report.json"));
    fs::write(&json, serde_json::to_vec(&stage.report()).unwrap()).unwrap();
    let Some(output) = node(&[&script, &page, &json]) else { return false };
    if output.status.code() == Some(NO_BROWSER) {
        println!("SKIPPED: {}", stderr(&output).trim());
        return false;
    }
    assert!(output.status.success() && !said(&output).contains("NOT OK"), "{}", said(&output));
    true
}

/// Trace of a training run with hardware counters, from an H100.
fn with_counters() -> Stage {
    recorded("gpt_counters")
}

/// A trace that was recorded on a GPU.
fn recorded(fixture: &str) -> Stage {
    let stage = Stage::new();
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testing/fixtures/{fixture}.gpuwhy"));
    fs::copy(trace, stage.path("trace.gpuwhy")).unwrap();
    stage
}

#[test]
fn pages_work_in_a_browser() {
    // In that of the sleeper, the report divides time that no host sample saw.
    let recordings =
        ["traces/graph_inference", "traces/graph_compiled", "graphs/training", "traces/sleeper"].map(recorded);
    let all = ["mlp", "multi_stream"].into_iter().map(play).chain([with_counters()]).chain(recordings);
    all.into_iter().all(|stage| opened("browser.mjs", &stage));
}

#[test]
fn pages_work_in_firefox() {
    opened("firefox.mjs", &with_counters());
}

/// The counters and NVML readings of the report are in the page, and its rows are the samples.
#[test]
fn a_page_with_counters_shows_them() {
    let stage = with_counters();
    let text = fs::read_to_string(page(&stage, &[])).unwrap();
    let manifest: Value = serde_json::from_slice(&block(&text, "doc")).unwrap();
    let device = &manifest["report"]["devices"][0];
    assert!(device["compute_limits"]["steady_ns"].is_object() && device["gauges"]["power_w"].is_object());
    let counters = manifest["timeline"]["counters"][0]["rows"].as_array().unwrap();
    assert!(counters.iter().any(|row| row["name"] == "tensor"), "{counters:?}");
    let curves = manifest["timeline"]["curves"].as_array().unwrap();
    let labels: Vec<&str> = curves.iter().map(|curve| curve["label"].as_str().unwrap()).collect();
    for wanted in ["launches not begun", "power", "core clock", "SMs active", "tensor cores", "memory bandwidth"] {
        assert!(labels.contains(&wanted), "{wanted}: {labels:?}");
    }
    let curve = |label: &str| &curves[labels.iter().position(|known| *known == label).unwrap()];
    let most = |label: &str| curve(label)["most"].as_f64().unwrap();
    // A reading covers more time than a column of the page.
    let power = device["gauges"]["power_w"]["max"].as_f64().unwrap();
    assert!((most("power") / power - 1.0).abs() < 0.01, "{} {power}", most("power"));
    assert!(most("tensor cores") > 20.0 && most("tensor cores") <= 100.0, "{}", most("tensor cores"));
    let bytes = block(&text, &curve("tensor cores")["block"].to_string());
    let changes = Numbers(&bytes).column(curve("tensor cores")["intervals"].as_u64().unwrap() as usize);
    assert!(changes.iter().filter(|&&change| change != 0).count() > 500, "it changes");
}

/// Runs the command; `cache` is its cache folder.
fn gpuwhy(cache: &Path, arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> Output {
    let mut command = Command::new(built("gpuwhy"));
    command.args(arguments.iter().map(|argument| argument.as_ref())).env("XDG_CACHE_HOME", cache);
    command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY").env_remove("SSH_CONNECTION").output().unwrap()
}

#[test]
fn a_comparison_is_a_page_that_sums_to_the_change() {
    let (slow, fast) = (play("resnet_workers0"), play("resnet_workers4"));
    let (a, b) = (slow.path("trace.gpuwhy"), fast.path("trace.gpuwhy"));
    let out = slow.path("diff.html");
    let output = gpuwhy(slow.folder.path(), &[&"diff", &"--html", &out, &a, &b]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let page = fs::read_to_string(&out).unwrap();
    let json = gpuwhy(slow.folder.path(), &[&"diff", &"--json", &a, &b]).stdout;
    let json: Value = serde_json::from_slice(&json).unwrap();
    let rows = json["devices"][0]["leaf_changes"].as_array().map_or(0, Vec::len);
    assert!(rows > 3 && page.matches("class=\"mark m-").count() >= rows, "a row for each cause");
    assert!(page.contains("Predicted from A") && page.contains("class=\"ribbons\""));
    assert!(!page.contains("<script"), "it needs none");
    assert!(page.matches("class=\"r-same\"").count() > 500, "operations are joined");
    let again = gpuwhy(slow.folder.path(), &[&"diff", &"--html", &out, &a, &b]);
    assert_eq!(again.status.code(), Some(2), "{}", stderr(&again));
}

#[test]
fn ranks_are_a_page_and_an_opened_one_is_in_the_cache() {
    let stage = Stage::new();
    for (rank, fixture) in ["multi_stream", "sync_item"].iter().enumerate() {
        let mut host = stage.host(fixture);
        host.env("RANK", rank.to_string()).env("VARIANT_SIZE", "2").env("GPUWHY_OUTPUT", format!("rank{rank}.gpuwhy"));
        assert!(host.status().unwrap().success());
    }
    let cache = Stage::new();
    let (folder, out) = (stage.folder.path(), cache.path("ranks.html"));
    let output = gpuwhy(cache.folder.path(), &[&"merge", &folder, &"--html", &out]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains(&format!("the page is {}", out.display())), "{}", stderr(&output));
    let page = fs::read_to_string(&out).unwrap();
    assert!(page.contains("class=\"map\"") && page.contains("Rank 1 without waiting in collectives"));
    assert!(page.matches("f-gpu_compute").count() > 50, "columns over time");

    let pages = cache.path("gpuwhy/pages");
    let trace = stage.path("rank0.gpuwhy");
    let shown = [
        (gpuwhy(cache.folder.path(), &[&"report", &"--open", &trace]), "rank0.html"),
        (gpuwhy(cache.folder.path(), &[&"report", &"--open", &trace]), "rank0.html"),
        (gpuwhy(cache.folder.path(), &[&"diff", &"--open", &trace, &trace]), "rank0-rank0.html"),
    ];
    for (output, name) in shown {
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        // Without a display: the path of the page, and how to open it elsewhere.
        let page = pages.join(name).display().to_string();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let [path, copy] = said.lines().collect::<Vec<_>>()[..] else { panic!("{said}") };
        assert_eq!(path, page);
        assert!(copy.starts_with("copy it to where your browser is: scp ") && copy.contains(&page), "{copy}");
        assert!(fs::read_to_string(pages.join(name)).unwrap().ends_with("</html>\n"));
    }
    let output = gpuwhy(cache.folder.path(), &[&"merge", &"--open", &folder]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let output = gpuwhy(cache.folder.path(), &[&"report", &"--open", &folder]);
    assert!(output.status.code() == Some(2) && stderr(&output).contains("gpuwhy merge"), "{}", stderr(&output));
    let none = gpuwhy(cache.folder.path(), &[&"report", &"--open", &stage.path("none.gpuwhy")]);
    assert_eq!(none.status.code(), Some(2));
    assert!(stderr(&none).contains("none.gpuwhy") && !pages.join("none.html").exists(), "{}", stderr(&none));
}
