//! Text form of PC samples, for a terminal.

use std::fmt::Write as _;

use super::{FunctionSource, InstructionSource, LineSource, SampledShare, SourceReport, Stall};
use crate::kernels::StallReason;
use crate::text_format::{Page, Paint, Style, counted, duration, percent, printable, shortened, wrapped, wrapped_as};
use crate::words;

const FUNCTIONS: usize = 5;
/// Maximum number of lines or instructions shown per function.
const ROWS: usize = 10;
/// Maximum number of stall reasons shown.
const STALLS: usize = 4;
/// Column width of a source line's location.
const PLACE: usize = 32;

/// Formats `report`; `sass` is true if instructions could be disassembled.
pub fn source_text(report: &SourceReport, sass: bool, style: Style) -> String {
    let mut out = Page::new(style);
    if report.outcomes.is_empty() {
        wrapped(
            &mut out,
            "",
            "Program counters were not sampled in this run: `gpuwhy kernels --source -- COMMAND` does that, in a build with PC \
             sampling.",
        );
        return out.into_text();
    }
    let _ = writeln!(out, "== where warps wait");
    for why in report.outcomes.iter().filter_map(|&outcome| words::not_sampled(outcome)) {
        wrapped_as(&mut out, Paint::Yellow, "not sampled: ", &why);
    }
    if report.samples > 0 {
        let period = report.period_cycles;
        let all = counted(report.samples, "sample");
        wrapped(
            &mut out,
            "",
            &format!(
                "{all} in {}, one of each multiprocessor every {period} cycles. Ranges are intervals of 95 % if samples are independent.",
                duration(report.sampled_ns)
            ),
        );
    }
    losses(&mut out, report);
    for (number, function) in report.functions.iter().take(FUNCTIONS).enumerate() {
        one(&mut out, number + 1, function);
    }
    let more = report.functions.len().saturating_sub(FUNCTIONS);
    if more > 0 {
        let _ = writeln!(out, "\nand {}; --json has all", counted(more as u64, "more function"));
    }
    if report.functions.iter().any(|function| function.samples_with_a_line() < function.share.samples) {
        wrapped(
            &mut out,
            "lines: ",
            "instructions without a line come from modules without line information, or whose copy is not beside the trace. \
             Compile with -lineinfo (nvcc) or --generate-line-info (nvrtc); Triton adds lines by itself.",
        );
    }
    if !sass && report.samples > 0 {
        wrapped(&mut out, "instructions: ", "nvdisasm of the CUDA toolkit puts them into words; it is not in PATH.");
    }
    out.into_text()
}

fn losses(out: &mut Page, report: &SourceReport) {
    let mut items = Vec::new();
    for (count, what) in [(report.lost, "lost"), (report.foreign, "in kernels that are not the program's")] {
        if count > 0 {
            items.push(format!("{} {what}", counted(count, "sample")));
        }
    }
    if report.full > 0 {
        items.push(format!("the buffer of the hardware ran full {}", counted(report.full, "time")));
    }
    if report.modules_lost > 0 {
        items.push(format!("{} could not be kept", counted(report.modules_lost, "module")));
    }
    if !items.is_empty() {
        wrapped_as(out, Paint::Yellow, "loss: ", &items.join("; "));
    }
}

/// `62 % (61 to 63 %)`.
fn with_interval(share: &SampledShare) -> String {
    format!("{} ({:.0} to {:.0} %)", percent(share.share), share.low * 100.0, share.high * 100.0)
}

fn one(out: &mut Page, number: usize, function: &FunctionSource) {
    let _ = writeln!(out);
    wrapped_as(out, Paint::Bold, &format!("{number:2}  "), &function.name);
    let all = function.share.samples.max(1);
    let _ = writeln!(out, "    {} of all samples, {}", with_interval(&function.share), counted(all, "sample"));
    for (number, stall) in function.stalls.iter().take(STALLS).enumerate() {
        let lead = if number == 0 { "    warps        " } else { "                 " };
        let share = percent(stall.samples as f64 / all as f64);
        wrapped(out, lead, &format!("{share} {}: {}", stall.reason, meaning(&stall.reason)));
    }
    let rest = function.share.samples - function.samples_with_a_line();
    let _ = writeln!(out, "    {:>6} {:>9}  {:<18} at", "%", "samples", "mostly");
    if function.lines.is_empty() {
        function.instructions.iter().take(ROWS).for_each(|of| instruction(out, of));
        rest_of(out, function.instructions.len(), "instruction");
        return;
    }
    function.lines.iter().take(ROWS).for_each(|of| line(out, function, of));
    rest_of(out, function.lines.len(), "line");
    if rest > 0 {
        let share = rest as f64 / all as f64 * 100.0;
        let _ = writeln!(out, "    {share:>6.2} {rest:>9}  {:<18} no line is known", "");
    }
    if let Some(hot) = function.hot_line() {
        let reason = waiting_reason(&hot.stalls);
        let words = StallReason { reason, share: 0.0 }.words();
        wrapped_as(
            out,
            Paint::Yellow,
            "  > ",
            &format!(
                "{}:{} has {} of the waiting of this kernel, mostly {words}. To do: {}.",
                printable(&hot.place.file),
                hot.place.line,
                with_interval(&hot.waiting),
                advice(reason)
            ),
        );
    }
}

fn meaning(reason: &str) -> &'static str {
    let known = crate::kernels::sets::STALL_REASONS.iter().copied().find(|known| *known == reason);
    match (reason, known) {
        ("selected", _) => "its instruction was issued: no waiting",
        (_, reason) => StallReason { reason: reason.unwrap_or_default(), share: 0.0 }.words(),
    }
}

fn rest_of(out: &mut Page, count: usize, what: &str) {
    if count > ROWS {
        let _ = writeln!(out, "    and {}; --json has all", counted((count - ROWS) as u64, &format!("more {what}")));
    }
}

fn row(out: &mut Page, share: &SampledShare, stalls: &[Stall], at: &str) {
    let mostly = stalls.first().map_or("", |stall| stall.reason.as_str());
    let lead = format!("    {:>6.2} {:>9}  {:<18} ", share.share * 100.0, share.samples, shortened(mostly, 18));
    let room = out.columns().saturating_sub(lead.chars().count()).max(PLACE);
    let _ = writeln!(out, "{lead}{}", shortened(at, room));
}

fn line(out: &mut Page, function: &FunctionSource, of: &LineSource) {
    let file = of.place.file.rsplit('/').next().unwrap_or(&of.place.file);
    let place = format!("{}:{}", shortened(file, PLACE), of.place.line);
    let text = of.text.as_deref().unwrap_or_default();
    row(out, &of.share, &of.stalls, format!("{place}  {text}").trim_end());
    // The instruction with most of its samples.
    let hottest = function.instructions.iter().find(|at| at.place.as_ref() == Some(&of.place));
    if let Some((at, text)) = hottest.and_then(|at| Some((at, at.text.as_ref()?))) {
        let lead = format!("    {:>36} ", format!("{:#06x}", at.offset));
        let room = out.columns().saturating_sub(lead.chars().count()).max(PLACE);
        let _ = writeln!(out, "{lead}{}", shortened(text, room));
    }
}

fn instruction(out: &mut Page, of: &InstructionSource) {
    let text = of.text.as_deref().unwrap_or_default();
    row(out, &of.share, &of.stalls, format!("{:#06x}  {text}", of.offset).trim_end());
}

/// Reason of most of the waiting samples.
fn waiting_reason(stalls: &[Stall]) -> &'static str {
    let known = stalls.iter().filter(|stall| stall.reason != "selected");
    let mut names = known
        .filter_map(|stall| crate::kernels::sets::STALL_REASONS.iter().copied().find(|known| *known == stall.reason));
    names.next().unwrap_or("misc")
}

/// Remedy for a stall reason, based on NVIDIA's metric reference.
fn advice(reason: &str) -> &'static str {
    match reason {
        "long_scoreboard" => {
            "load earlier, load less, make neighboring threads read neighboring data, or keep it in shared memory"
        }
        "short_scoreboard" | "mio_throttle" => "use fewer or wider accesses to shared memory, without bank conflicts",
        "lg_throttle" => "use wider and fewer loads and stores; look for spilled registers",
        "barrier" => "give all warps of a block the same work before the barrier, or use smaller blocks",
        "math_pipe_throttle" | "wait" => "use fewer or cheaper instructions here, or more independent ones",
        "membar" => "use fewer or narrower memory fences",
        "gmma" => "keep more matrix instructions in flight, or use larger tiles",
        "no_instruction" | "branch_resolving" => "unroll less and branch less",
        _ => "look at this line first",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::source::SourceLine;
    use gpuwhy_trace::kernels::Outcome;

    fn share(samples: u64, all: u64) -> SampledShare {
        let share = samples as f64 / all as f64;
        SampledShare { samples, share, low: share - 0.01, high: share + 0.01 }
    }

    fn report() -> SourceReport {
        let stalls = |of: &[(&str, u64)]| {
            of.iter().map(|&(reason, samples)| Stall { reason: reason.to_owned(), samples }).collect::<Vec<_>>()
        };
        let place = SourceLine { file: "/src/gather\x1b[2J.cu".to_owned(), line: 4 };
        let waits = stalls(&[("long_scoreboard", 700), ("selected", 100)]);
        SourceReport {
            outcomes: vec![Outcome::Measured],
            sampled_ns: 1_000_000_000,
            period_cycles: 1 << 18,
            samples: 1_000,
            lost: 3,
            functions: vec![FunctionSource {
                name: "gather".to_owned(),
                symbol: "_Z6gatherv".to_owned(),
                module: 7,
                share: share(1_000, 1_000),
                stalls: waits.clone(),
                lines: vec![LineSource {
                    place: place.clone(),
                    share: share(800, 1_000),
                    waiting: share(700, 900),
                    stalls: waits.clone(),
                    text: Some("s += x[i];".to_owned()),
                }],
                instructions: vec![InstructionSource {
                    offset: 0xc0,
                    share: share(800, 1_000),
                    stalls: waits,
                    place: Some(place),
                    text: Some("LDG.E R3, [R2]".to_owned()),
                }],
            }],
            ..SourceReport::default()
        }
    }

    #[test]
    fn lines_with_their_instruction_and_advice_are_shown() {
        let text = source_text(&report(), true, Style::default());
        // Independent of line breaks.
        let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "1000 samples in 1.00 s",
            "loss: 3 samples lost",
            "gather\\x1b[2J.cu:4 s += x[i];",
            "warps 70 % long_scoreboard: waiting for data from device memory, L2 or L1",
            "10 % selected: its instruction was issued: no waiting",
            "0x00c0 LDG.E R3",
            "no line is known",
            "of the waiting of this kernel, mostly waiting for data from device memory",
            "To do: load earlier",
            "-lineinfo",
        ] {
            assert!(joined.contains(part), "{part}: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(!text.contains("nvdisasm"), "{text}");
    }

    #[test]
    fn without_lines_instructions_are_shown_and_what_is_missing_is_said() {
        let mut report = report();
        report.functions[0].lines.clear();
        report.functions[0].instructions[0].text = None;
        let text = source_text(&report, false, Style::default());
        assert!(text.contains("0x00c0\n") && text.contains("nvdisasm") && text.contains("-lineinfo"), "{text}");
        assert!(!text.contains("To do"), "{text}");
        let refused = SourceReport { outcomes: vec![Outcome::Refused(999)], ..SourceReport::default() };
        let text = source_text(&refused, true, Style::default());
        assert!(text.contains("not sampled: CUPTI refused (error 999)"), "{text}");
        assert!(source_text(&SourceReport::default(), true, Style::default()).contains("kernels --source -- COMMAND"));
    }
}
