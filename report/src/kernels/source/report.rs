//! Samples by function, instruction and source line.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gpuwhy_trace::demangle::without_parameters;
use gpuwhy_trace::kernels::{Outcome, PcFunction, PcWindow};

use crate::run::launches::share_interval;

/// CUPTI's prefix of stall reason names.
const STALLED: &str = "stalled_";
/// Suffix of reasons that are a subset of those without it: samples in which the scheduler issued nothing.
const NOT_ISSUED: &str = "_not_issued";
/// The warp was issued and did not wait.
const SELECTED: &str = "selected";
/// Minimum share of a line in the waiting samples of its function for it to be reported, also at the lower
/// end of its interval: then fixing any other line gains less.
const MOST: f64 = 0.5;
/// Minimum share of a function in all samples for it to be reported.
const MATTERS: f64 = 0.05;

/// A line of a source file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceLine {
    /// Path of the file as recorded by the compiler.
    pub file: String,
    /// Counted from 1.
    pub line: u32,
}

/// Source information about the instructions of modules.
pub trait SourceMap {
    /// Returns the source line of the instruction `offset` bytes after the start of `function`.
    fn place(&self, module: u64, function: &str, offset: u64) -> Option<SourceLine>;
    /// Returns the disassembled instruction (SASS).
    fn instruction(&self, module: u64, function: &str, offset: u64) -> Option<String>;
    /// Returns the text of a line, without surrounding spaces.
    fn text(&self, place: &SourceLine) -> Option<String>;
}

/// Share of samples, with its 95 % confidence interval for independent samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SampledShare {
    /// Number of samples.
    pub samples: u64,
    /// The share, 0 to 1.
    pub share: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl SampledShare {
    fn of(samples: u64, all: u64) -> Self {
        let (low, high) = share_interval(samples, all);
        Self { samples, share: samples as f64 / all.max(1) as f64, low, high }
    }
}

/// A stall reason with its number of samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// A word such as `long_scoreboard`; `selected` if the warp did not wait.
    pub reason: String,
    /// Number of samples.
    pub samples: u64,
}

/// Samples of one instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct InstructionSource {
    /// Bytes from the start of the function.
    pub offset: u64,
    /// Share of the samples of its function.
    pub share: SampledShare,
    /// By reason, most samples first.
    pub stalls: Vec<Stall>,
    /// Its source line, if known.
    pub place: Option<SourceLine>,
    /// The disassembled instruction, if known.
    pub text: Option<String>,
}

/// Samples of one source line.
#[derive(Clone, Debug, PartialEq)]
pub struct LineSource {
    /// The line.
    pub place: SourceLine,
    /// Share of the samples of its function.
    pub share: SampledShare,
    /// Share of the waiting samples of its function.
    pub waiting: SampledShare,
    /// By reason, most samples first.
    pub stalls: Vec<Stall>,
    /// Text of the line, if the file is available.
    pub text: Option<String>,
}

/// Samples of one function.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionSource {
    /// Demangled name.
    pub name: String,
    /// Mangled name.
    pub symbol: String,
    /// Checksum of its module.
    pub module: u64,
    /// Share of the samples of all functions.
    pub share: SampledShare,
    /// By reason, most samples first.
    pub stalls: Vec<Stall>,
    /// By line, most samples first; samples without a line are omitted.
    pub lines: Vec<LineSource>,
    /// By instruction, most samples first.
    pub instructions: Vec<InstructionSource>,
}

impl FunctionSource {
    /// The line with most of the waiting, if there is one and the function matters.
    pub fn hot_line(&self) -> Option<&LineSource> {
        let most = self.lines.iter().max_by_key(|line| line.waiting.samples)?;
        (self.share.share >= MATTERS && most.waiting.low >= MOST).then_some(most)
    }

    /// Number of samples with a known line.
    pub fn samples_with_a_line(&self) -> u64 {
        self.lines.iter().map(|line| line.share.samples).sum()
    }
}

/// PC samples of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceReport {
    /// Outcome of each window.
    pub outcomes: Vec<Outcome>,
    /// Total time of the windows, nanoseconds.
    pub sampled_ns: u64,
    /// Sampling period of a multiprocessor in the last window, cycles.
    pub period_cycles: u64,
    /// Number of samples with a function.
    pub samples: u64,
    /// Number of lost samples: dropped by the hardware, or beyond the limit.
    pub lost: u64,
    /// Number of times that the hardware buffer was full, with an unknown loss.
    pub full: u64,
    /// Number of samples in kernels of other programs.
    pub foreign: u64,
    /// Number of modules that could not be kept.
    pub modules_lost: u64,
    /// Functions, most samples first.
    pub functions: Vec<FunctionSource>,
}

/// Samples by reason.
type Reasons<'a> = BTreeMap<&'a str, u64>;

impl SourceReport {
    /// Builds the report from `windows`, with the source information of `map`.
    pub fn of<'a>(windows: impl Iterator<Item = &'a PcWindow> + Clone, map: &dyn SourceMap) -> Self {
        let mut found: BTreeMap<(&str, u64), BTreeMap<u64, Reasons<'_>>> = BTreeMap::new();
        for window in windows.clone() {
            let reasons: Vec<_> = window.reasons.iter().map(|name| word(name)).collect();
            for count in &window.counts {
                let function = window.functions.get(count.function as usize);
                let reason = reasons.get(count.reason as usize).copied().flatten();
                if let (Some(PcFunction { module, symbol }), Some(reason)) = (function, reason) {
                    let instructions = found.entry((symbol, *module)).or_default();
                    *instructions.entry(count.offset).or_default().entry(reason).or_default() += count.samples;
                }
            }
        }
        let all = found.values().flat_map(BTreeMap::values).flat_map(BTreeMap::values).sum();
        let mut functions: Vec<_> =
            found.iter().map(|(&(symbol, module), of)| function(symbol, module, of, all, map)).collect();
        functions.sort_by_key(|function| Reverse(function.share.samples));
        let total = |field: fn(&PcWindow) -> u64| windows.clone().map(field).fold(0, u64::saturating_add);
        Self {
            outcomes: windows.clone().map(|window| window.outcome).collect(),
            sampled_ns: total(|window| window.end.since(window.begin)),
            period_cycles: windows.clone().last().map_or(0, |window| window.period_cycles),
            samples: all,
            lost: total(|window| window.dropped.saturating_add(window.overflow)),
            full: total(|window| window.full),
            foreign: total(|window| window.foreign),
            modules_lost: total(|window| window.modules_lost),
            functions,
        }
    }

    /// Functions of this name in any module.
    pub fn of_symbol<'a>(&'a self, symbol: &'a str) -> impl Iterator<Item = &'a FunctionSource> {
        self.functions.iter().filter(move |function| function.symbol == symbol)
    }
}

/// Word for a stall reason; `None` for reasons that are a subset of another one.
fn word(name: &str) -> Option<&str> {
    let word = name.rsplit_once(STALLED).map_or(name, |(_, word)| word);
    (!word.ends_with(NOT_ISSUED)).then_some(word)
}

fn add<'a>(to: &mut Reasons<'a>, from: &Reasons<'a>) {
    for (reason, samples) in from {
        *to.entry(reason).or_default() += samples;
    }
}

fn sorted(reasons: &Reasons<'_>) -> Vec<Stall> {
    let mut stalls: Vec<_> =
        reasons.iter().map(|(&reason, &samples)| Stall { reason: reason.to_owned(), samples }).collect();
    stalls.sort_by_key(|stall| Reverse(stall.samples));
    stalls
}

fn sum(reasons: &Reasons<'_>) -> u64 {
    reasons.values().sum()
}

fn waiting(reasons: &Reasons<'_>) -> u64 {
    reasons.iter().filter(|(reason, _)| **reason != SELECTED).map(|(_, samples)| samples).sum()
}

fn function(
    symbol: &str,
    module: u64,
    of: &BTreeMap<u64, Reasons<'_>>,
    all: u64,
    map: &dyn SourceMap,
) -> FunctionSource {
    let mut reasons = Reasons::new();
    let mut lines: BTreeMap<SourceLine, Reasons<'_>> = BTreeMap::new();
    let own: u64 = of.values().map(sum).sum();
    let mut instructions: Vec<_> = of
        .iter()
        .map(|(&offset, at)| {
            add(&mut reasons, at);
            let place = map.place(module, symbol, offset);
            if let Some(place) = &place {
                add(lines.entry(place.clone()).or_default(), at);
            }
            InstructionSource {
                offset,
                share: SampledShare::of(sum(at), own),
                stalls: sorted(at),
                place,
                text: map.instruction(module, symbol, offset),
            }
        })
        .collect();
    instructions.sort_by_key(|instruction| (Reverse(instruction.share.samples), instruction.offset));
    let all_waiting = waiting(&reasons);
    let mut lines: Vec<_> = lines
        .into_iter()
        .map(|(place, at)| LineSource {
            share: SampledShare::of(sum(&at), own),
            waiting: SampledShare::of(waiting(&at), all_waiting),
            stalls: sorted(&at),
            text: map.text(&place),
            place,
        })
        .collect();
    lines.sort_by_key(|line| Reverse(line.share.samples));
    FunctionSource {
        name: without_parameters(symbol),
        symbol: symbol.to_owned(),
        module,
        share: SampledShare::of(own, all),
        stalls: sorted(&reasons),
        lines,
        instructions,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_trace::kernels::PcCount;
    use gpuwhy_trace::record::Timestamp;

    /// Line 10 up to offset 0x20, line 20 after it; no lines for other modules.
    struct Map;

    impl SourceMap for Map {
        fn place(&self, module: u64, function: &str, offset: u64) -> Option<SourceLine> {
            let line = if offset < 0x20 { 10 } else { 20 };
            (module == 7 && function == "_Z1fv").then(|| SourceLine { file: "f.cu".to_owned(), line })
        }

        fn instruction(&self, module: u64, _: &str, offset: u64) -> Option<String> {
            (module == 7 && offset == 0x20).then(|| "LDG.E R0, [R2]".to_owned())
        }

        fn text(&self, place: &SourceLine) -> Option<String> {
            (place.line == 20).then(|| "y = x[i];".to_owned())
        }
    }

    fn window() -> PcWindow {
        let names = ["selected", "long_scoreboard", "long_scoreboard_not_issued", "wait"];
        let of = |module, symbol: &str| PcFunction { module, symbol: symbol.to_owned() };
        let counts = [
            (0, 0x00, 0, 40),
            (0, 0x10, 3, 20),
            (0, 0x20, 1, 300),
            // Subset of the 300.
            (0, 0x20, 2, 290),
            (0, 0x30, 0, 40),
            (1, 0x00, 1, 100),
        ];
        PcWindow {
            begin: Timestamp::from_nanos(1_000),
            end: Timestamp::from_nanos(1_500),
            period_cycles: 1 << 18,
            reasons: names.map(|name| format!("smsp__pcsamp_warps_issue_stalled_{name}")).into(),
            functions: vec![of(7, "_Z1fv"), of(8, "gemm")],
            counts: counts
                .map(|(function, offset, reason, samples)| PcCount { function, offset, reason, samples })
                .into(),
            samples: 520,
            dropped: 15,
            foreign: 5,
            overflow: 2,
            ..PcWindow::default()
        }
    }

    #[test]
    fn samples_are_summed_by_function_line_and_instruction() {
        let windows = [window(), window()];
        let report = SourceReport::of(windows.iter(), &Map);
        assert_eq!((report.samples, report.lost, report.foreign, report.sampled_ns), (1_000, 34, 10, 1_000));
        let [f, gemm] = report.functions.as_slice() else { panic!("two functions") };
        assert_eq!((f.name.as_str(), f.share.samples, gemm.share.samples), ("f", 800, 200));
        assert!((f.share.share - 0.8).abs() < 1e-12 && f.share.low < 0.8 && f.share.high > 0.8);
        let lines: Vec<_> = f.lines.iter().map(|line| (line.place.line, line.share.samples)).collect();
        assert_eq!(lines, [(20, 680), (10, 120)]);
        let stalls: Vec<_> = f.stalls.iter().map(|stall| (stall.reason.as_str(), stall.samples)).collect();
        assert_eq!(stalls, [("long_scoreboard", 600), ("selected", 160), ("wait", 40)], "no subset is counted twice");
        let first = &f.instructions[0];
        assert_eq!((first.offset, first.text.as_deref()), (0x20, Some("LDG.E R0, [R2]")));
        assert_eq!(f.instructions.iter().map(|of| of.share.samples).sum::<u64>(), 800);
        assert!(gemm.lines.is_empty() && gemm.samples_with_a_line() == 0);
        assert_eq!(report.of_symbol("gemm").count(), 1);
    }

    #[test]
    fn a_line_is_hot_only_when_it_certainly_has_most_of_the_waiting() {
        let hot = |window: &PcWindow| {
            let report = SourceReport::of([window].into_iter(), &Map);
            report.of_symbol("_Z1fv").next().and_then(FunctionSource::hot_line).map(|line| line.place.line)
        };
        let mut window = window();
        // 300 of 320 waiting samples.
        assert_eq!(hot(&window), Some(20));
        window.counts[2].samples = 21;
        assert_eq!(hot(&window), None, "21 of 41 are more than a half by chance");
        window.counts[2].samples = 300;
        window.counts[5].samples = 20_000;
        assert_eq!(hot(&window), None, "2 % of all samples do not matter");
    }

    #[test]
    fn nothing_and_numbers_out_of_range_are_harmless() {
        let report = SourceReport::of([].into_iter(), &Map);
        assert_eq!(report, SourceReport::default());
        let mut bad = window();
        bad.counts.push(PcCount { function: 9, offset: 0, reason: 0, samples: 5 });
        bad.counts.push(PcCount { function: 0, offset: 0, reason: 99, samples: 5 });
        assert_eq!(SourceReport::of([&bad].into_iter(), &Map).samples, 500);
    }
}
