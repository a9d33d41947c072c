//! Kernels measured with hardware counters: from a libcupti that plays ranges, through the real libprof.so and the
//! command, to the page.

use std::fs;
use std::process::{Command, Output};

use crate::support::{GPUWHY, Stage, built, fixture, stderr};
use serde_json::Value;

/// Time after the end of the recording, milliseconds.
const RECORDED_MS: u64 = 10_000;

/// A kernel of the recorded GPT, as a launch of the host program.
struct Shape {
    symbol: String,
    launch: String,
}

fn kernels(stage: &Stage, options: &[&str]) -> Output {
    Command::new(GPUWHY).arg("kernels").args(options).arg(stage.path("trace.gpuwhy")).output().unwrap()
}

fn json(stage: &Stage) -> Value {
    let output = kernels(stage, &["--json"]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)))
}

fn text(stage: &Stage, options: &[&str]) -> String {
    let output = kernels(stage, options);
    assert!(output.status.success(), "{}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// The first launches of a shape follow others. A launch is reported twice, by the runtime and by the driver:
/// four launches fill the positions that are checked, and the second call of the fifth has the same
/// predecessors as the first.
const UNMEASURED: u32 = 4;
/// Launches of a shape for three passes, with some reserve: a launch that meets the lock of the measuring
/// thread is skipped, and the next one is at another position.
const ENOUGH: u32 = UNMEASURED + 3 + 12;

/// The two kernels with the most time in the recorded GPT, with `times` launches of each.
fn shapes(times: u32) -> [Shape; 2] {
    let stage = Stage::new();
    assert!(stage.host("gpt").status().unwrap().success());
    let report = json(&stage);
    let rows = report["unmeasured"].as_array().unwrap();
    let mut usable = rows.iter().filter(|row| row["excluded"].is_null());
    [0, 1].map(|_| {
        let row = usable.next().expect("two kernels that can be measured");
        let size = |field: &str| {
            let numbers: Vec<_> = row[field].as_array().unwrap().iter().map(Value::to_string).collect();
            numbers.join(",")
        };
        let symbol = row["symbol"].as_str().unwrap().to_owned();
        let (grid, block, shared) = (size("grid"), size("block"), &row["dynamic_shared_bytes"]);
        Shape { launch: format!("launch={symbol};{grid};{block};{shared};{times}"), symbol }
    })
}

const METRICS: &str = "gpu__time_duration.sum,gpc__cycles_elapsed.avg.per_second,\
                       gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed,dram__bytes_read.sum,dram__bytes_write.sum,\
                       sm__inst_executed.avg.pct_of_peak_sustained_elapsed,smsp__thread_inst_executed_pipe_fma_pred_on.sum";

/// Writes counter values for the replay library: those of a copy for the first kernel, of a matrix product
/// for the second.
fn counters(stage: &Stage, [first, second]: &[Shape; 2]) {
    let mut file = String::from("chip GH100\ninterval 5000000\nmetrics sm__cycles_active.avg\nmetrics_in_a_pass 3\n");
    for (kernel, values) in [
        (&first.symbol, [541_000.0, 1.9e9, 84.1, 1.07e9, 1.05e9, 4.0, 2.0e8]),
        (&second.symbol, [560_000.0, 1.67e9, 24.6, 8.0e7, 2.0e7, 10.9, 1.0e9]),
    ] {
        for (metric, value) in METRICS.split(',').zip(values) {
            file.push_str(&format!("kernel {kernel} {metric} {value}\n"));
        }
    }
    fs::write(stage.path("counters.txt"), file).unwrap();
}

/// The host program, which plays the recorded GPT and then launches the two kernels.
fn host(stage: &Stage, shapes: &[Shape; 2]) -> Command {
    counters(stage, shapes);
    let mut host = stage.host("gpt");
    host.env("GPUWHY_REPLAY_COUNTERS", "counters.txt")
        .env("GPUWHY_KERNELS", format!("2:^({}|{})$", shapes[0].symbol, shapes[1].symbol))
        .env("GPUWHY_GPU_METRICS", "off");
    // Alternate, so that the order of the two does not matter.
    for shape in shapes.iter().chain(shapes) {
        host.args(["--call", &format!("{RECORDED_MS}:{}", shape.launch)]);
    }
    host
}

#[test]
fn kernels_of_a_run_without_profiles_are_listed_with_what_records_tell() {
    let stage = Stage::new();
    assert!(stage.host("gpt").status().unwrap().success());
    let report = json(&stage);
    let rows = report["unmeasured"].as_array().unwrap();
    assert!(report["measured"].as_array().unwrap().is_empty() && rows.len() > 5);
    let shares: f64 = rows.iter().map(|row| row["share"].as_f64().unwrap()).sum();
    assert!((0.3..1.0).contains(&shares), "the larger part of the steady time: {shares}");
    let page = text(&stage, &[]);
    assert!(page.contains("No kernel was measured") && page.contains("other kernels by time"), "{page}");
    let csv = text(&stage, &["--csv", "--page", "raw"]);
    assert_eq!(csv.lines().count(), 2, "headings and units: {csv}");
}

#[test]
fn kernels_of_graphs_are_listed_with_the_modules_that_captured_them() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/testing/fixtures/traces/graph_inference.gpuwhy");
    let shown = |options: &[&str]| {
        let output = Command::new(GPUWHY).arg("kernels").args(options).arg(trace).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = shown(&[]).split_whitespace().collect::<Vec<_>>().join(" ");
    let wanted = "in CUDA graphs 95 % of the time of this name: GatedMlp > Linear 63 %, Attention > Linear 32 %";
    assert!(text.contains(wanted), "{text}");
    let document: Value = serde_json::from_str(&shown(&["--json"])).unwrap();
    for row in document["unmeasured"].as_array().unwrap() {
        let captured = row["in_graphs"]["parts"].as_array().map(|parts| parts.iter().map(|part| &part["share"]));
        let sum: f64 = captured.map_or(0.0, |shares| shares.map(|share| share.as_f64().unwrap()).sum());
        // All of their nodes have a module, and no kernel is in more than three.
        assert!((sum - row["in_graphs"]["share"].as_f64().unwrap_or(0.0)).abs() < 1e-9, "{row}");
        assert_eq!(sum > 0.5, row["excluded"] == "in_graph", "{row}");
    }
}

#[test]
fn kernels_are_measured_in_their_launches_and_shown() {
    // Eight metrics, including the sampled one, three per pass: three launches each.
    let shapes = shapes(ENOUGH);
    let stage = Stage::new();
    let output = host(&stage, &shapes).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let report = json(&stage);
    let measured = report["measured"].as_array().unwrap();
    assert_eq!(measured.len(), 2, "{}", stderr(&output));
    for (kernel, shape) in measured.iter().zip(&shapes) {
        assert_eq!(kernel["symbol"], shape.symbol.as_str());
        assert_eq!((&kernel["outcome"], &kernel["passes"]), (&"measured".into(), &3.into()), "{kernel:#}");
        assert_eq!((&kernel["measured_launches"], &kernel["discarded_launches"]), (&3.into(), &0.into()));
        assert!(
            kernel["begin_unix_ns"].as_u64() > Some(0)
                && kernel["end_unix_ns"].as_u64() >= kernel["begin_unix_ns"].as_u64()
        );
    }
    assert_eq!((&measured[0]["duration_ns"], &measured[0]["nearest_roof"]), (&541_000.0.into(), &"dram".into()));
    let finding = &measured[0]["findings"][0];
    assert_eq!((&finding["rule"], &finding["applies"]), (&"at_roof".into(), &true.into()), "{finding:#}");
    let page = text(&stage, &[]);
    assert!(!page.contains("\n\n    "), "no line is torn: {page}");
    for part in ["2 kernels measured", "device memory 84 %", "== roofline", "fuse it with the kernels"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let raw = text(&stage, &["--csv", "--page", "raw"]);
    let lines: Vec<_> = raw.lines().collect();
    assert!(lines[0].contains("\"gpu__time_duration.sum\"") && lines[1].contains("\"ns\""), "{raw}");
    assert!(lines.len() == 4 && lines[2].contains("\"541000\"") && lines[3].contains("\"560000\""), "{raw}");
    assert_eq!(text(&stage, &["--csv"]).lines().count(), 1 + 2 * (8 + 8), "a row for each metric, launch metrics too");
    let picture = stage.path("roofline.svg");
    text(&stage, &["--svg", picture.to_str().unwrap()]);
    let picture = fs::read_to_string(picture).unwrap();
    assert!(picture.starts_with("<svg") && picture.matches("<circle").count() == 2, "{picture}");
}

#[test]
fn metrics_are_measured_by_name() {
    let shapes = shapes(ENOUGH);
    let stage = Stage::new();
    let wanted = "dram__bytes_read.sum,regex:^sm__inst,section:speedoflight,lts__t_bytes.sum";
    let output = host(&stage, &shapes).env("GPUWHY_KERNEL_METRICS", wanted).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(said.contains("GH100 has no metric lts__t_bytes.sum; the nearest are "), "{said}");
    let report = json(&stage);
    let kernel = &report["measured"][0];
    // The regular expression stands for the four rollups, of which the file has none: a section has no such names.
    assert_eq!(kernel["outcome"], "measured", "{kernel:#}");
    let metrics: Vec<_> = kernel["metrics"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_f64().unwrap()))
        .collect();
    assert_eq!(
        metrics,
        [
            ("dram__bytes_read.sum", 1.07e9),
            ("gpc__cycles_elapsed.avg.per_second", 1.9e9),
            ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", 84.1),
            ("gpu__time_duration.sum", 541_000.0),
        ]
    );
    let shown = text(&stage, &["--metrics", "dram__bytes_read,launch__grid_size"]);
    let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(rows.contains(&vec!["dram__bytes_read.sum", "1070000000", "byte"]), "{shown}");
    assert!(shown.contains("launch__grid_size") && !shown.contains("gpu__time_duration"), "{shown}");
    let table = text(&stage, &["--section", "SpeedOfLight", "--csv"]);
    assert_eq!(table.lines().count(), 1 + 2 * 5, "four of the chip and the waves: {table}");
}

#[test]
fn metrics_of_a_chip_are_listed_and_checked_before_a_run() {
    let stage = Stage::new();
    let query = |options: &[&str]| {
        let mut command = Command::new(GPUWHY);
        command.arg("kernels").args(options).env("GPUWHY_CUPTI_PATH", built("libcupti_replay.so"));
        command.env("GPUWHY_REPLAY", fixture("gpt")).env("GPUWHY_REPLAY_COUNTERS", stage.path("counters.txt"));
        command.output().unwrap()
    };
    counters(&stage, &shapes(1));
    let listed = query(&["--query-metrics", "dram__.*read", "--chip", "gh100"]);
    assert!(listed.status.success(), "{}", stderr(&listed));
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(
        listed.starts_with("GH100: 1 metric\ndram__bytes_read  counter")
            && listed.contains(".avg, .max, .min or .sum, alone or with one of .peak_sustained, "),
        "{listed}"
    );
    let chosen = query(&["--query-metrics", "--chip", "GH100", "--metrics", "dram__bytes_read.sum", "--json"]);
    let document: Value = serde_json::from_slice(&chosen.stdout).unwrap();
    assert_eq!((&document["launches"], document["metrics"].as_array().unwrap().len()), (&1.into(), 2));
    let wrong = query(&["--query-metrics", "--chip", "GH100", "--metrics", "dram__bytes_reed.sum"]);
    assert!(
        wrong.status.code() == Some(2) && stderr(&wrong).contains("the nearest are dram__bytes_read"),
        "{}",
        stderr(&wrong)
    );
    for (options, said) in [
        (&["--query-metrics", "--chip", "GA100"][..], &["chip GA100: this libcupti knows GH100"][..]),
        (&["--query-metrics", "nvlink", "--chip", "GH100"], &["GH100 has no metric that matches nvlink"]),
        (
            &["--query-metrics", "--chip", "GH100", "--metrics", "dram__read,regex:nvlink"],
            &["no metric dram__read; the", "no metric nvlink; "],
        ),
        (&["--query-metrics", "("], &["expected a regular expression"]),
        (&["--chip", "GH100", "--", "true"], &["cannot be used with"]),
    ] {
        let refused = query(options);
        let text = stderr(&refused);
        assert!(refused.status.code() != Some(0) && said.iter().all(|part| text.contains(part)), "{options:?}: {text}");
    }
    let chosen = ["--metrics", "dram__bytes_read.sum,dram__bytes_write.sum"];
    let filtered = query(&[&["--query-metrics", "write", "--chip", "GH100"][..], &chosen].concat());
    let filtered = String::from_utf8(filtered.stdout).unwrap();
    assert!(filtered.contains("dram__bytes_write.sum") && !filtered.contains("read"), "{filtered}");
}

#[test]
fn too_many_metrics_are_refused_before_a_run() {
    let shapes = shapes(1);
    let stage = Stage::new();
    counters(&stage, &shapes);
    let mut file = fs::read_to_string(stage.path("counters.txt")).unwrap();
    (0..130).for_each(|number| file.push_str(&format!("kernel {} sm__x{number}.sum 1\n", shapes[0].symbol)));
    fs::write(stage.path("counters.txt"), file).unwrap();
    let query = Command::new(GPUWHY)
        .args(["kernels", "--query-metrics", "--chip", "GH100", "--metrics", "regex:^sm__x"])
        .env("GPUWHY_CUPTI_PATH", built("libcupti_replay.so"))
        .env("GPUWHY_REPLAY", fixture("gpt"))
        .env("GPUWHY_REPLAY_COUNTERS", stage.path("counters.txt"))
        .output()
        .unwrap();
    let wanted = "521 metrics of GH100 are chosen, 500 are measured at most";
    assert!(query.status.code() == Some(2) && stderr(&query).contains(wanted), "{}", stderr(&query));
}

#[test]
fn metrics_of_a_real_run_are_shown_by_section_and_name() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/testing/fixtures/kernels_by_name.gpuwhy");
    let shown = |options: &[&str]| {
        let output = Command::new(GPUWHY).arg("kernels").args(options).arg(trace).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let section = shown(&["--section", "SpeedOfLight"]);
    let rows: Vec<Vec<&str>> = section.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(rows.contains(&vec!["sm__throughput.avg.pct_of_peak_sustained_elapsed", "86.5166", "%"]), "{section}");
    assert!(rows.contains(&vec!["launch__waves_per_multiprocessor", "3.87879"]), "known from the launch: {section}");
    assert!(!section.contains("dram__bytes"), "{section}");
    let names = shown(&["--metrics", "dram__bytes_read", "--csv"]);
    assert_eq!(names.lines().count(), 1 + 4 * 4, "four rollups of four kernels: {names}");
    assert!(names.contains("\"dram__bytes_read.sum\",\"byte\",\"342017280\""), "{names}");
    assert!(shown(&[]).contains("dram__bytes_read.min"), "a page has what no other line shows");
    for format in [&[][..], &["--csv"], &["--json"]] {
        let mut command = Command::new(GPUWHY);
        let output = command.args(["kernels", "--metrics", "dram__bytes_reed.sum"]).args(format).arg(trace).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(1), "{format:?}");
        let said = stderr(&output);
        let wanted = "no kernel was measured with dram__bytes_reed.sum; the nearest metrics are dram__bytes_read.sum, ";
        assert!(said.contains(wanted), "{format:?}: {said}");
    }
}

#[test]
fn limits_of_kernels_are_judged_by_what_was_measured() {
    let shapes = shapes(ENOUGH);
    let stage = Stage::new();
    assert!(host(&stage, &shapes).status().unwrap().success());
    let symbol = &shapes[0].symbol;
    let check = |options: &[&str]| {
        let output = Command::new(GPUWHY).arg("check").args(options).arg(stage.path("trace.gpuwhy")).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output))
    };
    let uses = |limit: &str| check(&["--kernel-uses", &format!("{symbol}={limit}")]);
    let (code, said) = uses("dram:80");
    assert_eq!(code, Some(0), "{said}");
    for (limit, wanted) in [
        ("dram:90", "uses 84.1 % of the device memory, at least 90.0 % expected"),
        ("l2:10", "its use of the L2 cache was not measured"),
    ] {
        let (code, said) = uses(limit);
        assert!(code == Some(1) && said.contains(wanted), "{limit}: {code:?} {said}");
    }
    let (code, said) = check(&["--kernel-uses", "no_such_kernel=dram:1"]);
    assert!(code == Some(1) && said.contains("no kernel has \"no_such_kernel\""), "{said}");
    let (code, said) = uses("ram:80");
    assert!(code == Some(2) && said.contains("tensor, dram, l2, l1, issue"), "{said}");

    let report = json(&stage);
    let rows = ["measured", "unmeasured"].map(|of| report[of].as_array().unwrap().clone()).concat();
    let spills = rows.iter().filter(|row| row["local_bytes_per_thread"] != 0).count();
    let (code, said) = check(&["--no-spills"]);
    assert_eq!(code, Some(i32::from(spills > 0)), "{spills} {said}");
}

#[test]
fn where_no_simulation_is_believed_gains_are_parts_of_the_run() {
    let shapes = shapes(ENOUGH);
    let stage = Stage::new();
    assert!(host(&stage, &shapes).status().unwrap().success());
    assert_eq!(stage.report().pointer("/devices/0/what_if/simulated").unwrap(), false, "steps are half of the time");
    let report = json(&stage);
    for row in report["measured"].as_array().unwrap() {
        assert!(row["step_at_80"].is_null() && row["bottleneck_at_90"].is_null(), "{row:#}");
        let gains = row["findings"].as_array().unwrap().iter().filter(|finding| !finding["step_gain"].is_null());
        assert!(gains.clone().count() > 0 && gains.clone().all(|finding| finding["step"].is_null()), "{row:#}");
    }
    assert!(text(&stage, &[]).contains(" of the run. To do: "));
}

#[test]
fn a_program_that_ends_early_leaves_what_was_measured() {
    let shapes = shapes(UNMEASURED + 2);
    let stage = Stage::new();
    counters(&stage, &shapes);
    let mut host = stage.host("gpt");
    let launch = format!("{RECORDED_MS}:{}", shapes[0].launch);
    let host =
        host.env("GPUWHY_REPLAY_COUNTERS", "counters.txt").env("GPUWHY_GPU_METRICS", "off").args(["--call", &launch]);
    let output = host.env("GPUWHY_KERNELS", format!("1:^{}$", shapes[0].symbol)).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let report = json(&stage);
    assert_eq!(report["measured"][0]["measured_launches"], 2, "two of three passes: {}", stderr(&output));
    let outcomes: Vec<_> =
        report["measured"].as_array().unwrap().iter().map(|of| of["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["not_launched"]);
}

#[test]
fn a_refusal_is_reported_and_everything_else_is_as_without() {
    let shapes = shapes(ENOUGH);
    for (fault, outcome, reason) in [
        ("cuptiRangeProfilerStart=35", "refused", "may not read the counters"),
        ("cuptiProfilerGetCounterAvailability=26", "busy", "holds its counters"),
        ("cuptiRangeProfilerDecodeData=999", "refused", "error 999"),
        ("cuptiRangeProfilerSetConfig=8", "refused", "error 8"),
    ] {
        let stage = Stage::new();
        let output = host(&stage, &shapes).env("GPUWHY_REPLAY_FAULT", fault).output().unwrap();
        assert!(output.status.success(), "{fault}: {}", stderr(&output));
        let report = json(&stage);
        let first = &report["measured"][0];
        assert_eq!(first["outcome"], outcome, "{fault}: {first:#}");
        assert!(first["reason"].as_str().unwrap().contains(reason), "{fault}: {}", first["reason"]);
        assert!(text(&stage, &[]).contains("not measured: "), "{fault}");
        assert_eq!(stage.report().pointer("/bottleneck/cause").unwrap(), "gpu_compute", "{fault}");
    }
}

#[test]
fn the_command_runs_a_program_and_answers_with_its_exit_code() {
    let output = Command::new(GPUWHY).args(["kernels", "--", "sh", "-c", "exit 7"]).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    assert!(stderr(&output).contains("did not use CUDA"), "{}", stderr(&output));
    let output = Command::new(GPUWHY).args(["kernels", "--", "/nowhere/program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    for (bad, said) in [
        (["--kernel", "a(b"], "regular expression"),
        (["--top", "0"], "1..=64"),
        (["--section", "Light"], "or of gpuwhy: core, memory, stalls, work"),
        (["--metrics", "a,,b"], "separated by commas"),
    ] {
        let output = Command::new(GPUWHY).arg("kernels").args(bad).args(["--", "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{bad:?}");
        assert!(stderr(&output).contains(said), "{bad:?}: {}", stderr(&output));
    }
}
