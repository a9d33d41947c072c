//! Files of torch.profiler, jax.profiler and mergers of their files.

use serde_json::{Value, json};

use super::{busy_us, gpuwhy, has_its_kernels, json, text, truth};
use crate::support::stderr;

/// Share of the first device's recorded time in these leaves, percent.
fn share(name: &str, leaves: &[&str]) -> f64 {
    let report = json(name);
    let all = report["devices"][0]["steady_leaves"].as_object().unwrap();
    let nanos = |leaf: &str| all[leaf].as_f64().unwrap();
    let total: f64 = all.keys().map(|leaf| nanos(leaf)).sum();
    leaves.iter().map(|leaf| nanos(leaf)).sum::<f64>() / total * 100.0
}

const LAUNCHES: [&str; 4] = ["launch_api", "launch_latency", "dispatch", "inter_kernel"];

/// All work is there, with its times, and the bottleneck is the wait for the GPU.
#[test]
fn files_that_vary_have_what_the_plain_one_has() {
    for name in [
        "base.json.gz",
        "bom.json.gz",
        "string_times.json.gz",
        "correlation_float.json.gz",
        "correlation_64bit.json.gz",
        "sync_rows.json.gz",
        "open_array.json.gz",
        "rank_0.json.gz",
        "control_char.json.gz",
        "unescaped_quotes.json.gz",
        "jax.json.gz",
    ] {
        has_its_kernels(name);
        assert_eq!(Some(busy_us(name, 0)), truth(name)["busy_us"].as_f64(), "{name}");
        let (report, (code, text)) = (json(name), text(name));
        let completeness = &report["completeness"];
        assert_eq!(completeness["records"]["api_calls"], 440, "{name}");
        assert_eq!(completeness["activities_without_launch"], 0, "{name}");
        assert_eq!((&completeness["shared_ids"], &completeness["end"]), (&json!(0), &json!("clean")), "{name}");
        let lost = i32::from(name == "unescaped_quotes.json.gz");
        assert!(code == lost && text.contains("Bottleneck: synchronization"), "{name}: {code}: {text}");
        assert!(!text.contains("killed") && !text.contains("start-up"), "{name}: {text}");
    }
    assert!(text("rank_0.json.gz").1.contains("rank 3 of 8"));
    let (_, quotes) = text("unescaped_quotes.json.gz");
    assert!(quotes.contains("1 row not used: not valid JSON"), "{quotes}");
}

#[test]
fn tokens_that_are_no_json_cost_only_their_value() {
    for name in ["inf_token.json.gz", "nan_python.json.gz"] {
        has_its_kernels(name);
        let records = &json(name)["completeness"]["records"];
        assert_eq!((&records["copies"], &records["api_calls"]), (&json!(40), &json!(440)), "{name}");
        let full = String::from_utf8(gpuwhy("report", &["--full"], name).stdout).unwrap();
        assert!(full.contains("40 rows with values or characters that JSON does not allow"), "{name}: {full}");
    }
}

#[test]
fn a_cut_file_and_rows_without_times_say_what_is_lost() {
    has_its_kernels("cut.json.gz");
    assert!(text("cut.json.gz").1.contains("the text ends in the middle"));
    has_its_kernels("zero_times.json.gz");
    assert!(text("zero_times.json.gz").1.contains("200 records without usable"));
    has_its_kernels("missing_dur.json.gz");
    assert!(text("missing_dur.json.gz").1.contains("20 rows not used: without a usable duration"));
}

#[test]
fn overlapping_kernels_and_nodes_of_graphs_are_busy_time_once() {
    for name in ["overlap_same_stream.json.gz", "graph_nodes.json.gz"] {
        has_its_kernels(name);
        assert_eq!(Some(busy_us(name, 0)), truth(name)["busy_us"].as_f64(), "{name}");
        assert!(json(name)["completeness"]["damage"].as_array().unwrap().is_empty(), "{name}");
    }
}

#[test]
fn calls_without_kernels_mean_that_the_kernels_were_lost() {
    let (code, text) = text("calls_only.json.gz");
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("400 calls launch GPU work") && text.contains("MPS"), "{text}");
    assert!(!text.contains("ProfilerActivity"), "{text}");
}

/// One kernel that outlasts 249 later ones, and three that begin before their launch.
#[test]
fn times_that_cannot_be_are_counted_and_left_out() {
    for (name, count, why) in [
        ("one_endless_kernel.json.gz", 1, "ended after eight later launches of the same stream"),
        ("head_in_past.json.gz", 3, "more than 100 ms before the call that launched them"),
    ] {
        let (report, truth) = (json(name), truth(name));
        assert_eq!(report["completeness"]["records"]["kernels"], truth["kernels"], "{name}");
        assert_eq!(report["completeness"]["bad_timestamps"], count, "{name}");
        let window = report["devices"][0]["window_ns"].as_f64().unwrap() / 1e3;
        let span = truth["span_us"].as_f64().unwrap();
        assert!(window <= span && window > span - 200.0, "{name}: {window}");
        assert_eq!(busy_us(name, 0), 24_000.0 - 60.0 * f64::from(count), "{name}");
        let (_, text) = text(name);
        assert!(text.contains("Bottleneck: synchronization"), "{name}: {text}");
        assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(why), "{name}: {text}");
    }
}

#[test]
fn every_kernel_of_two_ranks_in_one_file_has_its_launch() {
    let name = "merged_ranks.json.gz";
    let (report, truth) = (json(name), truth(name));
    assert_eq!(report["completeness"]["records"]["kernels"], truth["kernels"]);
    assert_eq!(report["completeness"]["activities_without_launch"], 0);
    assert_eq!(report["completeness"]["shared_ids"], 0);
    for (device, rank) in [(0, "rank0"), (1, "rank1")] {
        assert_eq!(Some(busy_us(name, device)), truth[rank]["busy_us"].as_f64(), "{rank}");
        let window = report["devices"][device]["window_ns"].as_f64().unwrap() / 1e3;
        assert_eq!(Some(window), truth[rank]["span_us"].as_f64(), "{rank}");
        assert_eq!(report["devices"][device]["leaves"]["unobserved"], 0, "{rank}");
    }
    let (_, short) = text(name);
    assert!(short.contains("Kineto trace of 2 processes"), "{short}");
    let full = String::from_utf8(gpuwhy("report", &["--full"], name).stdout).unwrap();
    let full = full.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = "[TP00] 100 (400 operations of GPU 0), [TP01] 200 (400 operations of GPU 1)";
    assert!(full.contains(said), "{full}");
}

#[test]
fn one_of_the_processes_in_a_file_can_be_chosen() {
    let (name, truth) = ("merged_ranks.json.gz", truth("merged_ranks.json.gz"));
    for (pid, device, rank, other) in [("100", 0, "rank0", "[TP01] 200"), ("200", 1, "rank1", "[TP00] 100")] {
        let report: Value = serde_json::from_slice(&gpuwhy("report", &["--json", "--pid", pid], name).stdout).unwrap();
        assert_eq!(report["process"]["pid"].to_string(), pid);
        assert_eq!(report["devices"].as_array().unwrap().len(), 1, "{rank}");
        assert_eq!(report["completeness"]["activities_without_launch"], 0);
        let window = report["devices"][0]["window_ns"].as_f64().unwrap() / 1e3;
        assert_eq!(Some(window), truth[rank]["span_us"].as_f64(), "{rank}");
        let said = format!("other processes in the file are left out (--pid chooses one): {other} (400 operations");
        assert!(report["process"]["notes"].to_string().contains(&said), "{}", report["process"]["notes"]);
        // Tables are of the same process.
        let table = gpuwhy("query", &["--pid", pid, "--json", "SELECT DISTINCT device FROM kernels"], name);
        let table: Value = serde_json::from_slice(&table.stdout).unwrap();
        assert!(table.to_string().contains(&format!("\"device\":{device}")), "{table}");
    }
    for (verb, arguments) in [("report", &[][..]), ("query", &["SELECT 1"])] {
        let output = gpuwhy(verb, &[&["--pid", "7"], arguments].concat(), name);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains("there is no process 7 in this file, but [TP00] 100 (400 operations of GPU 0)"),
            "{said}"
        );
    }
}

#[test]
fn calls_of_hip_launch_and_wait() {
    let name = "hip.json.gz";
    has_its_kernels(name);
    assert_eq!(json(name)["completeness"]["activities_without_launch"], 0);
    let (waits, launches) = (share(name, &["sync_drain"]), share(name, &LAUNCHES));
    assert!((12.0..14.0).contains(&waits) && (3.0..5.0).contains(&launches), "{waits} {launches}");
}

/// torch.profiler starts while the program runs: a kernel that is new to the file is no start-up.
#[test]
fn a_recording_from_the_middle_of_a_run_is_judged_whole() {
    let name = "one_step.json.gz";
    has_its_kernels(name);
    let (communication, launches) = (share(name, &["communication"]), share(name, &LAUNCHES));
    assert!((57.8..58.1).contains(&communication) && (30.0..32.0).contains(&launches), "{communication} {launches}");
    let (_, short) = text(name);
    assert!(short.contains("Bottleneck: communication") && !short.contains("start-up"), "{short}");

    let name = "wait_then_decode.json.gz";
    has_its_kernels(name);
    let (busy, waits) = (share(name, &["compute", "copy_d2h_pageable"]), share(name, &["sync_drain"]));
    assert!((1.5..1.8).contains(&busy) && (97.5..98.5).contains(&waits), "{busy} {waits}");
    let (_, short) = text(name);
    assert!(short.contains("in or after cudaMemcpyAsync") && !short.contains("start-up"), "{short}");
}

#[test]
fn python_functions_name_the_line_that_keeps_the_gpu_waiting() {
    let name = "python_frames.json.gz";
    has_its_kernels(name);
    let (_, text) = text(name);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("prep.py:42 (tokenize)") && text.contains("out of the loop"), "{text}");
    assert!(!text.contains("gpuwhy run samples it"), "{text}");
}

#[test]
fn files_of_other_tools_are_named_with_what_reads_them() {
    let (code, text) = text("report.nsys-rep");
    assert!(code == 2 && text.contains("nsys export --type sqlite"), "{code}: {text}");
}
