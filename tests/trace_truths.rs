//! Reports of traces whose programs were also run with the fix: the line, the cause and the gain that the
//! report names, next to what was measured (`testing/fixtures/traces/README.md`).

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpuwhy_trace::counters::{CounterEvent, GaugeReading, ProcessReading, ProgramName};
use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::compact::with_source_lines;
use gpuwhy_trace::format::{TraceReader, TraceWriter};
use gpuwhy_trace::record::{Kernel, NameId, Record, Timestamp};
use gpuwhy_trace::source_line::SourceLine;
use serde_json::{Value, json};

use crate::support::{GPUWHY, stderr};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures/traces").join(format!("{name}.gpuwhy"))
}

/// The JSON report of a trace, from its records.
fn report_of(trace: &Path) -> Value {
    report_with(trace, &[])
}

fn report_with(trace: &Path, options: &[&str]) -> Value {
    let output =
        Command::new(GPUWHY).args(["report", "--recompute", "--json"]).args(options).arg(trace).output().unwrap();
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
    // Copies to the host: nothing loads data.
    let remedies = numpy["bottleneck"]["remedies"].to_string();
    assert!(remedies.contains("pinned_results") && !remedies.contains("DataLoader"), "{remedies}");
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
        ("loop_optimizer", "fused_optimizer"),
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
    assert!(evidence.contains("329.1 ms to 2.84 s: memory copies 99 %; 2.84 s to 3.52 s: kernel launch"), "{evidence}");
    assert_eq!(report["bottleneck"]["cause"], "copy");
}

#[test]
fn kernels_that_are_built_for_each_length_are_the_bottleneck() {
    let report = report("hf_generate");
    let (bottleneck, builds) = (&report["bottleneck"], &report["devices"][0]["builds"]);
    assert_eq!(bottleneck["cause"], "kernel_build");
    assert!((0.5..0.65).contains(&bottleneck["share"].as_f64().unwrap()), "{bottleneck}");
    assert!(builds["count"].as_u64() >= Some(60) && builds["later_count"].as_u64() >= Some(3), "{builds}");
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
        let (busy_percent, memory_bytes, until) = (Some(66), Some(71_000_000_000), None);
        let (device, at) = (reading.device, reading.at);
        let process = ProcessReading { device, at, until, pid: 812, name, busy_percent, memory_bytes };
        vec![CounterEvent::Process(process)]
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
    assert!(says.contains("Another process uses this GPU: it was busy 98 % of the run"), "{says}");
    // The GPU may have been busy with this program alone, or nothing is known: but it drew 339 W, and this program used
    // it 6 % of the time.
    for report in [with(31), beside(|_| Vec::new())] {
        assert_eq!(report["bottleneck"]["cause"], "other_process");
        let evidence = report["bottleneck"]["evidence"].to_string();
        assert!(evidence.contains(": waiting for launches 47 %, computing 3"), "{evidence}");
        assert!(recommendation(&report).starts_with("Probably another process uses this GPU: run nvidia-smi"));
        assert!(report["bottleneck"]["evidence"].to_string().contains("it drew 339 W on average"));
    }
    // As much as an idle GPU with high clocks.
    let at_rest = beside(|reading| {
        let at = Timestamp::from_nanos(reading.at.nanos() - 1);
        vec![CounterEvent::Gauges(GaugeReading { power_mw: Some(130_000), at, ..*reading })]
    });
    assert!(!at_rest["bottleneck"].to_string().contains("nvidia-smi"), "{}", at_rest["bottleneck"]);
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

/// Replays and mean nanoseconds of a module in one of them, with those that it calls.
fn in_a_replay(report: &Value, module: &str) -> (u64, f64) {
    let rows = report["graph_origins"]["per_replay"].as_array().unwrap();
    let row = rows.iter().find(|row| row["module"] == module).unwrap_or_else(|| panic!("no {module} in {rows:?}"));
    (row["replays"].as_u64().unwrap(), row["mean_ns"].as_f64().unwrap())
}

#[test]
fn a_module_takes_the_same_time_in_a_replay_of_a_whole_run_and_of_a_burst() {
    let inference = report("graph_inference");
    let times = module_times(&inference, 60.0);
    let (replays, all) = in_a_replay(&inference, "Decoder");
    assert_eq!((replays, all.round()), (60, times.values().sum::<f64>().round()), "the outermost module");
    assert_within(in_a_replay(&inference, "LayerNorm").1 / times["LayerNorm"], 0.999_9, 1.000_1);
    // What Attention captured itself, and its two Linear layers.
    let linear = inference["graph_origins"]["modules"].as_array().unwrap().iter();
    let linear = linear.filter(|row| row["parent"] == "Attention").map(|row| row["total_ns"].as_f64().unwrap());
    let attention = times["Attention"] + linear.sum::<f64>() / 60.0;
    assert_within(in_a_replay(&inference, "Attention").1 / attention, 0.999_9, 1.000_1);
    // The same forward pass in a graph that also has the backward one.
    let training = report("../graphs/training");
    assert_within(in_a_replay(&training, "Attention").1 / attention, 0.95, 1.05);

    let run = report("graph_bursts_one_id");
    let burst = report_with(&fixture("graph_bursts_one_id"), &["--capture", "2"]);
    // The burst began within a replay, 1,340 launches before its end.
    assert_eq!(["Decoder", "Attention"].map(|module| in_a_replay(&run, module).0), [7_121; 2]);
    assert_eq!(["Decoder", "Attention"].map(|module| in_a_replay(&burst, module).0), [1_341; 2]);
    for module in ["Decoder", "Layer", "Attention", "GatedMlp", "Linear", "LayerNorm"] {
        assert_within(in_a_replay(&burst, module).1 / in_a_replay(&run, module).1, 0.995, 1.005);
    }
    // Operators are fused across modules, so that only the model is left.
    let compiled = report("graph_compiled");
    assert_eq!((in_a_replay(&compiled, "Decoder").0, &compiled["graph_origins"]["partial_graphs"]), (63, &0.into()));
    let jax = report("graph_jax");
    assert_eq!(jax["graph_origins"]["per_replay"], Value::Array(Vec::new()));
}

#[test]
fn kernels_of_a_captured_backward_pass_have_its_thread() {
    let report = report("../graphs/training");
    let origins = &report["graph_origins"];
    assert_eq!((&origins["with_place"]["count"], &origins["unknown"]["count"]), (&5_280.into(), &0.into()));
    let thread = &origins["threads"][0];
    assert_eq!((&thread["name"], &thread["count"]), (&"pt_autograd_0".into(), &9_300.into()));
    // 148 of its launches ran no kernel, as they were captured.
    assert_eq!(report["completeness"]["launches_without_activity"], 0);
}

#[test]
fn nodes_of_embedded_graphs_have_the_line_that_they_share() {
    let report = report("graph_jax");
    let origins = &report["graph_origins"];
    // 1,500 replays of 61 operations, of which 15 are in embedded graphs.
    assert_eq!((&origins["with_place"]["count"], &origins["unknown"]["count"]), (&91_500.into(), &0.into()));
    let rows = origins["rows"].as_array().unwrap();
    let of_line = |row: &&Value| row["file"] == "/tmp/app/jax_programs.py" && row["line"] == 43;
    let count: u64 = rows.iter().filter(of_line).map(|row| row["count"].as_u64().unwrap()).sum();
    assert_eq!(count, 91_500);
}

#[test]
fn a_burst_has_its_own_launches_and_the_result_of_the_part_before() {
    let run = report("graph_bursts");
    let burst = report_with(&fixture("graph_bursts"), &["--capture", "2"]);
    for part in [&run, &burst] {
        assert_eq!(part["bottleneck"]["cause"], "gpu_compute");
        let lost = ["shared_ids", "clamped_clocks", "launches_without_activity", "activities_without_launch"];
        assert_eq!(lost.map(|kind| part["completeness"][kind].as_u64().unwrap()), [0; 4]);
        assert_eq!(part["graph_origins"]["unknown"]["count"], 0);
    }
    assert_eq!(burst["completeness"]["records"]["kernels"], 84_680);
    // The list of bursts in the report of the run has the result of the burst's own report.
    let row = &run["bursts"]["rows"][0];
    assert_eq!((&row["bottleneck"], &row["share"]), (&burst["bottleneck"]["cause"], &burst["bottleneck"]["share"]));
    let output = Command::new(GPUWHY).arg("report").arg(fixture("graph_bursts")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("as the last one was long ago: computing 83 %; 1150 steps of 433.5 us."), "{text}");
    for module in ["Decoder", "Attention", "GatedMlp", "Linear", "LayerNorm"] {
        assert_within(in_a_replay(&burst, module).1 / in_a_replay(&run, module).1, 0.98, 1.02);
    }
}

/// In the burst CUPTI gave all launches one id. They ran in 0.36 ms each, one after the other.
#[test]
fn a_burst_whose_launches_have_one_id_names_no_bottleneck() {
    let run = report("graph_bursts_one_id");
    assert_eq!(run["bottleneck"]["cause"], "gpu_compute");
    assert_eq!(run["completeness"]["shared_ids"], 0);
    assert_eq!(run["bursts"]["rows"].as_array().unwrap().len(), 1);
    let burst = report_with(&fixture("graph_bursts_one_id"), &["--capture", "2"]);
    assert_eq!(burst["captures"][1]["trigger"], "open");
    assert_eq!(burst["completeness"]["records"]["kernels"], 97_893);
    // 1,340 launches.
    assert_eq!(burst["completeness"]["shared_ids"], 1_339);
    assert_eq!(burst["bottleneck"]["cause"], "cannot_tell");
    // Which module each node belongs to is known without it.
    assert_eq!(burst["graph_origins"]["unknown"]["count"], 0);
    let share = |report: &Value| report["graph_origins"]["modules"][0]["share"].as_f64().unwrap();
    assert!((share(&burst) - share(&run)).abs() < 0.01, "{} and {}", share(&burst), share(&run));
}

/// Eight Python threads, in a capture by command that followed others: CUPTI gave the launches of four of them one id
/// each.
#[test]
fn launches_of_threads_with_one_id_are_joined_and_the_lock_that_they_wait_for_is_named() {
    let capture = report_with(&fixture("../captures/threads_one_id"), &["--capture", "17"]);
    let count = |kind: &str| capture["completeness"][kind].as_u64().unwrap();
    assert_eq!((count("shared_ids"), count("ordered_launches")), (0, 10_514));
    let operations = ["kernels", "copies"].map(|kind| capture["completeness"]["records"][kind].as_u64().unwrap());
    assert_eq!(operations, [15_162, 5_054]);
    assert!(count("activities_without_launch") + count("clamped_clocks") < 20, "{}", capture["completeness"]);
    let device = &capture["devices"][0];
    let unknown = device["leaves"]["unobserved"].as_f64().unwrap() / device["window_ns"].as_f64().unwrap();
    assert!(unknown < 0.01, "{unknown}");
    assert_eq!(capture["bottleneck"]["cause"], "launch");
    let evidence = capture["bottleneck"]["evidence"].to_string();
    assert!(evidence.contains("waited for the interpreter's lock (GIL)"), "{evidence}");
    assert!(evidence.contains("on its way between launching threads"), "{evidence}");
    assert!(recommendation(&capture).starts_with("Launch from one thread in each process"), "{capture:?}");
}

/// Rounds of two kernels on one stream and one on another, which could run beside both: 2.63 ms with one connection,
/// 1.77 ms with eight.
#[test]
fn streams_in_one_queue_are_named() {
    let [one, eight] = ["one_connection", "eight_connections"].map(report);
    let setting = "CUDA_DEVICE_MAX_CONNECTIONS";
    assert_eq!(one["bottleneck"]["cause"], "gpu_compute");
    assert!(recommendation(&one).contains(setting), "{}", recommendation(&one));
    let evidence = one["bottleneck"]["evidence"].to_string();
    let share = evidence.split("Kernels waited ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    assert_within(share.parse().unwrap(), 27.0, 33.0);
    assert!(!eight["bottleneck"].to_string().contains(setting), "{}", eight["bottleneck"]);
}

/// 12 kernels, each over 512 MiB that the CPU has just written: few operations, but most of a second of them.
#[test]
fn page_faults_of_managed_memory_are_named() {
    let report = report("managed");
    let evidence = report["bottleneck"]["evidence"].to_string();
    assert!(evidence.contains("page faults of managed memory were being resolved: 4589 page faults"), "{evidence}");
    let remedies = report["bottleneck"]["remedies"].as_array().unwrap();
    assert!(remedies.iter().take(3).any(|remedy| remedy["id"] == "managed_prefetch"), "{remedies:#?}");
}

/// This is how the nodes of a graph that was recorded as a whole are found.
#[test]
fn the_id_of_a_node_contains_the_id_of_its_graph() {
    for (trace, of_graphs) in
        [("graph_inference", 4_740), ("graph_compiled", 3_906), ("../graphs/training", 14_580), ("graph_jax", 91_500)]
    {
        let mut reader = TraceReader::new(BufReader::new(File::open(fixture(trace)).unwrap())).unwrap();
        let mut operations = 0;
        while let Some(event) = reader.next_event().unwrap() {
            let (graph, node) = match event {
                Event::Record(Record::Kernel(kernel)) => (kernel.graph_id, kernel.graph_node_id),
                Event::Record(Record::Copy(copy)) => (copy.graph_id, copy.graph_node_id),
                Event::Record(Record::Memset(memset)) => (memset.graph_id, memset.graph_node_id),
                _ => continue,
            };
            assert_eq!(u64::from(graph), node >> 32, "{trace}");
            operations += usize::from(graph != 0);
        }
        assert_eq!(operations, of_graphs, "{trace}");
    }
}

/// The same graph, with each replay as one record.
#[test]
fn a_graph_that_was_recorded_as_a_whole_has_the_modules_of_its_nodes() {
    let mut reader = TraceReader::new(BufReader::new(File::open(fixture("graph_inference")).unwrap())).unwrap();
    let mut writer = TraceWriter::new(Vec::new(), reader.session()).unwrap();
    let mut replay = None;
    while let Some(event) = reader.next_event().unwrap() {
        let event = match event {
            Event::Record(Record::Kernel(kernel)) if kernel.graph_id != 0 => {
                if replay.replace(kernel.correlation) == Some(kernel.correlation) {
                    continue;
                }
                Event::Record(Record::Kernel(Kernel { graph_node_id: 0, ..kernel }))
            }
            Event::Record(Record::Memset(memset)) if memset.graph_id != 0 => continue,
            event => event,
        };
        writer.event(&event, reader.dictionary()).unwrap();
    }
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("whole.gpuwhy");
    fs::write(&path, writer.close(reader.dictionary()).unwrap().1).unwrap();
    let origins = &report_of(&path)["graph_origins"];
    assert_eq!((&origins["nodes"], &origins["with_place"]["count"]), (&243.into(), &0.into()));
    let whole = origins["whole"].as_array().unwrap();
    assert_eq!(whole.len(), 1);
    let [nodes, unknown, count] = ["nodes", "unknown_nodes", "count"].map(|of| whole[0][of].as_u64().unwrap());
    assert_eq!((nodes, unknown, count), (79, 0, 60));
    let parts = whole[0]["parts"].as_array().unwrap();
    let sum: u64 = parts.iter().map(|part| part["nodes"].as_u64().unwrap()).sum();
    assert_eq!((sum, whole[0]["distinct_parts"].as_u64()), (79, Some(parts.len() as u64)));
    let part = |name: &str| parts.iter().find(|part| part["captured_in"] == name).unwrap()["nodes"].as_u64();
    // Six layers.
    assert_eq!([part("GatedMlp > Linear"), part("Layer > LayerNorm")], [Some(18), Some(12)], "{parts:#?}");
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

/// `name` with kernels that have `part` in their names lasting longer by `nanos`.
fn slowed(name: &str, part: &str, nanos: u64, to: &Path) {
    let mut reader = TraceReader::new(BufReader::new(File::open(fixture(name)).unwrap())).unwrap();
    let mut writer = TraceWriter::new(Vec::new(), reader.session()).unwrap();
    while let Some(mut event) = reader.next_event().unwrap() {
        if let Event::Record(Record::Kernel(kernel)) = &mut event {
            let dictionary = reader.dictionary();
            if dictionary.name(dictionary.launch_config(kernel.config).name).contains(part) {
                kernel.end = Timestamp::from_nanos(kernel.end.nanos() + nanos);
            }
        }
        writer.event(&event, reader.dictionary()).unwrap();
    }
    fs::write(to, writer.close(reader.dictionary()).unwrap().1).unwrap();
}

#[test]
fn a_slower_kernel_of_a_graph_is_a_change_of_the_module_that_captured_it() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("slower.gpuwhy");
    // Only GatedMlp calls silu, in each of six layers.
    slowed("graph_inference", "silu_kernel", 400, &path);
    let diff = |format: &[&str]| {
        let output = Command::new(GPUWHY).arg("diff").args(format).arg(fixture("graph_inference")).arg(&path).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let json: Value = serde_json::from_str(&diff(&["--json"])).unwrap();
    let [first, rest @ ..] = &json["graph_modules"].as_array().unwrap()[..] else { panic!("{json:#}") };
    assert_eq!(first["name"], "Layer > GatedMlp");
    assert_within(first["change_ns"].as_f64().unwrap() / (6.0 * 400.0), 0.9, 1.1);
    assert_eq!((rest.len(), rest.iter().all(|row| row["change_ns"] == 0.0)), (6, true), "{rest:?}");
    let text = diff(&[]);
    assert!(text.contains("work of CUDA graphs by module") && text.contains("+2.2 us  Layer > GatedMlp"), "{text}");
}

#[test]
fn evidence_about_kernels_of_a_graph_names_the_line_that_captured_them() {
    let evidence = |name| report(name)["bottleneck"]["evidence"].to_string();
    let inference = evidence("graph_inference");
    assert!(inference.contains("63 % of it captured at graph_modules.py:38 (GatedMlp.forward)"), "{inference}");
    let training = evidence("../graphs/training");
    // The optimizer; the line that replays is another one.
    assert!(training.contains("95 % of it captured at graph_modules.py:106"), "{training}");
    // Its backward pass has no line.
    assert_eq!(training.matches("captured at").count(), 1, "{training}");
}

#[test]
fn the_device_is_idle_in_a_replay_before_the_module_whose_nodes_set_memory() {
    let report = report("graph_inference");
    let modules = report["graph_origins"]["modules"].as_array().unwrap();
    let idle = |row: &Value| row["idle_before_ns"].as_f64().unwrap() / row["idle_before_count"].as_f64().unwrap();
    let most = modules.iter().max_by(|a, b| idle(a).total_cmp(&idle(b))).unwrap();
    // Between kernels about half a microsecond; memsets of cuDNN's attention have a longer gap on both sides.
    assert_eq!((&most["module"], &most["parent"]), (&"Attention".into(), &"Layer".into()));
    assert!(idle(most) > 2_000.0, "{most}");
    assert!(modules.iter().filter(|row| *row != most).all(|row| idle(row) < 1_000.0), "{modules:#?}");
}

/// The trace with these lines of its program, written to a file in `folder`.
fn with_lines(name: &str, folder: &Path, lines: &[(u32, &str)]) -> PathBuf {
    let path = folder.join("with_lines.gpuwhy");
    let add = |dictionary: &mut Dictionary| {
        let is_program = |file: &&NameId| dictionary.name(**file).ends_with("/programs2.py");
        let files: Vec<NameId> = dictionary.frames().iter().map(|frame| frame.file).collect();
        let file = *files.iter().find(is_program).expect("a frame of the program");
        for &(line, text) in lines {
            dictionary.add_source_line(SourceLine { file, line, text: text.to_owned() });
        }
    };
    let source = BufReader::new(File::open(fixture(name)).unwrap());
    with_source_lines(source, File::create(&path).unwrap(), add).unwrap();
    path
}

#[test]
fn numpy_on_a_copied_tensor_is_computed_on_the_gpu() {
    let folder = tempfile::tempdir().unwrap();
    let first = |text: &str| {
        let trace = with_lines("numpy_post", folder.path(), &[(3, "import numpy as np"), (86, text)]);
        report_of(&trace)["bottleneck"]["remedies"][0].clone()
    };
    let line = "    best = torch.from_numpy(np.argmax(y.cpu().numpy(), 1))";
    let remedy = first(line);
    assert_eq!((&remedy["id"], &remedy["source"]), (&"numpy_on_gpu".into(), &line.trim().into()), "{remedy}");
    assert!(remedy["text"].as_str().unwrap().contains("torch.argmax"), "{remedy}");
    // The same copies for something else.
    assert_eq!(first("    np.save(f, y.cpu().numpy())")["id"], "reduce_first");
}

#[test]
fn the_line_of_the_first_change_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let trace = with_lines("sleeper", folder.path(), &[(78, "    def ex(l):"), (79, "        time.sleep(0.003)")]);
    let output = Command::new(GPUWHY).arg("report").arg(&trace).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\n            79 | time.sleep(0.003)\n"), "{text}");
}

/// Name, count, sequences and tokens of the iterations by kind.
fn kinds(report: &Value) -> Value {
    let kinds = report["serving"]["kinds"].as_array().unwrap().iter();
    kinds.map(|kind| json!([kind["name"], kind["count"], kind["sequences"], kind["tokens"]])).collect()
}

#[test]
fn a_server_has_the_iterations_that_it_ran() {
    let report = report("serving");
    let steps = &report["devices"][0]["steps"];
    assert_eq!((&steps["source"], &steps["seen"]), (&json!("iteration"), &json!(67)));
    // The program generated 96 x 64 tokens; three prompts were cut in two.
    let kinds_of = json!([["decode", 63, 96, 5_868], ["prefill or mixed", 4, 92, 26_129]]);
    assert_eq!(kinds(&report), kinds_of);
    let serving = &report["serving"];
    let decode = &serving["kinds"][0];
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    assert_within(number(&decode["median_ns"]), 65.7e6 * 0.99, 65.7e6 * 1.01);
    assert_within(number(&decode["p99_ns"]), 133.0e6 * 0.98, 133.0e6 * 1.02);
    assert_within(number(&decode["tokens_per_second"]), 1_360.0, 1_390.0);
    assert_within(number(&decode["busy"]), 0.13, 0.142);
    assert_eq!(serving["server"], "transformers continuous batching");
    assert_eq!((&decode["cause"], &serving["no_requests_share"]), (&"kernel_build".into(), &json!(0.0)));
    // 96 sequences in the 9.2 ms for which the device works in an iteration.
    let bound = &serving["tokens_per_second_bound"];
    assert_within(number(&bound["value"]), 9_000.0, 10_500.0);
    assert!(number(&bound["low"]) < number(&bound["value"]), "{bound}");
}

#[test]
fn vllm_has_the_iterations_of_its_scheduler() {
    // It scheduled 466, 46 of them with prompts, and 85,676 tokens in these; two more warm up, with 100 tokens.
    let report = report("vllm");
    assert_eq!(kinds(&report), json!([["decode", 421, 32, 17_107], ["prefill or mixed", 47, 49, 85_776]]));
    assert_eq!(report["serving"]["server"], "vLLM");
    // Its code is no line of the program.
    let first = &report["bottleneck"]["remedies"][0]["id"];
    assert!(first != "move_work", "{}", report["bottleneck"]["recommendation"]);
}

#[test]
fn a_server_that_waits_for_requests_has_nothing_to_fix() {
    let report = report("server_idle");
    assert_eq!(kinds(&report), json!([["decode", 1_236, 1, 1_397], ["prefill or mixed", 10, 1, 1_452]]));
    // By its own account it waited for 69.3 % of 5.0 s.
    let waited = report["devices"][0]["leaves"]["no_work"].as_u64().unwrap() as f64 / 5.000e9;
    assert!((waited - 0.693).abs() < 0.02, "{waited}");
    assert_eq!(report["bottleneck"]["cause"], "no_work");
    let advice = report["bottleneck"]["recommendation"].as_str().unwrap();
    assert!(advice.starts_with("The server has time for more requests"), "{advice}");
    assert_eq!(report["bottleneck"]["plan"], json!([]));
}

#[test]
fn mode_monitor_finds_the_iterations_that_a_server_ran() {
    let report = report("server_monitor");
    assert_eq!(kinds(&report), json!([["decode", 3_486, 4, 11_586], ["prefill or mixed", 81, 5, 10_700]]));
    assert_eq!(report["serving"]["on_host"], true);
}

#[test]
fn a_kind_of_iterations_has_a_limit() {
    let check = |limit: &str| {
        let output = Command::new(GPUWHY).args(["check", "--kind-at-most", limit]).arg(fixture("serving")).output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(check("decode=70ms").0, Some(0));
    let (code, text) = check("decode=60ms");
    assert!(code == Some(1) && text.contains("device 0: median decode 65.7 ms of 63"), "{text}");
    let (code, text) = check("prefill=1s");
    assert!(code == Some(1) && text.contains("no steps of the kind prefill; its kinds: decode; prefill or"), "{text}");
}

#[test]
fn iterations_of_two_runs_are_compared_by_kind() {
    let output = Command::new(GPUWHY).arg("diff").args([fixture("serving"), fixture("serving")]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let decode = "decode: p50 65.7 ms -> 65.7 ms, p99 133.0 ms -> 133.0 ms, 1373 -> 1373 tokens/s";
    assert!(text.contains(decode), "{text}");
}

#[test]
fn only_servers_serve() {
    let one_sequence = json!([["decode", 141, 1, 141], ["prefill", 3, 1, 96]]);
    assert_eq!(kinds(&report("hf_generate")), one_sequence);
    for rank in ["../ranks/serve_rank0", "../ranks/serve_rank1"] {
        assert_eq!(kinds(&report(rank)), json!([["decode", 31, 16, 468], ["prefill or mixed", 5, 9, 1_155]]));
    }
    for entry in fs::read_dir(fixture("").with_file_name("")).unwrap() {
        let trace = entry.unwrap().path();
        let name = trace.file_stem().unwrap().to_str().unwrap();
        if trace.extension() == Some("gpuwhy".as_ref())
            && !["serving", "hf_generate", "vllm", "server_idle", "server_monitor"].contains(&name)
        {
            assert_eq!(report_of(&trace)["serving"], Value::Null, "{name}");
        }
    }
}
