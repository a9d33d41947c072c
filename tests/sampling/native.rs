//! Native functions in the stacks of host samples, through libprof.so into the trace.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gpuwhy_trace::record::ThreadState;

use super::{Samples, python};
use crate::support::{Stage, stderr};

const SOURCES: &str = env!("CARGO_MANIFEST_DIR");

fn built(stage: &Stage, source: &str, options: &[&str], name: &str) -> Option<PathBuf> {
    let target = stage.path(name);
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-fomit-frame-pointer"]).args(options).arg("-o").arg(&target).arg(Path::new(SOURCES).join(source));
    let works =
        cfg!(target_arch = "x86_64") && cc.args(["-pthread", "-ldl"]).status().is_ok_and(|status| status.success());
    if !works {
        println!("SKIPPED: no C compiler for x86-64");
    }
    works.then_some(target)
}

/// Runs until what a test expects has been sampled.
const MOST_RUNS: u32 = 20;

fn play(stage: &Stage, command: &mut Command) -> Samples {
    command.env("GPUWHY_NATIVE_STACKS", "auto").env("GPUWHY_REPLAY_SPEED", "1").env("UNTIL", "1500000000");
    let output: Output = command.env("GPUWHY_REPORT", "off").output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{} {}", output.status, stderr(&output));
    Samples::read(&stage.path("trace.gpuwhy"))
}

/// Number of samples by state and stack, with the functions from `outermost` inwards.
fn seen(samples: &Samples, outermost: &str) -> BTreeMap<(ThreadState, String), u32> {
    let mut seen = BTreeMap::new();
    for sample in &samples.samples {
        let stack = samples.stack(sample);
        let Some(at) = stack.iter().position(|name| *name == outermost) else { continue };
        let stack: Vec<_> = stack[..=at].iter().rev().take(4).copied().collect();
        *seen.entry((sample.state, stack.join(" "))).or_default() += 1;
    }
    println!("{} samples: {seen:#?}", samples.samples.len());
    seen
}

fn perf_events_are_allowed(samples: &Samples) -> bool {
    let refused = samples.session.notes.iter().any(|note| note.contains("native stacks of waiting threads only"));
    if refused {
        println!("SKIPPED in part: this system allows no perf events");
    }
    !refused
}

fn c_program(stage: &Stage) -> Option<Command> {
    let plugin =
        built(stage, "host-sampler/tests/live/plugin.c", &["-shared", "-fPIC", "-fvisibility=hidden"], "plugin.so")?;
    let mut command = stage.program("resnet_workers0", built(stage, "tests/sampling/native.c", &[], "native")?);
    command.env("PLUGIN", plugin);
    Some(command)
}

#[test]
fn a_c_program_is_seen_where_it_spins_and_where_it_waits() {
    let stage = Stage::new();
    let Some(mut program) = c_program(&stage) else { return };
    let samples = play(&stage, &mut program);
    let seen = seen(&samples, "outer");
    assert!(seen.keys().any(|(state, stack)| *state == ThreadState::Sleep && stack == "outer middle inner rest"));
    if perf_events_are_allowed(&samples) {
        assert!(seen.keys().any(|(state, stack)| *state == ThreadState::Running && stack == "outer middle inner spin"));
        // The library is a different one each time, and may be unloaded by now.
        let in_plugin = samples.samples.iter().filter(|sample| samples.stack(sample).contains(&"plugin_entry")).count();
        println!("{in_plugin} in the plugin");
        assert!(in_plugin > 0);
    }
    for (_, stack) in seen.keys() {
        let known =
            ["outer middle inner rest", "outer middle inner spin", "outer middle inner", "outer middle", "outer"];
        assert!(known.contains(&stack.as_str()), "{stack}");
    }
}

#[test]
fn without_perf_events_waiting_threads_are_still_seen_and_the_reason_is_noted() {
    let stage = Stage::new();
    let Some(mut program) = c_program(&stage) else { return };
    let samples = play(&stage, program.env("DENY", "1"));
    assert!(!perf_events_are_allowed(&samples), "{:?}", samples.session.notes);
    let states: Vec<_> = seen(&samples, "outer").into_keys().map(|(state, _)| state).collect();
    assert!(states.contains(&ThreadState::Sleep) && !states.contains(&ThreadState::Running), "{states:?}");
}

/// Signal with which a seccomp filter kills a process (Linux on x86-64).
const SIGSYS: i32 = 31;

/// Services of systemd with `SystemCallFilter=` have such a filter.
#[test]
fn a_filter_that_ends_the_program_is_not_tried_unasked() {
    let Some(python) = python() else { return };
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let stage = Stage::new();
    let run = |native: &str| {
        let mut program = stage.program("resnet_workers0", python);
        program.arg("-S").arg(Path::new(SOURCES).join("tests/sampling/native.py")).env("KILL", "1");
        program.envs([("GPUWHY_MODE", "monitor"), ("GPUWHY_NATIVE_STACKS", native), ("GPUWHY_REPORT", "off")]);
        program.envs([("GPUWHY_REPLAY_SPEED", "1"), ("UNTIL", "1500000000")]).output().unwrap()
    };
    let output = run("");
    assert!(output.status.success() && output.stderr.is_empty(), "{} {}", output.status, stderr(&output));
    let notes = Samples::read(&stage.path("trace.gpuwhy")).session.notes;
    assert!(notes.iter().any(|note| note.contains("a filter of system calls holds")), "{notes:?}");
    assert_eq!(run("auto").status.signal(), Some(SIGSYS), "who asks for them gets them tried");
}

#[test]
fn native_functions_go_on_top_of_the_python_functions_that_called_them() {
    let Some(python) = python() else { return };
    let is_called = |samples: &Samples, function: &str, inner: &[&str]| {
        samples.samples.iter().any(|sample| {
            let stack = samples.stack(sample);
            let at = stack.iter().position(|name| *name == function);
            at.is_some_and(|at| {
                assert_eq!(stack[at + 1..], ["main", "<module>"]);
                !stack.iter().any(|name| name.starts_with("_PyEval_EvalFrameDefault"))
                    && stack[..at].iter().any(|name| inner.contains(name))
            })
        })
    };
    let lock = ["PyThread_acquire_lock_timed", "acquire_timed", "lock_PyThread_acquire_lock"];
    let sort = ["list_sort_impl", "builtin_sorted", "PyList_Sort", "list_sort", "list_extend"];
    // On a busy machine a run yields few samples, so the program runs until both functions have been sampled.
    let (mut waited, mut sorted) = (false, false);
    for _ in 0..MOST_RUNS {
        let stage = Stage::new();
        let mut program = stage.program("resnet_workers0", python);
        program.arg("-S").arg(Path::new(SOURCES).join("tests/sampling/native.py"));
        let samples = play(&stage, &mut program);
        if !cfg!(target_arch = "x86_64") {
            return;
        }
        waited |= is_called(&samples, "wait", &lock);
        sorted |= !perf_events_are_allowed(&samples) || is_called(&samples, "order", &sort);
        if waited && sorted {
            return;
        }
    }
    panic!("in {MOST_RUNS} runs: sampled in the lock {waited}, in the sort {sorted}");
}
