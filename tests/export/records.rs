//! The lines of JSON: the number of each kind equals the number of records.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{gpuwhy, hta, play};
use crate::support::stderr;

#[test]
fn every_record_is_a_line_and_names_are_written_out() {
    let stage = play("copy_pageable");
    let (trace, out) = (stage.path("trace.gpuwhy"), stage.path("out.jsonl"));
    let output = gpuwhy(&[&"export", &"--to", &"json", &trace, &"-o", &out]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = std::fs::read_to_string(&out).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for line in &lines {
        *kinds.entry(line["table"].as_str().unwrap()).or_default() += 1;
    }
    let records = &stage.report()["completeness"]["records"];
    for (kind, name) in [("kernels", "kernels"), ("copies", "copies"), ("api", "api_calls"), ("overheads", "overheads")]
    {
        assert_eq!(kinds.get(kind).copied().unwrap_or(0), records[name].as_u64().unwrap(), "{kind}: {records}");
    }
    assert_eq!((&lines[0]["table"], &lines[lines.len() - 1]["table"]), (&Value::from("session"), &Value::from("end")));
    let copy = lines.iter().find(|line| line["table"] == "copies").unwrap();
    assert_eq!((&copy["direction"], &copy["source"]), (&Value::from("host_to_device"), &Value::from("pageable")));
    assert!(lines.iter().any(|line| line["name"].as_str().is_some_and(|name| name.starts_with("cudaLaunchKernel"))));
}

#[test]
fn a_interval_holds_what_overlaps_it_with_its_launches_and_whole_ranges() {
    let stage = play("multi_stream");
    let (trace, _) = hta::annotated(&stage);
    let exported = |out: &str, filter: &[&str]| -> Vec<Value> {
        let out = stage.path(out);
        let mut arguments: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"export", &"--to", &"json", &trace, &"-o", &out];
        filter.iter().for_each(|argument| arguments.push(argument));
        let output = gpuwhy(&arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let text = std::fs::read_to_string(&out).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let whole = exported("whole.jsonl", &[]);
    let begin = whole[0]["start_ns"].as_u64().unwrap();
    let (from, to) = (begin + 400_000_000, begin + 900_000_000);
    let part = exported("part.jsonl", &["--filter-time", "400ms/900ms"]);
    assert_eq!(part[0]["start_ns"], begin, "times are those of the whole trace");
    let of = |lines: &[Value], kind: &str| -> Vec<Value> {
        lines.iter().filter(|line| line["table"] == kind).cloned().collect()
    };
    let number = |line: &Value, name: &str| line[name].as_u64().unwrap();
    let overlaps = |line: &Value| number(line, "start_ns") <= to && number(line, "end_ns") >= from;
    let kernels = of(&part, "kernels");
    assert!(!kernels.is_empty() && kernels.len() < of(&whole, "kernels").len());
    assert_eq!(kernels, of(&whole, "kernels").into_iter().filter(overlaps).collect::<Vec<_>>());
    let launched: BTreeSet<u64> = kernels.iter().map(|line| number(line, "correlation")).collect();
    let wanted: Vec<Value> = of(&whole, "api")
        .into_iter()
        .filter(|line| overlaps(line) || launched.contains(&number(line, "correlation")))
        .collect();
    assert_eq!(of(&part, "api").len(), wanted.len(), "this program has no copies");
    let ranges = of(&part, "nvtx");
    assert!(!ranges.is_empty() && ranges.len() < of(&whole, "nvtx").len());
    assert!(ranges.iter().all(|line| line["ended"] == true), "ranges are whole");
    assert!(ranges.iter().all(|line| of(&whole, "nvtx").contains(line)));

    let name = ranges.iter().find(|line| line["kind"] == "push").map(|line| {
        let (message, domain) = (line["text"].as_str().unwrap(), line["domain"].as_str().unwrap());
        if domain.is_empty() { message.to_owned() } else { format!("{message}@{domain}") }
    });
    let within = exported("range.jsonl", &["--filter-nvtx", &name.unwrap()]);
    let fewer = of(&within, "kernels").len();
    assert!(fewer > 0 && fewer < of(&whole, "kernels").len(), "{fewer}");
    let output = gpuwhy(&[&"export", &"--to", &"json", &trace, &"--filter-nvtx", &"no such range"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("it has no such range"), "{}", stderr(&output));
}
