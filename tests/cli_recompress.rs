//! `gpuwhy export --to gpuwhy`: the copy has the same data, is smaller, and no file is overwritten and no
//! damage hidden.

use std::fs;
use std::process::{Command, Output};

use crate::support::{GPUWHY, Stage, report, stderr};

fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

#[test]
fn the_copy_of_a_recorded_session_gives_the_same_report_in_fewer_bytes() {
    let stage = Stage::new();
    succeeds(&mut stage.host("graph_torch"));
    let (trace, copy) = (stage.path("trace.gpuwhy"), stage.path("copy.gpuwhy"));
    succeeds(Command::new(GPUWHY).args(["export", "--to", "gpuwhy"]).arg(&trace).arg("-o").arg(&copy));
    let json = |file| serde_json::to_string(&report(file).1).unwrap();
    assert_eq!(json(&trace), json(&copy));
    let bytes = |file| fs::metadata(file).unwrap().len();
    assert!(bytes(&copy) * 10 < bytes(&trace) * 9, "{} and {} bytes", bytes(&copy), bytes(&trace));

    let sizes = succeeds(Command::new(GPUWHY).args(["export", "--sizes"]).arg(&trace));
    let table = String::from_utf8(sizes.stdout).unwrap();
    let kernels = table.lines().find(|line| line.starts_with("kernels")).unwrap();
    let columns: Vec<&str> = kernels.split_whitespace().collect();
    assert_eq!(columns[1], "20043", "{table}");
    let each: Vec<f64> = columns[2..].iter().map(|each| each.parse().unwrap()).collect();
    // Size targets for kernels.
    assert!(each[0] < 2.5 && each[1] < each[0], "{table}");
}

#[test]
fn files_that_exist_and_damaged_traces_are_left_alone() {
    let stage = Stage::new();
    succeeds(&mut stage.host("copy_pageable"));
    let (trace, copy) = (stage.path("trace.gpuwhy"), stage.path("copy.gpuwhy"));
    fs::write(&copy, "precious").unwrap();
    let compact =
        || Command::new(GPUWHY).args(["export", "--to", "gpuwhy"]).arg(&trace).arg("-o").arg(&copy).output().unwrap();
    let refused = compact();
    assert_eq!((refused.status.code(), fs::read(&copy).unwrap()), (Some(2), b"precious".to_vec()));

    fs::remove_file(&copy).unwrap();
    let mut bytes = fs::read(&trace).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&trace, bytes).unwrap();
    let refused = compact();
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("trace.gpuwhy: not compacted"), "{}", stderr(&refused));
    assert!(!copy.exists());
}

#[test]
fn what_other_profilers_wrote_becomes_a_trace() {
    let stage = Stage::new();
    succeeds(&mut stage.host("copy_pageable"));
    let (trace, json, copy) = (stage.path("trace.gpuwhy"), stage.path("torch.json"), stage.path("copy.gpuwhy"));
    succeeds(Command::new(GPUWHY).args(["export", "--to", "chrome"]).arg(trace).arg("-o").arg(&json));
    succeeds(Command::new(GPUWHY).args(["export", "--to", "gpuwhy"]).arg(&json).arg("-o").arg(&copy));
    let kernels = |file| {
        let stats = ["query", "cuda_gpu_kern_sum", "--format", "json"];
        succeeds(Command::new(GPUWHY).args(stats).arg(file)).stdout
    };
    assert!(fs::read(&copy).unwrap().starts_with(b"\x89GPT"));
    assert_eq!(kernels(&json), kernels(&copy));
}

#[test]
fn a_packed_trace_is_read() {
    let stage = Stage::new();
    succeeds(&mut stage.host("copy_pageable"));
    succeeds(Command::new("gzip").arg("-k").arg(stage.path("trace.gpuwhy")));
    let (trace, packed) = (stage.path("trace.gpuwhy"), stage.path("trace.gpuwhy.gz"));
    let compact = |trace, copy: &str| {
        succeeds(Command::new(GPUWHY).args(["export", "--to", "gpuwhy"]).arg(trace).arg("-o").arg(stage.path(copy)));
        fs::read(stage.path(copy)).unwrap()
    };
    assert_eq!(compact(&trace, "a.gpuwhy"), compact(&packed, "b.gpuwhy"));
    let sizes = |trace| succeeds(Command::new(GPUWHY).args(["export", "--sizes"]).arg(trace)).stdout;
    assert_eq!(sizes(&trace), sizes(&packed));
}
