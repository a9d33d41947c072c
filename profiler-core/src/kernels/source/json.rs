//! Where warps wait, for programs. Shares are 0 to 1, of the samples of the function unless stated.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{FunctionSource, InstructionSource, LineSource, SourceReport, Stall};

/// All functions.
#[derive(Debug, Serialize)]
pub struct SourceJson {
    outcomes: Vec<&'static str>,
    reasons: Vec<Option<String>>,
    sampled_ns: u64,
    period_cycles: u64,
    samples: u64,
    lost_samples: u64,
    buffer_overflows: u64,
    foreign_samples: u64,
    lost_modules: u64,
    functions: Vec<FunctionJson>,
}

#[derive(Debug, Serialize)]
struct FunctionJson {
    name: String,
    symbol: String,
    /// In hexadecimal digits: 64 bits do not fit into a number of JSON everywhere.
    module: String,
    samples: u64,
    share_of_all: f64,
    low: f64,
    high: f64,
    stalls: BTreeMap<String, u64>,
    hot_line: Option<usize>,
    lines: Vec<LineJson>,
    instructions: Vec<InstructionJson>,
}

/// A source line.
#[derive(Debug, Serialize)]
pub struct LineJson {
    file: String,
    line: u32,
    text: Option<String>,
    samples: u64,
    share: f64,
    low: f64,
    high: f64,
    waiting_samples: u64,
    waiting_share: f64,
    waiting_low: f64,
    waiting_high: f64,
    stalls: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
struct InstructionJson {
    offset: u64,
    sass: Option<String>,
    file: Option<String>,
    line: Option<u32>,
    samples: u64,
    share: f64,
    stalls: BTreeMap<String, u64>,
}

impl SourceJson {
    /// Of `report`.
    #[must_use]
    pub fn new(report: &SourceReport) -> Self {
        Self {
            outcomes: report.outcomes.iter().map(|outcome| outcome.name()).collect(),
            reasons: report.outcomes.iter().map(|outcome| outcome.window_sentence()).collect(),
            sampled_ns: report.sampled_ns,
            period_cycles: report.period_cycles,
            samples: report.samples,
            lost_samples: report.lost,
            buffer_overflows: report.full,
            foreign_samples: report.foreign,
            lost_modules: report.modules_lost,
            functions: report.functions.iter().map(function).collect(),
        }
    }
}

impl LineJson {
    /// Lines of all functions of this name.
    #[must_use]
    pub fn of_symbol(report: &SourceReport, symbol: &str) -> Vec<Self> {
        report.of_symbol(symbol).flat_map(|function| &function.lines).map(line).collect()
    }
}

fn stalls(stalls: &[Stall]) -> BTreeMap<String, u64> {
    stalls.iter().map(|stall| (stall.reason.clone(), stall.samples)).collect()
}

fn function(of: &FunctionSource) -> FunctionJson {
    let hot = of.hot_line();
    FunctionJson {
        name: of.name.clone(),
        symbol: of.symbol.clone(),
        module: format!("{:016x}", of.module),
        samples: of.share.samples,
        share_of_all: of.share.share,
        low: of.share.low,
        high: of.share.high,
        stalls: stalls(&of.stalls),
        hot_line: hot.and_then(|hot| of.lines.iter().position(|line| line.place == hot.place)),
        lines: of.lines.iter().map(line).collect(),
        instructions: of.instructions.iter().map(instruction).collect(),
    }
}

fn line(of: &LineSource) -> LineJson {
    LineJson {
        file: of.place.file.clone(),
        line: of.place.line,
        text: of.text.clone(),
        samples: of.share.samples,
        share: of.share.share,
        low: of.share.low,
        high: of.share.high,
        waiting_samples: of.waiting.samples,
        waiting_share: of.waiting.share,
        waiting_low: of.waiting.low,
        waiting_high: of.waiting.high,
        stalls: stalls(&of.stalls),
    }
}

fn instruction(of: &InstructionSource) -> InstructionJson {
    InstructionJson {
        offset: of.offset,
        sass: of.text.clone(),
        file: of.place.as_ref().map(|place| place.file.clone()),
        line: of.place.as_ref().map(|place| place.line),
        samples: of.share.samples,
        share: of.share.share,
        stalls: stalls(&of.stalls),
    }
}
