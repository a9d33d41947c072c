//! Mode monitor of a server end to end: copies between host and device and launches of graphs by the host program, as
//! CUPTI's callbacks report them, through libprof.so to the trace.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use gpuwhy_trace::submission::SubmissionMark;

use crate::support::trace::ranges;
use crate::support::{GPUWHY, Stage, counted, stderr};

/// Iterations of the program, and those at its start that process prompts.
const ITERATIONS: usize = 40;
const PROMPTS: usize = 4;

/// A program of this name in this mode that runs iterations of 95 to 97 sequences: three copies of inputs, a graph, and
/// a copy of sampled tokens. Each sequence has one token, but 4,096 are those of prompts. The large copies and the
/// second report of the graph are left out.
fn iterations(stage: &Stage, name: &str, mode: &str) -> Command {
    let mut host = stage.host("mlp");
    host.arg0(name).env("GPUWHY_MODE", mode).env("GPUWHY_REPORT", "full");
    for number in 0..ITERATIONS {
        let (ids, read) = (ids(number), 4 * sequences(number));
        let inputs = format!("cuMemcpyHtoDAsync_v2;{ids},cuMemcpyHtoDAsync_v2_ptsz;{ids},cuMemcpyHtoD_v2;{}", read + 4);
        let graph = "cuMemcpyDtoHAsync_v2;100000,cudaGraphLaunch_v10000,cuGraphLaunch";
        host.args(["--call", &format!("{number}:submit={inputs},{graph},cuMemcpyDtoHAsync_v2;{read}")]);
    }
    host
}

fn sequences(iteration: usize) -> u64 {
    [96, 95, 97][iteration % 3]
}

/// Bytes of the input ids.
fn ids(iteration: usize) -> u64 {
    4 * if iteration < PROMPTS { 4_096 } else { sequences(iteration) }
}

/// Marks in the trace, with their bytes.
fn marks(stage: &Stage) -> Vec<(SubmissionMark, u64)> {
    let (ranges, names) = ranges(&stage.path("trace.gpuwhy"));
    ranges.iter().filter_map(|range| SubmissionMark::of(range, &names)).collect()
}

#[test]
fn iterations_of_a_server_are_found_in_mode_monitor() {
    use SubmissionMark::{FromHost, Graph, ToHost};
    for (name, mode) in [("server", "monitor"), ("program", "auto")] {
        let stage = Stage::new();
        let output = iterations(&stage, name, mode).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let iteration = |number| {
            let (ids, read) = (ids(number), 4 * sequences(number));
            [(FromHost, ids), (FromHost, ids), (FromHost, read + 4), (Graph, 0), (ToHost, read)]
        };
        let all: Vec<_> = (0..ITERATIONS).flat_map(iteration).collect();
        assert_eq!(marks(&stage), all, "{mode}");
        let query = ["query", "--format", "csv", "SELECT count(*) FROM nvtx"];
        let rows = Command::new(GPUWHY).args(query).arg(stage.path("trace.gpuwhy")).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&rows.stdout).lines().last(), Some("0"), "no ranges of the program");
        let report = gpuwhy_import::open(stage.path("trace.gpuwhy")).unwrap();
        let kinds = report.monitored_iterations.expect("iterations").kinds;
        let found: Vec<_> = kinds.iter().map(|kind| (kind.name, kind.count, kind.sequences, kind.tokens)).collect();
        let (decodes, prompts) = ((ITERATIONS - PROMPTS) as u64, PROMPTS as u64);
        let expected = [("decode", decodes, 96), ("prefill or mixed", prompts, 4_096)];
        assert_eq!(
            found,
            expected.map(|(name, count, tokens)| (name, count, Some(96), Some(count * tokens))),
            "{mode}"
        );
        let text = stderr(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        let lead = "found by copies to the CPU, with times of the CPU.";
        let (_, rows) = text.split_once(lead).unwrap_or_else(|| panic!("{text}"));
        assert!(rows.contains(&format!("decode {decodes} p50 ")) && !rows.contains("GPU busy"), "{text}");
    }
}

#[test]
fn only_a_server_is_subscribed_to_in_mode_monitor() {
    for (name, subscribes) in [("program", false), ("server", true)] {
        let stage = Stage::new();
        // Fails each call, and counts it.
        let output = iterations(&stage, name, "monitor")
            .env("GPUWHY_REPLAY_FAULT", "cuptiSubscribe=39")
            .arg("--counts")
            .output();
        let text = stderr(&output.unwrap());
        assert_eq!(counted(&text, "faults") > 0, subscribes, "{name}: {text}");
    }
}

#[test]
fn a_server_whose_callbacks_cupti_refuses_is_monitored_without_iterations() {
    for fault in ["cuptiSubscribe=39", "cuptiEnableCallback=999"] {
        let stage = Stage::new();
        let output = iterations(&stage, "server", "monitor").env("GPUWHY_REPLAY_FAULT", fault).output().unwrap();
        let text = stderr(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(output.status.success() && text.contains("iterations of a server are not found"), "{fault}: {text}");
    }
}
