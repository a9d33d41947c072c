//! What is found, for programs.

use serde::Serialize;

use super::{Culprit, Finding, HangReport, RunAnswers};

/// The whole document. Times are nanoseconds.
#[derive(Debug, Serialize)]
pub struct HangDocument {
    ranks: u32,
    runs: Vec<RunJson>,
    findings: Vec<FindingJson>,
    silent: Vec<String>,
    doubts: Vec<String>,
}

#[derive(Debug, Serialize)]
struct RunJson {
    run: String,
    ranks: u32,
    /// Ranks of the job that said nothing.
    silent: Vec<u32>,
}

#[derive(Debug, Serialize)]
struct FindingJson {
    run: String,
    communicator: String,
    name: String,
    number: u64,
    function: String,
    age_ns: Option<u64>,
    kind: &'static str,
    /// Whether the culprits wait in another communicator, which is the reason then.
    passed_on: bool,
    culprits: Vec<CulpritJson>,
    waiting: Vec<u32>,
}

#[derive(Debug, Serialize)]
struct CulpritJson {
    rank: u32,
    place: String,
    line: Option<String>,
    queued: Option<String>,
    waits_in: Option<String>,
}

impl HangDocument {
    /// Describes `report`.
    #[must_use]
    pub fn new(report: &HangReport) -> Self {
        Self {
            ranks: report.runs.iter().map(|of| of.ranks).sum(),
            runs: report.runs.iter().map(run).collect(),
            findings: report.findings.iter().map(finding).collect(),
            silent: report.silent.clone(),
            doubts: report.doubts.clone(),
        }
    }
}

fn run(of: &RunAnswers) -> RunJson {
    let RunAnswers { run, ranks, silent } = of.clone();
    RunJson { run, ranks, silent }
}

fn finding(of: &Finding) -> FindingJson {
    FindingJson {
        run: of.run.clone(),
        communicator: of.communicator.clone(),
        name: of.name.clone(),
        number: of.number,
        function: of.function.clone(),
        age_ns: of.age_ns,
        kind: of.kind.name(),
        passed_on: of.is_passed_on,
        culprits: of.culprits.iter().map(culprit).collect(),
        waiting: of.waiting.clone(),
    }
}

fn culprit(of: &Culprit) -> CulpritJson {
    let Culprit { rank, place, line, queued, waits_in } = of.clone();
    CulpritJson { rank, place, line, queued, waits_in }
}
