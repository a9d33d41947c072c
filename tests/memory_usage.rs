//! Memory usage end to end: hand-made records of both generations of CUPTI's layouts, played through the real
//! libprof.so into the report, the statistics and the exports.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::record::record;
use crate::support::{GPUWHY, Stage, stderr};
use cupti_sys::recording::{Meta, RecordingWriter};
use cupti_sys::{CompletedBuffer, Domain, Kind, RecordSizes};
use rusqlite::Connection;
use serde_json::Value;

const START: u64 = 1_790_000_000_000_000_000;
const MALLOC: u32 = 20;
const NAME: u64 = 0x5000;

/// CUPTI's numbers for allocation and release.
const ALLOCATION: u32 = 1;
const RELEASE: u32 = 2;
const DEVICE: u32 = 3;
const DEVICE_STATIC: u32 = 6;

/// A memory event with the offsets of CUDA 11.7, in a record of `size` bytes.
fn memory(size: usize, operation: u32, kind: u32, at: u64, address: u64, bytes: u64, call: u32) -> Vec<u8> {
    let name = if kind == DEVICE_STATIC { NAME } else { 0 };
    // If the address is in the pool, the pool holds 32 MiB with `bytes` in use.
    let (pool_type, pool) = if address >> 32 == 2 { (1, 0xffff_0000) } else { (0, 0) };
    record(
        Kind::MEMORY2,
        size,
        &[
            (16, address),
            (24, bytes),
            (32, START + at),
            (40, 0),
            (64, name),
            (88, pool),
            (96, 0),
            (104, 32 << 20),
            (112, bytes),
        ],
        &[(4, operation), (8, kind), (12, call), (48, 1), (52, 0), (56, 1), (60, u32::MAX), (72, 0), (80, pool_type)],
    )
}

/// Writes a recording of a program that uses 5 MB at most, from a CUPTI with records of these sizes.
fn recording(path: &Path, memory_bytes: usize, pool_bytes: usize) {
    let sizes = [
        (Kind::RUNTIME, 40),
        (Kind::CONCURRENT_KERNEL, 224),
        (Kind::MEMORY2, memory_bytes as u32),
        (Kind::MEMORY_POOL, pool_bytes as u32),
    ];
    let meta = Meta { cupti_version: 130_001, start: START, sizes: sizes.to_vec(), ..Meta::default() };
    let mut writer = RecordingWriter::new(Vec::new(), &meta).unwrap();
    writer.api_name(Domain::RUNTIME, MALLOC, "cudaMalloc_v3020").unwrap();
    writer.string(NAME, b"lookup_table").unwrap();
    let call = record(
        Kind::RUNTIME,
        40,
        &[(8, START + 1_900), (16, START + 2_100)],
        &[(4, MALLOC), (24, 1), (28, 77), (32, 9), (36, 0)],
    );
    let pool = record(
        Kind::MEMORY_POOL,
        pool_bytes,
        &[(24, 0), (32, 0xffff_0000), (40, 48 << 20), (48, 0), (56, START + 500), (64, 0)],
        &[(4, 1), (8, 1), (12, 3), (16, 1), (20, 0)],
    );
    let event =
        |operation, kind, at, address, bytes, call| memory(memory_bytes, operation, kind, at, address, bytes, call);
    let records = [
        event(ALLOCATION, DEVICE_STATIC, 400, 0x100, 1_000, 0),
        pool,
        event(ALLOCATION, DEVICE, 1_000, 0x1000, 3_000_000, 8),
        event(ALLOCATION, DEVICE, 2_000, 2 << 32, 2_000_000, 9),
        call,
        event(RELEASE, DEVICE, 3_000, 0x1000, 3_000_000, 10),
        event(RELEASE, DEVICE, 3_100, 0x7777, 1, 11),
    ];
    let buffer = CompletedBuffer::from_bytes(&records.concat(), 0, 0).unwrap();
    writer.buffer(&buffer, &RecordSizes::from_pairs(&sizes), START + 10_000).unwrap();
    std::fs::write(path, writer.finish().unwrap()).unwrap();
}

fn play(stage: &Stage, memory_bytes: usize, pool_bytes: usize) {
    let session = stage.path("session.cupti");
    recording(&session, memory_bytes, pool_bytes);
    let mut host = stage.host("gpt");
    let output = host.env("GPUWHY_REPLAY", session).env("GPUWHY_CUDA_MEMORY_USAGE", "on").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

fn gpuwhy(arguments: &[&str], stage: &Stage) -> String {
    let output = Command::new(GPUWHY).args(arguments).current_dir(stage.folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn each_generation_of_records_gives_the_same_report() {
    for (memory_bytes, pool_bytes) in [(120, 72), (128, 72), (128, 80)] {
        let stage = Stage::new();
        play(&stage, memory_bytes, pool_bytes);
        let report = stage.report();
        assert_eq!(report["completeness"]["unknown_kinds"], 0);
        assert_eq!(report["completeness"]["records"]["memory_events"], 6);
        let memory = &report["memory"];
        assert_eq!(memory["unknown_releases"], 1, "{memory}");
        let place = &memory["places"][0];
        let numbers = ["peak_bytes", "current_bytes", "allocated_bytes", "largest_bytes", "pool_peak_bytes"]
            .map(|field| place[field].as_u64().unwrap());
        assert_eq!(numbers, [5_000_000, 2_000_000, 5_000_000, 3_000_000, 48 << 20], "without the module's variable");
        assert_eq!((place["allocations"].as_u64(), place["releases"].as_u64()), (Some(2), Some(1)));
        let device = &memory["devices"][0];
        assert_eq!((&device["module_variables"], &device["allocations"]), (&Value::from(1), &Value::from(2)));
        assert_eq!(place["peak_unix_ns"], START + 2_000);
        assert_eq!(place["peak_by"]["function"], "cudaMalloc");
        assert_eq!(place["peak_by"]["thread"], 77);
    }
}

#[test]
fn exports_hold_every_event() {
    let stage = Stage::new();
    play(&stage, 128, 80);
    gpuwhy(&["export", "--to", "sqlite", "trace.gpuwhy", "-o", "out.sqlite"], &stage);
    let database = Connection::open(stage.path("out.sqlite")).unwrap();
    let query = "SELECT start, bytes, memKind, memoryOperationType, name, localMemoryPoolSize
                 FROM CUDA_GPU_MEMORY_USAGE_EVENTS ORDER BY start";
    let mut statement = database.prepare(query).unwrap();
    type Row = (i64, i64, i64, i64, Option<String>, Option<i64>);
    let rows = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?)));
    let rows: Vec<Row> = rows.unwrap().map(Result::unwrap).collect();
    let after: Vec<i64> = rows.iter().map(|row| row.0 - rows[0].0).collect();
    assert_eq!(after, [0, 600, 1_600, 2_600, 2_700]);
    let rest: Vec<_> = rows.iter().map(|row| (row.1, row.2, row.3, row.4.as_deref(), row.5)).collect();
    assert_eq!(
        rest,
        [
            (1_000, 5, 0, Some("lookup_table"), None),
            (3_000_000, 2, 0, None, None),
            (2_000_000, 2, 0, None, Some(32 << 20)),
            (3_000_000, 2, 1, None, None),
            (1, 2, 1, None, None),
        ]
    );
    gpuwhy(&["export", "--to", "json", "trace.gpuwhy", "-o", "out.jsonl"], &stage);
    let text = std::fs::read_to_string(stage.path("out.jsonl")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events: Vec<_> = lines.iter().filter(|line| line["table"] == "memory").collect();
    assert_eq!(events.len(), 6);
    assert_eq!(events[0]["name"], "lookup_table");
    assert_eq!(events[1]["operation"], "pool_created");
    gpuwhy(&["export", "--to", "perfetto", "trace.gpuwhy", "-o", "out.pftrace"], &stage);
}

#[test]
fn the_statistics_say_what_the_report_says() {
    let stage = Stage::new();
    play(&stage, 128, 80);
    let rows = |report: &str| -> Vec<Value> {
        serde_json::from_str(&gpuwhy(&["query", report, "-f", "json", "trace.gpuwhy"], &stage)).unwrap()
    };
    let held: Vec<_> = rows("cuda_memory_usage_trace")
        .iter()
        .map(|row| (row["Operation"].as_str().unwrap().to_owned(), row["Held (MB)"].as_f64().unwrap()))
        .collect();
    let wanted = [
        ("Allocation", 0.0),
        ("Pool created", 0.0),
        ("Allocation", 3.0),
        ("Allocation", 5.0),
        ("Deallocation", 2.0),
        ("Deallocation", 2.0),
    ];
    assert_eq!(held, wanted.map(|(operation, held)| (operation.to_owned(), held)));
    let trace = stage.path("trace.gpuwhy");
    let sum = ["query", "cuda_memory_usage_sum", "-f", "json"];
    let output = Command::new(GPUWHY).args(sum).arg(trace).output().unwrap();
    // It also reports that a release was for an older allocation.
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let sums: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&sums[0]["Peak (MB)"], &sums[0]["Pool Peak (MB)"]), (&Value::from(5.0), &Value::from(50.332)));
    assert_eq!((&sums[0]["Allocations"], &sums[0]["Memory Kind"]), (&Value::from(2), &Value::from("Device")));
}

#[test]
fn nothing_is_recorded_unless_asked_for() {
    let stage = Stage::new();
    let session = stage.path("session.cupti");
    recording(&session, 128, 80);
    assert!(stage.host("gpt").env("GPUWHY_REPLAY", session).status().unwrap().success());
    let report = stage.report();
    assert_eq!(report["memory"]["places"], serde_json::json!([]));
    assert_eq!(report["completeness"]["records"]["memory_events"], 0);
}

fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testing/fixtures/traces/{name}.gpuwhy"))
}

fn run(arguments: &[&str], trace: &Path) -> (Option<i32>, String) {
    let output = Command::new(GPUWHY).args(arguments).arg(trace).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn memory_of_recorded_programs_is_told_with_its_parts() {
    let device = |name: &str| {
        let report: Value = serde_json::from_str(&run(&["report", "--json"], &recorded(name)).1).unwrap();
        report["memory"]["devices"][0].clone()
    };
    // A training whose allocations were recorded, and NVML's readings beside them.
    let mem = device("mem");
    let fields = ["peak_used_bytes", "allocations", "held_bytes", "module_variables", "remainder_bytes"];
    let numbers = fields.map(|field| mem[field].as_u64().unwrap());
    assert_eq!(numbers, [2_665_349_120, 76, 1_338_297_864, 3_234, 1_327_051_256]);
    assert_eq!((&mem["growth_per_step"], &mem["growth_judged"]), (&Value::Null, &Value::Bool(true)));
    // A server without such records, whose calls are known with their results.
    let serving = device("serving");
    let numbers =
        ["peak_used_bytes", "allocations", "releases", "failed"].map(|field| serving[field].as_u64().unwrap());
    assert_eq!(numbers, [132_659_412_992, 113, 76, 0]);
    assert_eq!((&serving["held_bytes"], &serving["growth_per_step"]), (&Value::Null, &Value::Null));
    let near = &serving["jump"]["near"];
    assert_eq!((serving["jump"]["bytes"].as_u64(), serving["peak_step"].as_u64()), (Some(129_400_569_856), Some(63)));
    assert_eq!((&near["function"], near["line"].as_u64()), (&Value::from("PagedAttentionCache.__init__"), Some(258)));
}

#[test]
fn owners_and_blocks_of_recorded_programs_are_what_the_programs_counted() {
    let device = |name: &str| {
        let report: Value = serde_json::from_str(&run(&["report", "--json"], &recorded(name)).1).unwrap();
        report["memory"]["devices"][0].clone()
    };
    // It reserved these bytes by `torch.cuda.memory_snapshot`, and the driver 70 MiB more to instantiate two graphs.
    let graphs = device("memory_owners");
    let owners: Vec<_> = graphs["owners"].as_array().unwrap().iter().collect();
    let of = |name: &str| owners.iter().find(|row| row["owner"] == name).unwrap()["peak_bytes"].as_i64().unwrap();
    assert_eq!([of("pytorch"), of("graph_pools"), of("unnamed")], [150_994_944, 337_641_472 + (70 << 20), 0]);
    let sum: i64 = owners.iter().map(|row| row["peak_bytes"].as_i64().unwrap()).sum();
    assert_eq!(Some(sum), graphs["peak_used_bytes"].as_i64());
    // It asked for 17,165,002,752 bytes at line 300, with gaps of 3 GB in the cache.
    let full = device("memory_blocks");
    let end = &full["blocks"]["out_of_memory"][0];
    assert_eq!((end["site"]["line"].as_u64(), &end["site"]["function"]), (Some(300), &Value::from("ask_too_much")));
    let numbers = ["asked_bytes", "largest_gap_bytes"].map(|field| end[field].as_u64().unwrap());
    assert_eq!(numbers, [17_165_189_120, 3_000_634_880]);
    assert_eq!([&full["failed"], &full["retried"]], [2, 0]);
    let text = run(&["report"], &recorded("memory_blocks")).1.replace("\n        ", " ");
    assert!(text.contains("fragmentation; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True can help."), "{text}");
}

#[test]
fn each_recorded_program_with_readings_has_a_paragraph_and_none_grows() {
    let folder = recorded("").with_file_name("");
    for entry in std::fs::read_dir(folder).unwrap() {
        let trace = entry.unwrap().path();
        if trace.extension() == Some("gpuwhy".as_ref()) {
            let (_, text) = run(&["report", "--recompute"], &trace);
            assert_eq!(text.matches("\nMemory: ").count(), 1, "{}: {text}", trace.display());
            assert!(text.contains(" at the peak, ") && !text.contains("Memory grows"), "{text}");
        }
    }
}
