//! Programs that are difficult for a library inside them: `host.c` implements them, and checks its files,
//! threads and children afterwards.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::program::{CODE, EXIT_TIMEOUT, FIXTURE, outcome, program};
use crate::support::{GPUWHY, Stage, built, report, stderr, sum};

/// A program counts as hanging after this number of seconds.
const HANGS: &str = "180";

/// Builds the program in a separate folder; its time is limited.
fn host(stage: &Stage, habit: &str) -> Command {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reliability/host.c");
    let binary = stage.path("host");
    let arguments = ["-O1", "-pthread", "-o"].map(str::to_owned);
    assert!(Command::new("cc").args(arguments).arg(&binary).arg(source).arg("-ldl").status().unwrap().success());
    let mut command = stage.program(FIXTURE, "timeout");
    command
        .args(["-k", "1", HANGS])
        .arg(binary)
        .arg(habit)
        .env("GPUWHY_REPLAY_SPEED", "max")
        .env("GPUWHY_FLUSH", "10ms")
        .env("GPUWHY_REPORT", "off")
        .env("GPUWHY_EXIT_TIMEOUT", EXIT_TIMEOUT);
    command
}

/// Runs the program, which must behave as without libprof.so.
fn run(stage: &Stage, command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let wrong = fs::read_to_string(stage.path("wrong")).unwrap_or_default();
    assert_eq!(output.status.code(), Some(CODE), "{command:?}: {wrong}{output:?}");
    output
}

/// Number of records in the trace, and its kind of end.
fn trace(stage: &Stage) -> (u64, String) {
    let (_, json) = report(&stage.path("trace.gpuwhy"));
    let end = json["completeness"]["end"].as_str().unwrap().to_owned();
    (sum(&json["completeness"]["records"]), end)
}

#[test]
fn a_program_without_standard_streams_has_its_own_files_there() {
    let stage = Stage::new();
    run(&stage, host(&stage, "closed-streams").env("GPUWHY_REPORT", "summary").env("GPUWHY_LOG", "debug"));
    assert_eq!(fs::read_to_string(stage.path("zero")).unwrap(), "");
    assert_eq!(fs::read_to_string(stage.path("one")).unwrap(), "out\n".repeat(200));
    assert_eq!(fs::read_to_string(stage.path("two")).unwrap(), "error\n", "a file of the program's, no stderr");
    let (records, end) = trace(&stage);
    assert!(records > 0 && end == "clean", "{records} {end}");
    let text = Command::new(GPUWHY).arg("report").arg(stage.path("trace.gpuwhy")).output().unwrap();
    assert!(!String::from_utf8_lossy(&text.stdout).contains("no intact block"), "{text:?}");
}

#[test]
fn a_program_that_closes_all_descriptors_keeps_its_own_files_to_itself() {
    let stage = Stage::new();
    let output = run(&stage, &mut host(&stage, "closes-all"));
    let said = stderr(&output);
    assert_eq!(said.matches("the program has closed this descriptor; the trace ends here").count(), 1, "{said}");
    assert_eq!(trace(&stage).1, "abrupt");
    assert!(fs::read_dir(stage.sockets()).unwrap().next().is_none(), "the socket's file is gone");
}

#[test]
fn without_a_free_descriptor_a_connection_waits_and_no_core_is_spent() {
    let stage = Stage::new();
    run(&stage, &mut host(&stage, "no-descriptor-left"));
    assert_eq!(trace(&stage).1, "clean");
}

#[test]
fn a_child_made_without_fork_handlers_neither_waits_nor_speaks() {
    for how in ["clone", "_Fork"] {
        let stage = Stage::new();
        let output = run(&stage, &mut host(&stage, how));
        assert_eq!(stderr(&output), "", "{how}");
        assert_eq!(trace(&stage).1, "clean", "{how}");
    }
}

#[test]
fn python_reports_after_ctrl_c() {
    // As the driver does it in cuInit. Python ends by the signal, without `exit`. A script's background jobs ignore it.
    let program = "import ctypes, os, signal\n\
        signal.signal(signal.SIGINT, signal.default_int_handler)\n\
        ctypes.CDLL(os.environ['CUDA_INJECTION64_PATH']).InitializeInjection()\n\
        ctypes.CDLL(os.environ['GPUWHY_CUPTI_PATH']).gpuwhy_replay_play(ctypes.c_uint64(2**64 - 1))\n\
        signal.raise_signal(signal.SIGINT)";
    let stage = Stage::new();
    let Ok(output) = stage.program(FIXTURE, "python3").args(["-c", program]).output() else {
        println!("SKIPPED: no python3");
        return;
    };
    const SIGINT: i32 = 2;
    assert_eq!(output.status.signal(), Some(SIGINT), "{output:?}");
    let said = stderr(&output);
    assert!(said.contains("KeyboardInterrupt") && said.contains("Bottleneck"), "{said}");
    assert_eq!(trace(&stage).1, "clean");
}

#[test]
fn no_connection_is_asked_for_that_is_not_there() {
    let stage = Stage::new();
    run(&stage, &mut host(&stage, "no-connections"));
    assert_eq!(trace(&stage).1, "clean");
}

#[test]
fn where_no_thread_can_be_started_nothing_is_switched_on() {
    let stage = Stage::new();
    let said = stderr(&run(&stage, &mut host(&stage, "no-threads")));
    assert!(said.contains("nothing is measured in this process: cannot start a thread"), "{said}");
    assert!(!stage.path("trace.gpuwhy").exists());
}

#[test]
fn close_to_a_limit_on_memory_records_are_dropped_and_counted_instead_of_an_abort() {
    let stage = Stage::new();
    let said = stderr(&run(&stage, &mut host(&stage, "memory-runs-out")));
    assert_eq!(said.matches("leave too little memory: records are dropped").count(), 1, "{said}");
    let (_, json) = report(&stage.path("trace.gpuwhy"));
    assert_eq!(json["completeness"]["end"], "clean");
    assert!(json["completeness"]["dropped_by_gpuwhy"].as_u64().unwrap() > 0, "{}", json["completeness"]);
    let stage = Stage::new();
    let said = stderr(&run(&stage, &mut host(&stage, "little-memory")));
    assert!(said.contains("MiB of memory, and measuring needs 1024"), "{said}");
    assert!(!stage.path("trace.gpuwhy").exists());
}

/// Copies a library without the linker flag that keeps it loaded (`-z nodelete`), as for a plugin that has
/// linked the collector.
fn that_can_be_unloaded(library: &Path, copy: PathBuf) -> PathBuf {
    const DYNAMIC: u32 = 2;
    const FLAGS_1: u64 = 0x6fff_fffb;
    const NODELETE: u8 = 8;
    let mut bytes = fs::read(library).unwrap();
    let number = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    // ELF64: position and number of the program headers, and for each its type, offset and size in the file.
    let (headers, count) = (number(&bytes, 32), usize::from(bytes[56]));
    let is_dynamic = |at: &usize| bytes[*at..*at + 4] == DYNAMIC.to_le_bytes();
    let at = (0..count).map(|header| headers + header * 56).find(is_dynamic).unwrap();
    let (offset, size) = (number(&bytes, at + 8), number(&bytes, at + 32));
    let entry = (offset..offset + size).step_by(16).find(|&at| number(&bytes, at) as u64 == FLAGS_1).unwrap();
    assert_ne!(bytes[entry + 8] & NODELETE, 0, "libprof.so is linked with it");
    bytes[entry + 8] &= !NODELETE;
    fs::write(&copy, bytes).unwrap();
    copy
}

#[test]
fn a_plugin_that_has_linked_the_collector_is_not_unloaded() {
    let stage = Stage::new();
    let library = that_can_be_unloaded(&built("libprof.so"), stage.path("libplugin.so"));
    let mut command = host(&stage, "unloads");
    command.env("CUDA_INJECTION64_PATH", &library).env_remove("NVTX_INJECTION64_PATH");
    // Played at its original speed, so that measuring ends before the program does.
    command.env("GPUWHY_REPLAY_SPEED", "1").env("GPUWHY_DURATION", "50ms");
    run(&stage, command.env("GPUWHY_CONTROL", "off"));
    assert_eq!(trace(&stage).1, "clean");
}

#[test]
fn the_size_of_stacks_is_none_of_the_environments() {
    for bytes in ["4096", "100000000000000"] {
        let stage = Stage::new();
        let seen = outcome(program(&stage).env("RUST_MIN_STACK", bytes), &stage.path("trace.gpuwhy"));
        seen.is_the_programs_own(bytes);
        assert_eq!((seen.trace.unwrap().1.as_str(), &*seen.said), ("clean", &[][..]), "{bytes}");
    }
}

#[test]
fn a_limit_beyond_what_there_is_is_said_and_the_default_holds() {
    for (variable, value) in [("GPUWHY_BUFFER_MEMORY", "1000000G"), ("GPUWHY_EXIT_TIMEOUT", "1e19")] {
        let stage = Stage::new();
        let seen = outcome(program(&stage).env(variable, value), &stage.path("trace.gpuwhy"));
        seen.is_the_programs_own(variable);
        assert!(seen.said[0].contains(variable) && seen.said[0].contains("is not understood"), "{:?}", seen.said);
        assert_eq!((seen.trace.unwrap().1.as_str(), seen.said.len()), ("clean", 1), "{variable}");
    }
}

/// Most bytes of the program's stack that the start takes, in a build without optimization.
const MOST_STACK: u64 = 96 << 10;

#[test]
fn a_start_takes_little_of_the_stack() {
    let stage = Stage::new();
    run(&stage, &mut host(&stage, "small-stack"));
    let taken: u64 = fs::read_to_string(stage.path("stack")).unwrap().parse().unwrap();
    assert!(taken < MOST_STACK, "{taken}");
    assert_eq!(trace(&stage).1, "clean");
}

#[test]
fn a_program_with_more_rights_than_its_caller_is_not_measured() {
    let stage = Stage::new();
    let mut command = host(&stage, "privileged");
    command.env("GPUWHY_HISTORY", stage.path("history.jsonl"));
    let binary = stage.path("host");
    // Only root may give a file to another group.
    if chown(&binary, None, Some(65_534)).is_err() {
        println!("SKIPPED: not root");
        return;
    }
    fs::set_permissions(&binary, Permissions::from_mode(0o2755)).unwrap();
    let output = run(&stage, &mut command);
    if stage.path("unprivileged").exists() {
        println!("SKIPPED: setgid has no effect in {}", binary.display());
        return;
    }
    let said = stderr(&output);
    assert!(said.contains("nothing is measured") && said.contains("more rights than its caller"), "{said}");
    for file in ["trace.gpuwhy", "history.jsonl"] {
        assert!(!stage.path(file).exists(), "{file}");
    }
}

#[test]
fn a_pipe_in_place_of_a_library_is_not_opened() {
    let stage = Stage::new();
    let pipe = stage.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut command = program(&stage);
    command.env("GPUWHY_CUPTI_PATH", &pipe).arg("--no-replay");
    let mut limited = stage.program(FIXTURE, "timeout");
    limited.args(["-k", "1", HANGS]).arg(command.get_program()).args(command.get_args());
    limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let seen = outcome(&mut limited, &stage.path("trace.gpuwhy"));
    seen.is_the_programs_own("GPUWHY_CUPTI_PATH");
    let text = stderr(&seen.output);
    // On a machine with a libcupti, that one is used instead.
    assert!(seen.said.is_empty() || text.contains("exists and is no regular file"), "{text}");
    assert_eq!(seen.trace, None);
}
