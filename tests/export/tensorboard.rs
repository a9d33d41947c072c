//! The TensorBoard plugin of the PyTorch profiler loads the output of `gpuwhy export --to chrome`: its
//! kernels and steps equal ours.
//!
//! Its last release (0.4.3) searches for calls under a name that the PyTorch profiler no longer uses, so its
//! runtime part stays empty, as with PyTorch's own traces.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{gpuwhy, hta, play, python, rows};
use crate::support::stderr;

#[test]
fn the_plugin_finds_our_kernels_and_steps() {
    let stage = play("multi_stream");
    let (trace, steps) = hta::annotated(&stage);
    let out = stage.path("rank.pt.trace.json");
    let output = gpuwhy(&[&"export", &"--to", &"chrome", &"--step-range", &"step", &trace, &"-o", &out]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let Some(found) = python::answered("tensorboard", "load.py", &[&out]) else { return };
    assert_eq!(found["has"], json!({"kernel": true, "memory": true}));

    let document: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    let mut kernels: BTreeMap<&str, (u64, f64)> = BTreeMap::new();
    for row in rows(&document, "kernel") {
        let sum = kernels.entry(row["name"].as_str().unwrap()).or_default();
        *sum = (sum.0 + 1, sum.1 + row["dur"].as_f64().unwrap());
    }
    assert_eq!(found["kernels"].as_object().unwrap().len(), kernels.len());
    for (name, (count, total)) in kernels {
        let theirs = &found["kernels"][name];
        assert_eq!(theirs[0], count, "{name}");
        assert!((theirs[1].as_f64().unwrap() - total).abs() < 1.0, "{name}: {theirs}, {total} us");
    }
    // Without calls it cannot move the ends of steps to the device: they stay at the ends of the ranges.
    let named: Vec<String> = (0..steps).map(|step| step.to_string()).collect();
    assert_eq!(found["steps_names"], json!(named));
    let ranges: f64 = rows(&document, "user_annotation")
        .filter(|row| row["name"].as_str().unwrap().starts_with("ProfilerStep#"))
        .map(|row| row["dur"].as_f64().unwrap())
        .sum();
    let total: f64 = found["steps"].as_array().unwrap().iter().map(|step| step["total"].as_f64().unwrap()).sum();
    assert!((total - ranges).abs() < 1.0, "{total} of {ranges} us");
}
