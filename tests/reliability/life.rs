//! Lifetime of a process: how the program starts, forks, execs, and ends.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use super::program::{CODE, EXIT_TIMEOUT, PRINTED, outcome, outcome_of_hang, program};
use super::table;
use crate::support::{GPUWHY, Stage, report};

/// Time at which the program exits, milliseconds of the recording: in the middle of its copies.
const LEAVES_AT: u64 = 500;
/// Time up to which the trace must be complete, milliseconds of the recording: play waits for two flushes at
/// 400.
const COMPLETE_UNTIL: u64 = 350;
/// On a busy machine the collector may be late, and then loses data. One success in this number of runs is
/// enough.
const TRIES: usize = 5;

/// Ways to exit, with the kind of end in the trace.
const ENDINGS: &[(&str, &str)] = &[
    ("exit", "clean"),
    ("_exit", "abrupt"),
    ("abort", "abrupt"),
    ("segfault", "abrupt"),
    ("int", "abrupt"),
    ("term", "abrupt"),
    ("kill", "abrupt"),
];

/// The same program without libprof.so.
fn bare(command: &Command) -> Command {
    let mut bare = Command::new(command.get_program());
    bare.args(command.get_args()).env_remove("CUDA_INJECTION64_PATH");
    bare
}

/// Time up to which an abruptly ended trace says that it is complete.
fn complete_until(stage: &Stage) -> Duration {
    let (_, json) = report(&stage.path("trace.gpuwhy"));
    let start = json["process"]["start_time_unix_ns"].as_u64().unwrap();
    let until = json["completeness"]["complete_until_unix_ns"].as_u64().unwrap();
    let text = Command::new(GPUWHY).arg("report").arg(stage.path("trace.gpuwhy")).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    let sentence =
        "The trace has no end: the program still runs or was killed, or the file was cut off. Everything up to";
    assert!(text.contains(sentence), "{text}");
    Duration::from_nanos(until - start)
}

#[test]
fn every_way_out_is_the_programs_own_and_the_trace_says_what_it_cost() {
    let mut rows = Vec::new();
    for (how, end) in ENDINGS {
        let status = |output: &std::process::Output| (output.status.code(), output.status.signal());
        let mut lost = Vec::new();
        let seen = loop {
            let stage = Stage::new();
            let mut command = program(&stage);
            command.args(["--exit", how, "--until", &LEAVES_AT.to_string()]).env("GPUWHY_REPLAY_SPEED", "1");
            let expected = bare(&command).output().unwrap();
            let seen = outcome(&mut command, &stage.path("trace.gpuwhy"));
            assert_eq!(status(&seen.output), status(&expected), "{how}");
            assert_eq!(seen.output.stdout, expected.stdout, "{how}");
            // On a busy machine a killed program may end before its trace begins.
            let complete = match &seen.trace {
                Some((_, seen_end)) => {
                    assert_eq!(seen_end, end, "{how}");
                    if *end != "abrupt" {
                        break seen;
                    }
                    complete_until(&stage)
                }
                None => {
                    assert_eq!(*end, "abrupt", "{how}");
                    Duration::ZERO
                }
            };
            if complete >= Duration::from_millis(COMPLETE_UNTIL) {
                break seen;
            }
            lost.push(complete);
            assert!(lost.len() < TRIES, "{how}: complete for {lost:?}");
        };
        let stated = match *end {
            "abrupt" => "until when it is whole, and about how much a kill loses",
            _ => "nothing missing",
        };
        let (code, signal) = status(&seen.output);
        let ended = signal.map_or_else(|| format!("exit code {}", code.unwrap()), |signal| format!("signal {signal}"));
        rows.push(vec![(*how).to_owned(), ended, (*end).to_owned(), stated.to_owned()]);
    }
    table::check("endings", &["the program ends by", "as without gpuwhy", "trace ends", "it says"], &rows);
}

#[test]
fn an_exit_while_a_flush_runs_waits_for_it_and_no_longer() {
    let run = |flush: &str, timeout: &str| {
        let stage = Stage::new();
        let mut command = program(&stage);
        command
            .env("GPUWHY_REPLAY_FAULT", format!("cuptiActivityFlushAll={flush}"))
            .env("GPUWHY_EXIT_TIMEOUT", timeout);
        let seen = outcome(&mut command, &stage.path("trace.gpuwhy"));
        seen.is_the_programs_own(flush);
        seen
    };
    let waited = run("300ms", EXIT_TIMEOUT);
    assert_eq!(waited.trace.unwrap().1, "clean", "{:?}", waited.said);
    let gave_up = outcome_of_hang(|timeout| run("60000ms", timeout));
    assert_eq!(gave_up.trace.unwrap().1, "timed_out", "{:?}", gave_up.said);
}

#[test]
fn an_exit_from_another_thread_in_the_middle_of_play_is_clean() {
    let stage = Stage::new();
    let mut command = program(&stage);
    // After the first copy of the recording, and before the last.
    command.args(["--call", "700:exitOnThread"]).env("GPUWHY_REPLAY_SPEED", "1");
    let seen = outcome(&mut command, &stage.path("trace.gpuwhy"));
    assert_eq!(seen.output.status.code(), Some(CODE), "{seen:?}");
    let (records, end) = seen.trace.unwrap();
    assert!(records > 0 && end == "clean", "{records} {end}");
}

#[test]
fn a_thread_that_ends_takes_nothing_along() {
    let stage = Stage::new();
    let seen = outcome(program(&stage).arg("--start-on-thread"), &stage.path("trace.gpuwhy"));
    seen.is_the_programs_own("started on a thread");
    assert_eq!(seen.trace.unwrap().1, "clean");
}

#[test]
fn each_process_that_uses_cuda_has_a_file_and_no_other() {
    // Time of the fork, action of the child, and the traces that must exist afterwards.
    let cases = [
        ("before", "nothing", 1),
        ("before", "play", 2),
        ("before", "exec", 2),
        ("after", "nothing", 1),
        ("after", "exit", 1),
        ("after", "exec", 2),
        ("end", "exit", 1),
        ("end", "exec", 2),
    ];
    let mut rows = Vec::new();
    for (when, child, files) in cases {
        let stage = Stage::new();
        let mut command = program(&stage);
        command.args(["--fork", when, "--child", child, "--exit-code", "0"]).env("GPUWHY_OUTPUT", "%p.gpuwhy");
        let seen = outcome(&mut command, &stage.path("none"));
        assert!(seen.output.status.success(), "{when} {child}: {seen:?}");
        // A child that plays prints too.
        let printed = String::from_utf8_lossy(&seen.output.stdout).matches(PRINTED).count();
        assert_eq!(printed, if child == "play" { 2 } else { 1 }, "{when} {child}");
        let mut processes = Vec::new();
        for entry in stage.folder.path().read_dir().unwrap() {
            let path = entry.unwrap().path();
            let (_, json) = report(&path);
            assert_eq!(json["completeness"]["end"], "clean", "{when} {child}");
            let process = json["process"]["pid"].to_string();
            assert_eq!(path.file_stem().unwrap().to_str(), Some(process.as_str()), "{when} {child}");
            processes.push(process);
        }
        assert_eq!(processes.len(), files, "{when} {child}: {processes:?}");
        rows.push(vec![format!("fork {when}"), child.to_owned(), files.to_string()]);
    }
    table::check("forks", &["the program", "its child", "traces, whole"], &rows);
}

#[test]
fn the_place_in_the_job_is_in_the_report() {
    let stage = Stage::new();
    let mut command = program(&stage);
    command.envs([("RANK", "3"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1"), ("SLURM_JOB_ID", "77"), ("PMI_RANK", "5")]);
    outcome(&mut command, &stage.path("trace.gpuwhy")).is_the_programs_own("ranks");
    let (_, json) = report(&stage.path("trace.gpuwhy"));
    let ranks = &json["process"]["rank_variables"];
    for (name, value) in [("RANK", "3"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1"), ("SLURM_JOB_ID", "77")] {
        assert_eq!(ranks[name], value, "{ranks}");
    }
    let text = Command::new(GPUWHY).arg("report").arg(stage.path("trace.gpuwhy")).output().unwrap();
    assert!(String::from_utf8(text.stdout).unwrap().contains("rank 3 of 8"));
}

#[test]
fn without_a_usable_libcupti_the_program_runs_as_ever_and_one_line_says_why() {
    let no_cupti = std::path::Path::new(GPUWHY).parent().unwrap().join("examples/libfaulty_disk.so");
    assert!(no_cupti.is_file(), "{} was not built: run `cargo test --workspace`", no_cupti.display());
    for (path, reason) in [
        (std::path::Path::new("/nowhere/libcupti.so.13"), "cannot open shared object file"),
        (&no_cupti, "is no CUPTI of CUDA 11.8 or later"),
    ] {
        let stage = Stage::new();
        let mut command = program(&stage);
        let seen = outcome(command.arg("--no-replay").env("GPUWHY_CUPTI_PATH", path), &stage.path("trace.gpuwhy"));
        seen.is_the_programs_own(reason);
        // On a machine with a libcupti, that one is used instead, and finds no CUDA program to measure.
        if !seen.said.is_empty() {
            let text = String::from_utf8_lossy(&seen.output.stderr);
            assert!(text.contains("no usable libcupti") && text.contains(reason), "{text}");
        }
        assert!(seen.trace.is_none());
    }
}
