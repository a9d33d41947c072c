//! Events of managed memory in recordings, statistics, exports and imports of exports. gpuwhy itself records page
//! faults alone, but traces can have the others.

use std::fs::File;
use std::process::Command;

use crate::support::record::record;
use crate::support::{GPUWHY, Stage, stderr};
use cupti_sys::recording::{Meta, RecordingWriter};
use cupti_sys::{CompletedBuffer, Domain, Kind, RecordSizes};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{DeviceId, Loss, ManagedEvent, ManagedKind, Record, Timestamp};
use rusqlite::Connection;
use serde_json::{Value, json};

const START: u64 = 1_790_000_000_000_000_000;
const PAGE: u64 = 0x7f40_0000_0000;
const INSTRUCTION: u64 = 0x5555_0000_1234;

/// Writes the trace of a program whose device faults on two blocks of pages; one of them migrates back to the host.
fn write(stage: &Stage) {
    const HOST: DeviceId = ManagedEvent::HOST;
    const DEVICE: DeviceId = DeviceId(0);
    let at = |nanos| Timestamp::from_nanos(START + nanos);
    let event = |kind, (source, destination), value, (start, end), address, cause| {
        Record::Managed(ManagedEvent {
            start: at(start),
            end: at(end),
            kind,
            source,
            destination,
            address,
            value,
            cause,
        })
    };
    let records = [
        event(ManagedKind::DeviceFault, (DEVICE, HOST), 5, (1_000, 9_000), PAGE, 2),
        event(ManagedKind::HostToDevice, (HOST, DEVICE), 65_536, (2_000, 8_000), PAGE, 2),
        event(ManagedKind::HostToDevice, (HOST, DEVICE), 2 << 20, (10_000, 60_000), PAGE + 65_536, 3),
        event(ManagedKind::HostFault, (HOST, HOST), INSTRUCTION, (70_000, 70_000), PAGE, 0),
        event(ManagedKind::DeviceToHost, (DEVICE, HOST), 65_536, (71_000, 77_000), PAGE, 2),
        event(ManagedKind::HostFault, (HOST, HOST), INSTRUCTION, (80_000, 80_000), PAGE + 4096, 0),
        event(ManagedKind::Unknown, (DEVICE, DEVICE), 4096, (81_000, 81_000), PAGE, 1),
    ];
    let session = ProcessInfo { start: at(0), ..ProcessInfo::default() };
    let (dictionary, loss) = (Dictionary::new(), Loss::default());
    let mut writer = TraceWriter::new(File::create(stage.path("trace.gpuwhy")).unwrap(), &session).unwrap();
    for record in &records {
        writer.event(&Event::Record(*record), &dictionary).unwrap();
    }
    writer.finish(End::Clean, at(100_000), &loss, &dictionary).unwrap();
}

fn gpuwhy(arguments: &[&str], stage: &Stage) -> String {
    let output = Command::new(GPUWHY).args(arguments).current_dir(stage.folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn rows(stage: &Stage, report: &str, file: &str) -> Value {
    serde_json::from_str(&gpuwhy(&["query", report, "-f", "json", file], stage)).unwrap()
}

#[test]
fn pages_are_summed_by_address_in_total_and_by_instruction() {
    let stage = Stage::new();
    write(&stage);
    assert_eq!(stage.report()["completeness"]["records"]["managed_events"], 7);
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

#[test]
fn an_sqlite_export_keeps_the_events_when_it_is_read_back() {
    let stage = Stage::new();
    write(&stage);
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
fn queries_and_json_lines_name_the_meaning_of_each_number() {
    let stage = Stage::new();
    write(&stage);
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
    let events: Vec<&Value> = lines.iter().filter(|line| line["table"] == "managed").collect();
    assert_eq!(events.len(), 7);
    assert_eq!((&events[1]["bytes"], &events[1]["destination"]), (&65_536.into(), &0.into()));
}

/// Plays a program of 12 kernels of 20 ms, each with faults in its first 15 ms, which allocates managed memory or not.
fn play(stage: &Stage, allocation: Option<&str>, limit: &str) -> Value {
    const MS: u64 = 1_000_000;
    const NAME: u64 = 0x5000;
    let sizes = [(Kind::RUNTIME, 40), (Kind::CONCURRENT_KERNEL, 224), (Kind::UNIFIED_MEMORY_COUNTER, 104)];
    let meta = Meta { cupti_version: 130_001, start: START, sizes: sizes.to_vec(), ..Meta::default() };
    let mut writer = RecordingWriter::new(Vec::new(), &meta).unwrap();
    writer.api_name(Domain::RUNTIME, 211, "cudaLaunchKernel_v7000").unwrap();
    writer.api_name(Domain::DRIVER, 9, "cuMemAllocManaged").unwrap();
    writer.string(NAME, b"add").unwrap();
    for number in 0..13 {
        // The first one runs before the allocation, so that CUPTI has a buffer.
        let at = START + if number == 0 { 280 } else { 300 + 22 * number } * MS;
        let id = number as u32 + 1;
        let call = record(
            Kind::RUNTIME,
            40,
            &[(8, at - 2_000), (16, at - 1_000)],
            &[(4, 211), (24, 1), (28, 77), (32, id), (36, 0)],
        );
        let kernel = record(
            Kind::CONCURRENT_KERNEL,
            224,
            &[(16, at), (24, at + 20 * MS), (32, 0), (104, 0), (112, NAME), (120, 0), (128, 0), (144, 0), (208, 0)],
            &[(40, 0), (44, 1), (48, 7), (92, id), (156, 0)],
        );
        let fault = |from: u64, to: u64| {
            record(
                Kind::UNIFIED_MEMORY_COUNTER,
                104,
                &[(8, 3), (16, at + from), (24, at + to), (32, PAGE)],
                &[(4, 4), (40, 0), (44, u32::MAX), (48, 0), (52, 1), (56, 1)],
            )
        };
        let records = [call, kernel, fault(0, 8 * MS), fault(5 * MS, 15 * MS)].concat();
        let buffer = CompletedBuffer::from_bytes(&records, 0, 0).unwrap();
        writer.buffer(&buffer, &RecordSizes::from_pairs(&sizes), at + 21 * MS).unwrap();
    }
    let session = stage.path("session.cupti");
    std::fs::write(&session, writer.finish().unwrap()).unwrap();
    let mut host = stage.host("gpt");
    if let Some(function) = allocation {
        host.args(["--call", &format!("303:{function}"), "--call", "304:flushes=3"]);
    }
    let output = host.env("GPUWHY_REPLAY", session).env("GPUWHY_MAX_OVERHEAD", limit).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let refuses = stderr(&output).contains("no page faults of managed memory: nothing measures their cost");
    assert_eq!(refuses, limit != "off" && allocation.is_some(), "{}", stderr(&output));
    stage.report()
}

#[test]
fn page_faults_are_recorded_once_the_program_has_managed_memory() {
    // cudaMallocManaged calls the driver's function.
    let managed = Some("cuMemAllocManaged");
    for (allocation, limit, expected) in [(None, "off", 0), (managed, "off", 24), (managed, "90%", 0), (None, "90%", 0)]
    {
        let stage = Stage::new();
        let report = play(&stage, allocation, limit);
        assert_eq!(report["completeness"]["records"]["managed_events"], expected, "{allocation:?}");
        let managed = &report["devices"][0]["managed"];
        assert_eq!(managed.is_null(), expected == 0, "{managed}");
        let text = gpuwhy(&["report", "trace.gpuwhy"], &stage).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            text.contains("page faults of managed memory were being resolved: 72 page faults"),
            expected > 0,
            "{text}"
        );
        assert_eq!(text.contains("cudaMemPrefetchAsync"), expected > 0, "{text}");
        if expected > 0 {
            let share = managed["share_of_kernel_time"].as_f64().unwrap();
            // 12 of 13 kernels, three quarters of each.
            assert!((share - 12.0 / 13.0 * 0.75).abs() < 0.01, "{share}");
            assert_eq!(managed["page_faults"], 72);
        }
    }
}
