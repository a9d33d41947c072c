//! Kineto import: the conversion of each row, and of incomplete files. The traces are hand-written, so that
//! every expected number is visible.

use std::io::Write;
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use gpuwhy::{KinetoError, Report, import_kineto};
use gpuwhy_trace::process_info::End;
use gpuwhy_trace::record::{CopyKind, MemoryKind};
use profiler_core::leaf::{Cause, Leaf};
use profiler_core::steps::StepSource;
use serde_json::{Value, json};

/// A row on the host thread 42 of process 4711; times in microseconds.
fn host(category: &str, name: &str, start: f64, duration: f64, correlation: u32) -> Value {
    json!({"ph": "X", "cat": category, "name": name, "pid": 4711, "tid": 42, "ts": start, "dur": duration,
        "args": {"cbid": 211, "correlation": correlation}})
}

/// A row on stream 7 of device 0; times in microseconds.
fn device(category: &str, name: &str, start: f64, duration: f64, correlation: u32) -> Value {
    json!({"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": start, "dur": duration,
        "args": {"device": 0, "context": 1, "stream": 7, "correlation": correlation, "bytes": 8192,
            "grid": [24, 1, 1], "block": [128, 1, 1], "registers per thread": 16, "shared memory": 0}})
}

fn launch(start: f64, correlation: u32) -> Value {
    host("cuda_runtime", "cudaLaunchKernel", start, 5.0, correlation)
}

fn kernel(start: f64, duration: f64, correlation: u32) -> Value {
    device("kernel", "void gemm<float>(float*)", start, duration, correlation)
}

fn text(rows: &[Value]) -> String {
    json!({"schemaVersion": 1, "traceEvents": rows}).to_string()
}

fn import(rows: &[Value]) -> Report {
    import_kineto(text(rows).as_bytes()).unwrap()
}

/// Two launches and their kernels: 20 us of work in a window of 110 us.
fn two_kernels() -> Vec<Value> {
    vec![launch(1000.0, 1), kernel(1010.0, 10.0, 1), launch(1100.0, 2), kernel(1110.0, 10.0, 2)]
}

#[test]
fn kernels_and_their_launches_become_an_account() {
    let report = import(&two_kernels());
    let account = &report.devices[0];
    assert_eq!(account.window_ns, 110_000);
    assert_eq!(account.leaves[Leaf::Compute as usize], 20_000);
    assert_eq!(account.leaves.iter().sum::<u64>(), 110_000);
    assert_eq!(account.leaves[Leaf::Unobserved as usize], 0, "both kernels found their launch");
    // Idle from 1020 to 1110: the host arrived at 1100, launched for 5, and the kernel started 5 later.
    assert_eq!(account.leaves[Leaf::LaunchApi as usize], 5_000);
    assert_eq!(account.leaves[Leaf::LaunchLatency as usize], 5_000);
    assert_eq!((report.completeness.kernels, report.completeness.api_calls), (2, 2));
    assert_eq!(report.completeness.end, End::Clean);
    assert!(report.completeness.damage.is_empty());
    assert_eq!(account.kernels[0].name, "void gemm<float>(float*)");
    assert_eq!(report.api[0].name, "cudaLaunchKernel");
    assert_eq!(report.process.process_id, 4711);
}

#[test]
fn the_order_of_rows_means_nothing() {
    let mut rows = two_kernels();
    let forward = import(&rows).devices[0].leaves;
    rows.reverse();
    assert_eq!(import(&rows).devices[0].leaves, forward);
}

#[test]
fn the_spellings_of_2021_mean_the_same() {
    let modern = [
        host("cuda_runtime", "cudaMemcpyAsync", 1000.0, 5.0, 1),
        device("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 1010.0, 10.0, 1),
        host("cuda_runtime", "cudaMemsetAsync", 1030.0, 5.0, 2),
        device("gpu_memset", "Memset (Device)", 1040.0, 10.0, 2),
        launch(1060.0, 3),
        kernel(1070.0, 10.0, 3),
    ];
    let old = modern.clone().map(|mut row| {
        row["cat"] = match row["cat"].as_str().unwrap() {
            "cuda_runtime" => json!("Runtime"),
            "gpu_memcpy" => json!("Memcpy"),
            "gpu_memset" => json!("Memset"),
            _ => json!("Kernel"),
        };
        let on_device = row["tid"] == 7;
        row["tid"] = if on_device { json!("stream 7") } else { json!("42") };
        row
    });
    let (modern, old) = (import(&modern), import(&old));
    assert_eq!(modern.devices[0].leaves, old.devices[0].leaves);
    assert_eq!(old.devices[0].leaves[Leaf::CopyH2dPageable as usize], 10_000);
    assert_eq!(old.devices[0].leaves[Leaf::Memset as usize], 10_000);
    assert!(old.completeness.damage.is_empty(), "{:?}", old.completeness.damage);
}

#[test]
fn copies_have_direction_memory_and_size() {
    let report = import(&[
        host("cuda_driver", "cuMemcpyDtoHAsync_v2", 1000.0, 5.0, 1),
        device("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 1010.0, 10.0, 1),
    ]);
    let row = &report.devices[0].copies[0];
    let path = (row.path.kind, row.path.source, row.path.destination);
    assert_eq!(path, (CopyKind::DeviceToHost, MemoryKind::Device, MemoryKind::Pinned));
    assert_eq!((row.bytes, row.durations.total()), (8192, 10_000));
}

#[test]
fn times_are_exact_beyond_the_precision_of_a_double() {
    // As text: a JSON library that reads doubles would round these to a quarter of a microsecond.
    let rows = r#"[
        {"ph": "X", "cat": "kernel", "name": "a", "pid": 0, "tid": 7, "ts": 1712195495502094.537, "dur": 1.003},
        {"ph": "X", "cat": "kernel", "name": "b", "pid": 0, "tid": 7, "ts": 1712195495502096.001, "dur": 2.000}]"#;
    let report = import_kineto(rows.as_bytes()).unwrap();
    assert_eq!(report.devices[0].window_ns, 3_464);
    assert_eq!(report.devices[0].leaves[Leaf::Compute as usize], 3_003);
    assert_eq!(report.process.start.nanos(), 1_712_195_495_502_094_537);
}

#[test]
fn a_base_time_that_comes_last_applies_to_everything() {
    let base = 1_711_964_646_000_000_000_u64;
    let document = format!(r#"{{"traceEvents": {}, "baseTimeNanoseconds": {base}}}"#, json!(two_kernels()));
    let report = import_kineto(document.as_bytes()).unwrap();
    assert_eq!(report.process.start.nanos(), base + 1_000_000);
    assert_eq!(report.devices[0].window_ns, 110_000);
}

#[test]
fn device_properties_and_rank_are_taken_over() {
    let document = json!({
        "deviceProperties": [{"id": 0, "name": "Tesla V100", "computeMajor": 7, "computeMinor": 0, "numSms": 80,
            "totalGlobalMem": 34_089_730_048_u64, "maxThreadsPerMultiprocessor": 2048, "regsPerMultiprocessor": 65536,
            "sharedMemPerMultiprocessor": 98304}],
        "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 2},
        "traceEvents": two_kernels(),
    });
    let report = import_kineto(document.to_string().as_bytes()).unwrap();
    let device = &report.devices[0].device;
    assert_eq!((device.name.as_str(), device.multiprocessors), ("Tesla V100", 80));
    assert_eq!((device.compute_capability, device.memory_bytes), ([7, 0], 34_089_730_048));
    assert_eq!(device.shared_bytes_per_multiprocessor, 98_304);
    let rank = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(report.process.rank_variables, [rank("RANK", "1"), rank("WORLD_SIZE", "2")]);
}

#[test]
fn named_steps_cut_the_timeline_on_the_device() {
    let mut rows = Vec::new();
    for step in 0..4 {
        let start = 1_000.0 + f64::from(step) * 500.0;
        rows.push(host("user_annotation", &format!("ProfilerStep#{step}"), start - 5.0, 490.0, 0));
        rows.push(launch(start, 10 + step));
        rows.push(kernel(start + 20.0, 100.0, 10 + step));
        // The projection of the same range onto the device is not a second mark.
        rows.push(device("gpu_user_annotation", &format!("ProfilerStep#{step}"), start + 20.0, 100.0, 0));
    }
    let report = import(&rows);
    let steps = report.devices[0].steps.as_ref().unwrap();
    assert_eq!(steps.source, StepSource::Annotated);
    let spans: Vec<_> = steps.rows.iter().map(|step| (step.start.nanos(), step.end.nanos())).collect();
    assert_eq!(spans, [(1_020_000, 1_520_000), (1_520_000, 2_020_000), (2_020_000, 2_520_000)]);
    assert!(steps.rows.iter().all(|step| step.leaves[Leaf::Compute as usize] == 100_000));
}

/// Deviation from HTA, which counts every row that has a stream: a wait of the host is not device work.
#[test]
fn a_synchronization_on_a_stream_line_is_not_busy_time() {
    let mut rows = two_kernels();
    rows.push(
        json!({"ph": "X", "cat": "cuda_sync", "name": "Stream Sync", "pid": 0, "tid": 7, "ts": 1020.0, "dur": 80.0,
        "args": {"cuda_sync_kind": "Stream Sync", "stream": 7, "correlation": 9, "device": 0, "context": 1}}),
    );
    let report = import(&rows);
    assert_eq!(report.devices[0].leaves[Leaf::Compute as usize], 20_000);
    assert_eq!(report.devices[0].window_ns, 110_000);
    assert_eq!(report.completeness.syncs, 1);
}

/// Deviation from the TensorBoard plugin, which finds communication by operator names and misses newer kernels.
#[test]
fn newer_names_of_collectives_are_communication() {
    for name in
        ["ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ncclKernel_SendRecv_RING"]
    {
        let report = import(&[launch(1000.0, 1), device("kernel", name, 1010.0, 10.0, 1)]);
        assert_eq!(Cause::Communication.total(&report.devices[0].leaves), 10_000, "{name}");
    }
}

#[test]
fn rows_that_cannot_be_used_are_counted_by_reason() {
    let mut rows = two_kernels();
    let mut without_duration = kernel(1030.0, 1.0, 3);
    without_duration.as_object_mut().unwrap().remove("dur");
    let mut negative = kernel(1030.0, 1.0, 3);
    negative["dur"] = json!(-4);
    let mut begin_only = kernel(1030.0, 1.0, 3);
    begin_only["ph"] = json!("B");
    let mut no_id = kernel(1030.0, 1.0, 3);
    no_id["args"]["correlation"] = json!("none");
    let mut no_device = json!({"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1});
    no_device["pid"] = json!("GPU");
    let mut no_thread = launch(1030.0, 4);
    no_thread["tid"] = json!({"an": "object"});
    rows.extend([without_duration, negative, begin_only, no_id, no_device, no_thread, json!("a text"), json!(7)]);
    let report = import(&rows);
    let wanted = [
        ("1 row ", "begin and end"),
        ("1 row ", "without device"),
        ("2 rows ", "not an object"),
        ("1 row ", "correlation"),
        ("1 row ", "thread number"),
        ("2 rows ", "usable duration"),
    ];
    assert_eq!(report.completeness.damage.len(), wanted.len(), "{:#?}", report.completeness.damage);
    for (count, reason) in wanted {
        let found = |note: &String| note.starts_with(count) && note.contains(reason);
        assert!(report.completeness.damage.iter().any(found), "{reason}: {:#?}", report.completeness.damage);
    }
    assert_eq!(report.completeness.kernels, 2, "the others are there");
}

#[test]
fn fields_of_odd_types_and_repeated_keys_cost_only_themselves() {
    let text = r#"{"traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": 5, "ts": null, "args": "none"},
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 10, "ts": 20, "dur": "5.5",
         "args": {"device": "0", "stream": null, "correlation": 1, "grid": "big", "correlation": 2, "bytes": [1]}}],
        "deviceProperties": "none", "distributedInfo": [], "baseTimeNanoseconds": "soon"}"#;
    let report = import_kineto(text.as_bytes()).unwrap();
    assert_eq!(report.devices[0].window_ns, 5_500);
    assert_eq!(report.process.start.nanos(), 20_000);
}

#[test]
fn a_truncated_text_is_reported_up_to_the_cut() {
    let whole = text(&two_kernels());
    let cut = &whole[..whole.len() - 40];
    let report = import_kineto(cut.as_bytes()).unwrap();
    assert_eq!(report.completeness.kernels, 1, "the second was cut");
    assert_eq!(report.completeness.end, End::Abrupt);
    let note = &report.completeness.damage[0];
    assert!(note.contains(&format!("byte {}", cut.len())) && note.contains("ends in the middle"), "{note}");
}

#[test]
fn every_cut_gives_a_report_or_an_error_and_never_more_than_the_whole() {
    let whole = text(&two_kernels());
    for end in 0..whole.len() {
        match import_kineto(&whole.as_bytes()[..end]) {
            Ok(report) => {
                assert!((1..=2).contains(&report.completeness.kernels), "cut at {end}");
                assert!(!report.completeness.damage.is_empty(), "cut at {end} went unnoticed");
            }
            Err(KinetoError::Unreadable { offset, .. }) => assert_eq!(offset, end as u64),
            Err(KinetoError::NoDeviceWork { stopped, .. } | KinetoError::LostDeviceWork { stopped, .. }) => {
                assert!(stopped.is_some(), "cut at {end}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Text that replaces the first launch; damage says how many rows are lost, and the second kernel is there.
#[test]
fn a_row_that_is_no_json_costs_that_row_only() {
    let broken = |name: &str| {
        let mut rows = two_kernels();
        rows.insert(1, host("python_function", "BROKEN", 1.0, 1.0, 9));
        text(&rows).replace("BROKEN", name).into_bytes()
    };
    for name in [
        "a \"b\" c",
        "a \"b c",
        "{\"k\": \"v\"}(12): run",
        "a \"{\" b",
        "a\"} b",
        "a\"}, b",
        "C:\\",
        "[\"x\"], \"",
        "\", {\"name\": 1}, {\"",
        "a\"]} b",
    ] {
        let report = import_kineto(broken(name).as_slice()).unwrap();
        assert_eq!((report.completeness.kernels, report.completeness.api_calls), (2, 2), "{name}");
        assert_eq!(report.completeness.end, End::Clean, "{name}: {:?}", report.completeness.damage);
        let counted = |note: &String| note.contains("not used");
        assert!(report.completeness.damage.iter().any(counted), "{name}: {:?}", report.completeness.damage);
    }
    for name in ["a\nb\u{1}", "a \\d"] {
        let report = import_kineto(broken(name).as_slice()).unwrap();
        assert_eq!((report.completeness.kernels, report.completeness.damage.len()), (2, 0), "{name}");
        assert!(report.process.notes.iter().any(|note| note.starts_with("1 row with")), "{:?}", report.process.notes);
    }
}

#[test]
fn values_that_are_no_json_cost_only_themselves() {
    for token in ["NaN", "Infinity", "-Infinity", "inf", "-nan", "None", "1e999"] {
        let text = text(&two_kernels()).replace("8192", token);
        let report = import_kineto(text.as_bytes()).unwrap();
        assert_eq!(report.completeness.kernels, 2, "{token}");
        assert!(report.completeness.damage.is_empty(), "{token}: {:?}", report.completeness.damage);
    }
}

#[test]
fn an_array_without_its_end_is_whole_unless_a_row_is_cut() {
    let rows = json!(two_kernels()).to_string();
    for end in ["", ",", ",\n", " "] {
        let report = import_kineto(format!("{}{end}", &rows[..rows.len() - 1]).as_bytes()).unwrap();
        assert_eq!((report.completeness.kernels, report.completeness.end), (2, End::Clean), "{end:?}");
    }
    let report = import_kineto(&rows.as_bytes()[..rows.len() - 5]).unwrap();
    assert_eq!((report.completeness.kernels, report.completeness.end), (1, End::Abrupt));
}

#[test]
fn work_long_before_its_launch_or_after_a_wait_for_it_is_not_on_the_timeline() {
    let steps: Vec<Value> = (0..20)
        .flat_map(|step| {
            let (start, id) = (1e9 + 1_000.0 * f64::from(step), 2 * step + 1);
            [
                launch(start, id),
                kernel(start + 10.0, 50.0, id),
                host("cuda_runtime", "cudaStreamSynchronize", start + 20.0, 60.0, id + 1),
            ]
        })
        .collect();
    for (moved, of) in [(-100e6, "before the call that launched them"), (100e6, "after a wait for them")] {
        let mut rows = steps.clone();
        rows[1]["ts"] = json!(rows[1]["ts"].as_f64().unwrap() + moved);
        let report = import(&rows);
        assert_eq!((report.completeness.kernels, report.completeness.bad_timestamps), (20, 1));
        assert!(report.devices[0].window_ns < 20_000_000, "{}", report.devices[0].window_ns);
        assert!(report.completeness.damage[0].contains(of), "{:?}", report.completeness.damage);
        // All of them: the clocks differ.
        let mut rows = steps.clone();
        for row in rows.iter_mut().filter(|row| row["cat"] == "kernel") {
            row["ts"] = json!(row["ts"].as_f64().unwrap() + moved);
        }
        let report = import(&rows);
        assert_eq!(report.completeness.bad_timestamps, 0);
        assert!(report.completeness.damage[0].contains("clocks"), "{:?}", report.completeness.damage);
    }
}

#[test]
fn correlations_of_any_width_link_kernels_to_their_launch() {
    let ids =
        [json!(1_u64 << 40), json!(-7), json!("12"), json!(3.0), json!(u64::MAX), json!(u64::MAX - 1), json!("a-5")];
    let mut rows = Vec::new();
    for (id, place) in ids.iter().zip(0..) {
        let start = 1_000.0 + 100.0 * f64::from(place);
        rows.extend([launch(start, 0), kernel(start + 10.0, 10.0, 0)]);
        rows.iter_mut().rev().take(2).for_each(|row| row["args"]["correlation"] = id.clone());
    }
    let report = import(&rows);
    assert_eq!((report.completeness.kernels, report.completeness.activities_without_launch), (7, 0));
    assert_eq!((report.completeness.launches_without_activity, report.completeness.shared_ids), (0, 0));
}

#[test]
fn json_that_is_no_trace_and_traces_without_a_device_are_refused() {
    let refused = |text: &str| import_kineto(text.as_bytes()).unwrap_err();
    assert!(matches!(refused("{\"a\": 1}"), KinetoError::NotATrace));
    assert!(matches!(refused("[]"), KinetoError::NoDeviceWork { rows: 0, stopped: None }));
    let lost = refused(&text(&[launch(1000.0, 1)]));
    assert!(matches!(lost, KinetoError::LostDeviceWork { launches: 1, stopped: None }), "{lost}");
    assert!(lost.to_string().contains("MPS") && !lost.to_string().contains("ProfilerActivity"), "{lost}");
    let host_only = refused(&text(&[host("cpu_op", "aten::add", 1000.0, 5.0, 1)]));
    assert!(matches!(host_only, KinetoError::NoDeviceWork { rows: 1, stopped: None }));
    assert!(host_only.to_string().contains("ProfilerActivity.CUDA"), "{host_only}");
    assert!(matches!(refused("{\"traceEvents\": 5}"), KinetoError::Unreadable { .. }));
}

#[test]
fn the_command_recognizes_a_trace_by_its_contents() {
    let folder = tempfile::tempdir().unwrap();
    let text = text(&two_kernels());
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    let marked = [b"\xef\xbb\xbf \n", text.as_bytes()].concat();
    for (name, bytes) in [("plain", text.as_bytes()), ("packed.bin", &packed), ("marked.txt", &marked)] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_gpuwhy")).args(["report", "--json"]).arg(&path).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["devices"][0]["window_ns"], 110_000, "{name}");
    }
    let path = folder.path().join("cut.json.gz");
    std::fs::write(&path, &packed[..packed.len() - 12]).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_gpuwhy")).arg("report").arg(&path).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_ne!(output.status.code(), Some(0), "a packed file that was cut is not whole");
    assert!(stderr.contains("cut.json.gz") && stderr.contains("byte"), "{stderr}");
}
