//! Minimal reader of the PyTorch profiler's JSON for the engine's parts: calls, device operations, step marks
//! and the data loader's ranges.
//!
//! The traces are not part of the project: `GPUWHY_REFERENCE_TRACES` names their folder, and without them the
//! tests print `SKIPPED` and pass.
#![allow(dead_code)]

use std::collections::HashMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::path::PathBuf;

use flate2::read::GzDecoder;
use gpuwhy_trace::record::{CorrelationId, DeviceId, StreamId, ThreadId};
use profiler_core::api::ApiClass;
use profiler_core::attribution::is_communication;
use profiler_core::whatif::{Call, LaunchedBy, Operation, OperationClass};
use serde_json::Value;

#[derive(Default)]
pub struct Trace {
    pub calls: Vec<Call>,
    pub operations: Vec<Operation>,
    /// Symbol of each operation, equal for the same name and grid.
    pub symbols: Vec<u32>,
    /// Host times at which steps start.
    pub steps: Vec<u64>,
    pub inputs: Vec<(ThreadId, u64, u64)>,
}

fn number(value: &Value) -> Option<u32> {
    let text = || value.as_str()?.rsplit(' ').next()?.parse().ok();
    value.as_u64().and_then(|number| u32::try_from(number).ok()).or_else(text)
}

/// `None` without the file; panics if it cannot be read.
pub fn load(name: &str) -> Option<Trace> {
    let folder = std::env::var_os("GPUWHY_REFERENCE_TRACES")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/kineto"), PathBuf::from);
    let Ok(file) = File::open(folder.join(format!("{name}.json.gz"))) else {
        println!("SKIPPED: {name}: no such reference trace");
        return None;
    };
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).expect("a compressed trace");
    let json: Value = serde_json::from_str(&text).expect("a JSON trace");
    let events = json["traceEvents"].as_array().expect("a list of events");
    let spans = || events.iter().filter(|event| event["ph"] == "X");
    let first = spans().filter_map(|event| event["ts"].as_f64()).fold(f64::INFINITY, f64::min);
    let mut trace = Trace::default();
    for event in spans() {
        let (Some(at), Some(name)) = (event["ts"].as_f64(), event["name"].as_str()) else { continue };
        // Offset of one second, so that no time is 0.
        let start = 1_000_000_000 + ((at - first) * 1e3).round() as u64;
        let end = start + (event["dur"].as_f64().unwrap_or(0.0) * 1e3).round() as u64;
        let arguments = &event["args"];
        let correlation = CorrelationId(number(&arguments["correlation"]).unwrap_or(0));
        let category = event["cat"].as_str().unwrap_or("").to_lowercase();
        match category.as_str() {
            "kernel" | "gpu_memcpy" | "gpu_memset" | "memcpy" | "memset" => {
                let class = match category.trim_start_matches("gpu_") {
                    "memset" => OperationClass::Memset,
                    "memcpy" if name.contains("HtoD") => OperationClass::CopyFromHost,
                    "memcpy" => OperationClass::CopyOther,
                    _ if is_communication(name) => OperationClass::Communication,
                    _ => OperationClass::Compute,
                };
                let mut symbol = DefaultHasher::new();
                (name, arguments["grid"].to_string()).hash(&mut symbol);
                trace.symbols.push(symbol.finish() as u32);
                trace.operations.push(Operation {
                    start,
                    end,
                    device: DeviceId(number(&arguments["device"]).unwrap_or(0)),
                    stream: StreamId(number(&arguments["stream"]).unwrap_or(0)),
                    class,
                    launch: Some(LaunchedBy { correlation, start: 0 }),
                    excess: 0,
                    tracing_ns: 0,
                    node: false,
                    bytes: 0,
                    kernel: 0,
                });
            }
            "runtime" | "cuda_runtime" | "cuda_driver" | "driver" => {
                let thread = ThreadId(number(&event["tid"]).unwrap_or(0));
                trace.calls.push(Call {
                    thread,
                    start,
                    end,
                    class: ApiClass::of(name).into(),
                    correlation,
                    tracing_ns: 0,
                });
            }
            "gpu_user_annotation" => {}
            _ if name.starts_with("ProfilerStep") => trace.steps.push(start),
            _ if name.starts_with("enumerate(Data") => {
                trace.inputs.push((ThreadId(number(&event["tid"]).unwrap_or(0)), start, end));
            }
            _ => {}
        }
    }
    let entries: HashMap<CorrelationId, u64> = trace.calls.iter().map(|call| (call.correlation, call.start)).collect();
    for operation in &mut trace.operations {
        operation.launch = operation.launch.and_then(|launch| {
            let start = *entries.get(&launch.correlation)?;
            Some(LaunchedBy { start, ..launch })
        });
    }
    trace.steps.sort_unstable();
    trace.inputs.sort_by_key(|&(_, start, _)| start);
    Some(trace)
}
