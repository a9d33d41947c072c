//! The lines of JSON: as many of each kind as there were records.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::stderr;
use crate::{gpuprof, play};

#[test]
fn every_record_is_a_line_and_names_are_written_out() {
    let stage = play("copy_pageable");
    let (trace, out) = (stage.path("trace.gpuprof"), stage.path("out.jsonl"));
    let output = gpuprof(&[&"export", &"--to", &"json", &trace, &"-o", &out]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = std::fs::read_to_string(&out).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for line in &lines {
        *kinds.entry(line["kind"].as_str().unwrap()).or_default() += 1;
    }
    let records = &stage.report()["completeness"]["records"];
    for (kind, name) in [("kernel", "kernels"), ("copy", "copies"), ("call", "api_calls"), ("overhead", "overheads")] {
        assert_eq!(kinds.get(kind).copied().unwrap_or(0), records[name].as_u64().unwrap(), "{kind}: {records}");
    }
    assert_eq!((&lines[0]["kind"], &lines[lines.len() - 1]["kind"]), (&Value::from("session"), &Value::from("end")));
    let copy = lines.iter().find(|line| line["kind"] == "copy").unwrap();
    assert_eq!((&copy["direction"], &copy["source"]), (&Value::from("host_to_device"), &Value::from("pageable")));
    assert!(lines.iter().any(|line| line["name"].as_str().is_some_and(|name| name.starts_with("cudaLaunchKernel"))));
}
