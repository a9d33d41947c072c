//! Endurance: repeating the same work must not use more and more memory.
//!
//! `GPUWHY_SOAK` is the duration in seconds, 5 by default; for a night use `GPUWHY_SOAK=28800`.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use super::program::{CODE, EXIT_TIMEOUTS_OF_HANGS, LATE, program};
use crate::support::{Stage, fixture, report, sum};

/// Repetitions of the recording (0.78 s), all of which the replay library holds in memory from the start:
/// 2,000 take about 500 MB. With fewer than 240, bounded tables such as that of 65,536 launches are still being filled
/// in the last third.
const REPEATS: std::ops::RangeInclusive<u64> = 240..=2_000;
/// Length of the recording, seconds.
const LENGTH: f64 = 0.78;
/// Growth of the median from the middle third to the last that counts as flat, KiB: memory that an allocator
/// retains. About 550 KiB were seen.
const FLAT: u64 = 2_048;

/// Slowdown factors to try if memory was not flat.
const SLOWER: [u64; 3] = [1, 4, 16];

/// Resident memory of a process, KiB; `None` once it is gone.
fn resident(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Runs the program to its end, and returns `figure` of the resident memory in the middle third of play and
/// in the last, KiB.
fn thirds(command: &mut Command, stage: &Stage, figure: fn(&[u64]) -> u64) -> (u64, u64) {
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    // Only from the start of play: loading comes first, and takes time.
    let mut samples = Vec::new();
    while child.try_wait().unwrap().is_none() {
        if stage.path("trace.gpuwhy").exists() {
            samples.extend(resident(child.id()));
        }
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(child.wait().unwrap().code(), Some(CODE));
    assert!(samples.len() >= 30, "{samples:?}");
    let third = samples.len() / 3;
    (figure(&samples[third..2 * third]), figure(&samples[2 * third..]))
}

fn most(samples: &[u64]) -> u64 {
    samples.iter().copied().max().unwrap_or(0)
}

/// The median: buffers that wait on a busy machine come and go, a leak stays.
fn median(samples: &[u64]) -> u64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

#[test]
fn memory_stays_flat() {
    let seconds: u64 = std::env::var("GPUWHY_SOAK").map_or(5, |text| text.parse().expect("GPUWHY_SOAK in seconds"));
    let repeats = (seconds * 12).clamp(*REPEATS.start(), *REPEATS.end());
    // A leak grows at every rate; buffers that wait because the machine is busy grow only at a high one.
    let is_flat = |slower: u64| {
        let stage = Stage::new();
        let mut command = program(&stage);
        command.stderr(Stdio::null());
        let speed = repeats as f64 * LENGTH / (seconds * slower) as f64;
        command.env("GPUWHY_REPLAY_REPEAT", repeats.to_string()).env("GPUWHY_REPLAY_SPEED", speed.to_string());
        let (middle, last) = thirds(&mut command, &stage, median);
        let (_, json) = report(&stage.path("trace.gpuwhy"));
        let records = sum(&json["completeness"]["records"]);
        println!("{records} records at speed {speed}: {middle} KiB in the middle third, {last} KiB in the last");
        assert_eq!(json["completeness"]["end"], "clean");
        records > repeats * 1_000 && last <= middle + FLAT
    };
    assert!(SLOWER.into_iter().any(is_flat), "memory grew by more than {FLAT} KiB at each rate");
}

/// Maximum growth from the middle third to the last while no flush shows the engine what is complete, KiB.
/// Without a limit on the data that wait for a flush it is 55 MB, about 250 bytes for each kernel; with the
/// limit 17 MB, for tables that still fill up.
const WITHOUT_FLUSHES: u64 = 34_000;

#[test]
fn memory_stays_flat_while_a_flush_hangs_and_buffers_come() {
    let stage = Stage::new();
    let mut command = program(&stage);
    command
        .env("GPUWHY_REPLAY", fixture("graph_dense"))
        .env("GPUWHY_REPLAY_FAULT", "cuptiActivityFlushAll=hang@running")
        .env("GPUWHY_EXIT_TIMEOUT", EXIT_TIMEOUTS_OF_HANGS[0])
        .env("GPUWHY_BUFFER_MEMORY", "32M")
        // 22,200 kernels in 0.126 s.
        .env("GPUWHY_REPLAY_REPEAT", "30")
        .env("GPUWHY_REPLAY_SPEED", "0.4");
    let said = stage.path("stderr.txt");
    command.stderr(fs::File::create(&said).unwrap());
    let (middle, last) = thirds(&mut command, &stage, most);
    println!("{middle} KiB in the middle third, {last} KiB in the last");
    assert!(last <= middle + WITHOUT_FLUSHES, "{middle} KiB in the middle third, {last} KiB in the last");
    let (_, json) = report(&stage.path("trace.gpuwhy"));
    // On a busy machine the collector may need longer for the waiting data than the rest of the exit timeout,
    // and reports that.
    let was_late = fs::read_to_string(said).unwrap().contains(LATE);
    let end = &json["completeness"]["end"];
    assert!(end == "timed_out" || was_late && end == "abrupt", "{was_late} {end}");
    assert!(sum(&json["completeness"]["records"]) > 500_000, "{}", json["completeness"]);
}
