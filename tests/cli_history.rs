//! `gpuwhy check --history` with recorded sessions: lines that runs add, and files that accept none.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{GPUWHY, Stage, built, stderr};
use serde_json::Value;

/// `gpuwhy run OPTIONS -- host`, which plays a recorded session.
fn run(stage: &Stage, fixture: &str, options: &[&str]) -> Command {
    let host = stage.host(fixture);
    let mut command = Command::new(GPUWHY);
    command.args(["-q", "run", "--report", "off", "--output", "off"]).args(options).arg("--").arg(host.get_program());
    command.current_dir(stage.folder.path()).env("GPUWHY_LIB", built("libprof.so"));
    for (name, value) in host.get_envs() {
        let own = ["CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "GPUWHY_OUTPUT"].iter().any(|own| name == *own);
        match value {
            Some(value) if !own => command.env(name, value),
            _ => command.env_remove(name),
        };
    }
    command.env("XDG_STATE_HOME", stage.path("state"));
    command
}

fn ran(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

fn history(file: &Path, options: &[&str]) -> (Option<i32>, String, Output) {
    let output =
        Command::new(GPUWHY).args(["check", "--history"]).args(options).env("GPUWHY_HISTORY", file).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), output)
}

fn slower(nanos: &Value) -> Value {
    (nanos.as_u64().unwrap() * 11 / 10).into()
}

fn json(file: &Path) -> Value {
    let (code, text, output) = history(file, &["--json"]);
    assert_eq!(code, Some(0), "{}", stderr(&output));
    serde_json::from_str(&text).unwrap()
}

#[test]
fn runs_leave_lines_and_are_compared() {
    let stage = Stage::new();
    for _ in 0..2 {
        ran(&mut run(&stage, "mlp", &[]));
    }
    let file = stage.path("state/gpuwhy/history.jsonl");
    let document = json(&file);
    let program = &document["programs"][0];
    assert_eq!(program["program"], "gpuwhy-replay-host");
    let runs = program["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    assert_eq!((&runs[0]["change"], &runs[0]["regression"]), (&Value::Null, &false.into()));
    // The same recording played twice: every step is identical.
    let change = &runs[1]["change"];
    assert_eq!((&change["outcome"], &change["recordings_p"]), (&"unchanged".into(), &1.0.into()), "{change}");
    assert_eq!(runs[1]["bottleneck"], "launch");
    // The numbers are those of `gpuwhy diff` and the report.
    ran(stage.host("mlp").env("GPUWHY_REPORT", "off"));
    let trace = stage.path("trace.gpuwhy");
    let diff = Command::new(GPUWHY).args(["diff", "--json"]).args([&trace, &trace]).output().unwrap();
    let diff: Value = serde_json::from_slice(&diff.stdout).unwrap();
    assert_eq!(runs[0]["devices"][0]["step_ns"], diff["devices"][0]["a"]["unit_ns"]);
    assert_eq!(runs[0]["devices"][0]["name"], stage.report()["devices"][0]["name"]);
    let (code, text, _) = history(&file, &["replay", "--last", "1"]);
    assert!(code == Some(0) && text.contains("(2 runs)") && text.contains("No change since the run of"), "{text}");
    let (code, _, output) = history(&file, &["another program"]);
    assert_eq!(code, Some(2), "{}", stderr(&output));
}

#[test]
fn a_slower_run_is_a_regression_and_fails() {
    let stage = Stage::new();
    let file = stage.path("history.jsonl");
    for _ in 0..2 {
        ran(&mut run(&stage, "mlp", &["--history", "history.jsonl"]));
    }
    let text = fs::read_to_string(&file).unwrap();
    let mut newest: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let device = &mut newest["devices"][0];
    device["step_ns"] = slower(&device["step_ns"]);
    device["durations_ns"] = device["durations_ns"].as_array().unwrap().iter().map(slower).collect();
    newest["start_ns"] = (newest["start_ns"].as_u64().unwrap() + 1).into();
    fs::write(&file, format!("{text}{newest}\n")).unwrap();
    let (code, text, output) = history(&file, &["--fail-if-slower", "5"]);
    assert_eq!(code, Some(1), "{text}{}", stderr(&output));
    assert!(text.contains("10.0 % slower") && text.contains("each of the 2 runs before it"), "{text}");
    assert!(
        stderr(&output).contains("more than 5 %; it is slower than each of the 2 earlier runs like it"),
        "{}",
        stderr(&output)
    );
    assert_eq!(history(&file, &["--fail-if-slower", "15"]).0, Some(0));
}

#[test]
fn nothing_is_kept_unless_it_is_asked_for() {
    let stage = Stage::new();
    ran(&mut run(&stage, "mlp", &["--history", "off"]));
    ran(run(&stage, "mlp", &[]).env("GPUWHY_HISTORY", "off"));
    // Only with the variables of the driver.
    ran(stage.host("mlp").env("XDG_STATE_HOME", stage.path("state")).env("GPUWHY_REPORT", "off"));
    assert!(!stage.path("state").exists());
    let trace = stage.path("trace.gpuwhy");
    ran(Command::new(GPUWHY).args(["report", "--history"]).arg(&trace).env("GPUWHY_HISTORY", "off"));
    let file = stage.path("own.jsonl");
    for _ in 0..2 {
        ran(Command::new(GPUWHY).args(["report", "--history"]).arg(&trace).env("GPUWHY_HISTORY", &file));
    }
    let runs = json(&file)["programs"][0]["runs"].take();
    assert_eq!(runs.as_array().unwrap().len(), 1, "the same run twice is one");
    assert_eq!(runs[0]["trace"], trace.canonicalize().unwrap().to_str().unwrap());
}

#[test]
fn a_file_that_takes_no_line_harms_no_run() {
    let stage = Stage::new();
    let full = Path::new("/dev/full");
    let pipe = stage.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let large = stage.path("large");
    fs::File::create(&large).unwrap().set_len(9 << 20).unwrap();
    for (path, why) in [
        (stage.folder.path(), "Is a directory"),
        (full, "exists and is no file"),
        (&*pipe, "exists and is no file"),
        (&*large, "is larger than 8388608 bytes"),
        (Path::new("/proc/gpuwhy/history"), "No such file or directory"),
    ] {
        let output = ran(&mut run(&stage, "mlp", &["--history", path.to_str().unwrap()]));
        let said = stderr(&output);
        assert!(said.contains(why) && said.contains("not in the history (GPUWHY_HISTORY=off"), "{path:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    // The user did not name this file, so no error is printed.
    fs::write(stage.path("state"), "in the way").unwrap();
    let output = ran(&mut run(&stage, "mlp", &[]));
    assert_eq!(stderr(&output), "");
}

#[test]
fn damaged_lines_are_counted_and_passed_over() {
    let stage = Stage::new();
    let file = stage.path("history.jsonl");
    ran(&mut run(&stage, "mlp", &["--history", "history.jsonl"]));
    let line = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{{}}\n{}", &line[..line.len() / 2])).unwrap();
    ran(&mut run(&stage, "mlp", &["--history", "history.jsonl"]));
    let (code, text, output) = history(&file, &[]);
    assert!(code == Some(3) && text.contains("(1 run)"), "{text}");
    assert!(stderr(&output).contains("2 lines are passed over; the first: "), "{}", stderr(&output));
    fs::write(&file, format!("{}{line}", line.replace("\"gpuwhy_history\":1", "\"gpuwhy_history\":2"))).unwrap();
    let (code, text, output) = history(&file, &[]);
    assert!(code == Some(3) && text.contains("(1 run)"), "{text}");
    let newer = "history.jsonl, line 1: its format has version 2; this gpuwhy reads version 1\n";
    assert!(stderr(&output).ends_with(newer), "{}", stderr(&output));
    let (code, _, output) = history(&stage.path("nowhere"), &[]);
    assert!(code == Some(2) && stderr(&output).contains("there is no history at "), "{}", stderr(&output));
}

#[test]
fn an_empty_history_has_no_runs_yet() {
    let stage = Stage::new();
    let file = stage.path("history.jsonl");
    fs::write(&file, "").unwrap();
    let (code, _, output) = history(&file, &[]);
    assert!(code == Some(2) && stderr(&output).contains("no runs yet"), "{output:?}");
}
