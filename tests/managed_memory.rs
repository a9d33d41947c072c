//! Managed memory from end to end: records of both generations of CUPTI's layouts, made by hand and played through the
//! real libprof.so, into the statistics, the exports and back.

use std::path::Path;
use std::process::Command;

use crate::support::record::record;
use crate::support::{GPUWHY, Stage, stderr};
use cupti_sys::recording::{Meta, RecordingWriter};
use cupti_sys::{CompletedBuffer, Domain, Kind, RecordSizes};
use rusqlite::Connection;
use serde_json::{Value, json};

const START: u64 = 1_790_000_000_000_000_000;
const MALLOC_MANAGED: u32 = 21;
const PAGE: u64 = 0x7f40_0000_0000;
const INSTRUCTION: u64 = 0x5555_0000_1234;

/// Counters as CUPTI numbers them.
const TO_DEVICE: u32 = 1;
const TO_HOST: u32 = 2;
const HOST_FAULT: u32 = 3;
const DEVICE_FAULT: u32 = 4;
const REMOTE_MAP: u32 = 7;

fn event(size: usize, counter: u32, value: u64, (start, end): (u64, u64), address: u64, flags: u32) -> Vec<u8> {
    // What a host's fault has for an end means nothing.
    let end = if counter == HOST_FAULT { u64::MAX } else { START + end };
    record(
        Kind::UNIFIED_MEMORY_COUNTER,
        size,
        &[(8, value), (16, START + start), (24, end), (32, address)],
        &[(4, counter), (40, 0), (44, 0), (48, 0), (52, 77), (56, flags)],
    )
}

/// A recording of a program whose device misses two blocks of pages, of which the host takes one back.
fn recording(path: &Path, size: usize) {
    let sizes = [(Kind::RUNTIME, 40), (Kind::CONCURRENT_KERNEL, 224), (Kind::UNIFIED_MEMORY_COUNTER, size as u32)];
    let meta = Meta { cupti_version: 130_001, start: START, sizes: sizes.to_vec(), ..Meta::default() };
    let mut writer = RecordingWriter::new(Vec::new(), &meta).unwrap();
    writer.api_name(Domain::RUNTIME, MALLOC_MANAGED, "cudaMallocManaged_v6000").unwrap();
    let call = record(
        Kind::RUNTIME,
        40,
        &[(8, START + 100), (16, START + 900)],
        &[(4, MALLOC_MANAGED), (24, 1), (28, 77), (32, 9), (36, 0)],
    );
    let event = |counter, value, time, address, flags| event(size, counter, value, time, address, flags);
    let records = [
        call,
        event(DEVICE_FAULT, 5, (1_000, 9_000), PAGE, 2),
        event(TO_DEVICE, 65_536, (2_000, 8_000), PAGE, 2),
        event(TO_DEVICE, 2 << 20, (10_000, 60_000), PAGE + 65_536, 3),
        event(HOST_FAULT, INSTRUCTION, (70_000, 0), PAGE, 0),
        event(TO_HOST, 65_536, (71_000, 77_000), PAGE, 2),
        event(HOST_FAULT, INSTRUCTION, (80_000, 0), PAGE + 4096, 0),
        event(REMOTE_MAP, 4096, (81_000, 0), PAGE, 1),
    ];
    let buffer = CompletedBuffer::from_bytes(&records.concat(), 0, 0).unwrap();
    writer.buffer(&buffer, &RecordSizes::from_pairs(&sizes), START + 100_000).unwrap();
    std::fs::write(path, writer.finish().unwrap()).unwrap();
}

fn play(stage: &Stage, size: usize, variable: &str) {
    let session = stage.path("session.cupti");
    recording(&session, size);
    let output = stage.host("gpt").env("GPUWHY_REPLAY", session).env(variable, "on").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

fn gpuwhy(arguments: &[&str], stage: &Stage) -> String {
    let output = Command::new(GPUWHY).args(arguments).current_dir(stage.folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn rows(stage: &Stage, report: &str, file: &str) -> Value {
    serde_json::from_str(&gpuwhy(&["stats", "-r", report, "-f", "json", file], stage)).unwrap()
}

#[test]
fn each_generation_of_records_gives_the_same_tables() {
    for size in [64, 104] {
        let stage = Stage::new();
        play(&stage, size, "GPUWHY_CUDA_UM_GPU_PAGE_FAULTS");
        let report = stage.report();
        assert_eq!(report["completeness"]["unknown_kinds"], 0);
        assert_eq!(report["completeness"]["records"]["managed_events"], 7);
        assert!(!report["process"]["notes"].to_string().contains("managed memory"), "{}", report["process"]["notes"]);
        assert_eq!(
            rows(&stage, "um_sum", "trace.gpuwhy"),
            json!([
                {"Virtual Address": "0x7F4000010000", "HtoD Migration size (MB)": 2.097, "DtoH Migration size (MB)": null,
                 "CPU Page Faults": null, " GPU Page Faults": null, "Migration Throughput (MB/s)": 41943.04},
                {"Virtual Address": "0x7F4000000000", "HtoD Migration size (MB)": 0.066, "DtoH Migration size (MB)": 0.066,
                 "CPU Page Faults": 1, " GPU Page Faults": 5, "Migration Throughput (MB/s)": 10922.623},
                {"Virtual Address": "0x7F4000001000", "HtoD Migration size (MB)": null, "DtoH Migration size (MB)": null,
                 "CPU Page Faults": 1, " GPU Page Faults": null, "Migration Throughput (MB/s)": null},
            ])
        );
        let total = &rows(&stage, "um_total_sum", "trace.gpuwhy")[0];
        assert_eq!(total["Total HtoD Migration Size (MB)"], 2.163);
        assert_eq!((&total["Total CPU Page Faults"], &total["Total GPU PageFaults"]), (&2.into(), &5.into()));
        assert_eq!(total["Maximum Virtual Address"], "0x7F4000010000");
        let instruction = &rows(&stage, "um_cpu_page_faults_sum", "trace.gpuwhy")[0];
        assert_eq!(instruction["CPU Instruction Address"], format!("{INSTRUCTION:#x}"));
        assert_eq!(instruction["CPU Page Faults"], 2);
    }
}

#[test]
fn the_tables_of_nsys_hold_them_and_lead_back() {
    let stage = Stage::new();
    play(&stage, 104, "GPUWHY_CUDA_UM_CPU_PAGE_FAULTS");
    gpuwhy(&["export", "--to", "sqlite", "trace.gpuwhy", "-o", "out.sqlite"], &stage);
    let database = Connection::open(stage.path("out.sqlite")).unwrap();
    let query = "SELECT c.label, m.label, copyKind, bytes, virtualAddress FROM CUPTI_ACTIVITY_KIND_MEMCPY
                 JOIN ENUM_CUDA_MEMCPY_OPER AS c ON c.id = copyKind
                 JOIN ENUM_CUDA_UNIF_MEM_MIGRATION AS m ON m.id = migrationCause ORDER BY start";
    let mut statement = database.prepare(query).unwrap();
    type Row = (String, String, u32, u64, u64);
    let copies = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)));
    let copies: Vec<Row> = copies.unwrap().map(Result::unwrap).collect();
    let row =
        |label: &str, cause: &str, kind, bytes, address| (label.to_owned(), cause.to_owned(), kind, bytes, address);
    assert_eq!(
        copies,
        [
            row("Unified Host-to-Device", "Page fault", 11, 65_536, PAGE),
            row("Unified Host-to-Device", "Speculative prefetch", 11, 2 << 20, PAGE + 65_536),
            row("Unified Device-to-Host", "Page fault", 12, 65_536, PAGE),
        ]
    );
    let faults: (u64, u64, String) = database
        .query_row(
            "SELECT d.numberOfPageFaults, h.originalFaultPc, s.value FROM CUDA_UM_GPU_PAGE_FAULT_EVENTS AS d
             JOIN CUDA_UM_CPU_PAGE_FAULT_EVENTS AS h USING (address) JOIN StringIds AS s ON s.id = h.CpuInstruction
             JOIN ENUM_CUDA_UNIF_MEM_ACCESS_TYPE AS a ON a.id = d.faultAccessType AND a.label = 'Write'",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .unwrap();
    assert_eq!(faults, (5, INSTRUCTION, "0x555500001234".to_owned()));
    for report in ["um_sum", "um_total_sum", "um_cpu_page_faults_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_trace"] {
        let ours = rows(&stage, report, "trace.gpuwhy");
        assert!(ours.as_array().is_some_and(|rows| !rows.is_empty()), "{report}");
        assert_eq!(ours, rows(&stage, report, "out.sqlite"), "{report}");
    }
}

#[test]
fn queries_and_lines_of_json_tell_what_each_number_is() {
    let stage = Stage::new();
    play(&stage, 104, "GPUWHY_CUDA_UM_GPU_PAGE_FAULTS");
    let query = "SELECT event, source, destination, bytes, faults, instruction, cause FROM managed ORDER BY start_ns";
    let rows: Value = serde_json::from_str(&gpuwhy(&["query", "trace.gpuwhy", query, "-f", "json"], &stage)).unwrap();
    let fault = json!({"event": "device_fault", "source": 0, "destination": null, "bytes": null, "faults": 5,
        "instruction": null, "cause": 2});
    assert_eq!(rows[0], fault);
    assert_eq!((&rows[3]["event"], &rows[3]["instruction"]), (&"host_fault".into(), &INSTRUCTION.into()));
    assert_eq!(rows[6]["event"], "unknown");
    gpuwhy(&["export", "--to", "json", "trace.gpuwhy", "-o", "out.jsonl"], &stage);
    let text = std::fs::read_to_string(stage.path("out.jsonl")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events: Vec<&Value> = lines.iter().filter(|line| line["kind"] == "managed").collect();
    assert_eq!(events.len(), 7);
    assert_eq!((&events[1]["bytes"], &events[1]["destination"]), (&65_536.into(), &0.into()));
}

#[test]
fn nothing_is_recorded_unless_asked_for() {
    let stage = Stage::new();
    play(&stage, 64, "GPUWHY_CUDA_MEMORY_USAGE");
    assert_eq!(stage.report()["completeness"]["records"]["managed_events"], 0);
    let output = Command::new(GPUWHY).args(["stats", "-r", "um_sum"]).arg(stage.path("trace.gpuwhy")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty() && stderr(&output).contains("no such records"), "{}", stderr(&output));
}
