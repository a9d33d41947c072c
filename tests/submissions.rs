//! Mode monitor of a server end to end: copies between host and device and launches of graphs by the host program, as
//! CUPTI's callbacks report them, through libprof.so to the trace.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use gpuwhy_trace::submission::SubmissionMark;

use crate::support::trace::ranges;
use crate::support::{Stage, stderr};

/// Iterations of the program.
const ITERATIONS: usize = 40;

/// A program of this name in this mode that runs iterations of 96 sequences, each with one token: three copies of
/// inputs, a graph, and a copy of sampled tokens. The large copy and the second report of the graph are left out.
fn iterations(stage: &Stage, name: &str, mode: &str) -> Command {
    let mut host = stage.host("mlp");
    host.arg0(name).env("GPUWHY_MODE", mode).env("GPUWHY_REPORT", "full");
    for number in 0..ITERATIONS {
        let inputs = "cuMemcpyHtoDAsync_v2;384,cuMemcpyHtoDAsync_v2_ptsz;384,cuMemcpyHtoD_v2;388";
        let graph = "cuMemcpyHtoDAsync_v2;100000,cudaGraphLaunch_v10000,cuGraphLaunch";
        host.args(["--call", &format!("{number}:submit={inputs},{graph},cuMemcpyDtoHAsync_v2;384")]);
    }
    host
}

/// Marks in the trace, with their bytes.
fn marks(stage: &Stage) -> Vec<(SubmissionMark, u64)> {
    let (ranges, names) = ranges(&stage.path("trace.gpuwhy"));
    ranges.iter().filter_map(|range| SubmissionMark::of(range, &names)).collect()
}

#[test]
fn copies_and_graphs_of_a_server_are_in_the_trace_of_mode_monitor() {
    use SubmissionMark::{FromHost, Graph, ToHost};
    for (name, mode) in [("server", "monitor"), ("program", "auto")] {
        let stage = Stage::new();
        let output = iterations(&stage, name, mode).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let iteration = [(FromHost, 384), (FromHost, 384), (FromHost, 388), (Graph, 0), (ToHost, 384)];
        assert_eq!(marks(&stage), iteration.repeat(ITERATIONS), "{mode}");
    }
}

#[test]
fn a_program_that_is_no_server_has_no_subscriber_in_mode_monitor() {
    let stage = Stage::new();
    let output = iterations(&stage, "program", "monitor").output().unwrap();
    assert!(output.status.success() && !stage.path("trace.gpuwhy").exists(), "{}", stderr(&output));
}

#[test]
fn a_server_whose_cupti_is_taken_is_monitored_without_iterations() {
    let stage = Stage::new();
    let mut host = iterations(&stage, "server", "monitor");
    let output = host.env("GPUWHY_REPLAY_FAULT", "cuptiSubscribe=39").output().unwrap();
    let text = stderr(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(output.status.success() && text.contains("iterations of a server are not found"), "{text}");
}
