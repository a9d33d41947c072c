//! Kernels by the line that launched them, from a live Python program: according to a hand-made recording its
//! main thread launches, and the interpreter provides the location of that thread.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use cupti_sys::recording::{Meta, RecordingWriter};
use cupti_sys::{CompletedBuffer, Domain, Kind, RecordSizes};
use serde_json::Value;

use super::python;
use crate::support::record::record;
use crate::support::{GPUWHY, Stage, stderr};

const START: u64 = 1_790_000_000_000_000_000;
const LAUNCH: u32 = 211;
/// Addresses of the kernels' names.
const NAMES: [(u64, &str); 2] = [(0x1000, "first_kernel"), (0x2000, "volta_sgemm_32x32_nn")];
const MILLISECOND: u64 = 1_000_000;
const LAUNCHES: u64 = 600;
const KERNEL: u64 = 50_000;

/// From 0.1 to 0.7 s `thread` launches one kernel, from 0.9 to 1.5 s the other: a call of 0.8 ms every
/// millisecond.
pub(super) fn recording(path: &Path, thread: u32) {
    let sizes = [(Kind::RUNTIME, 40), (Kind::CONCURRENT_KERNEL, 224)];
    let meta = Meta { cupti_version: 130_001, start: START, sizes: sizes.to_vec(), ..Meta::default() };
    let mut writer = RecordingWriter::new(Vec::new(), &meta).unwrap();
    writer.api_name(Domain::RUNTIME, LAUNCH, "cudaLaunchKernel_v7000").unwrap();
    for (address, name) in NAMES {
        writer.string(address, name.as_bytes()).unwrap();
    }
    let mut correlation = 0;
    for (phase, (name, _)) in NAMES.into_iter().enumerate() {
        let begin = START + (100 + 800 * phase as u64) * MILLISECOND;
        for buffer in 0..LAUNCHES / 20 {
            let mut records = Vec::new();
            for index in 0..20 {
                let at = begin + (buffer * 20 + index) * MILLISECOND;
                correlation += 1;
                records.extend(record(
                    Kind::RUNTIME,
                    40,
                    &[(8, at), (16, at + 800_000)],
                    &[(4, LAUNCH), (24, 1), (28, thread), (32, correlation), (36, 0)],
                ));
                let zero = [40, 56, 60, 64, 68, 72, 76, 80, 84, 140, 144, 148].map(|at| (at, 0));
                let narrow = [&zero[..], &[(44, 1), (48, 7), (52, 1), (92, correlation)]].concat();
                let wide = [(16, at + 100_000), (24, at + 100_000 + KERNEL), (32, 0), (104, name), (120, 0), (128, 0)];
                let mut kernel = record(Kind::CONCURRENT_KERNEL, 224, &wide, &narrow);
                kernel[136..140].fill(0);
                kernel[152..].fill(0);
                records.extend(kernel);
            }
            let buffer_at = begin + (buffer * 20 + 20) * MILLISECOND;
            let buffer = CompletedBuffer::from_bytes(&records, 0, 0).unwrap();
            writer.buffer(&buffer, &RecordSizes::from_pairs(&sizes), buffer_at).unwrap();
        }
    }
    std::fs::write(path, writer.finish().unwrap()).unwrap();
}

/// Runs `launches.py` with the recording.
fn record_launches(stage: &Stage, python: &str, settings: &[(&str, &str)]) {
    let session = stage.path("session.cupti");
    let mut program = stage.program("sync_item", python);
    program.arg("-S").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sampling/launches.py"));
    program.env("GPUWHY_REPLAY", &session).env("GPUWHY_REPLAY_SPEED", "1").env("GPUWHY_REPORT", "off");
    program.envs(settings.iter().copied());
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut thread = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut thread).unwrap();
    recording(&session, thread.trim().parse().unwrap());
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn a_trace_has_no_source_if_that_is_off() {
    let Some(python) = python() else { return };
    let stage = Stage::new();
    record_launches(&stage, python, &[("GPUWHY_SOURCE_LINES", "off")]);
    assert!(!stage.report()["kernel_lines"].is_null());
    assert!(stage.report()["source_lines"].is_null());
}

#[test]
fn a_launch_has_the_line_at_which_the_interpreter_was() {
    let Some(python) = python() else { return };
    let stage = Stage::new();
    record_launches(&stage, python, &[]);
    let report = stage.report();
    let lines = &report["kernel_lines"];
    println!("{}", serde_json::to_string(lines).unwrap());
    assert_eq!(lines["basis"], "estimate");
    assert_eq!(lines["kernel_ns"], 2 * LAUNCHES * KERNEL);
    assert_eq!(lines["not_sampled_ns"], 0);
    // The interpreter and the recording run in parallel, so a busy machine may shift a sample or two.
    let largest = |kernel: &str| -> Value {
        let rows = lines["kernels"].as_array().unwrap().iter().filter(|row| row["kernel"] == kernel);
        rows.max_by_key(|row| row["samples"].as_u64()).unwrap_or_else(|| panic!("{kernel}: {lines}")).clone()
    };
    for ((_, kernel), (function, module)) in NAMES.into_iter().zip([("first_phase", None), ("forward", Some("Second"))])
    {
        let row = largest(kernel);
        assert!(row["function"].as_str().unwrap().ends_with(function), "{row}");
        assert!(row["file"].as_str().unwrap().ends_with("launches.py") && row["line"].as_u64() > Some(0), "{row}");
        // Qualified names exist since CPython 3.11.
        let is_qualified = row["function"].as_str().unwrap().contains('.');
        assert_eq!(row["module"].as_str(), module.filter(|_| is_qualified), "{row}");
        assert_eq!(row["kernel_ns"], LAUNCHES * KERNEL);
        assert!(row["low_ns"].as_u64() <= row["total_ns"].as_u64(), "{row}");
        assert!(row["total_ns"].as_u64() <= row["high_ns"].as_u64(), "{row}");
    }

    // The file is older than the process, so the trace has the lines.
    let sources = report["source_lines"].as_array().unwrap();
    let of = |text: &str| sources.iter().find(|row| row["text"] == text).unwrap_or_else(|| panic!("{sources:?}"));
    let waiting = of("while player.is_alive():");
    assert!(waiting["file"].as_str().unwrap().ends_with("launches.py") && waiting["around"][0][1] != Value::Null);

    let gpuwhy = |arguments: &[&str]| {
        let output = Command::new(GPUWHY).args(arguments).current_dir(stage.folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let full = gpuwhy(&["report", "--full", "trace.gpuwhy"]);
    assert!(full.contains("== kernel time by line (estimate, ") && full.contains("launches.py:"), "{full}");
    assert!(full.contains("== source lines") && full.contains("  while player.is_alive():\n"), "{full}");
    let sql = "SELECT library, sum(samples) AS n FROM kernel_lines WHERE library IS NOT NULL GROUP BY 1";
    let rows: Value = serde_json::from_str(&gpuwhy(&["query", "--format", "json", "trace.gpuwhy", sql])).unwrap();
    assert!(rows[0]["library"] == "cuBLAS" && rows[0]["n"].as_u64() > Some(0), "{rows}");
}
