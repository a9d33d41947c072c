use std::process::Command;

use serde_json::Value;

use super::{file, gpuwhy, has_its_kernels, json, kernel_micros, share, text, truth};
use crate::support::{GPUWHY, Stage, stderr};

/// The first screen without its line breaks.
fn screen(name: &str) -> String {
    let (code, text) = text(name);
    assert_eq!(code, 0, "{text}");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn says(name: &str, sentences: &[&str]) -> String {
    let screen = screen(name);
    for sentence in sentences {
        assert!(screen.contains(sentence), "{name}: {sentence}: {screen}");
    }
    screen
}

fn leaf(report: &Value, wanted: &str) -> f64 {
    share(report, &|leaf| leaf == wanted)
}

/// The file after a change by SQL.
fn changed(name: &str, sql: &str) -> (Stage, Value) {
    let (stage, code, report) = with_code(name, sql);
    assert_eq!(code, 0, "{sql}");
    (stage, report)
}

fn with_code(name: &str, sql: &str) -> (Stage, i32, Value) {
    let stage = Stage::new();
    let path = stage.path("changed.sqlite");
    let mut packed = flate2::read::GzDecoder::new(std::fs::File::open(file(name)).unwrap());
    std::io::copy(&mut packed, &mut std::fs::File::create(&path).unwrap()).unwrap();
    rusqlite::Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    let (code, report) = crate::support::report(&path);
    (stage, code, report)
}

fn notes(report: &Value) -> String {
    report["process"]["notes"].to_string()
}

#[test]
fn the_plain_file_has_its_kernels_and_its_bottleneck() {
    has_its_kernels("base.sqlite.gz");
    says("base.sqlite.gz", &["Bottleneck: synchronization."]);
}

#[test]
fn a_graph_without_its_nodes_is_work_of_the_gpu() {
    let (report, truth) = (json("graph_level.sqlite.gz"), truth("graph_level.sqlite.gz"));
    let records = &report["completeness"]["records"];
    assert_eq!((&records["kernels"], &records["graphs"]), (&truth["kernels"], &60.into()));
    let work = truth["kernel_us"].as_f64().unwrap() + truth["graph_us"].as_f64().unwrap();
    assert!((kernel_micros(&report) - work).abs() < 0.5, "{}", kernel_micros(&report));
    let busy = truth["busy_us"].as_f64().unwrap() / truth["span_us"].as_f64().unwrap();
    assert!((leaf(&report, "compute") - busy).abs() < 0.001, "{}", leaf(&report, "compute"));
    says(
        "graph_level.sqlite.gz",
        &["Bottleneck: GPU computation.", "60 CUDA graphs as a whole", "--cuda-graph-trace=node"],
    );
}

#[test]
fn graph_launches_without_any_record_leave_their_time_unknown() {
    let (_stage, report) = changed("graph_level.sqlite.gz", "DROP TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE");
    assert_eq!(report["bottleneck"]["cause"], "cannot_tell");
}

#[test]
fn columns_are_read_by_what_is_there() {
    has_its_kernels("export_2021.sqlite.gz");
    says("export_2021.sqlite.gz", &["Bottleneck: synchronization.", "NVIDIA GeForce RTX 3080"]);
    assert_eq!(json("export_2021.sqlite.gz")["devices"][0]["compute"]["multiprocessors"], 68);
    // Any column may be missing, and any table but that of the kernels.
    for (table, columns) in [
        ("StringIds", "value"),
        ("TARGET_INFO_GPU", "id, name, smCount"),
        ("META_DATA_EXPORT", "name"),
        ("PROCESSES", "globalPid, name"),
        ("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "correlationId, nameId, globalTid, eventClass"),
        ("CUPTI_ACTIVITY_KIND_KERNEL", "globalPid, deviceId, gridX, demangledName"),
    ] {
        for column in columns.split(", ") {
            let sql = format!("ALTER TABLE {table} RENAME COLUMN {column} TO other");
            let (_stage, report) = changed("base.sqlite.gz", &sql);
            assert_eq!(report["completeness"]["records"]["kernels"], 400, "{sql}");
        }
    }
    let sql = "DROP TABLE StringIds; ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME COLUMN start TO begin";
    let (_stage, report) = changed("base.sqlite.gz", sql);
    assert_eq!(report["completeness"]["bad_timestamps"], 400);
}

#[test]
fn a_file_without_cuda_says_how_to_record_it() {
    let output = gpuwhy("report", &[], "no_cuda.sqlite.gz");
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(said.contains("without CUDA data") && said.contains("-t cuda"), "{said}");
    // Ranges alone can be asked for, and a report of them says the same.
    let tables = "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL; DROP TABLE CUPTI_ACTIVITY_KIND_MEMCPY;
                  DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME";
    let (_stage, report) = changed("nvtx_start_end.sqlite.gz", tables);
    assert_eq!(report["bottleneck"]["cause"], "no_work");
    assert!(report["bottleneck"]["recommendation"].as_str().unwrap().contains("-t cuda"), "{}", report["bottleneck"]);
}

#[test]
fn of_two_processes_the_report_names_the_one_that_it_leaves_out() {
    has_its_kernels("two_processes.sqlite.gz");
    let others = "other processes in the file are left out (--pid chooses one): 200 (python3, 400 operations on GPU 1)";
    says("two_processes.sqlite.gz", &[&others.replacen("other", "Other", 1)]);
    let output = gpuwhy("query", &["cuda_gpu_kern_sum"], "two_processes.sqlite.gz");
    assert_eq!(output.status.code(), Some(0));
    let said = stderr(&output);
    assert!(said.contains("only process 100 is read") && said.contains(others), "{said}");
    let output = gpuwhy("report", &["--pid", "200"], "two_processes.sqlite.gz");
    let other = String::from_utf8(output.stdout).unwrap();
    assert!(other.contains("process 200") && other.contains("GPU 1 ("), "{other}");
}

#[test]
fn work_of_another_process_of_the_file_is_what_the_gpu_was_used_for() {
    has_its_kernels("process_in_file.sqlite.gz");
    for arguments in [&["--json"][..], &["--json", "--pid", "100"]] {
        let report: Value =
            serde_json::from_slice(&gpuwhy("report", arguments, "process_in_file.sqlite.gz").stdout).unwrap();
        assert_eq!(report["bottleneck"]["cause"], "other_process");
        let share = report["bottleneck"]["share"].as_f64().unwrap();
        assert!((0.545..=0.615).contains(&share), "{share}");
        let other = &report["devices"][0]["other_processes"][0];
        let seen = [&other["pid"], &other["operations"], &other["work_ns"]].map(|number| number.as_u64().unwrap());
        assert_eq!(seen, [200, 200, 40_000_000]);
    }
    says("process_in_file.sqlite.gz", &["other (pid 200) ran 200 operations on this GPU"]);
    // It ran on another GPU: CUDA numbers the devices of each process from 0.
    let sql = "CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER);
               INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (0, 0, 100), (1, 0, 200)";
    let (_stage, report) = changed("process_in_file.sqlite.gz", sql);
    assert_eq!(report["bottleneck"]["cause"], "cannot_tell");
    assert_eq!(report["devices"][0]["other_processes"], Value::Array(Vec::new()));
}

/// Kernels whose clock is late, early or endless, and rows that are there twice.
#[test]
fn times_that_cannot_be_are_counted_and_left_out() {
    let table = "CUPTI_ACTIVITY_KIND_KERNEL";
    let of = |rows: &str| format!("rowid IN (SELECT rowid FROM {table} ORDER BY start LIMIT {rows})");
    for (sql, bad, why) in [
        // The first three run two seconds late: after the waits for them.
        (
            format!("UPDATE {table} SET start = start + 2000000000, end = end + 2000000000 WHERE {}", of("3")),
            3,
            "3 GPU operations ended more than 100 ms after a wait for them",
        ),
        (
            format!("UPDATE {table} SET start = start - 2000000000, end = end - 2000000000 WHERE {}", of("2 OFFSET 7")),
            2,
            "2 GPU operations started more than 100 ms before the call that launched them",
        ),
        (
            format!("UPDATE {table} SET end = end + 20000000 WHERE {}", of("1 OFFSET 50")),
            1,
            "1 GPU operation ended after eight later launches of the same stream",
        ),
        (
            format!("INSERT INTO {table} SELECT * FROM {table} WHERE {}", of("5 OFFSET 20")),
            0,
            "5 records left out: equal to another one",
        ),
        (
            format!("UPDATE {table} SET start = start + 2000000000, end = end + 2000000000"),
            0,
            "the clocks of the GPU and the CPU differ",
        ),
    ] {
        let (stage, code, report) = with_code("base.sqlite.gz", &sql);
        let completeness = &report["completeness"];
        assert_eq!(code, 1, "{sql}");
        assert_eq!(completeness["records"]["kernels"], 400, "{sql}");
        assert_eq!(completeness["bad_timestamps"], bad, "{sql}");
        assert!(completeness["damage"].to_string().contains(why), "{sql}: {completeness}");
        let output = Command::new(GPUWHY).arg("report").arg(stage.path("changed.sqlite")).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(why), "{sql}: {text}");
    }
    // A wait for one device is none for work on another.
    let two = format!("UPDATE {table} SET deviceId = rowid % 2");
    let late = format!("UPDATE {table} SET start = start + 2000000000, end = end + 2000000000 WHERE {}", of("3"));
    assert_eq!(changed("base.sqlite.gz", &format!("{two}; {late}")).1["completeness"]["bad_timestamps"], 0);
}

#[test]
fn records_without_usable_times_are_counted_and_leave_unknown_time() {
    let (report, truth) = (json("bad_times.sqlite.gz"), truth("bad_times.sqlite.gz"));
    assert_eq!(report["completeness"]["records"]["kernels"], truth["kernels"]);
    assert_eq!(report["completeness"]["bad_timestamps"], truth["kernels_without_times"]);
    for counter in ["clamped_clocks", "launches_without_activity", "activities_without_launch"] {
        assert_eq!(report["completeness"][counter], 0, "{counter}");
    }
    assert!((kernel_micros(&report) - 347.0 * 60.0).abs() < 0.5);
    let window = report["devices"][0]["window_ns"].as_f64().unwrap() / 1e3;
    assert!((window - truth["span_us"].as_f64().unwrap()).abs() < 1_000.0, "{window}");
    // 50 kernels of 60 us are not on the timeline, and the rest of their steps cannot be told from them.
    let unknown = share(&report, &|leaf| ["unobserved", "dependency_wait"].contains(&leaf)) * window;
    assert!((3_000.0..5_000.0).contains(&unknown), "{unknown} us");
    says("bad_times.sqlite.gz", &["Not on the timeline: 53 records without usable times."]);
}

#[test]
fn ranges_of_unknown_types_are_counted() {
    has_its_kernels("nvtx_start_end.sqlite.gz");
    let report = json("nvtx_start_end.sqlite.gz");
    let rows = report["ranges"]["rows"].as_array().unwrap();
    let ended: u64 = rows.iter().map(|row| row["host"]["count"].as_u64().unwrap_or(0)).sum();
    let open = report["ranges"]["open"].as_u64().unwrap();
    assert_eq!(ended + open, truth("nvtx_start_end.sqlite.gz")["ranges"].as_u64().unwrap(), "{rows:?}");
    let sql = "UPDATE NVTX_EVENTS SET eventType = 99 WHERE rangeId IN (1, 2);
               INSERT INTO NVTX_EVENTS (start, eventType, text) VALUES (5, 75, CAST(x'ff66' AS TEXT)), (5, 39, 'main')";
    let (_stage, report) = changed("nvtx_start_end.sqlite.gz", sql);
    assert!(notes(&report).contains("2 rows of NVTX_EVENTS not read: they are of unknown types"), "{}", notes(&report));
    let sql = "ALTER TABLE NVTX_EVENTS RENAME COLUMN eventType TO kind";
    let (_stage, report) = changed("nvtx_start_end.sqlite.gz", sql);
    assert!(notes(&report).contains("41 rows of NVTX_EVENTS not read: the table has no column eventType"));
    has_its_kernels("missing_strings.sqlite.gz");
}

#[test]
fn a_layer_within_a_named_step_is_not_a_step() {
    has_its_kernels("layers_not_steps.sqlite.gz");
    let screen = says("layers_not_steps.sqlite.gz", &["It is unknown whether it is a step of the program"]);
    assert!(!screen.contains("complete step") && !screen.contains("every step"), "{screen}");
    for (sql, steps) in [
        // The names of the layers show it as well.
        ("DELETE FROM NVTX_EVENTS WHERE text LIKE 'train_step%'", false),
        ("DELETE FROM NVTX_EVENTS WHERE text LIKE 'FSDP%'", false),
        // Nothing shows it: a copy from the host is rarely in a layer.
        ("DELETE FROM NVTX_EVENTS", true),
    ] {
        let (_stage, report) = changed("layers_not_steps.sqlite.gz", sql);
        let recognized = &report["devices"][0]["steps"]["recognized_by"];
        assert_eq!(!recognized.is_null(), steps, "{sql}: {recognized}");
    }
}

#[test]
fn one_kernel_is_answered_for() {
    has_its_kernels("one_kernel.sqlite.gz");
    let screen = says(
        "one_kernel.sqlite.gz",
        &[
            "Bottleneck: GPU computation.",
            "runs on 1 of 132 multiprocessors",
            "Give add(int, float*, float*) more blocks",
        ],
    );
    assert!(screen.contains("threads"), "{screen}");
    // One short copy is too little.
    let sql = "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL; INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY
               (start, end, deviceId, contextId, streamId, correlationId, globalPid, bytes, copyKind)
               VALUES (10009000, 20009000, 0, 1, 7, 1, 281476654432256, 100, 1)";
    assert_eq!(changed("one_kernel.sqlite.gz", sql).1["bottleneck"]["cause"], "cannot_tell");
}

#[test]
fn migrations_of_managed_memory_are_in_the_report() {
    has_its_kernels("managed.sqlite.gz");
    let managed = json("managed.sqlite.gz")["devices"][0]["managed"].clone();
    assert_eq!((&managed["to_device"], &managed["page_faults"]), (&800.into(), &102_400.into()));
    assert_eq!(managed["to_device_bytes"], 1_677_721_600);
    assert!((managed["share_of_kernel_time"].as_f64().unwrap() - 0.8).abs() < 1e-6, "{managed}");
    says(
        "managed.sqlite.gz",
        &["In 80 % of the time of kernels", "1677.7 MB", "102400 page faults", "cudaMemPrefetchAsync"],
    );
    // Evictions.
    let sql = "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET copyKind = 12, srcDeviceId = 0, dstDeviceId = NULL";
    let (_stage, report) = changed("managed.sqlite.gz", sql);
    assert_eq!(report["devices"][0]["managed"]["to_host_bytes"], 1_677_721_600);
}

#[test]
fn two_tiny_copies_do_not_make_pinning_the_change() {
    has_its_kernels("pinned_and_two_tiny.sqlite.gz");
    let screen = says("pinned_and_two_tiny.sqlite.gz", &["Bottleneck: memory copies.", "Run the copies overlapped"]);
    assert!(!screen.contains("pin_memory") && !screen.contains("Copy from pinned memory"), "{screen}");
    assert!(!screen.contains("pinned memory is faster"), "{screen}");
    let sql = "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET srcKind = 0 WHERE rowid % 2 = 0";
    let (_stage, report) = changed("pinned_and_two_tiny.sqlite.gz", sql);
    let advice = report["bottleneck"]["recommendation"].as_str().unwrap();
    assert!(advice.contains("Copy from pinned memory"), "half of the time: {advice}");
}

#[test]
fn programs_in_c_and_with_openmp_get_words_of_theirs() {
    for (name, sentences) in [
        ("native_pageable.sqlite.gz", &["Bottleneck: memory copies.", "cudaHostRegister", "cudaMallocHost"][..]),
        ("native_launch.sqlite.gz", &["Bottleneck: kernel launches.", "81 %", "cudaStreamBeginCapture"]),
        ("malloc_async.sqlite.gz", &["Bottleneck: memory allocation.", "45 %", "cudaMemPoolAttrReleaseThreshold"]),
    ] {
        has_its_kernels(name);
        let full = String::from_utf8(gpuwhy("report", &["--full"], name).stdout).unwrap();
        let screen = says(name, sentences);
        for text in [full, screen] {
            let python = ["torch", "DataLoader", "tensor", ".item()"].into_iter().find(|word| text.contains(word));
            assert_eq!(python, None, "{name}: {text}");
        }
    }
    // OpenMP shows in the names of kernels too.
    let (_stage, report) = changed("native_pageable.sqlite.gz", "DROP TABLE PROCESSES");
    assert!(report["bottleneck"]["recommendation"].as_str().unwrap().contains("cudaHostRegister"));
    let (_stage, report) = changed(
        "native_pageable.sqlite.gz",
        "UPDATE StringIds SET value = 'k' WHERE id = 4;
                                    UPDATE PROCESSES SET name = '/usr/bin/python3.12'",
    );
    assert!(report["bottleneck"]["recommendation"].as_str().unwrap().contains("pin_memory"));
}
