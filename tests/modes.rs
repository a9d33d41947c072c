//! Recording modes: chosen by the user, and reduced automatically when the overhead is too high.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use crate::support::program::Program;
use crate::support::{END, GPUWHY, Stage, keeps_up, stays, stderr};
use serde_json::Value;

#[test]
fn watching_claims_no_division_of_device_time() {
    let stage = Stage::new();
    let output = stage.host("mlp").envs([("GPUWHY_MODE", "monitor"), ("GPUWHY_REPORT", "full")]).output().unwrap();
    let text = words(&output);
    assert!(output.status.success(), "{text}");
    for wanted in
        ["No bottleneck found. The run was only monitored", "Cost of recording: mode monitor", "Monitored only"]
    {
        assert!(text.contains(wanted), "no {wanted:?} in {text}");
    }
    assert!(!text.contains("GPU 0"), "{text}");
    // There are no GPU data and no host samples, so no trace is kept.
    assert!(!stage.path("trace.gpuwhy").exists());
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// stderr on a single line.
fn words(output: &Output) -> String {
    in_one_line(&stderr(output))
}

/// Plays a recorded session at its original speed in mode monitor, with a driver that has one device and an
/// NVML that reports the values in `says`.
fn watched(stage: &Stage, says: Option<&str>) -> Output {
    let mut host = with_nvml(stage, says);
    // Utilization belongs to the mode and does not depend on this setting.
    host.env("GPUWHY_MODE", "monitor").env("GPUWHY_GPU_METRICS", "off").env("GPUWHY_REPLAY_SPEED", "1");
    host.output().unwrap()
}

/// A program on a machine with that driver and that NVML.
fn with_nvml(stage: &Stage, says: Option<&str>) -> Command {
    let mut host = stage.host("resnet_workers0");
    host.env("LD_PRELOAD", stage.driver());
    if let Some(says) = says {
        let library = Path::new(GPUWHY).parent().unwrap().join("examples/libreplay_nvml.so");
        assert!(library.is_file(), "{} was not built: run `cargo test --workspace`", library.display());
        std::os::unix::fs::symlink(library, stage.path("libnvidia-ml.so.1")).unwrap();
        host.env("LD_LIBRARY_PATH", stage.folder.path()).env("REPLAY_NVML", says);
    }
    host
}

#[test]
fn the_link_is_what_nvml_tells_where_linux_does_not() {
    let link = |says| {
        let stage = Stage::new();
        let output = with_nvml(&stage, Some(says)).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stage.report()["devices"][0]["pcie"].clone()
    };
    let reported = link("generation=5,lanes=16");
    assert!(reported["generation"] == 5 && reported["lanes"] == 16, "{reported}");
    assert!(reported["gigabytes_per_second"].as_f64().is_some_and(|rate| (rate - 63.0).abs() < 0.1), "{reported}");
    for says in ["", "lanes=16", "generation=5,lanes=16,refuses", "generation=9,lanes=16"] {
        assert!(link(says).is_null(), "{says}");
    }
}

#[test]
fn watching_leaves_cupti_to_others() {
    let stage = Stage::new();
    let mut host = with_nvml(&stage, Some("busy=34"));
    let refusals = [
        "cuptiSubscribe=39",
        "cuptiActivityRegisterCallbacks=39",
        "cuptiActivityEnable=39",
        "cuptiActivityFlushAll=39",
    ];
    host.env("GPUWHY_REPLAY_FAULT", refusals.join(",")).env("GPUWHY_MODE", "monitor").env("GPUWHY_REPLAY_SPEED", "1");
    let text = words(&host.output().unwrap());
    assert!(text.contains("busy 34 % of ") && !text.contains("cuptiActivity"), "{text}");
}

#[test]
fn a_watched_run_says_how_busy_the_device_was_and_keeps_it() {
    let stage = Stage::new();
    let begun = Instant::now();
    let text = words(&watched(&stage, Some("busy=34,memory=5,sm=12,pcie=1024")));
    let lasted = begun.elapsed().as_nanos();
    for wanted in [
        "busy 34 % of ",
        "multiprocessors active 12 %",
        "PCI Express 1.07 GB/s out",
        "mode monitor records no GPU work",
    ] {
        assert!(text.contains(wanted), "no {wanted:?} in {text}");
    }
    assert!(text.contains("No bottleneck found. "), "no thread of this program was sampled: {text}");
    let utilization = stage.report()["utilization"].clone();
    let device = &utilization["devices"][0];
    // Totals are whole nanoseconds and bytes.
    let reads = |value: &Value, wanted: f64| value.as_f64().is_some_and(|value| (value - wanted).abs() < 1e-6);
    assert!(device["device"] == 0 && reads(&device["busy"], 0.34) && reads(&device["memory"], 0.05), "{utilization}");
    let counters = &device["counters"];
    assert!(reads(&counters["sm_active"], 0.12) && counters["nvlink_sent"].is_null(), "{utilization}");
    // Four readings per second over the recording, 2.56 s, and never more than the lifetime of the program.
    let covered = device["covered_ns"].as_u64().unwrap();
    assert!(covered >= 500_000_000 && u128::from(covered) <= lasted, "{covered} ns of {lasted}");
    assert_eq!(device["failed_readings"], 0);
    let kept = stage.path("kept.gpuwhy");
    let compacted = Command::new(GPUWHY)
        .args(["export", "--to", "gpuwhy"])
        .arg(stage.path("trace.gpuwhy"))
        .arg("-o")
        .arg(&kept)
        .output();
    assert!(compacted.unwrap().status.success());
    assert_eq!(crate::support::report(&kept).1["utilization"], utilization);
}

#[test]
fn utilization_that_is_not_there_is_reported_with_its_reason() {
    for (says, wanted) in [
        (None, "there is no libnvidia-ml.so.1"),
        (Some("refuses"), "NVML refused (error 9)"),
        (Some("divided,busy=34,sm=12"), "divided into MIG instances"),
        (Some("busy=34"), "no hardware counters: this device does not have it"),
        (Some("sm=12"), "no utilization: this device does not have it"),
    ] {
        let stage = Stage::new();
        let text = words(&watched(&stage, says));
        assert!(text.contains(wanted), "{says:?}: no {wanted:?} in {text}");
    }
}

#[test]
fn a_mode_is_named_with_its_price_in_report_and_json() {
    for mode in ["light", "full"] {
        let stage = Stage::new();
        let output =
            stage.host("graph_torch").envs([("GPUWHY_MODE", mode), ("GPUWHY_REPORT", "full")]).output().unwrap();
        assert!(stderr(&output).contains(&format!("Cost of recording: mode {mode}")), "{}", stderr(&output));
        let cost = &stage.report()["cost"];
        assert_eq!(cost["mode"], mode);
        // 43 kernels, 40 copies, and 500 calls that launch 40 nodes each, 10 to 40 us long.
        let estimate = cost["records_estimate_ns"].as_u64().unwrap();
        assert!((500 * 3_000..500 * 33_000 + 83 * 921).contains(&estimate), "{cost}");
        assert_eq!(cost["steps_down"].as_array().unwrap().len(), 0);
    }
}

#[test]
fn a_budget_steps_down_and_the_report_says_when() {
    let stage = Stage::new();
    let mut host = stage.host("copy_pageable");
    // The recording lasts 0.75 s, and the decision takes three seconds.
    keeps_up(&mut host, (1..=6).map(|half| half * 500)).env("GPUWHY_MAX_OVERHEAD", "0.01%");
    host.env("GPUWHY_REPLAY_REPEAT", "12").env("GPUWHY_REPLAY_SPEED", "2");
    let output = host.output().unwrap();
    let text = stderr(&output);
    assert!(text.contains("Recording was reduced to mode monitor after"), "{text}");
    let report = stage.report();
    let steps = report.pointer("/cost/steps_down").and_then(Value::as_array).unwrap();
    assert_eq!(steps.len(), 1, "{report:#}");
    let kernels = report.pointer("/completeness/records/kernels").and_then(Value::as_u64).unwrap();
    assert!((1..12 * 301).contains(&kernels), "{kernels} kernels: all of them came after all");
    // The records up to then are analyzed as usual.
    assert_eq!(report["devices"].as_array().unwrap().len(), 1);
    let again = Command::new(GPUWHY).arg("report").arg(stage.path("trace.gpuwhy")).output().unwrap();
    assert!(String::from_utf8_lossy(&again.stdout).contains("Recording was reduced to mode monitor after"));
}

#[test]
fn whole_graphs_are_asked_for_and_the_reason_is_kept() {
    let stage = Stage::new();
    let output = stage
        .with_whole_graphs("graph_torch")
        .envs([("GPUWHY_CUDA_GRAPH_TRACE", "graph"), ("GPUWHY_REPORT", "full")])
        .output()
        .unwrap();
    assert!(stderr(&output).contains("CUDA graphs as a whole"), "{}", stderr(&output));
    let report = stage.report();
    let notes = report.pointer("/process/notes").and_then(Value::as_array).unwrap();
    let said = |note: &str| note.contains("GPUWHY_CUDA_GRAPH_TRACE") && note.contains("as a whole");
    assert!(notes.iter().filter_map(Value::as_str).any(said), "{notes:?}");
    // 500 launches of graphs with 40 nodes, and the work before them.
    let records = &report["completeness"]["records"];
    assert_eq!((records["kernels"].as_u64(), records["graphs"].as_u64()), (Some(43), Some(500)), "{records}");
    // The overhead of unrecorded nodes is still estimated: 831 ns each.
    let nodes_ns = report.pointer("/cost/unrecorded_nodes_estimate_ns").and_then(Value::as_u64);
    assert_eq!(nodes_ns, Some(500 * 40 * 831), "{report:#}");
}

#[test]
fn graphs_are_recorded_by_nodes_where_nothing_else_is_asked_for() {
    let stage = Stage::new();
    let output = stage.with_whole_graphs("graph_torch").env_remove("GPUWHY_CUDA_GRAPH_TRACE").output().unwrap();
    let report = stage.report();
    let kernels = report.pointer("/completeness/records/kernels").and_then(Value::as_u64);
    assert_eq!((kernels, &report["cost"]["whole_graphs"]), (Some(20_043), &false.into()), "{}", stderr(&output));
}

#[test]
fn graphs_are_never_whole_with_a_libcupti_that_crashes_programs_over_them() {
    for level in [None, Some("auto"), Some("graph")] {
        let stage = Stage::new();
        let mut host = stage.host("graph_torch");
        host.env("GPUWHY_REPLAY_VERSION", "130199").env_remove("GPUWHY_CUDA_GRAPH_TRACE");
        let output = host.envs(level.map(|level| ("GPUWHY_CUDA_GRAPH_TRACE", level))).output().unwrap();
        let report = stage.report();
        let kernels = report.pointer("/completeness/records/kernels").and_then(Value::as_u64);
        assert_eq!((kernels, &report["cost"]["whole_graphs"]), (Some(20_043), &false.into()), "{}", stderr(&output));
        let notes = report.pointer("/process/notes").and_then(Value::as_array).unwrap();
        let said = notes
            .iter()
            .filter_map(Value::as_str)
            .any(|note| note.contains("can crash programs when it records whole"));
        assert_eq!(said, level == Some("graph"), "{notes:?}");
    }
}

#[test]
fn graphs_are_never_whole_while_cupti_is_left_to_others() {
    for level in ["auto", "graph"] {
        let stage = Stage::new();
        let variables = [("GPUWHY_CUDA_GRAPH_TRACE", level), ("GPUWHY_CUPTI_SHARING", "yield")];
        let output = stage.with_whole_graphs("graph_torch").envs(variables).output().unwrap();
        let report = stage.report();
        let kernels = report.pointer("/completeness/records/kernels").and_then(Value::as_u64);
        assert_eq!((kernels, &report["cost"]["whole_graphs"]), (Some(20_043), &false.into()), "{}", stderr(&output));
        let notes = report.pointer("/process/notes").and_then(Value::as_array).unwrap();
        let said = notes
            .iter()
            .filter_map(Value::as_str)
            .any(|note| note.contains("GPUWHY_CUDA_GRAPH_TRACE=graph has no effect"));
        assert_eq!(said, level == "graph", "{notes:?}");
    }
}

#[test]
fn recording_ends_for_good_where_nodes_of_graphs_cost_too_much() {
    let stage = Stage::new();
    let mut host = stage.host("graph_torch");
    // 36 s: the decision takes three, and the budget would allow a burst 22 after it.
    let child = stays(keeps_up(&mut host, (1..=6).map(|half| half * 500)), END, "end")
        .env_remove("GPUWHY_CUDA_GRAPH_TRACE")
        .env("GPUWHY_REPLAY_SPEED", "1")
        .env("GPUWHY_REPLAY_REPEAT", "24")
        .env("GPUWHY_MAX_OVERHEAD", "0.8%")
        .env("GPUWHY_REPORT", "full")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let program = Program { stage, child };
    program.wait_for(|| program.socket().exists());
    program.wait_for(|| program.ask("status")["captures"] == 1);
    program.wait_for(|| program.ask("metrics")["state"] == "watching");
    // A program without a free core responds too late for one request.
    program.wait_for(|| String::from_utf8_lossy(&program.gpuwhy(&["top", "--once"]).stdout).contains(" watching "));
    assert_eq!(program.ask("status")["state"], "watching");
    // A command does not switch recording on again, and says why.
    let answer = program.ask("start");
    assert_eq!(
        (&answer["changed"], &answer["state"], &answer["captures"]),
        (&false.into(), &"watching".into(), &1.into())
    );
    let output = program.gpuwhy(&["start", &program.child.id().to_string()]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("the program makes CUDA graphs"), "{said}");
    assert_eq!(output.status.code(), Some(1), "{said}");
    let (stage, text) = program.end();
    let text = in_one_line(&text);
    assert!(text.contains("Recording ended after"), "{text}");
    assert!(text.contains("switching it on again can crash a program with CUDA graphs"), "{text}");
    let report = stage.report();
    // The report is about the part that was recorded, and no burst follows.
    assert_eq!(report["capture"], 1, "{report:#}");
    let kernels = report.pointer("/completeness/records/kernels").and_then(Value::as_u64).unwrap();
    assert!((40_000..12 * 20_043).contains(&kernels), "{kernels} kernels");
    assert_eq!(report.pointer("/captures").and_then(Value::as_array).map(Vec::len).unwrap_or(1), 1, "{report:#}");
    assert!(report.pointer("/bursts/rows").and_then(Value::as_array).is_none_or(Vec::is_empty), "{report:#}");
    // Tracing takes less of the complete run than of its start.
    let cost = &report["cost"];
    assert!(cost["share_at_most"].as_f64().is_some_and(|share| share < 0.02), "{cost}");
    let again = Command::new(GPUWHY).args(["report", "--full"]).arg(stage.path("trace.gpuwhy")).output().unwrap();
    let again = in_one_line(&String::from_utf8_lossy(&again.stdout));
    assert!(again.contains("Recording ended after"), "{again}");
}

#[test]
fn whole_graphs_say_what_their_nodes_would_cost() {
    for fixture in ["graph_dense", "graph_torch"] {
        let stage = Stage::new();
        let mut host = stage.with_whole_graphs(fixture);
        host.env("GPUWHY_REPLAY_SPEED", "1").env("GPUWHY_CUDA_GRAPH_TRACE", "graph").env("GPUWHY_REPORT", "full");
        let text = words(&host.output().unwrap());
        assert!(
            text.contains("CUDA graphs were recorded as one unit") && text.contains("Recording their nodes would add"),
            "{text}"
        );
        assert!(text.contains("--cuda-graph-trace node") && !text.contains("node by node since"), "{text}");
    }
}

#[test]
fn whole_graphs_are_never_switched_on_in_mid_run() {
    let stage = Stage::new();
    let mut host = stage.with_whole_graphs("graph_torch");
    host.args(["--call", "100:cudaProfilerStart", "--call", "300:cudaProfilerStop", "--call", "500:cudaProfilerStart"]);
    host.env("GPUWHY_CAPTURE_RANGE", "cudaProfilerApi").env("GPUWHY_CAPTURE_RANGE_END", "repeat");
    let output = host.env("GPUWHY_CUDA_GRAPH_TRACE", "graph").output().unwrap();
    // The exit code would differ if the replay library had been misused.
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn the_help_names_every_mode_with_what_was_measured() {
    let help = Command::new(GPUWHY).args(["run", "--help"]).output().unwrap();
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for mode in ["  monitor  ", "  light  ", "  full  "] {
        let mut lines = help.lines().skip_while(|line| !line.starts_with(mode));
        assert!(lines.next().is_some(), "no {mode:?} in {help}");
        let price = lines.next().unwrap_or_default().trim_start();
        assert!(
            price.starts_with("costs ") && (price.contains('%') || price.ends_with("not measured yet")),
            "no price in {price:?}"
        );
    }
    assert!(help.contains("--mode") && help.contains("--max-overhead"), "{help}");
}

/// What libprof.so prints about bugs of CUPTI at its start, and the notes of the report.
fn bugs_of(version: &str, fixture: &str, variables: &[(&str, &str)]) -> (String, String) {
    let stage = Stage::new();
    let mut host = stage.host(fixture);
    host.env("GPUWHY_REPLAY_VERSION", version).env("GPUWHY_REPORT", "off").envs(variables.iter().copied());
    let output = host.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    // A run that is only watched has no trace where NVML is missing.
    let notes = if stage.path("trace.gpuwhy").exists() {
        stage.report()["process"]["notes"].to_string()
    } else {
        String::new()
    };
    (stderr(&output), notes)
}

#[test]
fn bugs_of_cupti_that_settings_lead_to_are_said_at_the_start() {
    let slow = "CUPTI 13.2 update 2 slows programs down";
    let (said, notes) = bugs_of("130202", "mlp", &[]);
    assert!(said.contains(slow) && said.contains("LD_PRELOAD=") && notes.contains(slow), "{said} {notes}");
    assert_eq!(said.matches("CUPTI 13.2").count(), 1, "{said}");
    let (said, notes) = bugs_of("130202", "mlp", &[("GPUWHY_MODE", "monitor")]);
    assert!(!said.contains("slows") && !notes.contains("slows"), "nothing is recorded: {said} {notes}");
    let hang = "can hang when kernel records are switched off";
    for (version, variables, is_said) in [
        ("26", &[][..], false),
        ("26", &[("GPUWHY_CUPTI_SHARING", "yield")], true),
        ("26", &[("GPUWHY_DURATION", "60")], true),
        ("130001", &[("GPUWHY_CUPTI_SHARING", "yield")], false),
    ] {
        let (said, _) = bugs_of(version, "mlp", variables);
        assert_eq!(said.contains(hang), is_said, "{version} {variables:?}: {said}");
    }
    for (version, is_said) in [("130202", false), ("130500", true)] {
        let (said, notes) = bugs_of(version, "mlp", &[("GPUWHY_CUPTI_SHARING", "yield")]);
        assert_eq!(said.contains("without records with GPUWHY_CUPTI_SHARING=yield"), is_said, "{version}: {said}");
        assert_eq!(notes.contains("GPUWHY_CUPTI_SHARING=yield has no effect"), is_said, "{version}: {notes}");
    }
}

#[test]
fn bugs_of_cupti_that_a_program_meets_are_in_its_report() {
    let leak = "leaks host memory when CUDA graphs copy";
    for (version, fixture, is_said) in
        [("130001", "graph_torch", true), ("130001", "mlp", false), ("130300", "graph_torch", false)]
    {
        let (said, notes) = bugs_of(version, fixture, &[]);
        assert!(!said.contains("bugs") && !said.contains("leaks"), "{said}");
        assert_eq!(notes.contains(leak), is_said, "{version} {fixture}: {notes}");
    }
}
