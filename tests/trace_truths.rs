//! Reports of traces whose programs were also run with the fix: the line, the cause and the gain that the
//! report names, next to what was measured (`testing/fixtures/traces/README.md`).

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpuwhy_trace::counters::{CounterEvent, GaugeReading, ProcessReading, ProgramName};
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::{TraceReader, TraceWriter};
use serde_json::Value;

use crate::support::{GPUWHY, stderr};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures/traces").join(format!("{name}.gpuwhy"))
}

/// The JSON report of a trace, from its records.
fn report_of(trace: &Path) -> Value {
    let output = Command::new(GPUWHY).args(["report", "--recompute", "--json"]).arg(trace).output().unwrap();
    assert!(output.status.success(), "{}: {}", trace.display(), stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn report(name: &str) -> Value {
    report_of(&fixture(name))
}

/// Share of the time that the report gives to a line, over all activities there.
fn share_at(report: &Value, line: u64) -> f64 {
    let lines = report["host"]["lines"].as_array().unwrap().iter();
    lines.filter(|row| row["line"] == line).map(|row| row["share"].as_f64().unwrap()).sum()
}

/// Predicted gain of a scenario.
fn gain(report: &Value, kind: &str) -> f64 {
    let scenarios = report["devices"][0]["what_if"]["scenarios"].as_array().unwrap();
    scenarios.iter().find(|scenario| scenario["kind"] == kind).and_then(|found| found["speedup"].as_f64()).unwrap()
}

fn recommendation(report: &Value) -> &str {
    report["bottleneck"]["recommendation"].as_str().unwrap()
}

#[track_caller]
fn assert_within(value: f64, low: f64, high: f64) {
    assert!((low..=high).contains(&value), "{value}: {low} to {high}");
}

#[test]
fn a_sleep_has_its_share_and_its_line() {
    let report = report("sleeper");
    // 3.06 of 5.86 ms of a step.
    assert_within(share_at(&report, 79), 0.48, 0.54);
    assert!(recommendation(&report).starts_with("Remove the sleep at programs2.py:79"), "{}", recommendation(&report));
    // 2.54x without it.
    assert_within(gain(&report, "no_host_work"), 2.0, 3.2);
}

#[test]
fn writing_a_log_has_its_line() {
    let report = report("file_log");
    // 41 % by leaving it out.
    assert_within(share_at(&report, 31), 0.30, 0.45);
    assert!(recommendation(&report).contains("programs2.py:31"), "{}", recommendation(&report));
}

#[test]
fn two_busy_processes_a_core_are_named_as_no_free_core() {
    assert!(recommendation(&report("busy_cores")).starts_with("Give the launching thread a free core"));
}

#[test]
fn needless_copies_within_the_gpu_have_their_gain() {
    let report = report("d2d_clones");
    // 16.8x without them.
    assert_within(gain(&report, "device_copies_gone"), 14.0, 18.0);
    assert_eq!(report["bottleneck"]["plan"][0]["kind"], "device_copies_gone");
}

#[test]
fn work_on_a_result_belongs_to_the_read_of_it() {
    let numpy = report("numpy_post");
    // argmax takes 62 % of a step, and the whole is 13.4x as fast with argmax on the GPU.
    assert_within(share_at(&numpy, 86), 0.45, 0.65);
    assert_eq!(numpy["bottleneck"]["plan"][0]["kind"], "reads_reduced");
    assert_within(gain(&numpy, "reads_reduced"), 12.0, 18.0);
    let checkpoint = report("checkpoint");
    let advice = recommendation(&checkpoint);
    assert!(advice.starts_with("Write checkpoints less often") && advice.contains("programs2.py:37"), "{advice}");
    // 15.4x without it.
    assert_within(gain(&checkpoint, "reads_reduced"), 12.0, 18.0);
}

#[test]
fn the_first_remedy_is_the_change_that_was_measured() {
    for (name, id) in [
        ("busy_cores", "cores"),
        ("changing", "pinned"),
        ("checkpoint", "save_less"),
        ("d2d_clones", "device_copies"),
        ("file_log", "file_output"),
        ("hf_generate", "attention_build"),
        ("numpy_post", "reduce_first"),
        ("sleeper", "sleep"),
    ] {
        let report = report(name);
        assert_eq!(report["bottleneck"]["remedies"][0]["id"], id, "{name}: {}", report["bottleneck"]["remedies"]);
    }
}

#[test]
fn a_program_with_two_phases_is_judged_from_its_start() {
    let report = report("changing");
    let evidence = report["bottleneck"]["evidence"].to_string();
    assert!(evidence.contains("0 ns to 2.51 s: memory copies 99 %; 2.51 s to 3.19 s: kernel launches"), "{evidence}");
    assert_eq!(report["bottleneck"]["cause"], "copy");
}

#[test]
fn kernels_that_are_built_for_each_length_are_the_bottleneck() {
    let report = report("hf_generate");
    let (bottleneck, builds) = (&report["bottleneck"], &report["devices"][0]["builds"]);
    assert_eq!(bottleneck["cause"], "kernel_build");
    assert!((0.5..0.65).contains(&bottleneck["share"].as_f64().unwrap()), "{bottleneck}");
    assert!(builds["count"].as_u64() >= Some(60) && builds["later_count"].as_u64() >= Some(25), "{builds}");
    let says = |words: &str| bottleneck["evidence"].to_string().contains(words);
    assert!(says("Building kernels at hf_generate.py") && says("sdpa_attention_forward"), "{bottleneck}");
    let advice = bottleneck["recommendation"].as_str().unwrap();
    assert!(advice.contains("torch.backends.cuda.enable_cudnn_sdp(False)"), "{advice}");
}

/// The trace of a program beside another process, with what readings of the driver add to it.
fn beside(add: impl Fn(&GaugeReading) -> Vec<CounterEvent>) -> Value {
    let mut reader = TraceReader::new(BufReader::new(File::open(fixture("neighbor")).unwrap())).unwrap();
    let mut writer = TraceWriter::new(Vec::new(), reader.session()).unwrap();
    while let Some(event) = reader.next_event().unwrap() {
        let added = match &event {
            Event::Counters(counters) => match **counters {
                CounterEvent::Gauges(reading) => add(&reading),
                _ => Vec::new(),
            },
            _ => Vec::new(),
        };
        for event in added.into_iter().map(Event::from).chain([event]) {
            writer.event(&event, reader.dictionary()).unwrap();
        }
    }
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("beside.gpuwhy");
    fs::write(&path, writer.close(reader.dictionary()).unwrap().1).unwrap();
    report_of(&path)
}

#[test]
fn another_process_is_named_where_the_driver_saw_it() {
    let report = beside(|reading| {
        let name = ProgramName::new("python3 server.py");
        let (busy_percent, memory_bytes) = (Some(66), Some(71_000_000_000));
        let (device, at) = (reading.device, reading.at);
        vec![CounterEvent::Process(ProcessReading { device, at, pid: 812, name, busy_percent, memory_bytes })]
    });
    let (device, bottleneck) = (&report["devices"][0], &report["bottleneck"]);
    let leaves = device["steady_leaves"].as_object().unwrap();
    let total: u64 = leaves.values().map(|nanos| nanos.as_u64().unwrap()).sum();
    let share = leaves["other_process"].as_u64().unwrap() as f64 / total as f64;
    assert!((0.65..0.75).contains(&share), "{leaves:?}");
    assert_eq!(bottleneck["cause"], "other_process");
    assert!((0.6..0.8).contains(&bottleneck["share"].as_f64().unwrap()), "{bottleneck}");
    let says = bottleneck["evidence"].to_string();
    assert!(says.contains("python3 server.py (pid 812) used the GPU 66 % of the time, and 71.0 GB"), "{says}");
    assert_eq!(device["other_processes"][0]["pid"], 812);
}

#[test]
fn another_process_has_no_name_where_only_the_utilization_shows_it() {
    let with =
        |busy| beside(move |reading| vec![CounterEvent::Gauges(GaugeReading { busy_percent: Some(busy), ..*reading })]);
    let report = with(98);
    assert_eq!(report["bottleneck"]["cause"], "other_process");
    let says = report["bottleneck"]["evidence"].to_string();
    assert!(says.contains("Another process uses this GPU: it was busy 98 % of the time"), "{says}");
    // The GPU may have been busy with this program alone, or nothing is known.
    for report in [with(31), beside(|_| Vec::new())] {
        assert_eq!(report["bottleneck"]["cause"], "cannot_tell");
    }
}

/// Nanoseconds of each module in a step of a graph, by its class.
fn module_times(report: &Value, steps: f64) -> std::collections::BTreeMap<String, f64> {
    let mut times = std::collections::BTreeMap::new();
    for row in report["graph_origins"]["modules"].as_array().unwrap() {
        let name = row["module"].as_str().unwrap_or("none").to_owned();
        *times.entry(name).or_insert(0.0) += row["total_ns"].as_f64().unwrap() / steps;
    }
    times
}

#[test]
fn kernels_of_a_replayed_graph_have_the_time_that_their_module_takes_eagerly() {
    let report = report("graph_inference");
    let origins = &report["graph_origins"];
    assert_eq!((&origins["without_place"]["count"], &origins["unknown"]["count"]), (&0.into(), &0.into()));
    // 60 replays of 79 operations.
    assert_eq!(origins["with_place"]["count"], 4_740);
    let times = module_times(&report, 60.0);
    // By NVTX ranges around the same step without a graph.
    for (module, eager) in [
        ("Linear", 245_486.0),
        ("LayerNorm", 52_680.0),
        ("GatedMlp", 42_908.0),
        ("Attention", 40_766.0),
        ("Layer", 21_464.0),
    ] {
        assert_within(times[module] / eager, 0.94, 1.06);
    }
    let row = &origins["rows"][0];
    assert_eq!(
        (&row["file"], &row["line"], &row["parent"]),
        (&"/tmp/app/graph_modules.py".into(), &38.into(), &"GatedMlp".into())
    );
}

#[test]
fn kernels_of_a_captured_backward_pass_have_its_thread() {
    let report = report("../graphs/training");
    let origins = &report["graph_origins"];
    assert_eq!((&origins["with_place"]["count"], &origins["unknown"]["count"]), (&5_280.into(), &0.into()));
    let thread = &origins["threads"][0];
    assert_eq!((&thread["name"], &thread["count"]), (&"pt_autograd_0".into(), &9_300.into()));
}

#[test]
fn kernels_of_a_compiled_graph_have_the_operators_of_the_generated_code() {
    let report = report("graph_compiled");
    let origins = &report["graph_origins"];
    assert_eq!((&origins["without_place"]["count"], &origins["unknown"]["count"]), (&0.into(), &0.into()));
    let modules = origins["modules"].as_array().unwrap();
    assert!(modules.iter().all(|row| row["module"] == "Decoder" && row["operators"].is_string()), "{modules:#?}");
    let operators: Vec<_> = modules.iter().map(|row| row["operators"].as_str().unwrap()).collect();
    assert!(operators.iter().any(|names| names.contains("silu, mul")), "{operators:?}");
    assert!(operators.iter().any(|names| names.contains("native_layer_norm")), "{operators:?}");
}
