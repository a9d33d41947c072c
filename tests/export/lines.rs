//! Kernels by line and by library, as shown in the statistics, the tables and the report.

use std::fs::File;
use std::path::Path;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::event::Event;
use gpuwhy_trace::format::TraceWriter;
use gpuwhy_trace::process_info::{End, ProcessInfo};
use gpuwhy_trace::record::{
    ApiCall, ApiDomain, ApiFunction, CorrelationId, DeviceId, Frame, HostSample, Kernel, LaunchConfig, Loss, Record,
    StackId, StreamId, ThreadId, Timestamp,
};
use serde_json::{Value, json};

use super::{gpuwhy, play};
use crate::support::{Stage, fixtures, stderr};

/// Writes a trace of eight launches of a matrix product (100 us each) and one of another kernel (200 us). Of
/// the first, three have a sample at line 42 and one at line 50. A launch takes 150 us, so its line is certain.
fn written(path: &Path) {
    let (mut dictionary, loss, thread) = (Dictionary::new(), Loss::default(), ThreadId(7));
    let at = |micros: u64| Timestamp::from_nanos(1_000_000_000 + micros * 1_000);
    let name = dictionary.intern_name("cudaLaunchKernel_v7000");
    let function = dictionary.intern_api_function(ApiFunction { domain: ApiDomain::Runtime, callback_id: 211, name });
    let mut config = |name: &str| {
        let name = dictionary.intern_name(name);
        dictionary.intern_launch_config(LaunchConfig { name, ..LaunchConfig::default() })
    };
    let configs = [config("ampere_sgemm_32x32_nn"), config("mine")];
    let mut stack = |line| {
        let (function, file) = (dictionary.intern_name("Net.forward"), dictionary.intern_name("/home/u/net.py"));
        dictionary.intern_frame(Frame { caller: StackId::NONE, function, file, line })
    };
    let stacks = [stack(42), stack(50)];
    let session = ProcessInfo { process_id: 7, start: Timestamp::from_nanos(1), ..ProcessInfo::default() };
    let mut writer = TraceWriter::new(File::create(path).unwrap(), &session).unwrap();
    let mut push = |record: Record| writer.event(&Event::Record(record), &dictionary).unwrap();
    for index in 0..9u32 {
        let begin = 1_000 * u64::from(index + 1);
        let correlation = CorrelationId(index + 1);
        let (config, lasts) = if index == 8 { (configs[1], 200) } else { (configs[0], 100) };
        push(Record::Api(ApiCall {
            start: at(begin),
            end: at(begin + 150),
            thread,
            correlation,
            function,
            return_value: 0,
        }));
        let (start, end) = (at(begin + 20), at(begin + 20 + lasts));
        let (device, stream) = (DeviceId(0), StreamId(7));
        push(Record::Kernel(Kernel { start, end, device, stream, correlation, config, ..Kernel::default() }));
        if index < 4 {
            let (since, at, stack) = (at(begin), at(begin + 5), stacks[usize::from(index == 3)]);
            push(Record::Sample(HostSample { since, at, thread, stack, ..HostSample::default() }));
        }
    }
    writer.finish(End::Clean, at(20_000), &loss, &dictionary).unwrap();
}

fn asked(arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> Value {
    let output = gpuwhy(arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn statistics_and_tables_say_what_the_report_says() {
    let stage = Stage::new();
    let trace = stage.path("lines.gpuwhy");
    written(&trace);
    let report = asked(&[&"report", &"--json", &trace]);
    assert_eq!(report["kernel_lines"]["not_sampled_ns"], 200_000);
    let rows = asked(&[&"query", &"cuda_kern_line_sum", &"-f", &"json", &trace]);
    let reported: Vec<Value> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            json!([
                row["Time (%)"],
                row["Estimated Time (ns)"],
                row["Samples"],
                row["Kernel Samples"],
                row["File"],
                row["Line"],
                row["Function"],
                row["Module"],
                row["Library"],
                row["Kernel"]
            ])
        })
        .collect();
    let row = |share: f64, nanos: u64, samples: u64, line: u64| {
        json!([
            share,
            nanos,
            samples,
            4,
            "/home/u/net.py",
            line,
            "Net.forward",
            "Net",
            "cuBLAS",
            "ampere_sgemm_32x32_nn"
        ])
    };
    assert_eq!(reported, [row(60.0, 600_000, 3, 42), row(20.0, 200_000, 1, 50)]);
    let tables = asked(&[
        &"query",
        &"--format",
        &"json",
        &trace,
        &"SELECT line, samples, CAST(estimated_ns AS INTEGER) AS ns, kernel_ns FROM kernel_lines ORDER BY line",
    ]);
    assert_eq!(
        tables,
        json!([{"line": 42, "samples": 3, "ns": 600_000, "kernel_ns": 800_000},
               {"line": 50, "samples": 1, "ns": 200_000, "kernel_ns": 800_000}])
    );

    let rows = asked(&[&"query", &"cuda_kern_library_sum", &"-f", &"json", &trace]);
    let reported: Vec<Value> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| json!([row["Time (%)"], row["Total Time (ns)"], row["Instances"], row["Kernels"], row["Library"]]))
        .collect();
    assert_eq!(reported, [json!([80.0, 800_000, 8, 1, "cuBLAS"]), json!([20.0, 200_000, 1, 1, null])]);
    let tables = asked(&[&"query", &"--format", &"json", &trace, &"SELECT library, duration_ns FROM kernel_libraries"]);
    assert_eq!(
        tables,
        json!([{"library": "cuBLAS", "duration_ns": 800_000}, {"library": null, "duration_ns": 200_000}])
    );
}

/// Line 93 alone launches kernels in `d2d_clones`. Launches of the other programs take some 5 us, and their stacks were
/// read 25 to 50 us late.
#[test]
fn kernels_have_the_line_that_launches_them_or_none() {
    let trace =
        |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testing/fixtures/traces/{name}.gpuwhy"));
    let lines = |name: &str| asked(&[&"report", &"--recompute", &"--json", &trace(name)])["kernel_lines"].clone();
    let known = lines("d2d_clones");
    let rows = known["lines"].as_array().unwrap();
    assert!(rows.len() == 1 && rows[0]["line"] == 93 && known["left_out"].is_null(), "{known}");
    assert!(rows[0]["low_ns"].as_f64() < rows[0]["high_ns"].as_f64(), "{known}");
    assert_eq!(rows[0]["high_ns"].as_f64(), known["kernel_ns"].as_f64(), "all kernels may be of this line");
    for name in ["sleeper", "file_log", "numpy_post", "checkpoint", "busy_cores"] {
        let lines = lines(name);
        let rows = ["lines", "kernels"].map(|rows| lines[rows].as_array().unwrap().len());
        assert!(rows == [0, 0] && lines["left_out"].is_string(), "{name}: {lines}");
        let output = gpuwhy(&[&"query", &"cuda_kern_line_sum", &trace(name)]);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{name}");
        assert!(stderr(&output).contains("kernels at lines are left out"), "{name}: {}", stderr(&output));
    }
}

#[test]
fn a_filter_is_said_not_to_apply_and_no_samples_are_no_rows() {
    let stage = play("sync_item");
    let trace = stage.path("trace.gpuwhy");
    let output = gpuwhy(&[&"query", &"cuda_kern_library_sum", &"--filter-time", &"0/1s", &trace]);
    assert!(stderr(&output).contains("filters do not apply") && !output.stdout.is_empty(), "{}", stderr(&output));
    let output = gpuwhy(&[&"query", &"cuda_kern_line_sum", &trace]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{}", stderr(&output));
}

/// Recorded programs of PyTorch use only its libraries, so nearly all of their time has one.
#[test]
fn kernels_of_recorded_programs_have_a_library() {
    for fixture in fixtures() {
        let report = play(&fixture).report();
        let rows = report["kernel_libraries"].as_array().unwrap();
        let shares: Vec<(&str, f64)> =
            rows.iter().map(|row| (row["library"].as_str().unwrap_or("-"), row["share"].as_f64().unwrap())).collect();
        println!("{fixture}: {shares:.3?}");
        let known: f64 = shares.iter().filter(|(library, _)| *library != "-").map(|(_, share)| share).sum();
        let expected = match fixture.as_str() {
            "gpt" | "mlp" | "resnet_workers0" | "resnet_workers4" | "graph_torch" => 0.99,
            _ => 0.0,
        };
        assert!(known >= expected, "{fixture}: {shares:?}");
        let sum: f64 = shares.iter().map(|(_, share)| share).sum();
        assert!((sum - 1.0).abs() < 1e-6, "{fixture}: {shares:?}");
    }
}
