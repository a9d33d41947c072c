//! Samples of `nsys profile --gpu-metrics-devices`: computation in their traces is divided as in ours.

use std::path::Path;
use std::process::Command;

use crate::support::{GPUWHY, Stage, report, stderr};
use rusqlite::Connection;
use serde_json::Value;

fn shares(document: &Value) -> Vec<(String, f64)> {
    let parts = document["devices"][0]["compute_limits"]["steady_ns"].as_object().expect("it was sampled");
    let all: u64 = parts.values().map(|nanos| nanos.as_u64().unwrap()).sum();
    parts.iter().map(|(name, nanos)| (name.clone(), nanos.as_u64().unwrap() as f64 / all as f64)).collect()
}

fn kernel<'a>(document: &'a Value, name: &str) -> &'a Value {
    let kernels = document["devices"][0]["kernels"].as_array().unwrap();
    kernels.iter().find(|row| row["name"].as_str().unwrap().contains(name)).expect(name)
}

#[test]
fn samples_that_were_exported_come_back_and_tell_the_same() {
    let stage = Stage::new();
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures/gpt_counters.gpuwhy");
    let database = stage.path("gpt.sqlite");
    let output =
        Command::new(GPUWHY).args(["export", "--to", "sqlite", "-o"]).arg(&database).arg(&trace).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let ((_, before), (code, after)) = (report(&trace), report(&database));
    assert_eq!(code, 0);
    let samples = |of: &Value| of["devices"][0]["compute_limits"]["samples"]["used"].as_u64().unwrap();
    // Such a file has no times before the start of tracing.
    assert!(samples(&after) > samples(&before) * 9 / 10, "{} {}", samples(&after), samples(&before));
    // Such a file has whole percents, which is coarse for kernels with few samples: more time is unresolved,
    // but the rest is the same.
    let reported = |shares: Vec<(String, f64)>| shares.into_iter().filter(|(name, _)| name != "unresolved");
    for ((name, wanted), (_, found)) in reported(shares(&before)).zip(reported(shares(&after))) {
        assert!(found < wanted + 0.05, "{name}: {wanted} {found}");
    }
    assert!(reported(shares(&after)).map(|(_, share)| share).sum::<f64>() > 0.25);
    for name in ["sdpa_sm90_flash_bprop", "sdpa_sm90_flash_fprop"] {
        let [was, is] = [&before, &after].map(|of| kernel(of, name)["limits"].clone());
        assert_eq!(was["roof"], is["roof"], "{name}");
        let number = |of: &Value, field: &str| of[field].as_f64().unwrap();
        let off = (number(&was, "used") - number(&is, "used")).abs();
        assert!(off < 2.0 * number(&is, "standard_error") && off < 0.05, "{name}: {was} {is}");
    }
}

/// Writes a file as nsys 2025 does: 200 steps of two kernels on a device with the number 2 in the file and 0
/// in CUDA, sampled every 100 us. `copy` uses 90 % of device memory at 80 % of reads, `gemm` 85 % of the
/// tensor cores.
fn of_nsys(path: &Path) {
    let mut database = Connection::open(path).unwrap();
    database
        .execute_batch(
            "CREATE TABLE StringIds (id INTEGER, value TEXT);
             INSERT INTO StringIds VALUES (1, 'copy'), (2, 'gemm'), (3, 'cudaLaunchKernel_v7000');
             CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, memoryBandwidth INTEGER, clockRate INTEGER,
                 smCount INTEGER, computeMajor INTEGER, computeMinor INTEGER, chipName TEXT);
             INSERT INTO TARGET_INFO_GPU VALUES (2, 'NVIDIA H100', 3000000000000, 1980000000, 132, 9, 0, 'GH100');
             CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER);
             INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (2, 0, 100);
             CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
                 correlationId INTEGER, globalPid INTEGER, demangledName INTEGER);
             CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER,
                 globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER);
             CREATE TABLE GPU_METRICS (rawTimestamp INTEGER, timestamp INTEGER, typeId INTEGER, metricId INTEGER,
                 value INTEGER);
             CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER, sourceId INTEGER, typeName TEXT, metricId INTEGER,
                 metricName TEXT);",
        )
        .unwrap();
    let rows = database.transaction().unwrap();
    let (pid, kind) = ((1i64 << 48) | (100 << 24), (7i64 << 32) | 2);
    for (id, name) in [
        "GPC Clock Frequency [MHz]",
        "SYS Clock Frequency [MHz]",
        "SMs Active [Throughput %]",
        "SM Issue [Throughput %]",
        "Tensor Active [Throughput %]",
        "DRAM Read Bandwidth [Throughput %]",
        "DRAM Write Bandwidth [Throughput %]",
        "Compute Warps in Flight [Throughput %]",
        "Compute Warps in Flight [Avg]",
    ]
    .iter()
    .enumerate()
    {
        let insert = "INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?, 0, 'General Metrics for NVIDIA GH100', ?, ?)";
        rows.execute(insert, (kind, id, name)).unwrap();
    }
    // Values of the metrics above while each kernel runs alone.
    let of = [("copy", [1_900, 1_500, 99, 20, 0, 72, 18, 80, 51]), ("gemm", [1_700, 1_500, 95, 12, 85, 20, 5, 15, 9])];
    let mut runs = Vec::new();
    let mut at = 1_000_000i64;
    for launch in 0..400i64 {
        // Durations that are not multiples of the interval.
        let lasts = if launch % 2 == 0 { 237_000 } else { 411_000 };
        let call = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, 3, 0)";
        rows.execute(call, (at - 9_000, at - 4_000, pid + 5, launch + 1)).unwrap();
        let kernel = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 7, ?, ?, ?)";
        rows.execute(kernel, (at, at + lasts, launch + 1, pid, 1 + launch % 2)).unwrap();
        runs.push((at, at + lasts, (launch % 2) as usize));
        at += lasts + 13_000;
    }
    for end in (1_100_000..at).step_by(100_000) {
        let mut values = [0.0; 9];
        for &(start, stop, which) in runs.iter().filter(|run| run.1 > end - 100_000 && run.0 < end) {
            let part = (stop.min(end) - start.max(end - 100_000)) as f64 / 1e5;
            values.iter_mut().zip(of[which].1).for_each(|(sum, value)| *sum += part * f64::from(value));
        }
        let busy: f64 = values[1] / 1_500.0;
        values[0] += (1.0 - busy) * 1_980.0;
        for (id, value) in values.iter().enumerate() {
            let insert = "INSERT INTO GPU_METRICS VALUES (0, ?, ?, ?, ?)";
            // One sample was lost.
            if end != 50_000_000 {
                rows.execute(insert, (end, kind, id, value.round() as i64)).unwrap();
            }
        }
    }
    rows.commit().unwrap();
}

#[test]
fn a_trace_of_nsys_with_samples_is_divided_by_what_limits_it() {
    let stage = Stage::new();
    let path = stage.path("nsys.sqlite");
    of_nsys(&path);
    let (code, document) = report(&path);
    assert_eq!(code, 0);
    let limits = &document["devices"][0]["compute_limits"];
    assert_eq!((&limits["chip"], &limits["interval_ns"]), (&"GH100".into(), &100_000.into()), "{limits}");
    for (name, roof, used, clock) in [("copy", "dram", 0.90, 1.9e9), ("gemm", "tensor", 0.85, 1.7e9)] {
        let of = &kernel(&document, name)["limits"];
        assert_eq!(of["roof"], roof, "{of}");
        assert!((of["used"].as_f64().unwrap() - used).abs() < 0.02, "{of}");
        assert!((of["clock_hz"].as_f64().unwrap() / clock - 1.0).abs() < 0.03, "{of}");
    }
    // 72 % and 20 % of 3 TB/s, over a step of two kernels.
    let read = limits["step_bytes_read"].as_f64().unwrap();
    assert!((read / (3e12 * (0.72 * 237e-6 + 0.20 * 411e-6)) - 1.0).abs() < 0.03, "{read}");
    let loss = &document["completeness"]["counters"][0];
    assert_eq!((&loss["lost"], &loss["first_left_out"]), (&1.into(), &1.into()), "{}", document["completeness"]);
    let notes = document["process"]["notes"].to_string();
    let said = "2 metrics of GPU_METRICS that gpuwhy has no use for: Compute Warps in Flight [Avg]; SYS Clock";
    assert!(notes.contains(said), "{notes}");
    assert!(!notes.contains("is a view"));
}

#[test]
fn samples_without_names_or_of_nonsense_are_left_out() {
    for (change, said) in [
        ("DROP TABLE TARGET_INFO_GPU_METRICS", Some("has no TARGET_INFO_GPU_METRICS that names them")),
        ("DELETE FROM TARGET_INFO_GPU_METRICS", None),
        ("UPDATE GPU_METRICS SET timestamp = NULL", None),
        ("UPDATE GPU_METRICS SET timestamp = 5", None),
        ("DELETE FROM GPU_METRICS WHERE timestamp > 1200000", None),
        ("UPDATE GPU_METRICS SET value = NULL", None),
        ("UPDATE GPU_METRICS SET timestamp = -9223372036854775807 WHERE timestamp < 30000000", None),
        ("UPDATE GPU_METRICS SET timestamp = 9223372036854775807 WHERE timestamp > 30000000", None),
    ] {
        let stage = Stage::new();
        let path = stage.path("nsys.sqlite");
        of_nsys(&path);
        Connection::open(&path).unwrap().execute_batch(change).unwrap();
        let (code, document) = report(&path);
        assert_eq!(code, 0, "{change}");
        assert_eq!(document["completeness"]["records"]["kernels"], 400, "{change}");
        let notes = document["process"]["notes"].to_string();
        assert!(said.is_none_or(|said| notes.contains(said)), "{change}: {notes}");
    }
    let stage = Stage::new();
    let path = stage.path("nsys.sqlite");
    of_nsys(&path);
    let text = "UPDATE GPU_METRICS SET value = 'many' WHERE metricId = 3";
    Connection::open(&path).unwrap().execute_batch(text).unwrap();
    let output = Command::new(GPUWHY).args(["report", "--json"]).arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "a text where a number belongs is told as in other tables");
    assert!(stderr(&output).contains("nsys.sqlite"), "{}", stderr(&output));
}
