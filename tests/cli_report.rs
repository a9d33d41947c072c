//! `gpuwhy report` with good, damaged and foreign files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use gpuwhy_report::history::{Measured, arguments, program};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::{StoredReport, TraceReader, TraceWriter};
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{
    ApiCall, ApiDomain, ApiFunction, ContextId, CorrelationId, DeviceId, Kernel, LaunchConfig, Loss, Record, StreamId,
    ThreadId, Timestamp,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::stderr;

/// Number of kernels in the traces that [`trace`] makes: enough for several blocks.
const KERNELS: u32 = 400;

/// Bytes of a trace with launches and kernels, flushed after every 100.
fn trace() -> Vec<u8> {
    let mut dictionary = Dictionary::new();
    let name = dictionary.intern_name("my_kernel");
    let config = dictionary.intern_launch_config(LaunchConfig { name, ..LaunchConfig::default() });
    let name = dictionary.intern_name("cudaLaunchKernel_v7000");
    let function = dictionary.intern_api_function(ApiFunction { domain: ApiDomain::Runtime, callback_id: 211, name });
    let session = ProcessInfo {
        process_id: 4711,
        command: vec!["python".into(), "train.py".into()],
        host: "node7".into(),
        start: at(0),
        ..ProcessInfo::default()
    };
    let mut writer = TraceWriter::new(Vec::new(), &session).unwrap();
    for number in 0..KERNELS {
        let begin = u64::from(number) * 10;
        let correlation = CorrelationId(number + 1);
        let call = ApiCall {
            start: at(begin),
            end: at(begin + 3),
            thread: ThreadId(9),
            correlation,
            function,
            return_value: 0,
        };
        let kernel = Kernel {
            start: at(begin + 5),
            end: at(begin + 9),
            device: DeviceId(0),
            context: ContextId(1),
            stream: StreamId(7),
            correlation,
            config,
            ..Kernel::default()
        };
        writer.event(&Event::Record(Record::Api(call)), &dictionary).unwrap();
        writer.event(&Event::Record(Record::Kernel(kernel)), &dictionary).unwrap();
        if number % 100 == 99 {
            writer.event(&Event::Flush(at(begin + 10)), &dictionary).unwrap();
        }
    }
    let end = at(u64::from(KERNELS) * 10);
    writer.finish(End::Clean, end, &Loss::default(), &dictionary).unwrap()
}

/// A time `micros` microseconds after the start of the trace.
fn at(micros: u64) -> Timestamp {
    Timestamp::from_nanos(1_700_000_000_000_000_000 + micros * 1000)
}

/// A folder with files.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn add(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

fn report(arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuwhy"));
    command.arg("report");
    for argument in arguments {
        command.arg(argument.as_ref());
    }
    command.output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn kernels(report: &Value) -> u64 {
    report["devices"][0]["kernels"].as_array().unwrap().iter().map(|kernel| kernel["count"].as_u64().unwrap()).sum()
}

/// Checks that a file gives exit code 2, nothing on stdout, and a message with its name and `wanted`.
fn refused(path: &Path, wanted: &str) {
    let output = report(&[&path]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
    let message = stderr(&output);
    assert!(message.contains(path.to_str().unwrap()) && message.contains(wanted), "{message}");
}

#[test]
fn a_good_trace_is_reported_as_text_and_as_json() {
    let files = Files::new();
    let path = files.add("good.gpuwhy", &trace());

    let output = report(&[&path]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("Recorded 400 kernels,"), "{}", stdout(&output));

    let output = report(&[&"--json", &path]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["process"]["pid"], 4711);
    assert_eq!(json["completeness"]["end"], "clean");
    assert_eq!(kernels(&json), u64::from(KERNELS));
}

#[test]
fn the_library_says_the_same_as_the_command() {
    let files = Files::new();
    let path = files.add("good.gpuwhy", &trace());
    let json: Value = serde_json::from_slice(&report(&[&"--json", &path]).stdout).unwrap();
    let report = gpuwhy::open(&path).unwrap();
    assert_eq!(serde_json::to_value(&report).unwrap(), json);
}

#[test]
fn several_traces_give_a_line_of_json_each() {
    let files = Files::new();
    let (first, second) = (files.add("1.gpuwhy", &trace()), files.add("2.gpuwhy", &trace()));
    let output = report(&[&"--json", &first, &second]);
    let lines: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0], lines[1]);

    let text = stdout(&report(&[&first, &second]));
    assert!(text.contains("1.gpuwhy") && text.contains("2.gpuwhy"), "{text}");
}

#[test]
fn a_truncated_trace_is_reported_up_to_the_cut() {
    let whole = trace();
    let files = Files::new();
    let path = files.add("cut.gpuwhy", &whole[..whole.len() * 2 / 3]);

    let output = report(&[&"--json", &path]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["completeness"]["end"], "abrupt");
    assert!(!json["completeness"]["damage"].as_array().unwrap().is_empty());
    let read = kernels(&json);
    assert!((1..u64::from(KERNELS)).contains(&read), "{read}");
    assert!(stderr(&output).contains("cut.gpuwhy"), "{}", stderr(&output));
}

#[test]
fn a_damaged_middle_costs_its_block_only() {
    let mut bytes = trace();
    let middle = bytes.len() / 2;
    for byte in &mut bytes[middle..middle + 8] {
        *byte ^= 0xff;
    }
    let files = Files::new();
    let path = files.add("flipped.gpuwhy", &bytes);
    let output = report(&[&"--json", &path]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["completeness"]["end"], "clean", "the end behind the damage was found");
    let read = kernels(&json);
    assert!((1..u64::from(KERNELS)).contains(&read), "{read}");
}

#[test]
fn files_that_are_no_traces_are_refused_by_name() {
    let files = Files::new();
    refused(&files.add("empty.gpuwhy", b""), "empty");
    refused(&files.add("trace.json.gz", &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0]), "gzip");
    refused(&files.add("notes.txt", b"some text that is long enough for a header"), "not a gpuwhy trace");
    refused(&files.0.path().join("missing.gpuwhy"), "No such file");
    refused(files.0.path(), "empty.gpuwhy: the file is empty");
    let nothing = files.0.path().join("nothing");
    fs::create_dir(&nothing).unwrap();
    refused(&nothing, "no trace");
    refused(&files.add("header.gpuwhy", &trace()[..20]), "byte");
}

#[test]
fn a_trace_from_the_future_is_refused_with_both_versions() {
    let mut bytes = trace();
    // The major version follows the eight magic bytes; the checksum of both is at 12.
    bytes[8] = 99;
    let check = crc32fast::hash(&bytes[..12]);
    bytes[12..16].copy_from_slice(&check.to_le_bytes());
    let files = Files::new();
    refused(&files.add("future.gpuwhy", &bytes), "99");
}

#[test]
fn an_unreadable_file_does_not_hide_the_readable_one() {
    let files = Files::new();
    let (bad, good) = (files.add("bad.gpuwhy", b"x"), files.add("good.gpuwhy", &trace()));
    let output = report(&[&bad, &good]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("bad.gpuwhy"));
    assert!(stdout(&output).contains("Recorded 400 kernels,"));
}

#[test]
fn top_limits_the_table_of_kernels() {
    let files = Files::new();
    let path = files.add("good.gpuwhy", &trace());
    let rows = |arguments: &[&dyn AsRef<std::ffi::OsStr>]| {
        stdout(&report(arguments)).lines().filter(|line| line.ends_with("  my_kernel")).count()
    };
    assert_eq!(rows(&[&path]), 0);
    assert_eq!(rows(&[&"--full", &path]), 1);
    assert_eq!(rows(&[&"--top", &"1", &path]), 1);
    assert_eq!(rows(&[&"--top", &"0", &path]), 0);
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let files = Files::new();
    let path = files.add("good.gpuwhy", &trace());
    // Many files, so that the output exceeds the capacity of a pipe.
    let mut child = Command::new(env!("CARGO_BIN_EXE_gpuwhy"))
        .arg("report")
        .args(std::iter::repeat_n(&path, 200))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{}", stderr(&output));
}

/// A small trace with a stored report of gpuwhy `version`.
fn with_answer(version: &str) -> Vec<u8> {
    with_answer_of(version, "summary of the run\n")
}

fn with_answer_of(version: &str, summary: &str) -> Vec<u8> {
    let (dictionary, mut trace) = (Dictionary::new(), Vec::new());
    let mut writer = TraceWriter::new(&mut trace, &ProcessInfo::default()).unwrap();
    let at = Timestamp::from_nanos(1_000);
    let call = ApiCall { start: at, end: Timestamp::from_nanos(2_000), ..ApiCall::default() };
    writer.event(&Event::Record(Record::Api(call)), &dictionary).unwrap();
    let text = |words: &str| format!("{words} of the run\n");
    let answer = StoredReport {
        gpuwhy_version: version.to_owned(),
        summary: summary.to_owned(),
        full: text("tables"),
        ranges: text("ranges"),
    };
    writer.answer(at, &answer, &dictionary).unwrap();
    writer.finish(End::Clean, at, &Loss::default(), &dictionary).unwrap();
    trace
}

#[test]
fn what_a_long_run_said_is_printed_unless_something_else_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("long.gpuwhy");
    let report = |trace: &[u8], options: &[&str]| {
        fs::write(&file, trace).unwrap();
        let output =
            Command::new(env!("CARGO_BIN_EXE_gpuwhy")).arg("report").args(options).arg(&file).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let ours = with_answer(env!("CARGO_PKG_VERSION"));
    assert_eq!(report(&ours, &[]), "summary of the run\n");
    assert_eq!(report(&ours, &["--full", "--ranges"]), "tables of the run\nranges of the run\n");
    for options in [&["--recompute"][..], &["--json"], &["--top", "3"], &["--capture", "1"]] {
        assert!(!report(&ours, options).contains("of the run"), "{options:?}");
    }
    assert!(!report(&with_answer("0.0.1"), &[]).contains("of the run"), "another version may know better");
    let hostile = report(&with_answer_of(env!("CARGO_PKG_VERSION"), "\x1b]0;x\x07 of the run\n"), &[]);
    assert_eq!(hostile, "\\x1b]0;x\\x07 of the run\n", "what a trace says of itself controls no terminal");
    let mut damaged = ours.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    let text = report(&damaged, &[]);
    assert!(text.contains("Recorded ") && !text.contains("of the run"), "{text}");
}

/// The gain of a remedy that `gpuwhy try` measured for a command.
fn gain_of(command: &[String], host: &str, remedy: &str) -> Measured {
    let (program, arguments) = (program(command), arguments(command));
    let (gain, low, high, at_ns) = (9.5, 9.0, 9.9, 1_795_703_260_651_223_400);
    let (host, remedy) = (host.to_owned(), remedy.to_owned());
    Measured { host, program, arguments, remedy, gain, low, high, at_ns, ..Measured::default() }
}

/// A gain of this program is in its text and its pages; one of another program recomputes nothing.
#[test]
fn a_stored_report_and_pages_know_the_gains_of_their_program() {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures/traces/changing.gpuwhy");
    let files = Files::new();
    let mut reader = TraceReader::new(fs::File::open(trace).unwrap()).unwrap();
    let session = reader.session().clone();
    let mut writer = TraceWriter::new(Vec::new(), &session).unwrap();
    let mut last = Timestamp::ZERO;
    while let Some(event) = reader.next_event().unwrap() {
        match event {
            Event::End(_, at) => last = at,
            event => writer.event(&event, reader.dictionary()).unwrap(),
        }
    }
    let summary = "the stored report\n".to_owned();
    let stored = StoredReport { gpuwhy_version: env!("CARGO_PKG_VERSION").to_owned(), summary, ..Default::default() };
    writer.answer(last, &stored, reader.dictionary()).unwrap();
    let bytes = writer.finish(End::Clean, last, &Loss::default(), reader.dictionary()).unwrap();
    let (file, history) = (files.add("long.gpuwhy", &bytes), files.0.path().join("history.jsonl"));
    let report = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuwhy"));
        let output = command.arg("report").args(options).arg(&file).env("GPUWHY_HISTORY", &history).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let words = "Measured 9.50x (9.00x to 9.90x) by gpuwhy try on 2026-11-26.";
    assert_eq!(report(&[]), "the stored report");
    let other = ["python3".to_owned(), "other.py".to_owned()];
    let mut lines = gain_of(&other, &session.host, "pinned").line();
    lines += &gain_of(&session.command, "another host", "pinned").line();
    fs::write(&history, &lines).unwrap();
    assert_eq!(report(&[]), "the stored report");
    assert!(!report(&["--html", "-"]).contains("Measured"));
    fs::write(&history, lines + &gain_of(&session.command, &session.host, "pinned").line()).unwrap();
    let text = report(&[]);
    assert!(text.contains(words) && !text.contains("the stored report"), "{text}");
    for options in [&["--html", "-"][..], &["--html", "-", "--redact"]] {
        let page = report(options);
        let answer = page.split("<main>").next().unwrap();
        assert!(answer.contains(words), "{options:?}: {answer}");
    }
}

#[test]
fn a_part_of_a_run_is_reported_without_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let (file, dictionary) = (folder.path().join("long.gpuwhy"), Dictionary::new());
    let start = 5_000_000_000;
    let session = ProcessInfo { start: Timestamp::from_nanos(start), ..ProcessInfo::default() };
    let mut writer = TraceWriter::new(fs::File::create(&file).unwrap(), &session).unwrap();
    // A call every millisecond for ten seconds, a flush every second; each call launches a kernel that runs
    // 100 ms later.
    for millis in 0..10_000 {
        let at = |nanos| Timestamp::from_nanos(start + millis * 1_000_000 + nanos);
        let correlation = CorrelationId(millis as u32 + 1);
        let call = ApiCall { start: at(1_000), end: at(2_000), correlation, ..ApiCall::default() };
        writer.event(&Event::Record(Record::Api(call)), &dictionary).unwrap();
        let kernel = Kernel { start: at(100_100_000), end: at(100_900_000), correlation, ..Kernel::default() };
        writer.event(&Event::Record(Record::Kernel(kernel)), &dictionary).unwrap();
        if millis % 1_000 == 999 {
            let loss = Loss { dropped_by_cupti: millis / 1_000, ..Loss::default() };
            writer
                .event(&Event::from(loss), &dictionary)
                .and_then(|()| writer.event(&Event::Flush(at(3_000)), &dictionary))
                .unwrap();
        }
    }
    let end = Timestamp::from_nanos(start + 10_200_000_000);
    writer.finish(End::Clean, end, &Loss { dropped_by_cupti: 9, ..Loss::default() }, &dictionary).unwrap();
    let run = |options: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_gpuwhy")).arg("report").args(options).arg(&file).output().unwrap()
    };
    let counts = |options: &[&str]| {
        let output = run(&[&["--json"], options].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let count = |pointer| report.pointer(pointer).and_then(Value::as_u64).unwrap();
        let window = report.pointer("/devices/0/window_ns").and_then(Value::as_u64).unwrap_or(0);
        let records = "/completeness/records";
        (count(&format!("{records}/kernels")), count(&format!("{records}/api_calls")), window / 1_000_000)
    };
    assert_eq!(counts(&[]), (10_000, 10_000, 9_999));
    // The calls in the part, and earlier ones whose launched work ran in it.
    assert_eq!(counts(&["--from", "2500ms", "--to", "4500ms"]), (2_000, 2_100, 1_999));
    assert_eq!(counts(&["--from", "9s"]), (1_100, 1_100, 1_099));
    assert_eq!(counts(&["--to", "10ms"]), (0, 10, 0));
    let text = run(&["--from", "2500ms", "--to", "4500ms"]);
    let text = String::from_utf8(text.stdout).unwrap();
    for wanted in [
        "part: from 2.50 s to 4.50 s after the start of tracing, of a run that ends at 10.20 s",
        "CUPTI dropped 2 records.",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(!text.contains("Cost of recording:"), "what tracing took is about the whole run: {text}");
    for (options, wanted) in [
        (&["--from", "2s", "--to", "1s"][..], "ends before it begins"),
        (&["--from", "11s"], "the trace is 10.20s long"),
    ] {
        let output = run(options);
        assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "{options:?}");
        assert!(stderr(&output).contains(wanted) && stderr(&output).contains("long.gpuwhy"), "{}", stderr(&output));
    }
    let output = run(&["--capture", "3"]);
    assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "only the error");
    assert!(stderr(&output).contains("there is no capture 3: this run was measured as a whole"), "{}", stderr(&output));
    let kineto = folder.path().join("trace.json");
    fs::write(&kineto, "{}").unwrap();
    let output =
        Command::new(env!("CARGO_BIN_EXE_gpuwhy")).args(["report", "--from", "1s"]).arg(&kineto).output().unwrap();
    assert!(output.status.code() == Some(2) && stderr(&output).contains("trace.json"), "{}", stderr(&output));
}

/// Times of phases and of `--from` count from the start of tracing, and so do those of the page.
#[test]
fn a_phase_can_be_reported_alone() {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures/traces/changing.gpuwhy");
    let report = |options: &[&str]| -> Value {
        let output = Command::new(env!("CARGO_BIN_EXE_gpuwhy"))
            .args(["report", "--json"])
            .args(options)
            .arg(&trace)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let whole = report(&["--recompute"]);
    let phases = whole["phases"].as_array().unwrap();
    assert_eq!(phases.len(), 2, "{phases:?}");
    for phase in phases {
        let [from, to] = ["begin_ns", "end_ns"].map(|end| format!("{}us", phase[end].as_u64().unwrap() / 1_000));
        let part = report(&["--from", &from, "--to", &to]);
        assert_eq!(part["bottleneck"]["cause"], phase["cause"], "{from} to {to}");
        assert!(part["phases"].as_array().unwrap().is_empty(), "{from} to {to}: {part}");
    }
    let before = report(&["--to", "1ms"]);
    let evidence = before["bottleneck"]["evidence"].to_string();
    assert!(evidence.contains("No kernel, copy, memset or CUDA call was recorded."), "{evidence}");
}
