//! Untrusted bytes, on stable Rust: the functions of `testing/fuzz/targets.rs` over mutations of real files.
//!
//! Seeded and bounded, so every run is the same: `GPUWHY_MUTATIONS` sets the number of inputs for each target
//! (default 1500), in addition to the inputs that fuzzers have kept (`testing/fuzz/seeds`). An input that
//! fails is saved and named. This does not replace coverage-guided fuzzing (`testing/fuzz/`), but it can run
//! on every change.

mod mutate;
#[path = "../../testing/fuzz/targets.rs"]
mod targets;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::Stage;
use mutate::{Random, mutate, seal};
use serde_json::json;

/// Longer than this is a hang: the largest input takes some milliseconds; the rest is reserve for a busy
/// machine.
const HANGS: Duration = Duration::from_secs(60);
/// Larger files are cut to this size before mutation: the rest would be more of the same.
const LONGEST: usize = 200_000;

fn run(name: &str, own: Vec<Vec<u8>>, finish: impl Fn(&mut Vec<u8>, &mut Random), target: impl Fn(&[u8])) {
    let inputs = std::env::var("GPUWHY_MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(1500_u64);
    assert!(!own.is_empty() && own.iter().all(|bytes| !bytes.is_empty()));
    let corpus = [own, seeds(name)].concat();
    let check = |bytes: &[u8], what: &str| {
        let begun = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| target(bytes)));
        if outcome.is_err() || begun.elapsed() > HANGS {
            let file = std::env::temp_dir().join(format!("gpuwhy-hostile-{name}-{what}"));
            fs::write(&file, bytes).unwrap();
            panic!("{name}: {what} fails after {:?}: {}", begun.elapsed(), file.display());
        }
    };
    for (index, bytes) in corpus.iter().enumerate() {
        check(bytes, &format!("file-{index}"));
    }
    for seed in 0..inputs {
        let mut random = Random::new(seed);
        let mut bytes = corpus[random.below(corpus.len())].clone();
        bytes.truncate(LONGEST);
        mutate(&mut bytes, &corpus, &mut random);
        finish(&mut bytes, &mut random);
        check(&bytes, &format!("seed-{seed}"));
    }
}

/// Inputs that the fuzzers of a target have kept: those that reach code no other input reaches, and those
/// that once failed.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testing/fuzz/seeds").join(name);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

fn root(path: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Traces of recorded programs, written by libprof.so itself.
fn traces() -> Vec<Vec<u8>> {
    let played = ["copy_pageable", "multi_stream"].map(|fixture| {
        let stage = Stage::new();
        assert!(stage.host(fixture).output().unwrap().status.success());
        fs::read(stage.path("trace.gpuwhy")).unwrap()
    });
    let golden =
        ["1.0", "1.2", "1.3", "1.4", "1.5"].map(|version| root(&format!("trace/tests/golden/trace-{version}.bin")));
    played.into_iter().chain(golden).collect()
}

#[test]
fn traces_of_strangers() {
    // Half of them get correct checksums, so that the code after the checksum tests is reached.
    run(
        "trace",
        traces(),
        |bytes, random| {
            if random.below(2) == 0 {
                seal(bytes)
            }
        },
        targets::trace,
    );
}

#[test]
fn recordings_of_strangers() {
    let stage = Stage::new();
    assert!(stage.host("copy_pageable").env("GPUWHY_RAW_RECORDING", "x.cupti").output().unwrap().status.success());
    run("recording", vec![fs::read(stage.path("x.cupti")).unwrap()], |_, _| {}, targets::recording);
}

#[test]
fn activity_buffers_of_strangers() {
    // Records back to back, with the kinds at the front and noise at the end.
    let mut random = Random::new(7);
    let corpus: Vec<_> = (0..8)
        .map(|_| {
            let mut bytes = Vec::new();
            for _ in 0..50 {
                let (kind, size) =
                    [(1_u32, 96), (2, 88), (4, 40), (5, 40), (8, 200), (9, 32), (10, 216), (17, 56), (38, 48)]
                        [random.below(9)];
                bytes.extend_from_slice(&kind.to_le_bytes());
                bytes.extend((4..size).map(|_| random.below(256) as u8));
            }
            bytes
        })
        .collect();
    run("walk", corpus, |_, _| {}, targets::walk);
}

#[test]
fn commands_of_strangers() {
    let lines = "status\nwatch 100\nstart\r\nstop\nsnapshot\nwatch\nfly\n\n".repeat(5);
    let slow = [&[3, 1], lines.as_bytes()].concat();
    let deaf = [&[250, 0], lines.as_bytes()].concat();
    run("control", vec![slow, deaf, vec![b'x'; 1000]], |_, _| {}, targets::control);
}

#[test]
fn ranges_of_strangers() {
    let mut random = Random::new(9);
    let corpus: Vec<Vec<u8>> = (0..8).map(|_| (0..4_000).map(|_| random.below(256) as u8).collect()).collect();
    run("nvtx", corpus, |_, _| {}, targets::nvtx);
}

#[test]
fn json_of_strangers() {
    let row = |category: &str, at: u64, correlation: u32| {
        json!({"ph": "X", "cat": category, "name": "gemm", "pid": 0, "tid": 7, "ts": at, "dur": 5.5,
               "args": {"device": 0, "stream": 7, "correlation": correlation, "grid": [1, 2, 3], "bytes": 4096}})
    };
    let rows: Vec<_> = (0..40)
        .map(|index| {
            row(
                ["kernel", "cuda_runtime", "gpu_memcpy", "gpu_memset", "user_annotation"][index % 5],
                index as u64 * 10,
                index as u32 / 2,
            )
        })
        .collect();
    let document = json!({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "numSms": 132}],
                          "distributedInfo": {"rank": 3, "world_size": 8}, "traceEvents": rows});
    let compressed = {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, document.to_string().as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    run(
        "kineto",
        vec![document.to_string().into_bytes(), rows_only(&document), compressed],
        |_, _| {},
        targets::kineto,
    );
}

fn rows_only(document: &serde_json::Value) -> Vec<u8> {
    serde_json::to_vec_pretty(&document["traceEvents"]).unwrap()
}
