//! One run of the stand-in for a CUDA program, and what became of it.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::support::{Stage, report, sum};

/// The recording that is played: small, with kernels, copies, calls and one context.
pub const FIXTURE: &str = "copy_pageable";
/// What the program prints: stands for its results.
pub const PRINTED: &str = "loss 0.25";
/// Its exit code, unlike any that libprof.so or the host would make up.
pub const CODE: i32 = 7;
/// What the exit may wait for CUPTI here: where nothing hangs that takes as long as the machine is busy.
pub const EXIT_TIMEOUT: &str = "60s";
/// The same where something hangs. A fifth of it is kept back to close the trace, which takes longer on a busy machine:
/// then the program runs again with the next one.
pub const EXIT_TIMEOUTS_OF_HANGS: &[&str] = &["2s", "8s", "32s"];
/// What is said when the collector had not closed the trace at the end of the exit timeout.
pub const LATE: &str = "the trace ends abruptly";
/// How long a run may take before it counts as hanging: play takes 0.2 s and the exit at most [`EXIT_TIMEOUT`]; the
/// rest is for a machine that is busy with something else.
const HANGS: Duration = Duration::from_secs(180);

/// What became of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The program's end, as the system tells it.
    pub output: Output,
    /// What libprof.so said, line by line, without the report.
    pub said: Vec<String>,
    /// Records in the trace, and how it says that it ended. `None` without a trace.
    pub trace: Option<(u64, String)>,
    /// How often faults have struck, if the replay library was there to tell.
    pub struck: u64,
}

/// The program, playing at four times the speed of the recording with a flush every 10 ms, two of which play waits for
/// in its middle; nothing but warnings on stderr.
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

/// Runs `command`, which must not hang, and looks at the trace in `folder`.
pub fn outcome(command: &mut Command, trace: &Path) -> Outcome {
    let begun = Instant::now();
    let output = command.output().unwrap();
    assert!(begun.elapsed() < HANGS, "{command:?} took {:?}", begun.elapsed());
    let text = String::from_utf8_lossy(&output.stderr);
    let counts = text.split("faults: ").nth(1).and_then(|rest| rest.split([' ', '}']).next());
    let said = text.lines().filter(|line| line.starts_with("gpuwhy: ")).map(str::to_owned).collect();
    let trace = trace.is_file().then(|| {
        if trace.metadata().unwrap().len() == 0 {
            return (0, "without a word".to_owned());
        }
        let (_, json) = report(trace);
        let end = json["completeness"]["end"].as_str().unwrap().to_owned();
        (sum(&json["completeness"]["records"]), end)
    });
    Outcome { said, trace, struck: counts.map_or(0, |number| number.parse().unwrap()), output }
}

/// Runs a program in which something hangs with an exit timeout that gives the collector time to close the trace.
pub fn outcome_of_hang(run: impl Fn(&str) -> Outcome) -> Outcome {
    let mut tries = EXIT_TIMEOUTS_OF_HANGS.iter().map(|timeout| run(timeout));
    tries.find(|seen| !seen.said.iter().any(|line| line.contains(LATE))).expect("the collector closes the trace")
}

impl Outcome {
    /// Panics unless the program's output and exit code are what they are without us.
    pub fn is_the_programs_own(&self, what: &str) {
        let expected = format!("{PRINTED}\n");
        let found = (self.output.status.code(), String::from_utf8_lossy(&self.output.stdout));
        assert_eq!(found, (Some(CODE), expected.into()), "{what}: {self:#?}");
    }

    /// In words, beside a run in which nothing went wrong: what is in the trace, and the first thing said.
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
        // How long the exit timeout was is no matter here.
        match said.split_once(" within ") {
            Some((what, rest)) => {
                let rest = rest.split_once(' ').map_or("", |(_, rest)| rest);
                (trace, format!("{what} within the timeout {rest}").trim_end().to_owned())
            }
            None => (trace, said.to_owned()),
        }
    }
}
