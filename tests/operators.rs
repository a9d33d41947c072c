//! Operators of a report beside PyTorch's `key_averages()`, and from each source.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpuwhy_import::{Input, Request, TraceFile};
use gpuwhy_report::run::operators::{OperatorRow, OperatorSource, Operators, OperatorsBy};
use gpuwhy_report::text_format::Style;
use rusqlite::Connection;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{GPUWHY, stderr};

fn operators(trace: &Path, by: OperatorsBy) -> Operators {
    let request = Request { operators: Some(by), ..Request::default() };
    Input::open(trace).unwrap().report(request, &mut gpuwhy_import::unwatched).unwrap().operators.unwrap()
}

/// A file of torch.profiler with these rows.
fn written(rows: &Value) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    let device = json!({"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132});
    fs::write(&file, json!({"deviceProperties": [device], "traceEvents": rows}).to_string()).unwrap();
    (folder, file)
}

/// Operators of a file of torch.profiler with these rows.
fn of_rows(rows: &Value, by: OperatorsBy) -> Operators {
    let (_folder, file) = written(rows);
    let found = operators(&file, by);
    // Readers of translated traces get the same.
    let progress = &mut gpuwhy_import::unwatched;
    let translated = TraceFile::open(&file).unwrap();
    assert_eq!(translated.operators(by, progress).unwrap().unwrap().rows, found.rows);
    assert!(translated.report(None, progress).unwrap().operators.is_none());
    let translated = translated.with_operators(Some(by), progress).unwrap();
    assert_eq!(translated.report(None, progress).unwrap().operators.unwrap().rows, found.rows);
    found
}

fn row<'a>(operators: &'a Operators, name: &str) -> &'a OperatorRow {
    operators.rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no {name}"))
}

/// A linear layer in a module, which is called by a function of the program. Times in microseconds.
fn linear() -> Value {
    let host = |category: &str, name: &str, start: f64, duration: f64, arguments: Value| json!({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 42, "ts": start, "dur": duration, "args": arguments});
    let shapes = "[[64], [32, 128], [128, 64], [], []]";
    let inputs = json!({"Input Dims": serde_json::from_str::<Value>(shapes).unwrap()});
    json!([
        host("python_function", "train.py(7): step", 0.0, 100.0, json!({})),
        host("python_function", "torch/nn/modules/module.py(1700): _call_impl", 5.0, 90.0, json!({})),
        host("python_function", "nn.Module: Linear_0", 6.0, 80.0, json!({})),
        host("user_annotation", "ProfilerStep#3", 0.0, 100.0, json!({})),
        host("cpu_op", "aten::linear", 10.0, 60.0, json!({})),
        host("cpu_op", "aten::addmm", 20.0, 40.0, inputs),
        host("cuda_runtime", "cudaLaunchKernel", 30.0, 10.0, json!({"correlation": 5, "cbid": 211})),
        json!({"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 42, "ts": 25.0,
            "args": {"Device Type": 1, "Bytes": 8192}}),
        json!({"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 42, "ts": 65.0,
            "args": {"Device Type": 0, "Bytes": 64}}),
        json!({"ph": "X", "cat": "kernel", "name": "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT", "pid": 0, "tid": 7,
            "ts": 50.0, "dur": 20.0, "args": {"device": 0, "context": 1, "stream": 7, "correlation": 5}}),
        json!({"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "pid": 0, "tid": 7, "ts": 80.0, "dur": 5.0,
            "args": {"device": 0, "context": 1, "stream": 7, "correlation": 6}}),
    ])
}

#[test]
fn rows_of_torch_profiler_have_the_sums_of_key_averages() {
    let found = of_rows(&linear(), OperatorsBy::Operator);
    assert_eq!((found.source, found.device_ns, found.outside_ns), (OperatorSource::TorchProfiler, 25_000, 5_000));
    let of = row(&found, "aten::addmm");
    assert_eq!((of.calls, of.host_ns, of.own_host_ns), (1, 40_000, 30_000));
    assert_eq!((of.device_ns, of.own_device_ns, of.memory_bytes), (20_000, 20_000, Some(8_192)));
    assert_eq!(of.flops, Some(2 * 32 * 128 * 64));
    // 524,288 operations in 20 us, of 132 * 4096 * 1.98e9 a second.
    assert!((of.peak_share.unwrap() - 2.449e-5).abs() < 1e-7, "{of:?}");
    let of = row(&found, "aten::linear");
    assert_eq!((of.host_ns, of.own_host_ns, of.device_ns, of.own_device_ns), (60_000, 20_000, 20_000, 0));
    assert_eq!((of.memory_bytes, of.flops, of.peak_share), (Some(8_192), None, None));
    assert_eq!(row(&found, "ProfilerStep*").own_host_ns, 40_000);
}

#[test]
fn products_of_two_types_have_no_peak_and_allocations_no_overflow() {
    let mut rows = Vec::new();
    for (at, kernel) in ["ampere_fp16_s16816gemm_fp16_128x64", "ampere_sgemm_tf32tf32_128x64"].iter().enumerate() {
        let start = 100 * at;
        let inputs = json!({"Input Dims": [[32 + at, 128], [128, 64]]});
        rows.extend([
            json!({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 42, "ts": start, "dur": 40, "args": inputs}),
            json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 42, "ts": start + 10,
                "dur": 5, "args": {"correlation": at + 1, "cbid": 211}}),
            json!({"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 42, "ts": start + 20,
                "args": {"Device Type": 1, "Bytes": 9e18 as i64}}),
            json!({"ph": "X", "cat": "kernel", "name": kernel, "pid": 0, "tid": 7, "ts": start + 30, "dur": 20,
                "args": {"device": 0, "context": 1, "stream": 7, "correlation": at + 1}}),
        ]);
    }
    let shapes = of_rows(&json!(rows), OperatorsBy::Shapes);
    assert_eq!(shapes.rows.len(), 2);
    assert!(shapes.rows.iter().all(|row| row.peak_share.is_some()), "each has one type: {:?}", shapes.rows);
    let found = of_rows(&json!(rows), OperatorsBy::Operator);
    let of = row(&found, "aten::mm");
    assert_eq!((of.peak_share, of.flops), (None, Some(2 * (32 + 33) * 128 * 64)));
    assert_eq!(of.memory_bytes, Some(i64::MAX));
    assert_eq!(shapes.regrouped(OperatorsBy::Operator).rows, found.rows);
}

#[test]
fn operators_have_their_shapes_modules_and_functions() {
    let shapes = of_rows(&linear(), OperatorsBy::Shapes);
    assert_eq!(row(&shapes, "aten::addmm").shapes.replace(' ', ""), "[[64],[32,128],[128,64],[],[]]");
    assert_eq!(row(&of_rows(&linear(), OperatorsBy::Module), "aten::linear").place, "Linear_0");
    let line = of_rows(&linear(), OperatorsBy::Line);
    assert_eq!(row(&line, "aten::addmm").place, "train.py:7 (step)");
    assert_eq!(row(&line, "aten::addmm").own_host_ns, 30_000, "functions have no time of their own");
}

#[test]
fn backward_operators_are_in_the_module_and_function_of_their_forward_operator() {
    let file = fixture("transformer.kineto.json.gz");
    for by in [OperatorsBy::Module, OperatorsBy::Line] {
        let found = operators(&file, by);
        assert_eq!(found.unjoined, 0);
        let calls = |name: &str| -> BTreeMap<_, _> {
            let rows = found.rows.iter().filter(|row| row.name == name);
            rows.map(|row| (&*row.place, row.calls)).collect()
        };
        for (forward, backward) in
            [("aten::addmm", "AddmmBackward0"), ("aten::native_layer_norm", "NativeLayerNormBackward0")]
        {
            assert_eq!(calls(forward), calls(backward), "{by:?}");
            assert!(!calls(forward).is_empty() && !calls(forward).contains_key(""), "{by:?}");
        }
        // What has none is of the optimizer.
        let placed: u64 = found.rows.iter().filter(|row| !row.place.is_empty()).map(|row| row.own_device_ns).sum();
        assert!(placed * 20 > found.device_ns * 19, "{by:?}: {placed} of {}", found.device_ns);
        let mut sums: FxHashMap<&str, [u64; 5]> = FxHashMap::default();
        let of = |row: &OperatorRow| [row.calls, row.host_ns, row.own_host_ns, row.device_ns, row.own_device_ns];
        for row in &found.rows {
            let sum = sums.entry(&row.name).or_default();
            *sum = std::array::from_fn(|at| sum[at] + of(row)[at]);
        }
        let all = operators(&file, OperatorsBy::Operator);
        assert_eq!(sums, all.rows.iter().map(|row| (&*row.name, of(row))).collect(), "{by:?}");
    }
}

/// An operator of 5 us with a sequence number, which was counted by the thread of PyTorch's number `counted_by`.
fn numbered(name: &str, (process, thread, start): (u32, u32, u32), number: Value, counted_by: u32) -> Value {
    json!({"ph": "X", "cat": "cpu_op", "name": name, "pid": process, "tid": thread, "ts": start, "dur": 5,
        "args": {"Sequence number": number, "Fwd thread id": counted_by}})
}

/// An arrow from a forward to a backward operator: thread and start of both.
fn arrow(id: u32, process: u32, from: (u32, u32), to: (u32, u32)) -> [Value; 2] {
    [("s", from), ("f", to)].map(|(phase, (thread, at))| {
        json!({"ph": phase, "id": id, "pid": process, "tid": thread, "ts": at, "cat": "fwdbwd", "name": "fwdbwd"})
    })
}

/// Calls of the function of a backward node by place.
fn places(operators: &Operators) -> BTreeMap<&str, u64> {
    operators.rows.iter().filter(|row| row.name == "AddmmBackward0").map(|row| (&*row.place, row.calls)).collect()
}

#[test]
fn nodes_of_the_backward_pass_without_a_forward_operator_are_counted() {
    let mut rows = linear();
    let backward = |start: u32, number: Value| numbered("AddmmBackward0", (1, 43, start), number, 1);
    rows[5]["args"]["Sequence number"] = json!(9);
    let all = rows.as_array_mut().unwrap();
    all.extend([(201, json!(9)), (210, json!(8)), (220, json!("x"))].map(|(start, number)| backward(start, number)));
    all.extend(arrow(1, 1, (42, 20), (43, 201)));
    // Operators that begin together keep their numbers.
    all.extend([numbered("aten::t", (1, 42, 20), json!(10), 0), backward(230, json!(10))]);
    all.push(json!({"ph": "X", "cat": "user_annotation", "name": "around", "pid": 1, "tid": 43, "ts": 201, "dur": 8}));
    // The engine's operator of the node that cannot be joined.
    let mut engine = numbered("autograd::engine::evaluate_function: AddmmBackward0", (1, 43, 209), json!(8), 1);
    engine["dur"] = json!(8);
    all.push(engine);
    let found = of_rows(&rows, OperatorsBy::Module);
    assert_eq!((places(&found), found.unjoined), (BTreeMap::from([("", 2), ("Linear_0", 2)]), 1));
    assert_eq!(row(&found, "around").place, "");
    let text = found.table(5, Style::default()).split_whitespace().collect::<Vec<_>>().join(" ");
    let expected =
        "1 node of the backward pass could not be joined with a forward operator, and so not with its module.";
    assert!(text.contains(expected), "{text}");
    assert_eq!(of_rows(&rows, OperatorsBy::Operator).unjoined, 0);
}

#[test]
fn sequence_numbers_are_those_of_a_thread_and_a_process() {
    let mut rows = linear();
    rows[5]["args"]["Sequence number"] = json!(9);
    let all = rows.as_array_mut().unwrap();
    let module = |name: &str, (process, thread, start): (u32, u32, u32)| json!({"ph": "X", "cat": "python_function", "name": format!("nn.Module: {name}"), "pid": process, "tid": thread, "ts": start, "dur": 20});
    // A checkpoint: the forward pass again, on the thread of the backward one, which counts too.
    all.push(module("Recomputed_1", (1, 43, 300)));
    all.extend([(305, 9), (312, 8)].map(|(at, number)| numbered("aten::addmm", (1, 43, at), json!(number), 0)));
    // Number 8 of the first thread was not recorded.
    all.extend(
        [(330, 9, 2), (340, 8, 2), (350, 9, 1), (360, 8, 1)]
            .map(|(at, number, counted_by)| numbered("AddmmBackward0", (1, 43, at), json!(number), counted_by)),
    );
    all.extend(arrow(1, 1, (43, 305), (43, 330)));
    all.extend(arrow(2, 1, (42, 20), (43, 350)));
    // Without an arrow it is not known which thread counted.
    all.push(numbered("AddmmBackward0", (1, 43, 370), json!(9), 3));
    all.push(module("Other_2", (2, 42, 0)));
    all.push(numbered("aten::addmm", (2, 42, 10), json!(9), 0));
    all.push(numbered("AddmmBackward0", (2, 43, 400), json!(9), 1));
    all.extend(arrow(1, 2, (42, 10), (43, 400)));
    all.push(
        json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 2, "tid": 42, "ts": 12, "dur": 1,
        "args": {"correlation": 5, "cbid": 211}}),
    );
    let found = of_rows(&rows, OperatorsBy::Module);
    let expected = BTreeMap::from([("", 2), ("Linear_0", 1), ("Other_2", 1), ("Recomputed_1", 2)]);
    assert_eq!((places(&found), found.unjoined), (expected, 2));
}

#[test]
fn ranges_of_pytorch_are_operators_and_a_program_without_any_gets_guesses() {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures/traces");
    let found = operators(&traces.join("hf_nvtx.gpuwhy"), OperatorsBy::Operator);
    assert_eq!(found.source, OperatorSource::Ranges);
    let of = row(&found, "aten::addmm");
    assert_eq!(of.calls % 150, 0, "a training of 150 steps");
    assert!(of.own_host_ns < of.host_ns && of.own_device_ns < of.device_ns, "it copies its bias: {of:?}");
    let own: u64 = found.rows.iter().map(|row| row.own_device_ns).sum();
    assert_eq!(own + found.outside_ns, found.device_ns, "each kernel is of one operator");
    let guessed = operators(&traces.join("graph_inference.gpuwhy"), OperatorsBy::Operator);
    assert_eq!(guessed.source, OperatorSource::Kernels);
    let table = |of: &Operators| of.table(5, Style::default()).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(table(&guessed).contains("These are guesses") && table(&guessed).contains("gpuwhy run --pytorch"));
    assert!(row(&guessed, "at::native::silu_kernel").calls > 0);
    let other = operators(&traces.join("graph_jax.gpuwhy"), OperatorsBy::Operator);
    assert!(!other.rows.is_empty() && !table(&other).contains("--pytorch"), "{}", table(&other));
    let without_lines = operators(&traces.join("hf_nvtx.gpuwhy"), OperatorsBy::Line);
    assert_eq!((without_lines.source, without_lines.rows.len()), (OperatorSource::Ranges, found.rows.len()));
    assert!(table(&without_lines).contains("No function was recorded: torch.profiler does that with with_stack=True."));
}

#[test]
fn the_command_has_rows_by_what_was_asked_for() {
    let (_folder, file) = written(&linear());
    let page = Command::new(GPUWHY).args(["report", "--operators=module", "--html", "-"]).arg(&file).output().unwrap();
    assert!(String::from_utf8_lossy(&page.stdout).contains("Linear_0 / aten::addmm"), "{}", stderr(&page));
    let missing = Command::new(GPUWHY).args(["report", "--operators", "shapes"]).arg(&file).output().unwrap();
    assert!(stderr(&missing).contains("write --operators=shapes"), "{}", stderr(&missing));
}

#[test]
fn ranges_in_a_file_of_nsys_lose_the_numbers_in_their_names() {
    let trace = fixture("resnet_inference.gpuwhy");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.sqlite");
    let exported =
        Command::new(GPUWHY).args(["export", "--to", "sqlite", "-o"]).arg(&file).arg(&trace).output().unwrap();
    assert!(exported.status.success(), "{}", stderr(&exported));
    // nsys writes the texts as PyTorch does: with numbers, in the row or in another table.
    let database = Connection::open(&file).unwrap();
    database
        .execute_batch(
            "UPDATE NVTX_EVENTS SET uint64Value = NULL, text = (
                 SELECT CASE instr(value, ', sizes = ') WHEN 0 THEN value || ', seq = ' || n.rowid
                     ELSE replace(value, ', sizes = ', ', seq = ' || n.rowid || ', op_id = 7, sizes = ') END
                 FROM StringIds WHERE id = n.textId)
             FROM NVTX_EVENTS AS n WHERE n.rowid = NVTX_EVENTS.rowid AND n.uint64Value IS NOT NULL;
             INSERT INTO StringIds SELECT 99000000 + rowid, text FROM NVTX_EVENTS WHERE text IS NOT NULL AND rowid % 2;
             UPDATE NVTX_EVENTS SET textId = CASE rowid % 2 WHEN 1 THEN 99000000 + rowid END,
                 text = CASE rowid % 2 WHEN 0 THEN text END WHERE text IS NOT NULL;",
        )
        .unwrap();
    let sums = |of: Operators| -> FxHashMap<_, _> {
        of.rows.into_iter().map(|row| ((row.name, row.shapes), (row.calls, row.flops))).collect()
    };
    let [before, after] = [&trace, &file].map(|file| operators(file, OperatorsBy::Shapes));
    assert_eq!(after.source, OperatorSource::Ranges);
    assert!(sums(before.clone()).len() > 20 && sums(before) == sums(after.clone()), "{:?}", after.rows);
}

/// `key_averages()` of a fixture: microseconds by name and shapes.
fn averages(program: &str, by: &str) -> FxHashMap<(String, String), Value> {
    let packed = fs::read(fixture("averages.json.gz")).unwrap();
    let all: Value = serde_json::from_reader(flate2::read::GzDecoder::new(&packed[..])).unwrap();
    let mut rows = FxHashMap::default();
    for row in all[program][by].as_array().unwrap() {
        let name = row["key"].as_str().unwrap();
        // Rows of CUDA's own functions, such as cudaLaunchKernel.
        let is_call = name.starts_with("cu") && name[2..].trim_start_matches("da").starts_with(char::is_uppercase);
        // Allocations outside of operators.
        if !is_call && name != "[memory]" {
            let shapes = row["shapes"].as_array().filter(|shapes| !shapes.is_empty());
            let shapes = shapes.map(|shapes| json!(shapes).to_string()).unwrap_or_default();
            rows.insert((name.to_owned(), shapes), row.clone());
        }
    }
    rows
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fixtures/operators").join(name)
}

/// Shapes as `key_averages()` has them: nothing if the operator has no inputs.
fn key(row: &OperatorRow) -> (String, String) {
    let shapes = row.shapes.replace(' ', "");
    (row.name.clone(), if shapes == "[]" { String::new() } else { shapes })
}

/// PyTorch takes CUPTI's allocation of a buffer for a call in the operator, which launched its work once more.
const OVERHEAD: &str = "Activity Buffer Request";

#[test]
fn operators_of_torch_profiler_equal_its_key_averages() {
    for program in ["resnet_training", "resnet_inference", "transformer"] {
        for (by, list) in [(OperatorsBy::Operator, "operators"), (OperatorsBy::Shapes, "shapes")] {
            let ours = operators(&fixture(&format!("{program}.kineto.json.gz")), by);
            let mut theirs = averages(program, list);
            let overhead = theirs.remove(&(OVERHEAD.to_owned(), String::new())).unwrap();
            let nanos = |row: &Value, field: &str| (row[field].as_f64().unwrap() * 1_000.0).round() as u64;
            assert_eq!(ours.rows.len(), theirs.len(), "{program} {list}");
            let (mut longer, mut launched_twice) = (0, Vec::new());
            for row in &ours.rows {
                let of = theirs.get(&key(row)).unwrap_or_else(|| panic!("{program} {list}: {row:?}"));
                let exact = [of["count"].as_i64(), of["device_memory_usage"].as_i64(), of["flops"].as_i64()];
                let flops = row.flops.unwrap_or(0) as i64;
                assert_eq!(exact.map(Option::unwrap), [row.calls as i64, row.memory_bytes.unwrap(), flops], "{row:?}");
                assert_eq!(row.host_ns, nanos(of, "cpu_time_total"), "{row:?}");
                assert_eq!(row.own_device_ns, nanos(of, "self_device_time_total"), "{row:?}");
                longer += row.own_host_ns - nanos(of, "self_cpu_time_total");
                if row.device_ns != nanos(of, "device_time_total") {
                    let once = nanos(of, "device_time_total") - nanos(&overhead, "device_time_total");
                    assert_eq!(row.device_ns, once, "{row:?}");
                    launched_twice.push(&*row.name);
                }
            }
            assert_eq!(longer, nanos(&overhead, "self_cpu_time_total"), "{program} {list}");
            launched_twice.sort_unstable();
            assert_eq!(launched_twice, ["aten::_to_copy", "aten::copy_", "aten::to"], "{program} {list}");
        }
    }
}

#[test]
fn operators_of_ranges_agree_with_key_averages_of_another_run() {
    for program in ["resnet_training", "resnet_inference", "transformer"] {
        let ours = operators(&fixture(&format!("{program}.gpuwhy")), OperatorsBy::Operator);
        let mut theirs = averages(program, "operators");
        theirs.remove(&(OVERHEAD.to_owned(), String::new()));
        assert_eq!((ours.rows.len(), ours.outside_ns), (theirs.len(), 0), "{program}");
        let (mut host, mut device) = ([0.0; 2], [0.0; 2]);
        for row in &ours.rows {
            let of = &theirs[&key(row)];
            assert_eq!(Some(row.calls), of["count"].as_u64(), "{program}: {row:?}");
            let micros = |field: &str| of[field].as_f64().unwrap();
            let own = [row.own_device_ns as f64 / 1_000.0, micros("self_device_time_total")];
            assert!((own[0] - own[1]).abs() <= 0.2 * own[1] + 2.0 * row.calls as f64, "{program}: {own:?}, {row:?}");
            device = [device[0] + own[0], device[1] + own[1]];
            host = [host[0] + row.host_ns as f64 / 1_000.0, host[1] + micros("cpu_time_total")];
        }
        let [device, host] = [device, host].map(|[ours, theirs]| ours / theirs);
        assert!((0.97..1.03).contains(&device), "{program}: {device}");
        // Each made the steps of these programs 1.4 to 1.6 times as long.
        assert!((0.67..1.5).contains(&host), "{program}: {host}");
    }
}
