//! Host samples for speedscope and as collapsed stacks.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::gpuwhy;
use crate::support::{Stage, stderr};

const TRACES: [&str; 3] = ["sleeper", "numpy_post", "busy_cores"];

fn trace(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testing/fixtures/traces/{name}.gpuwhy"))
}

/// The output for a trace, whose other records stderr counts.
fn exported(name: &str, format: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let output = gpuwhy(&[&"export", &"--to", &format, &trace(name), &"-o", &out]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains(" records; this format has no place for ") && said.contains(" kernels"), "{said}");
    assert!(!said.contains("host samples"), "{said}");
    fs::read_to_string(out).unwrap()
}

/// Time by thread and by innermost frame in nanoseconds, from the records themselves.
fn recorded(name: &str) -> BTreeMap<(u64, String), u64> {
    let output = gpuwhy(&[&"export", &"--to", &"json", &trace(name), &"-o", &"-"]);
    let mut times = BTreeMap::new();
    for line in
        String::from_utf8(output.stdout).unwrap().lines().filter(|line| line.contains(r#""table": "host_samples""#))
    {
        let row: Value = serde_json::from_str(line).unwrap();
        let inner = match (row["state"].as_str().unwrap(), row["function"].as_str()) {
            ("running" | "unknown", Some(function)) => function.to_owned(),
            ("running" | "unknown", None) => "[no stack]".to_owned(),
            (state, _) => format!("[{state}]"),
        };
        let time = row["at_ns"].as_u64().unwrap() - row["since_ns"].as_u64().unwrap();
        *times.entry((row["thread"].as_u64().unwrap(), inner)).or_default() += time;
    }
    assert!(times.len() > 3, "{name}");
    times
}

fn thread(name: &Value) -> u64 {
    name.as_str().unwrap().rsplit("thread ").next().unwrap().parse().unwrap()
}

/// What <https://www.speedscope.app/file-format-schema.json> requires of a file with sampled profiles.
fn check_schema(file: &Value) {
    assert_eq!(file["$schema"], "https://www.speedscope.app/file-format-schema.json");
    let frames = file["shared"]["frames"].as_array().unwrap();
    for frame in frames {
        assert!(frame["name"].is_string() && frame.get("file").is_none_or(Value::is_string), "{frame}");
        assert!(frame.get("line").is_none_or(|line| line.as_u64() > Some(0)), "{frame}");
    }
    let mut distinct: Vec<String> = frames.iter().map(Value::to_string).collect();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), frames.len(), "speedscope tells frames apart by their number");
    let profiles = file["profiles"].as_array().unwrap();
    assert!(!profiles.is_empty());
    for profile in profiles {
        assert_eq!((profile["type"].as_str(), profile["unit"].as_str()), (Some("sampled"), Some("nanoseconds")));
        assert!(profile["name"].is_string());
        let (samples, weights) = (profile["samples"].as_array().unwrap(), profile["weights"].as_array().unwrap());
        assert_eq!(samples.len(), weights.len());
        let sum: u64 = weights.iter().map(|weight| weight.as_u64().unwrap()).sum();
        assert_eq!(profile["startValue"].as_u64().unwrap() + sum, profile["endValue"].as_u64().unwrap());
        let mut numbers = samples.iter().flat_map(|stack| stack.as_array().unwrap());
        assert!(numbers.all(|number| number.as_u64().unwrap() < frames.len() as u64));
    }
}

#[test]
fn a_file_for_speedscope_has_the_stacks_of_each_thread_over_time() {
    for name in TRACES {
        let file: Value = serde_json::from_str(&exported(name, "speedscope")).unwrap();
        check_schema(&file);
        let mut times = BTreeMap::new();
        for profile in file["profiles"].as_array().unwrap() {
            let samples = profile["samples"].as_array().unwrap().iter().zip(profile["weights"].as_array().unwrap());
            for (stack, weight) in samples {
                // Before the first sample of the thread.
                let Some(inner) = stack.as_array().unwrap().last() else { continue };
                let inner = file["shared"]["frames"][inner.as_u64().unwrap() as usize]["name"].as_str().unwrap();
                *times.entry((thread(&profile["name"]), inner.to_owned())).or_default() += weight.as_u64().unwrap();
            }
        }
        assert_eq!(times, recorded(name), "{name}");
    }
}

#[test]
fn collapsed_stacks_have_the_time_of_the_samples_and_lead_to_the_sleep() {
    for name in TRACES {
        let text = exported(name, "collapsed");
        let mut times: BTreeMap<(u64, String), u64> = BTreeMap::new();
        for line in text.lines() {
            let (stack, time) = line.rsplit_once(' ').unwrap();
            let (thread, frames) = stack.split_once(';').unwrap();
            let inner = frames.rsplit(';').next().unwrap().split(" (").next().unwrap();
            *times.entry((self::thread(&thread.into()), inner.to_owned())).or_default() += time.parse::<u64>().unwrap();
        }
        assert_eq!(times, recorded(name), "{name}");
    }
    let text = exported("sleeper", "collapsed");
    let sleep = text.lines().find(|line| line.contains(";[sleep] ")).unwrap();
    assert!(sleep.contains(";<module> (") && sleep.contains("programs2.py:79);[sleep] "), "{sleep}");
}

#[test]
fn a_trace_without_samples_is_refused_with_the_way_to_record_them() {
    let stage = Stage::new();
    let status = stage.host("copy_pageable").env("GPUWHY_SAMPLING", "off").status().unwrap();
    assert!(status.success());
    let out = stage.path("out");
    for format in ["speedscope", "collapsed"] {
        let output = gpuwhy(&[&"export", &"--to", &format, &stage.path("trace.gpuwhy"), &"-o", &out]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("trace.gpuwhy") && said.contains("GPUWHY_SAMPLING=auto"), "{said}");
        assert!(!out.exists());
    }
}
