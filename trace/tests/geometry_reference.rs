//! Occupancy and SM efficiency compared with the values of PyTorch's profiler in public traces of V100 and
//! A100 runs, kernel by kernel, and with the totals shown by its TensorBoard plugin for two of them.
//!
//! The traces are not part of the repository: `GPUWHY_REFERENCE_TRACES` is the path of their folder.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use gpuwhy_trace::geometry::{Geometry, Multiprocessors};
use gpuwhy_trace::record::{Device, LaunchConfig};
use serde_json::Value;

struct Kernel {
    start_us: f64,
    end_us: f64,
    geometry: Geometry,
    /// Percent, rounded, as written by the profiler.
    recorded_occupancy: u64,
    shared_bytes: u32,
}

struct Trace {
    kernels: Vec<Kernel>,
    /// Start and end, microseconds.
    steps: Vec<(f64, f64)>,
}

fn folder() -> PathBuf {
    std::env::var_os("GPUWHY_REFERENCE_TRACES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/kineto"), PathBuf::from)
}

/// Returns `None` and prints a message if the trace does not exist.
fn read(name: &str) -> Option<Trace> {
    let path = folder().join(format!("{name}.json.gz"));
    let Ok(file) = File::open(&path) else {
        println!("SKIPPED: no {name}.json.gz in the folder of reference traces");
        return None;
    };
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let root: Value = serde_json::from_str(&text).unwrap();
    let devices: Vec<_> = root["deviceProperties"].as_array().unwrap().iter().map(device).collect();
    let events = root["traceEvents"].as_array().unwrap();
    let of = |event: &Value, category: &str| {
        event["cat"].as_str().is_some_and(|name| name.eq_ignore_ascii_case(category)) && event["ph"] == "X"
    };
    let kernels = events.iter().filter(|event| of(event, "kernel")).map(|event| kernel(event, &devices)).collect();
    let steps = events
        .iter()
        .filter(|event| event["ph"] == "X" && event["name"].as_str().is_some_and(|n| n.starts_with("ProfilerStep#")))
        .filter(|event| !of(event, "gpu_user_annotation"))
        .map(bounds)
        .collect();
    Some(Trace { kernels, steps })
}

fn number(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

fn bounds(event: &Value) -> (f64, f64) {
    let start = event["ts"].as_f64().unwrap();
    (start, start + event["dur"].as_f64().unwrap())
}

fn device(of: &Value) -> Multiprocessors {
    Multiprocessors::of(&Device {
        compute_capability: [number(&of["computeMajor"]), number(&of["computeMinor"])],
        multiprocessors: number(&of["numSms"]),
        threads_per_multiprocessor: number(&of["maxThreadsPerMultiprocessor"]),
        registers_per_multiprocessor: number(&of["regsPerMultiprocessor"]),
        shared_bytes_per_multiprocessor: number(&of["sharedMemPerMultiprocessor"]),
        ..Device::default()
    })
    .unwrap()
}

fn kernel(event: &Value, devices: &[Multiprocessors]) -> Kernel {
    let arguments = &event["args"];
    let dimensions = |of: &Value| [number(&of[0]), number(&of[1]), number(&of[2])];
    let config = LaunchConfig {
        grid: dimensions(&arguments["grid"]),
        block: dimensions(&arguments["block"]),
        registers_per_thread: number(&arguments["registers per thread"]) as u16,
        dynamic_shared_bytes: number(&arguments["shared memory"]),
        ..LaunchConfig::default()
    };
    let device = &devices[arguments["device"].as_u64().unwrap() as usize];
    let geometry = Geometry::of(&config, device).unwrap_or_else(|| panic!("no geometry: {event}"));
    let blocks = arguments["blocks per SM"].as_f64().unwrap();
    assert!((geometry.blocks as f64 / f64::from(device.count) - blocks).abs() <= 1e-6 * blocks.max(1.0), "{event}");
    let (start_us, end_us) = bounds(event);
    Kernel {
        start_us,
        end_us,
        geometry,
        shared_bytes: config.dynamic_shared_bytes,
        recorded_occupancy: arguments["est. achieved occupancy %"].as_u64().unwrap(),
    }
}

/// The profiler passes the default limit of 48 KiB of shared memory per block to the occupancy calculator,
/// and writes 0 for kernels that opted in to more. Agreeing with that would be wrong.
fn beyond_default_shared_memory(kernel: &Kernel) -> bool {
    kernel.shared_bytes + RESERVED_BYTES > 48 * 1024
}

/// Shared memory that an A100 reserves for every block. None of the V100 kernels comes near the limit.
const RESERVED_BYTES: u32 = 1_024;

#[test]
fn achieved_occupancy_of_every_kernel() {
    for name in [
        "resnet50_workers0",
        "resnet50_workers4",
        "hta_ns_resolution",
        "hta_nccl",
        "hta_df_index_resolver",
        "hta_trace_diff_control",
    ] {
        let Some(trace) = read(name) else { continue };
        assert!(trace.kernels.len() > 1_000);
        let mut refused = 0;
        for kernel in &trace.kernels {
            if kernel.recorded_occupancy == 0 && beyond_default_shared_memory(kernel) {
                refused += 1;
                assert!(kernel.geometry.achieved_occupancy > 0.0);
                continue;
            }
            // Percent, rounded from single precision.
            let percent = kernel.geometry.achieved_occupancy * 100.0;
            let error = (percent - kernel.recorded_occupancy as f64).abs();
            assert!(error <= 0.5001, "{name}: {:?} recorded as {} %", kernel.geometry, kernel.recorded_occupancy);
        }
        println!("{name}: {} kernels agree, {refused} not judged by the profiler", trace.kernels.len() - refused);
    }
}

#[test]
fn totals_of_the_tensorboard_plugin() {
    // The plugin computes utilization and SM efficiency over the same window, which it derives from rows that
    // are not device work; their quotient is the efficiency over kernel time. Different window edges account
    // for up to 0.2 points.
    for (name, utilization, efficiency, occupancy) in
        [("resnet50_workers0", 55.51, 54.68, 49.13), ("resnet50_workers4", 70.27, 69.22, 48.91)]
    {
        let Some(trace) = read(name) else { continue };
        let (mut busy, mut filled, mut resident) = (0.0, 0.0, 0.0);
        for &(from, to) in &trace.steps {
            for kernel in &trace.kernels {
                let within = (kernel.end_us.min(to) - kernel.start_us.max(from)).max(0.0);
                busy += within;
                filled += within * kernel.geometry.sm_efficiency;
                resident += within * kernel.geometry.achieved_occupancy;
            }
        }
        let (got_efficiency, got_occupancy) = (filled / busy * 100.0, resident / busy * 100.0);
        let expected = efficiency / utilization * 100.0;
        println!(
            "{name}: SM efficiency {got_efficiency:.2} ({expected:.2}), occupancy {got_occupancy:.2} ({occupancy})"
        );
        assert!((got_efficiency - expected).abs() < 0.2, "{name}: {got_efficiency} is not {expected}");
        assert!((got_occupancy - occupancy).abs() < 0.2, "{name}: {got_occupancy} is not {occupancy}");
    }
}
