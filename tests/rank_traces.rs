//! Traces of jobs on two GPUs (`testing/fixtures/ranks/README.md`), and what the programs and torch.profiler counted.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{GPUWHY, report, stderr};

fn trace(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testing/fixtures/ranks/{name}.gpuwhy"))
}

fn merged(job: &str) -> Value {
    let ranks = [0, 1].map(|rank| trace(&format!("{job}_rank{rank}")));
    let output = Command::new(GPUWHY).args(["merge", "--json"]).args(ranks).output().unwrap();
    assert!(output.status.success(), "{job}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Job, kernels of each rank by torch.profiler in another run of the same program, kernels of NCCL.
const JOBS: &[(&str, [u64; 2], u64)] = &[
    ("ddp", [20_305, 20_305], 320),
    ("fsdp", [17_912, 17_912], 601),
    ("tensor", [18_112, 18_112], 1_297),
    ("pipeline", [26_835, 27_788], 229),
    ("serve", [16_052, 16_055], 619),
];

#[test]
fn each_rank_has_every_kernel_and_every_operation_of_nccl_its_kernel() {
    for &(job, kernels, of_nccl) in JOBS {
        for (rank, kernels) in kernels.into_iter().enumerate() {
            let (code, report) = report(&trace(&format!("{job}_rank{rank}")));
            assert_eq!((code, &report["completeness"]["records"]["kernels"]), (0, &kernels.into()), "{job} {rank}");
            let collectives = &report["collectives"];
            let rows = collectives["rows"].as_array().unwrap();
            let sum = |count: fn(&Value) -> &Value| rows.iter().map(|row| count(row).as_u64().unwrap()).sum::<u64>();
            assert_eq!(sum(|row| &row["kernels"]), of_nccl, "{job} {rank}");
            assert_eq!(sum(|row| &row["basis"]["kernel_name"]), 0, "{job} {rank}");
            for lost in ["operations_without_kernel", "kernels_without_operation", "dropped", "table_overflow"] {
                assert_eq!(collectives[lost], 0, "{job} {rank}: {lost}");
            }
        }
    }
}

#[test]
fn both_ranks_of_each_job_are_compared_on_one_clock() {
    for &(job, ..) in JOBS {
        let merged = merged(job);
        assert_eq!(merged["ranks"].as_array().unwrap().len(), 2, "{job}");
        assert_eq!(merged["matched_by"], "plugin", "{job}");
        // Sends of a pipeline end on each rank at another time. Collectives of two GPUs ended within 25 us.
        let apart = merged["hosts"][0]["scatter_p95_ns"].as_u64().unwrap();
        assert!(apart < 50_000, "{job}: ends are {apart} ns apart");
    }
}

#[test]
fn a_process_on_two_devices_has_the_work_of_each() {
    let (_, report) = report(&trace("two_devices"));
    let devices = report["devices"].as_array().unwrap();
    let products = devices.iter().map(|device| {
        let kernels = device["kernels"].as_array().unwrap().iter();
        kernels
            .filter(|row| row["name"].as_str().unwrap().starts_with("nvjet"))
            .map(|row| row["count"].as_u64().unwrap())
            .sum()
    });
    assert_eq!(products.collect::<Vec<u64>>(), [300, 200]);
    let copies = devices.iter().flat_map(|device| device["copies"].as_array().unwrap());
    let peer: u64 =
        copies.filter(|copy| copy["direction"] == "peer_to_peer").map(|copy| copy["bytes"].as_u64().unwrap()).sum();
    assert_eq!(peer, 50 * 4096 * 4096 * 2);
}

#[test]
fn a_shared_device_is_the_bottleneck_and_the_other_process_is_named() {
    let (_, report) = report(&trace("shared_device"));
    assert_eq!(report["bottleneck"]["cause"], "other_process");
    assert_eq!(report["devices"][0]["other_processes"][0]["pid"], 736);
    assert!(
        report["bottleneck"]["evidence"]
            .as_array()
            .unwrap()
            .iter()
            .any(|line| line.as_str().unwrap().contains("pid 736"))
    );
}
