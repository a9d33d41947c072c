//! `gpuwhy run --pytorch memory` end to end: a fake torch whose allocator is a list (`support/torch_memory.py`), the
//! built libprof.so over a recorded session, and the report.
//!
//! Prints `SKIPPED` without a python3.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{GPUWHY, Stage, built, report, stderr};

/// Trains: a parameter of 8 MiB, 20 MiB of activations, a state of 16 MiB, and 3 MiB that stay with each step.
const TRAIN: &str = "import os, sys, torch
lost = []

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self._parameters['weight'] = torch.nn.Parameter(8)
        self._buffers['mean'] = torch.Tensor(1)

    def forward(self):
        return [torch.Tensor(16), torch.Tensor(4)]

def keep():
    lost.append(torch.Tensor(3))

def train(steps=60):
    model = Model()
    weights = [model._parameters['weight']]
    optimizer = torch.optim.Optimizer(weights)
    for step in range(steps):
        hidden = model.forward()
        torch.autograd.backward(hidden, weights)
        del hidden
        optimizer.step()
        keep()
    print('trained')

";
const MIB: u64 = 1 << 20;

/// A stage with the fake torch; `None` without a python3.
fn stage() -> Option<Stage> {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("SKIPPED: no python3");
        return None;
    }
    let stage = Stage::new();
    std::fs::create_dir_all(stage.path("lib/torch")).unwrap();
    std::fs::create_dir(stage.path("tmp")).unwrap();
    std::fs::write(stage.path("lib/torch/__init__.py"), include_str!("support/torch_memory.py")).unwrap();
    Some(stage)
}

fn command(stage: &Stage, program: &str) -> Command {
    let path = stage.path("train.py");
    std::fs::write(&path, format!("{TRAIN}{program}")).unwrap();
    let mut command = stage.program("mlp", GPUWHY);
    command.args(["run", "--pytorch", "memory", "--", "python3"]).arg(path);
    command
        .env("GPUWHY_LIB", built("libprof.so"))
        .env("PYTHONPATH", stage.path("lib"))
        .env("TMPDIR", stage.path("tmp"));
    command
}

fn run(stage: &Stage, program: &str) -> Output {
    let output = command(stage, program).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "trained\n", "nothing of gpuwhy");
    output
}

fn blocks(stage: &Stage) -> Value {
    stage.report()["memory"]["devices"][0]["blocks"].clone()
}

/// Bytes of a class at the peak.
fn of_class(blocks: &Value, class: &str) -> u64 {
    let rows = blocks["peak"]["rows"].as_array().unwrap().iter();
    rows.filter(|row| row["class"] == class).map(|row| row["bytes"].as_u64().unwrap()).sum()
}

#[test]
fn blocks_at_the_peak_have_their_owners_and_what_stays_its_line() {
    let Some(stage) = stage() else { return };
    let output = run(&stage, "torch.allocator.initialize()\ntrain()\ntorch.allocator.run_out(2 << 30, 1 << 30)\n");
    let blocks = blocks(&stage);
    let peak = &blocks["peak"];
    assert_eq!(peak["moment"], "before_backward");
    assert!(peak["step"].as_u64() >= Some(40), "{peak}");
    let exact = ["parameters", "gradients", "optimizer_state", "buffers"].map(|class| of_class(&blocks, class) / MIB);
    assert_eq!(exact, [8, 8, 16, 1]);
    // With what the program kept since the end of the previous step.
    assert_eq!(of_class(&blocks, "activations") / MIB, 23, "{peak}");
    let rows: u64 = peak["rows"].as_array().unwrap().iter().map(|row| row["bytes"].as_u64().unwrap()).sum();
    assert_eq!(peak["allocated_bytes"], rows);
    let growth = &blocks["growth"];
    assert_eq!([growth["bytes"].as_f64(), growth["low"].as_f64()], [Some(3.0 * MIB as f64); 2]);
    assert_eq!([&growth["site"]["function"], &growth["site"]["line"]], [&Value::from("keep"), &Value::from(14)]);
    let out = &blocks["out_of_memory"][0];
    assert_eq!((&out["asked_bytes"], &out["step"]), (&Value::from(2048 * MIB), &Value::from(60)));
    assert_eq!(out["largest_gap_bytes"], 16 * MIB);
    assert_eq!(out["site"]["function"], "<module>");
    let text = stderr(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "PyTorch's peak that was seen (before backward, after ",
        "optimizer state 16.8 MB",
        "Live memory grows by 3.1 MB a step, allocated at train.py:14 (keep).",
        "21.0 MB at train.py:11 (forward)), other",
        "MB (at train.py:14 (keep)); free in PyTorch's cache",
        "Steps are slower in this run: PyTorch recorded the stack of each allocation.",
        "Out of memory: 2.1 GB asked at train.py:30 (<module>); 1.1 GB free on the GPU",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(std::fs::read_dir(stage.path("tmp")).unwrap().count(), 0);
}

#[test]
fn the_marks_are_not_shown_as_those_of_the_program() {
    let Some(stage) = stage() else { return };
    let output = run(&stage, "torch.allocator.initialize()\ntrain(5)\n");
    assert!(!stderr(&output).contains("gpuwhy memory"), "{}", stderr(&output));
    let trace = stage.path("trace.gpuwhy");
    let query = ["query", "--format", "csv", "SELECT count(*) FROM nvtx"];
    let rows = Command::new(GPUWHY).args(query).arg(&trace).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&rows.stdout).lines().last(), Some("0"));
    for (arguments, file) in
        [(&["export", "--to", "chrome", "-o"][..], "out.json"), (&["report", "--html"], "out.html")]
    {
        let done = Command::new(GPUWHY).args(arguments).arg(stage.path(file)).arg(&trace).output().unwrap();
        assert!(done.status.success(), "{}", stderr(&done));
        let text = std::fs::read_to_string(stage.path(file)).unwrap();
        assert!(!text.contains("gpuwhy memory") && !text.contains("before_backward\\t"), "{file}");
    }
    let again = Command::new(GPUWHY)
        .args(["export", "--to", "gpuwhy", "-o"])
        .arg(stage.path("again.gpuwhy"))
        .arg(&trace)
        .status();
    assert!(again.unwrap().success());
    assert_eq!(report(&stage.path("again.gpuwhy")).1["memory"]["pytorch"]["steps"], 5, "a copy of the trace has them");
}

#[test]
fn a_program_that_ends_without_its_exit_handlers_keeps_its_blocks() {
    let Some(stage) = stage() else { return };
    let mut command =
        command(&stage, "import time\ntorch.allocator.initialize()\ntrain(3)\nwhile True: time.sleep(60)\n");
    let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let trace = stage.path("trace.gpuwhy");
    let until = Instant::now() + Duration::from_secs(120);
    while !(trace.exists() && report(&trace).1["memory"]["devices"][0]["blocks"]["peak"]["step"] == 2) {
        assert!(Instant::now() < until, "no blocks");
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(of_class(&blocks(&stage), "optimizer_state"), 16 * MIB);
}

#[test]
fn a_history_that_the_program_records_is_left_alone() {
    let Some(stage) = stage() else { return };
    let before = "torch.cuda.memory._record_memory_history()\ntorch.allocator.initialize()\n";
    let after = "torch.allocator.initialize()\ntorch.cuda.memory._record_memory_history()\n";
    for (program, calls) in [(before, 1), (after, 2)] {
        let show = format!("train()\nassert len(torch.allocator.calls) == {calls}, torch.allocator.calls\n");
        let output = run(&stage, &format!("{program}{show}"));
        let text = stderr(&output);
        let said = "gpuwhy: no memory of PyTorch from here on: the program records PyTorch's memory history itself";
        assert_eq!(text.matches(said).count(), 1, "{text}");
        let report = stage.report();
        assert_eq!(report["memory"]["pytorch"]["note"], "the program records PyTorch's memory history itself");
        assert_eq!(report["memory"]["devices"][0]["blocks"]["peak"], Value::Null);
    }
}

#[test]
fn what_fails_is_said_once_and_leaves_the_program_alone() {
    let Some(stage) = stage() else { return };
    for (variable, value, reason) in [
        ("TEST_BROKEN", "1", "KeyError: 'broken snapshot'"),
        ("TEST_CUDA", "", "RuntimeError: this PyTorch was built without CUDA"),
    ] {
        let output = command(&stage, "torch.allocator.initialize()\ntrain()\n").env(variable, value).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "trained\n");
        let text = stderr(&output);
        assert_eq!(text.matches(&format!("gpuwhy: no memory of PyTorch: {reason}")).count(), 1, "{text}");
    }
}

#[test]
fn what_fails_without_a_stderr_leaves_the_program_alone() {
    let Some(stage) = stage() else { return };
    for replaced in ["None", "open('/dev/full', 'w', buffering=1)"] {
        let program = format!("sys.stderr = {replaced}\ntorch.allocator.initialize()\ntrain()\n");
        let output = command(&stage, &program).env("TEST_BROKEN", "1").output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "trained\n", "{}", stderr(&output));
    }
}

#[test]
fn a_forked_child_adds_nothing() {
    let Some(stage) = stage() else { return };
    let child = "torch.allocator.initialize()
train(2)
child = os.fork()
if child == 0:
    sys.stdout = open(os.devnull, 'w')
    train(40)
    raise SystemExit
os.waitpid(child, 0)
";
    run(&stage, child);
    let report = stage.report();
    assert_eq!(report["memory"]["pytorch"]["steps"], 2);
}
