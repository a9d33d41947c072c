//! NCCL's profiler plugin end to end without a GPU: a host program that makes NCCL's calls
//! (`testing/cupti-replay/host`) through the symbols of the real libprof.so, and a recording with the
//! matching kernels.

use std::process::Command;

use gpuwhy_trace::collective::{CollectiveEvent, Execution, Function, QueuedOperation};
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceReader;
use gpuwhy_trace::record::Timestamp;
use profiler_core::collective::{Basis, Collective, Joiner};
use serde_json::{Value, json};

use crate::support::{Stage, stderr};

/// The host program, acting as NCCL with this version of the interface.
fn host(stage: &Stage, version: u32) -> Command {
    let mut host = stage.host("multi_stream");
    host.env("GPUWHY_REPLAY", stage.path("nccl.cupti")).env("NCCL_PROFILER_PLUGIN", "libprof.so");
    host.args(["--nccl", &version.to_string()]);
    host
}

/// Operations in the trace, and the rows derived from them and the kernels.
fn rows(stage: &Stage) -> (Vec<QueuedOperation>, Vec<Collective>) {
    let bytes = std::fs::read(stage.path("trace.gpuwhy")).unwrap();
    let mut reader = TraceReader::new(&bytes[..]).unwrap();
    let (mut joiner, mut operations, mut rows) = (Joiner::default(), Vec::new(), Vec::new());
    while let Some(item) = reader.next_event().unwrap() {
        match item {
            Event::Record(record) => joiner.push(&record, reader.dictionary()),
            Event::Flush(at) => joiner.flushed(at, |row| rows.push(*row)),
            Event::Collective(event) => {
                joiner.event(&event);
                if let CollectiveEvent::Operation(operation) = event {
                    operations.push(operation);
                }
            }
            _ => {}
        }
    }
    assert!(reader.damage().is_none(), "{:?}", reader.damage());
    joiner.finish(Timestamp::from_nanos(u64::MAX), |row| rows.push(*row));
    (operations, rows)
}

#[test]
fn operations_of_each_version_are_joined_to_their_kernels() {
    for version in [4, 5, 6] {
        let stage = Stage::new();
        let output = host(&stage, version).output().unwrap();
        assert!(output.status.success(), "{version}: {}", stderr(&output));
        let (operations, rows) = rows(&stage);

        let captured = operations.iter().filter(|operation| operation.way == Execution::Captured).count();
        assert_eq!((operations.len(), captured), if version == 4 { (76, 0) } else { (81, 5) }, "version {version}");
        assert!(operations.is_sorted_by_key(|operation| operation.at));

        let basis = if version == 4 { Basis::Order } else { Basis::Plugin };
        assert_eq!(rows.len(), 75, "version {version}");
        assert!(rows.iter().all(|row| row.basis == basis), "version {version}: {rows:?}");
        let dp: Vec<_> = rows.iter().filter(|row| row.communicator == 0xd0_0000_0001).collect();
        let sequences: Vec<_> = dp.iter().filter_map(|row| row.sequence).collect();
        assert_eq!(sequences, (0..53).collect::<Vec<_>>(), "version {version}");
        // Kernels run in launch order, and every second launch is another kernel.
        for (index, row) in dp[..50].iter().enumerate() {
            assert_eq!((row.correlation.0, row.ordinal), (2 * index as u32 + 1, index as u64));
            assert_eq!((row.function, row.bytes, row.operations_in_kernel), (Function::AllReduce, 4 << 20, 1));
        }
        assert!(dp[50..53].iter().all(|row| row.correlation.0 == 101 && row.operations_in_kernel == 3), "{dp:?}");
        let both: Vec<_> = dp[53..].iter().map(|row| (row.function, row.bytes, row.correlation.0)).collect();
        assert_eq!(both, [(Function::Send, 1000, 103), (Function::Receive, 3000, 103)]);
        let tp: Vec<_> = rows.iter().filter(|row| row.communicator == 0x7_0000_0002).collect();
        assert_eq!((tp.len(), tp[0].ranks), (20, 2));
        assert!(rows.iter().all(|row| row.queued < row.start && row.exposed_ns == 10_000), "{rows:?}");
    }
}

#[test]
fn the_report_adds_up_what_nccl_reported() {
    let stage = Stage::new();
    assert!(host(&stage, 5).status().unwrap().success());
    let report = stage.report();
    let collectives = &report["collectives"];
    let rows = collectives["rows"].as_array().unwrap();
    let row = |name: Value, function: &str| -> &Value {
        let found = rows.iter().find(|row| row["name"] == name && row["function"] == function);
        found.unwrap_or_else(|| panic!("no {function} of {name}: {collectives}"))
    };
    let reduce = row(json!("dp"), "all_reduce");
    let bytes = 50 * (4 << 20) + 3 * (4 << 10);
    assert_eq!(reduce["communicator"], "000000d000000001");
    for (field, expected) in [
        ("ranks", json!(4)),
        ("algorithm", json!("ring")),
        ("kernels", json!(51)),
        ("grouped_kernels", json!(1)),
        ("operations", json!(53)),
        ("bytes", json!(bytes)),
        ("min_bytes", json!(3 * (4 << 10))),
        ("max_bytes", json!(4 << 20)),
        ("time_ns", json!(510_000)),
        ("exposed_ns", json!(510_000)),
        ("basis", json!({"plugin": 51, "order": 0, "nvtx": 0, "kernel_name": 0})),
    ] {
        assert_eq!(reduce[field], expected, "{field}");
    }
    let algorithm = f64::from(bytes) / 510_000e-9;
    let close = |field: &str, expected: f64| {
        let value = reduce[field].as_f64().unwrap();
        assert!((value / expected - 1.0).abs() < 1e-9, "{field}: {value} {expected}");
    };
    close("algorithm_bytes_per_second", algorithm);
    close("bus_bytes_per_second", algorithm * 1.5);
    assert_eq!(row(json!("dp"), "send_receive")["bytes"], 3000);
    assert_eq!(row(Value::Null, "all_reduce")["kernels"], 20);
    for (field, expected) in [
        ("communicators", 3),
        ("operations_captured", 5),
        // Reported after its communicator had ended.
        ("operations_without_kernel", 1),
        ("kernels_without_operation", 0),
        ("dropped", 0),
    ] {
        assert_eq!(collectives[field], expected, "{field}");
    }
    let text = Command::new(crate::support::GPUWHY)
        .args(["report", "--full"])
        .arg(stage.path("trace.gpuwhy"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    for part in ["== collectives", "all_reduce, ring, dp, 4 ranks", "5 operations went into CUDA graphs"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn without_a_plugin_the_ranges_of_nccl_tell_communicator_and_bytes() {
    let stage = Stage::new();
    let mut host = stage.host("multi_stream");
    host.env("GPUWHY_REPLAY", stage.path("nccl.cupti")).args(["--nccl", "ranges"]);
    let output = host.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let (operations, rows) = rows(&stage);
    assert_eq!((operations.len(), operations.iter().filter(|of| of.by_range).count()), (77, 77));
    let reported: Vec<_> = rows.iter().filter(|row| row.basis == Basis::Range).collect();
    let by_name = rows.iter().filter(|row| row.basis == Basis::KernelName).count();
    // Known only by name: two communicators in a group, a struct without a communicator, and one of unknown
    // size.
    assert_eq!((reported.len(), by_name, rows.len()), (75, 4, 79));
    let dp: Vec<_> = reported.iter().filter(|row| row.communicator == 0xd0_0000_0001).collect();
    for (index, row) in dp[..50].iter().enumerate() {
        assert_eq!((row.correlation.0, row.ordinal, row.sequence), (2 * index as u32 + 1, index as u64, None));
        assert_eq!((row.function, row.bytes, row.operations_in_kernel), (Function::AllReduce, 4 << 20, 1));
    }
    assert!(dp[50..53].iter().all(|row| (row.correlation.0, row.operations_in_kernel, row.bytes) == (101, 3, 1 << 10)));
    let both: Vec<_> =
        dp[53..].iter().map(|row| (row.function, row.bytes, row.root_or_peer, row.correlation.0)).collect();
    assert_eq!(both, [(Function::Send, 1000, 3, 102), (Function::Receive, 3000, 3, 102)]);
    // The total size needs the number of ranks, which no range has.
    let tp: Vec<_> = reported.iter().filter(|row| row.communicator == 0x7_0000_0002).collect();
    assert!(tp.len() == 20 && tp.iter().all(|row| (row.function, row.bytes, row.ranks) == (Function::AllGather, 0, 0)));
    assert!(reported.iter().all(|row| row.queued < row.start && row.exposed_ns == 10_000), "{reported:?}");

    let collectives = &stage.report()["collectives"];
    let found = collectives["rows"].as_array().unwrap();
    let reduce = found.iter().find(|row| row["basis"]["nvtx"] == 51).unwrap_or_else(|| panic!("{collectives}"));
    for (field, expected) in [
        ("communicator", json!("000000d000000001")),
        ("ranks", Value::Null),
        ("algorithm", json!("unknown")),
        ("bytes", json!(50 * (4 << 20) + 3 * (1 << 10))),
        ("grouped_kernels", json!(1)),
    ] {
        assert_eq!(reduce[field], expected, "{field}: {reduce}");
    }
    assert_eq!(
        (&collectives["operations_without_kernel"], &collectives["kernels_without_operation"]),
        (&json!(2), &json!(4))
    );

    // With the plugin the ranges add no information; a program sends both.
    let both = Stage::new();
    let mut host = both.host("multi_stream");
    host.env("GPUWHY_REPLAY", both.path("nccl.cupti")).env("NCCL_PROFILER_PLUGIN", "libprof.so");
    assert!(host.args(["--nccl", "5", "--nccl-ranges"]).status().unwrap().success());
    let (operations, _) = self::rows(&both);
    assert!(operations.len() == 81 && operations.iter().all(|of| !of.by_range), "{operations:?}");
}

#[test]
fn another_plugin_keeps_its_place_and_the_report_says_so() {
    let stage = Stage::new();
    let mut host = stage.host("multi_stream");
    assert!(host.env("NCCL_PROFILER_PLUGIN", "libnccl-profiler-inspector.so").status().unwrap().success());
    let notes = stage.report()["process"]["notes"].to_string();
    assert!(notes.contains("NCCL_PROFILER_PLUGIN") && notes.contains("inspector"), "{notes}");
    // If CUPTI is free, there is nothing to report.
    let free = Stage::new();
    assert!(free.host("multi_stream").status().unwrap().success());
    let notes = free.report()["process"]["notes"].to_string();
    assert!(!notes.contains("NCCL_PROFILER_PLUGIN"), "{notes}");
}

#[test]
fn tables_have_the_operations_and_their_communicators() {
    let stage = Stage::new();
    assert!(host(&stage, 6).status().unwrap().success());
    let ask = |query: &str| -> Vec<String> {
        let mut command = Command::new(crate::support::GPUWHY);
        command.args(["query", "--format", "csv"]).arg(stage.path("trace.gpuwhy")).arg(query);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8_lossy(&output.stdout).lines().skip(1).map(str::to_owned).collect()
    };
    let sums = "SELECT m.name, c.function, c.basis, COUNT(*), SUM(c.bytes), MIN(c.sequence), MAX(c.sequence) \
                FROM collectives c JOIN communicators m ON m.communicator = c.communicator \
                GROUP BY 1, 2, 3 ORDER BY 1, 2";
    let reduced = 50 * (4 << 20) + 3 * (4 << 10);
    let expected = [
        format!(",all_reduce,plugin,20,{},0,19", 20 * (64 << 10)),
        format!("dp,all_reduce,plugin,53,{reduced},0,52"),
        "dp,receive,plugin,1,3000,,".to_owned(),
        "dp,send,plugin,1,1000,,".to_owned(),
    ];
    assert_eq!(ask(sums), expected);
    let kernels = "SELECT COUNT(*) FROM collectives c JOIN kernels k ON k.correlation = c.correlation \
                   WHERE k.start_ns = c.start_ns AND k.end_ns = c.end_ns AND k.communication AND c.queued_ns < c.start_ns";
    assert_eq!(ask(kernels), ["75"]);
    let communicators = "SELECT communicator, name, ranks, nodes, rank_in_communicator FROM communicators ORDER BY 1";
    let expected = ["0000000700000002,,2,1,0", "000000d000000001,dp,4,1,0", "000000d000000003,again,8,1,0"];
    assert_eq!(ask(communicators), expected);
}

#[test]
fn exported_kernels_say_what_nccl_reported() {
    let stage = Stage::new();
    assert!(host(&stage, 5).status().unwrap().success());
    let mut command = Command::new(crate::support::GPUWHY);
    command.args(["export", "--to", "chrome", "-o"]).arg(stage.path("trace.json")).arg(stage.path("trace.gpuwhy"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = std::fs::read_to_string(stage.path("trace.json")).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    let events = document["traceEvents"].as_array().unwrap();
    let kernels: Vec<_> = events.iter().filter(|event| event["cat"] == "kernel").collect();
    let of = |function: &str| kernels.iter().filter(|event| event["args"]["Collective name"] == function).count();
    assert_eq!((kernels.len(), of("all_reduce"), of("send")), (144, 71, 1));
    let group = kernels.iter().find(|event| event["args"]["operations"] == 3).unwrap();
    for (name, expected) in [
        ("Group size", json!(4)),
        ("bytes", json!(3 * (4 << 10))),
        ("dtype", json!("float32")),
        ("algorithm", json!("ring")),
        ("sequence", json!(50)),
        ("communicator", json!("000000d000000001")),
        ("basis", json!("plugin")),
    ] {
        assert_eq!(group["args"][name], expected, "{name}");
    }
}
