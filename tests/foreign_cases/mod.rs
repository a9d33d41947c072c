//! Files of other profilers, as users have them: `testing/fixtures/foreign/README.md` says what each one is.

mod kineto;
mod nsys;

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{GPUWHY, stderr};

fn file(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/testing/fixtures/foreign")).join(name)
}

/// Values of the plan that the file was made from.
fn truth(name: &str) -> Value {
    let all: Value = serde_json::from_str(&std::fs::read_to_string(file("truth.json")).unwrap()).unwrap();
    all[name].clone()
}

/// `gpuwhy VERB ARGUMENTS FILE`.
fn gpuwhy(verb: &str, arguments: &[&str], name: &str) -> Output {
    Command::new(GPUWHY).arg(verb).args(arguments).arg(file(name)).output().unwrap()
}

/// The report of the default screen, and its exit code.
fn text(name: &str) -> (i32, String) {
    let output = gpuwhy("report", &[], name);
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output))
}

/// The report as JSON.
fn json(name: &str) -> Value {
    let output = gpuwhy("report", &["--json"], name);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{name}: {error}: {}", stderr(&output)))
}

/// Sum of the times of all kernels, microseconds.
fn kernel_micros(report: &Value) -> f64 {
    let devices = report["devices"].as_array().unwrap();
    let kernels = devices.iter().flat_map(|device| device["kernels"].as_array().unwrap());
    kernels.map(|kernel| kernel["total_ns"].as_f64().unwrap() / 1e3).sum()
}

/// Share of the time of all devices, 0 to 1, in leaves for which `wanted` holds.
fn share(report: &Value, wanted: &dyn Fn(&str) -> bool) -> f64 {
    let devices = report["devices"].as_array().unwrap();
    let leaves = || devices.iter().flat_map(|device| device["leaves"].as_object().unwrap());
    let sum = |wanted: &dyn Fn(&str) -> bool| {
        leaves().filter(|(leaf, _)| wanted(leaf)).map(|(_, nanos)| nanos.as_f64().unwrap()).sum::<f64>()
    };
    sum(wanted) / sum(&|_| true)
}

/// Kernels and the sum of their times are those of the plan.
fn has_its_kernels(name: &str) {
    let (report, truth) = (json(name), truth(name));
    assert_eq!(report["completeness"]["records"]["kernels"], truth["kernels"], "{name}");
    if let Some(micros) = truth["kernel_us"].as_f64() {
        assert!((kernel_micros(&report) - micros).abs() < 0.5, "{name}: {} of {micros} us", kernel_micros(&report));
    }
}

/// Time with work on a device of the report, microseconds.
fn busy_us(name: &str, device: usize) -> f64 {
    let report = json(name);
    let leaves = report["devices"][device]["leaves"].as_object().unwrap();
    let is_busy = |leaf: &str| leaf.starts_with("copy_") || matches!(leaf, "compute" | "communication" | "memset");
    leaves.iter().filter(|(leaf, _)| is_busy(leaf)).map(|(_, nanos)| nanos.as_f64().unwrap()).sum::<f64>() / 1e3
}
