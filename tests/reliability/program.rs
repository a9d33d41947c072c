//! One run of the stand-in for a CUDA program, and its outcome.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::support::{Stage, report, sum};

/// Recording to play: small, with kernels, copies, calls and one context.
pub const FIXTURE: &str = "copy_pageable";
/// Output of the program, in place of real results.
pub const PRINTED: &str = "loss 0.25";
/// Exit code of the program, different from any of libprof.so or the host program.
pub const CODE: i32 = 7;
/// Exit timeout in tests without a hang: CUPTI may need long on a busy machine.
pub const EXIT_TIMEOUT: &str = "60s";
/// Exit timeouts in tests with a hang. A fifth is reserved for closing the trace, which takes longer on a
/// busy machine: the program is then run again with the next one.
pub const EXIT_TIMEOUTS_OF_HANGS: &[&str] = &["2s", "8s", "32s"];
/// Message if the collector had not closed the trace by the end of the exit timeout.
pub const LATE: &str = "the trace ends abruptly";
/// Time after which a run counts as hanging: play takes 0.2 s and the exit at most [`EXIT_TIMEOUT`]; the rest
/// is reserve for a busy machine.
const HANGS: Duration = Duration::from_secs(180);

/// Outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Exit status and output of the program.
    pub output: Output,
    /// Messages of libprof.so, line by line, without the report.
    pub said: Vec<String>,
    /// Number of records in the trace, and its kind of end. `None` without a trace.
    pub trace: Option<(u64, String)>,
    /// Number of faults that struck, if the replay library reported it.
    pub struck: u64,
}

/// The program, playing at four times the recorded speed with a flush every 10 ms. Play waits for two flushes
/// in the middle. stderr has only warnings.
pub fn program(stage: &Stage) -> Command {
    let mut command = stage.host(FIXTURE);
    command
        .args(["--print", PRINTED, "--exit-code", &CODE.to_string(), "--counts"])
        .args(["--call", "400:flushes=2"])
        .env("GPUWHY_REPLAY_SPEED", "4")
        .env("GPUWHY_FLUSH", "10ms")
        .env("GPUWHY_REPORT", "off")
        .env("GPUWHY_EXIT_TIMEOUT", EXIT_TIMEOUT);
    command
}

/// Runs `command`, which must not hang, and reads the file `trace`.
pub fn outcome(command: &mut Command, trace: &Path) -> Outcome {
    let begun = Instant::now();
    let output = command.output().unwrap();
    assert!(begun.elapsed() < HANGS, "{command:?} took {:?}", begun.elapsed());
    let text = String::from_utf8_lossy(&output.stderr);
    let counts = text.split("faults: ").nth(1).and_then(|rest| rest.split([' ', '}']).next());
    let said = text.lines().filter(|line| line.starts_with("gpuwhy: ")).map(str::to_owned).collect();
    let trace = trace.is_file().then(|| {
        if trace.metadata().unwrap().len() == 0 {
            return (0, "without an end marker".to_owned());
        }
        let (_, json) = report(trace);
        let end = json["completeness"]["end"].as_str().unwrap().to_owned();
        (sum(&json["completeness"]["records"]), end)
    });
    Outcome { said, trace, struck: counts.map_or(0, |number| number.parse().unwrap()), output }
}

/// Runs a program with a hang, with an exit timeout that leaves the collector enough time to close the trace.
pub fn outcome_of_hang(run: impl Fn(&str) -> Outcome) -> Outcome {
    let mut tries = EXIT_TIMEOUTS_OF_HANGS.iter().map(|timeout| run(timeout));
    tries.find(|seen| !seen.said.iter().any(|line| line.contains(LATE))).expect("the collector closes the trace")
}

impl Outcome {
    /// Panics unless the program's output and exit code are the same as without gpuwhy.
    pub fn is_the_programs_own(&self, what: &str) {
        let expected = format!("{PRINTED}\n");
        let found = (self.output.status.code(), String::from_utf8_lossy(&self.output.stdout));
        assert_eq!(found, (Some(CODE), expected.into()), "{what}: {self:#?}");
    }

    /// Describes the outcome: the contents of the trace, relative to `whole` records of a run without a
    /// fault, and the first message.
    pub fn words(&self, whole: u64) -> (String, String) {
        let trace = match &self.trace {
            None => "no trace".to_owned(),
            Some((records, end)) => {
                let part = match *records {
                    0 => "no record",
                    some if some < whole => "some records",
                    _ => "all records",
                };
                format!("{part}, end {end}")
            }
        };
        let said = self.said.first().map_or("-", |line| line.trim_start_matches("gpuwhy: "));
        // The length of the exit timeout does not matter here.
        match said.split_once(" within ") {
            Some((what, rest)) => {
                let rest = rest.split_once(' ').map_or("", |(_, rest)| rest);
                (trace, format!("{what} within the timeout {rest}").trim_end().to_owned())
            }
            None => (trace, said.to_owned()),
        }
    }
}
