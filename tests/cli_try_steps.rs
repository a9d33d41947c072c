//! `gpuwhy try` with programs whose steps Python does not count: recorded sessions, played by the replay library.

use std::fs;
use std::process::Output;

use serde_json::Value;

use crate::cli_try::{Place, TRAIN, near, outcomes, with_recording};
use crate::support::{Stage, built, stderr};

/// Time enough for runs that end by themselves, or when enough is recorded.
const OPTIONS: [&str; 7] = ["--allow", "all", "--remedy", "tf32", "--pairs=2", "--json", "--budget=10m"];
/// A sixth of it is the share of a run, which ends then.
const SHORT: [&str; 7] = ["--allow", "all", "--remedy", "tf32", "--pairs=2", "--json", "--budget=48s"];
/// Ends never, unless it is ended. The recording stands for the work of the GPU.
const SERVER: &str = "[ -n \"$CUDA_INJECTION64_PATH\" ] || exec sleep 1000; exec \"$0\" --call 3600000:waitFor=never";

/// A server of which only the runs that find the unit use up their time.
fn server_until_known() -> String {
    SERVER.replace("; exec", "; [ ! -e known ] || exec \"$0\"; touch known; exec")
}

/// What `gpuwhy try` says about a shell script, whose `$0` plays the recorded session `fixture`.
fn tried(place: &Place, options: &[&str], fixture: &str, script: &str) -> Output {
    let stage = Stage::new();
    let library = place.path().join("libcuda.so.1");
    fs::copy(built("libcupti_replay.so"), &library).unwrap();
    let host = stage.host(fixture);
    let script = format!("export LD_PRELOAD='{}'; {script}", library.display());
    let program = host.get_program().to_str().unwrap();
    let mut command = place.command(options, &["sh", "-c", &script, program]);
    // The user may record a part of other runs.
    let output = with_recording(&mut command, &host).env("GPUWHY_DELAY", "1h").output().unwrap();
    assert_eq!(place.left_behind(), 0, "{}", stderr(&output));
    output
}

fn document(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn steps_of_a_program_without_python_are_those_of_its_recording() {
    let Some(place) = Place::new() else { return };
    let document = document(&tried(&place, &SHORT, "gpt", &server_until_known()));
    assert_eq!((&document["unit"], outcomes(&document)), (&"recorded".into(), vec![("tf32", "no_difference")]));
    // Of the ten steps of the recording, whose times are the same in each run.
    assert!((document["unchanged"]["s"].as_f64().unwrap() - 0.0577).abs() < 1e-4, "{document}");
    let share = document["unchanged"]["recording_share"].as_f64().unwrap();
    assert!(share > 0.0 && share < 0.1, "{document}");
    let row = &document["remedies"][0];
    near(&row["gain"], 1.0);
    assert!(row["low"].as_f64().unwrap() < 1.0 - share / 2.0 && row["high"].as_f64().unwrap() > 1.0 + share / 2.0);
}

#[test]
fn remedies_of_pytorch_are_left_out_where_the_recorded_run_has_none() {
    let Some(place) = Place::new() else { return };
    let stage = Stage::new();
    let host = stage.host("resnet_workers0");
    let mut command = place.command(&["--json", "--allow", "all"], &[host.get_program().to_str().unwrap()]);
    let output = with_recording(&mut command, &host).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    let left = document["not_tried"].as_array().unwrap();
    assert!(!left.is_empty() && left.iter().all(|row| row["why"] == "needs_change"), "{document}");
    let changes = outcomes(&document);
    let is_of_pytorch = |id: &str| left.iter().any(|row| row["id"] == id) || id == "pinned";
    assert!(!changes.iter().any(|(id, _)| is_of_pytorch(id)), "{document}");
}

#[test]
fn a_step_is_the_range_that_is_named() {
    let Some(place) = Place::new() else { return };
    let server = "exec \"$0\" --ranges before";
    let options = [&["--step", "step *@worker"], &OPTIONS[..]].concat();
    let document = document(&tried(&place, &options, "multi_stream", server));
    assert_eq!((&document["unit"], &document["unit_at"]), (&"range".into(), &"step *@worker".into()));
    assert!(document["unchanged"]["steps"].as_u64().unwrap() > 900, "{document}");
    assert_eq!(document["unchanged"]["recording_share"], Value::Null);
    let program = "exec \"$0\" --ranges before";
    let output = tried(&place, &[&["--step", "epoch"], &OPTIONS[..]].concat(), "multi_stream", program);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("made 0 steps, too few to measure: a step is a range epoch"), "{said}");
    assert!(said.contains("Ranges that it opened: compute@worker, done, main, step *@worker, whole run"), "{said}");
}

#[test]
fn a_program_that_works_for_most_of_its_run_is_measured_as_a_whole() {
    let Some(place) = Place::new() else { return };
    // The recording was made before, so nothing comes before the first work.
    let output = tried(&place, &OPTIONS, "gpt", "sleep 0.5; [ -z \"$CUDA_INJECTION64_PATH\" ] || exec \"$0\"");
    let document = document(&output);
    assert_eq!((&document["unit"], &document["unchanged"]["recording_share"]), (&"run".into(), &Value::Null));
    assert!(document["unchanged"]["s"].as_f64().unwrap() >= 0.5, "{document}");
    // Nothing shows what start-up takes where another tool has the place of libprof.so.
    let script = format!("export LD_PRELOAD='{}/libcuda.so.1'; sleep 0.5", place.path().display());
    let mut command = place.command(&OPTIONS, &["sh", "-c", &script]);
    let output = command.env("CUDA_INJECTION64_PATH", place.path().join("libcuda.so.1")).output().unwrap();
    assert_eq!(self::document(&output)["unit"], "run");
}

#[test]
fn a_server_without_steps_is_said() {
    let Some(place) = Place::new() else { return };
    let output = tried(&place, &SHORT, "gpt", &SERVER.replace("3600000:", "10:"));
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("steps, too few to measure: a step is what repeats in the recorded work"), "{said}");
}

#[test]
fn no_run_from_before_the_unit_is_known_counts() {
    let Some(place) = Place::new() else { return };
    let runs = place.path().join("runs");
    let script = format!(
        "echo >> '{}'; [ -n \"$CUDA_INJECTION64_PATH\" ]; echo \"x $?.5\"; {}",
        runs.display(),
        server_until_known()
    );
    let output = tried(&place, &SHORT, "gpt", &script);
    let document = document(&output);
    assert_eq!((&document["unit"], &document["remedies"][0]["output"]), (&"recorded".into(), &"equal".into()));
    // Two pairs, and the run without libprof.so in which nothing counts steps.
    assert_eq!(fs::read_to_string(&runs).unwrap().lines().count(), 5);
    assert!(stderr(&output).contains("trying 1 remedy: at most 6 runs"), "{}", stderr(&output));
}

#[test]
fn a_program_of_pytorch_that_starts_up_for_longer_than_a_run_may_take_makes_steps() {
    let Some(place) = Place::new() else { return };
    fs::copy(built("libcupti_replay.so"), place.path().join("libcuda.so.1")).unwrap();
    let start = "import ctypes, os, time, torch\nctypes.CDLL('./libcuda.so.1')
if not os.path.exists('known'): time.sleep(6)\nopen('known', 'w')\n";
    fs::write(place.path().join("train.py"), start.to_owned() + TRAIN).unwrap();
    // Five seconds for each run, and 20 until the first step of the first one.
    let options = ["--remedy=pinned", "--pairs=2", "--budget=30s", "--json"];
    let output = place.command(&options, &["python3", "train.py"]).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    assert_eq!(document["unit"], "optimizer");
}

#[test]
fn what_recording_costs_is_the_difference_of_the_steps() {
    let Some(place) = Place::new() else { return };
    let stage = Stage::new();
    let host = stage.host("mlp");
    // The recorded session is that of a process of the program, whose steps take as long with it.
    let start = format!("import subprocess\nsubprocess.run({:?}, check=True)\n", [host.get_program()]);
    fs::write(place.path().join("train.py"), start + TRAIN).unwrap();
    let options = ["--cost=light,full,light", "--pairs=2", "--json"];
    let mut command = place.command(&options, &["python3", "train.py"]);
    let document = document(&with_recording(&mut command, &host).output().unwrap());
    assert!(!place.path().join("history.jsonl").exists());
    let modes = document["modes"].as_array().unwrap();
    let names: Vec<_> = modes.iter().map(|row| (row["mode"].as_str(), row["outcome"].as_str())).collect();
    assert_eq!(names, [(Some("light"), Some("measured")), (Some("full"), Some("measured"))]);
    for row in modes {
        near(&row["cost"], 0.0);
        near(&row["recorded_s"], 0.1);
    }
    assert_eq!((&document["unit"], &document["remedies"]), (&"optimizer".into(), &serde_json::json!([])));
}

#[test]
fn no_cost_is_said_where_nothing_is_recorded() {
    let Some(place) = Place::new() else { return };
    let stage = Stage::new();
    let host = stage.host("mlp");
    let mut command = place.command(&["--cost"], &["true"]);
    let output = with_recording(&mut command, &host).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!((output.status.code(), text.matches("nothing was recorded").count()), (Some(1), 3), "{text}");
    assert!(stderr(&output).contains("measuring what recording costs: at most 73 runs"), "{}", stderr(&output));
    let output = tried(&place, &["--cost", "--budget=16s"], "gpt", SERVER);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("--cost needs a command that ends by itself"), "{}", stderr(&output));
    let output = place.command(&["--cost", "--remedy", "tf32"], &["true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!((place.left_behind(), place.path().join("history.jsonl").exists()), (0, false));
}
