//! The statistics compared with sums over the rows of the exported JSON.

use std::collections::BTreeMap;
use std::process::Output;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{HostSample, Loss, Record, StackId, ThreadId, ThreadState, Timestamp};
use serde_json::Value;

use super::{chrome, gpuwhy, nanos, play, rows};
use crate::support::{Stage, stderr};

#[test]
fn the_statistics_are_those_of_the_rows() {
    let stage = play("sync_item");
    let document = chrome(&stage, "trace.json");
    let trace = stage.path("trace.gpuwhy");
    let table = |name: &str| -> Vec<Value> {
        let output = gpuwhy(&[&"query", &name, &"--format", &"json", &trace]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    for (name, category, count) in
        [("cuda_gpu_kern_sum", "kernel", "Instances"), ("cuda_api_sum", "cuda_runtime", "Num Calls")]
    {
        let mut groups: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for row in rows(&document, category) {
            groups.entry(row["name"].as_str().unwrap()).or_default().push(nanos(&row["dur"]));
        }
        let table = table(name);
        for (group, mut durations) in groups {
            durations.sort_unstable();
            let row = table.iter().find(|row| row["Name"].as_str().is_some_and(|name| name.starts_with(group)));
            let row = row.unwrap_or_else(|| panic!("{name} lacks {group}"));
            assert_eq!(row[count], durations.len(), "{group}");
            assert_eq!(row["Total Time (ns)"], durations.iter().sum::<u64>(), "{group}");
            assert_eq!(row["Min (ns)"], durations[0], "{group}");
            assert_eq!(row["Max (ns)"], durations[durations.len() - 1], "{group}");
            let middle = durations[(durations.len() - 1) / 2] + durations[durations.len() / 2];
            assert_eq!(row["Med (ns)"].as_f64().unwrap(), middle as f64 / 2.0, "{group}");
        }
        let shares: f64 = table.iter().map(|row| row["Time (%)"].as_f64().unwrap()).sum();
        assert!((shares - 100.0).abs() < 0.05 * table.len() as f64 + 0.01, "{shares}");
    }

    let kernels = rows(&document, "kernel").count();
    let executions = table("cuda_kern_exec_trace");
    assert_eq!(executions.len(), kernels, "every kernel has its launch");
    let starts: Vec<u64> = executions.iter().map(|row| row["API Start (ns)"].as_u64().unwrap()).collect();
    assert!(starts.is_sorted());
    for row in &executions {
        let [call, queue, kernel, total] =
            ["API Dur (ns)", "Queue Dur (ns)", "Kernel Dur (ns)", "Total Dur (ns)"].map(|column| row[column].as_u64());
        if let Some(queue) = queue {
            assert_eq!(call.unwrap() + queue + kernel.unwrap(), total.unwrap(), "{row}");
        }
    }
    let counted: u64 = table("cuda_kern_exec_sum").iter().map(|row| row["Count"].as_u64().unwrap()).sum();
    assert_eq!(counted, kernels as u64);

    let operations = table("cuda_gpu_trace");
    let copies = rows(&document, "gpu_memcpy").count() + rows(&document, "gpu_memset").count();
    assert_eq!(operations.len(), kernels + copies);
    assert!(operations.iter().any(|row| row["Name"] == "[CUDA memcpy Device-to-Host]"));
}

#[test]
fn a_interval_of_time_counts_what_overlaps_it() {
    let stage = play("copy_pageable");
    let trace = stage.path("trace.gpuwhy");
    let rows = |filter: &str| -> usize {
        let output = gpuwhy(&[&"query", &"cuda_gpu_trace", &"-f", &"csv", &"--filter-time", &filter, &trace]);
        String::from_utf8(output.stdout).unwrap().lines().count().saturating_sub(1)
    };
    let all = rows("/");
    // The intervals share one point; rows across it overlap both.
    let halves = rows("/400ms") + rows("400ms/");
    assert!(all > 0 && halves >= all && halves <= all + 2, "{all} {halves}");
    assert_eq!(rows("1000s/"), 0);
}

#[test]
fn ranges_are_summed_by_domain_and_text() {
    let stage = Stage::new();
    // The host pushes two ranges in each of 1000 steps on one thread, and one range on the thread that starts
    // it.
    assert!(stage.host("multi_stream").args(["--ranges", "after"]).status().unwrap().success());
    let trace = stage.path("trace.gpuwhy");
    let table = |name: &str| -> Vec<Value> {
        let output = gpuwhy(&[&"query", &name, &"-f", &"json", &trace]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let instances = |rows: &[Value], range: &str| -> Vec<u64> {
        let of = rows.iter().filter(|row| row["Range"] == range);
        of.map(|row| row["Instances"].as_u64().unwrap()).collect()
    };
    let all = table("nvtx_sum");
    assert_eq!(instances(&all, "worker:compute"), [1000]);
    assert_eq!(instances(&all, "worker:step 0"), [1]);
    assert_eq!(instances(&all, ":whole run"), [1]);
    let started = table("nvtx_startend_sum");
    assert_eq!((started.len(), instances(&started, ":whole run")), (1, vec![1]));
    let pushed = table("nvtx_pushpop_sum");
    assert_eq!(pushed.len() + started.len(), all.len());
    let style = all.iter().find(|row| row["Range"] == ":main").map(|row| &row["Style"]);
    assert_eq!(style, Some(&Value::from("PushPop")));

    // The same ranges, as rows of the exported JSON.
    let document = chrome(&stage, "ranges.json");
    let names = || document["traceEvents"].as_array().unwrap().iter().filter(|row| row["name"] == "thread_name");
    let of_worker = |row: &&Value| row["args"]["name"].as_str().unwrap().starts_with("range worker, thread ");
    assert_eq!(names().filter(of_worker).count(), 1, "the name that the thread gave to itself");
    let total: u64 =
        rows(&document, "user_annotation").filter(|row| row["name"] == "compute").map(|row| nanos(&row["dur"])).sum();
    let row = all.iter().find(|row| row["Range"] == "worker:compute").unwrap();
    assert_eq!(row["Total Time (ns)"], total);
}

#[test]
fn a_range_limits_what_is_counted() {
    let stage = Stage::new();
    assert!(stage.host("multi_stream").args(["--ranges", "after"]).status().unwrap().success());
    let trace = stage.path("trace.gpuwhy");
    let ranges = |filter: &str| -> Output {
        gpuwhy(&[&"query", &"nvtx_pushpop_trace", &"-f", &"json", &"--filter-nvtx", &filter, &trace])
    };
    let rows = |filter: &str| -> Vec<Value> { serde_json::from_slice(&ranges(filter).stdout).unwrap() };
    let (first, third) = (rows("compute@worker"), rows("compute@worker/2"));
    let begin = |rows: &[Value]| {
        let own = rows.iter().filter(|row| row["Name"] == "worker:compute");
        own.map(|row| row["Start (ns)"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!((begin(&first).len(), begin(&third).len()), (1, 1));
    assert!(begin(&first)[0] < begin(&third)[0]);
    // The enclosing range overlaps too.
    assert!(first.iter().any(|row| row["Name"] == "worker:step 0"));
    let none = ranges("compute@nobody");
    assert_eq!(none.status.code(), Some(2));
    assert!(stderr(&none).contains("no such range"), "{}", stderr(&none));
}

/// Writes samples of one thread: state, start, end, and the time on a core; milliseconds.
fn looks(path: &std::path::Path, looks: &[(ThreadState, u64, u64, u64)]) {
    let (dictionary, loss) = (Dictionary::new(), Loss::default());
    let session = ProcessInfo { process_id: 7, start: Timestamp::from_nanos(1), ..ProcessInfo::default() };
    let mut writer = TraceWriter::new(std::fs::File::create(path).unwrap(), &session).unwrap();
    let at = |millis: u64| Timestamp::from_nanos(1_000_000_000 + millis * 1_000_000);
    for &(state, since, until, on_cpu) in looks {
        let on_cpu = on_cpu * 1_000_000;
        let (since, at, thread) = (at(since), at(until), ThreadId(7));
        let look = HostSample { since, at, thread, state, on_cpu, stack: StackId::NONE, ..HostSample::default() };
        writer.event(&Event::Record(Record::Sample(look)), &dictionary).unwrap();
    }
    writer.finish(End::Clean, at(1_000), &loss, &dictionary).unwrap();
}

#[test]
fn waits_are_what_looks_met() {
    let stage = Stage::new();
    let trace = stage.path("looks.gpuwhy");
    looks(
        &trace,
        &[
            (ThreadState::Futex, 0, 10, 0),
            (ThreadState::Futex, 10, 20, 2),
            (ThreadState::Running, 20, 30, 10),
            (ThreadState::Futex, 30, 35, 0),
            (ThreadState::Disk, 35, 40, 0),
            (ThreadState::Disk, 50, 60, 0),
        ],
    );
    let output = gpuwhy(&[&"query", &"osrt_sum", &"-f", &"json", &trace]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let numbers: Vec<_> = rows
        .iter()
        .map(|row| ["Total Time (ns)", "Num Calls", "Max (ns)"].map(|column| row[column].as_u64().unwrap()))
        .collect();
    assert_eq!(numbers, [[23_000_000, 2, 18_000_000], [15_000_000, 2, 10_000_000]]);
    assert!(rows[0]["Name"].as_str().unwrap().starts_with("futex") && rows[1]["Name"] == "storage");
    let text = gpuwhy(&[&"query", &"osrt_sum", &trace]).stdout;
    assert!(String::from_utf8(text).unwrap().contains("not calls"), "it says above its table what it is");
}

/// A run of two ranks with different programs.
fn two_ranks() -> Stage {
    let stage = Stage::new();
    std::fs::create_dir(stage.path("run7")).unwrap();
    for (rank, fixture) in [("0", "sync_item"), ("1", "copy_pageable")] {
        let mut host = stage.host(fixture);
        host.env("RANK", rank).env("WORLD_SIZE", "2").env("GPUWHY_OUTPUT", format!("run7/rank{rank}.gpuwhy"));
        assert!(host.status().unwrap().success(), "{fixture}");
    }
    stage
}

#[test]
fn a_folder_of_ranks_is_one_table_with_run_and_rank() {
    let stage = two_ranks();
    let run = stage.path("run7");
    let rows = |table: &str, of: &std::path::Path| -> Vec<Value> {
        let output = gpuwhy(&[&"query", &table, &"-f", &"json", &of]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    // A summary, whose rows are kept, a trace, whose rows are produced twice, and a rule.
    for table in ["cuda_gpu_kern_sum", "cuda_kern_exec_trace", "cuda_api_sync"] {
        let both = rows(table, &run);
        let mut apart = Vec::new();
        for rank in [0, 1] {
            for mut row in rows(table, &run.join(format!("rank{rank}.gpuwhy"))) {
                assert!(row.get("Rank").is_none(), "one trace has the columns of nsys");
                row["Run"] = "run7".into();
                row["Rank"] = rank.into();
                apart.push(row);
            }
        }
        assert_eq!(both, apart, "{table}");
    }
    let output = gpuwhy(&[&"query", &"cuda_gpu_mem_size_sum", &run]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().any(|line| line.trim_start().starts_with("Run   Rank  Total (MB)")), "{text}");
}
