//! The host program: how it loads, ends and forks, and that it reports a profiler that misbehaves.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::tempdir;

use crate::client::library_file;
use crate::recording::kernels;

/// The library of `tests/profiler`, which cargo builds as an example of this package.
fn profiler_file() -> PathBuf {
    let folder = library_file().parent().and_then(|deps| deps.parent().map(|root| root.join("examples"))).unwrap();
    folder.join("libtest_profiler.so")
}

/// The host program, with a profiler that misbehaves in this way.
fn command(habit: &str, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuwhy-replay-host"));
    command
        .args(arguments.split_whitespace())
        .env("CUDA_INJECTION64_PATH", profiler_file())
        .env("GPUWHY_CUPTI_PATH", library_file())
        .env("TEST_PROFILER", habit)
        .env_remove("GPUWHY_REPLAY")
        .env_remove("GPUWHY_REPLAY_SPEED");
    command
}

/// Runs it on 30 kernels of one context.
fn host(habit: &str, arguments: &str) -> Output {
    let folder = tempdir().unwrap();
    let recording = kernels(30, 10).save(folder.path());
    command(habit, arguments).env("GPUWHY_REPLAY", recording).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn plays_to_the_end_and_leaves_with_the_code_asked_for() {
    let output = host("", "--print hello --exit-code 7 --counts");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(7), b"hello\n".as_slice()), "{output:?}");
    let stderr = stderr(&output);
    assert!(stderr.contains("profiler: 30 records, 1 contexts"), "{stderr}");
    assert!(stderr.contains("delivered: 30, left_out: 0, dropped: 0"), "{stderr}");
}

#[test]
fn leaves_early() {
    let output = host("", "--until 0");
    // The first kernel begins with the recording: a forced flush delivers it although it is still running.
    assert!(stderr(&output).contains("profiler: 1 records"), "{output:?}");
}

#[test]
fn without_exit_handlers_nothing_is_said() {
    let output = host("", "--exit _exit --exit-code 9");
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(9), ""));
    assert_eq!(host("", "--exit kill").status.signal(), Some(libc::SIGKILL));
    assert_eq!(host("", "--exit abort").status.signal(), Some(libc::SIGABRT));
}

#[test]
fn a_program_without_its_profiler_goes_on() {
    let output = host("refuse", "--exit-code 4 --print on");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(4), b"on\n".as_slice()), "{output:?}");
}

#[test]
fn children_come_and_go() {
    for when in ["before", "after", "end"] {
        for child in ["nothing", "exit"] {
            let output = host("", &format!("--fork {when} --child {child} --exit-code 5"));
            assert_eq!(
                output.status.code(),
                Some(if when != "before" && child == "exit" { 3 } else { 5 }),
                "{output:?}"
            );
        }
    }
}

#[test]
fn violations_are_listed_and_fail_the_run() {
    for exit in ["exit", "_exit", "kill"] {
        let output = host("flush-inside", &format!("--exit {exit}"));
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert!(stderr(&output).contains("from bufferCompleted"), "{output:?}");
    }
    let output = host("call-after-fork", "--fork after");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(stderr(&output).contains("forked child: called in the child of a fork"), "{output:?}");
}

#[test]
fn a_wrong_set_up_is_distinguished_from_a_failure() {
    for (variable, value, part) in [
        ("GPUWHY_REPLAY", "/nonexistent/session", "/nonexistent/session: No such file"),
        ("CUDA_INJECTION64_PATH", "/nonexistent/lib.so", "/nonexistent/lib.so"),
        ("GPUWHY_REPLAY_SPEED", "soon", "GPUWHY_REPLAY_SPEED=\"soon\""),
    ] {
        let mut command = command("", "");
        let output = command.env(variable, value).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr(&output).contains(part), "{part}: {output:?}");
    }
    assert_eq!(command("", "--exit soon").output().unwrap().status.code(), Some(2));
}
