//! Text form of kernel profiles, for a terminal.

use std::fmt::Write as _;

use profiler_core::whatif::WORTH_SHOWING;

use super::metrics::{Chosen, listed_metrics};
use super::rules::{Check, Finding};
use super::{Figures, KernelView, KernelsReport, Point, Resource, Roof, StepGain, Unmeasured};
use crate::library::Library;
use crate::text_format::names::short_names;
use crate::text_format::{
    Page, Paint, Style, bytes, counted, duration, listed, percent, shortened, wrapped, wrapped_as,
};
use crate::words::{bottleneck, not_measured};

/// Command that shows the source lines within a kernel: options of the Nsight Compute CLI manual.
const SOURCE_LINES: &str = "`ncu --set full --import-source yes -k regex:NAME -c 1 -o lines COMMAND` records at which lines \
                            of a kernel the warps wait, if it was compiled with line information (nvcc -lineinfo); \
                            `ncu --import lines.ncu-rep --page source --print-source cuda,sass` shows them.";
/// Maximum number of findings shown per kernel.
const FINDINGS: usize = 5;
/// Maximum number of stall reasons shown per kernel.
const STALLS: usize = 6;
/// Minimum share that is shown.
const LEAST_SHOWN: f64 = 0.02;
/// Column width of a name in a list.
const NAME_WIDTH: usize = 60;

/// Formats `report`: its pages, or of each measured kernel the chosen metrics.
pub fn text(report: &KernelsReport, style: Style, is_chosen: Chosen<'_>) -> String {
    let mut out = Page::new(style);
    if report.is_empty() {
        let _ = writeln!(out, "no kernels: nothing ran on a GPU in this trace");
        return out.into_text();
    }
    if report.measured.is_empty() {
        wrapped(
            &mut out,
            "",
            "No kernel was measured in this run: that takes `gpuwhy kernels -- COMMAND`, and a program that computes for more \
             than 5 steps or 250 ms after its start-up.",
        );
    } else {
        let held = duration(report.stall_ns);
        let all = counted(report.measured.len() as u64, "kernel");
        let count = match report.measured.iter().filter(|view| !view.profile.values.is_empty()).count() {
            measured if measured < report.measured.len() => format!("{measured} of {all}"),
            _ => all,
        };
        wrapped(&mut out, "", &format!("{count} measured; this delayed the program by {held}."));
    }
    for (number, view) in report.measured.iter().enumerate() {
        kernel(&mut out, number + 1, view, is_chosen);
    }
    if is_chosen.is_some() {
        return out.into_text();
    }
    let is_open = |view: &KernelView| !Library::of_kernel(&view.symbol).is_some_and(is_closed);
    if report.measured.iter().any(|view| !view.profile.values.is_empty() && is_open(view)) {
        let _ = writeln!(out);
        wrapped(&mut out, "source lines: ", SOURCE_LINES);
    }
    picture(&mut out, report);
    unmeasured(&mut out, &report.unmeasured);
    out.into_text()
}

fn size(of: [u32; 3]) -> String {
    format!("{}x{}x{}", of[0], of[1], of[2])
}

fn kernel(out: &mut Page, number: usize, view: &KernelView, is_chosen: Chosen<'_>) {
    let _ = writeln!(out);
    let time = view.share.map(|share| format!("{} of the time, ", percent(share))).unwrap_or_default();
    let mean = view.recorded_mean_ns().map(|mean| format!(" of {}", duration(mean as u64))).unwrap_or_default();
    wrapped_as(out, Paint::Bold, &format!("{number:2}  "), &view.name);
    let launch = &view.launch;
    let shared = u64::from(launch.static_shared_bytes) + u64::from(launch.dynamic_shared_bytes);
    wrapped(
        out,
        "    ",
        &format!(
            "{time}{}{mean}; {} blocks of {} threads, {} registers a thread, {} of shared memory a block",
            counted(view.launches, "launch"),
            size(launch.grid),
            size(launch.block),
            launch.registers_per_thread,
            bytes(shared)
        ),
    );
    if let Some(part) = &view.in_graphs {
        wrapped(out, "    not measured ", &part.text());
    }
    if let Some(why) = not_measured(view.profile.outcome) {
        let lead = if view.profile.values.is_empty() { "    not measured: " } else { "    measured in part: " };
        wrapped_as(out, Paint::Yellow, lead, &why);
    }
    if view.profile.values.is_empty() {
        return;
    }
    if is_chosen.is_some() {
        listed_metrics(out, view, is_chosen);
        missing(out, view);
        return;
    }
    let library = Library::of_kernel(&view.symbol);
    let note = match library {
        Some(library) if is_closed(library) => {
            "its code is fixed; another shape, data type, option or version makes the library choose another kernel"
        }
        Some(Library::Pytorch) => "torch.compile may fuse it with the kernels before and after it",
        _ => "",
    };
    if let Some(library) = library.filter(|_| !note.is_empty()) {
        wrapped(out, "    library      ", &format!("{}: {note}", library.name()));
    }
    speed(out, view);
    nearer_roof(out, view);
    occupancy(out, view);
    roofline(out, view);
    memory(out, &view.figures);
    instructions(out, &view.figures);
    stalls(out, &view.figures);
    missing(out, view);
    listed_metrics(out, view, None);
    advice(out, view, library.is_some_and(is_closed));
}

fn missing(out: &mut Page, view: &KernelView) {
    if !view.profile.missing.is_empty() {
        wrapped(out, "    missing      ", &view.profile.missing.join(", "));
    }
}

/// True if the source code of the library's kernels is not available.
const fn is_closed(library: Library) -> bool {
    matches!(
        library,
        Library::Cublas
            | Library::Cudnn
            | Library::Cufft
            | Library::Curand
            | Library::Cusolver
            | Library::Cusparse
            | Library::TensorRt
    )
}

/// Rules whose advice can be followed without the source code of the kernel.
const FROM_OUTSIDE: [&str; 6] =
    ["at_roof", "fp32_matrix", "old_tensor_path", "lowered_clock", "small_grid", "layout_conversion"];

/// Maximum plausible share. Hardware counters overshoot a little; a higher value is not a share.
const LARGEST_SHARE: f64 = 1.1;

/// True if the figures fit together. Each group of metrics is measured in separate launches. A share far
/// above 100 % shows that these did not do the same work.
fn is_consistent(view: &KernelView) -> bool {
    let figures = &view.figures;
    let more = [figures.sm_active, figures.compute_throughput, figures.memory_throughput, figures.achieved_occupancy];
    let hits = [figures.memory.l1_hit, figures.memory.l2_hit];
    let points = view.roofline.points.iter();
    let points = points.filter_map(|point| Some(point.performance / view.roofline.roof_over(point)?));
    figures.roofs.into_iter().chain(more).chain(hits).flatten().chain(points).all(|share| share <= LARGEST_SHARE)
}

fn speed(out: &mut Page, view: &KernelView) {
    let figures = &view.figures;
    let mut items = Vec::new();
    if let Some(nanos) = figures.duration_ns {
        items.push((Paint::Plain, duration(nanos as u64)));
    }
    if let Some(clock) = figures.clock_hz {
        items.push((Paint::Plain, format!("{:.2} GHz", clock / 1e9)));
    }
    for (what, share) in [("compute", figures.compute_throughput), ("memory", figures.memory_throughput)] {
        if let Some(share) = share {
            items.push((Paint::Plain, format!("{what} {} of peak", percent(share))));
        }
    }
    items.push((
        Paint::Plain,
        format!("{}, {}", passes(view.profile.passes), counted(view.profile.launches.into(), "launch")),
    ));
    listed(out, "    measured     ", &items);
    let nearest = figures.nearest_roof().map(|(roof, _)| roof);
    let roofs: Vec<_> = Roof::ALL
        .iter()
        .zip(figures.roofs)
        .filter_map(|(&roof, share)| {
            let paint = if Some(roof) == nearest { Paint::Bold } else { Paint::Plain };
            let share = share?;
            let is_bound = figures.lower_bounds.contains(&roof) && share >= 0.01;
            let used = if is_bound { format!("at least {} %", (share * 100.0) as u64) } else { percent(share) };
            Some((paint, format!("{} {used}", roof.words())))
        })
        .collect();
    if !roofs.is_empty() {
        listed(out, "    units used   ", &roofs);
    }
    if !is_consistent(view) {
        let why = "shares above 100 % show that launches of this kernel did different work, such as products of \
                   different depth; take its figures and advice as rough";
        wrapped_as(out, Paint::Yellow, "    inconsistent ", why);
    }
}

/// Appends the gain of a step if the kernel gets closer to its nearest roofline.
fn nearer_roof(out: &mut Page, view: &KernelView) {
    let Some(gains) = view.gains.filter(|gains| gains.at_90.speedup >= WORTH_SHOWING) else { return };
    let Some((roof, _)) = view.figures.nearest_roof() else { return };
    let [at_80, at_90] =
        [(format!("if it used 80 % of {}", roof.words()), gains.at_80), ("if 90 %".to_owned(), gains.at_90)]
            .map(|(what, gain)| (Paint::Plain, format!("{what}: {}", gain.faster())));
    let then = gains.then.map(|group| (Paint::Plain, format!("bottleneck then: {}", bottleneck(group))));
    listed(out, "    a step       ", &[at_80, at_90].into_iter().chain(then).collect::<Vec<_>>());
}

/// Number of launches that all metrics take.
fn passes(count: u32) -> String {
    if count == 1 { "1 pass".to_owned() } else { format!("{count} passes") }
}

fn occupancy(out: &mut Page, view: &KernelView) {
    let Some(geometry) = &view.geometry else { return };
    let mut items = vec![(
        Paint::Plain,
        format!(
            "{} of the warps fit, limited by {}",
            percent(geometry.theoretical_occupancy),
            geometry.limiter.name().replace('_', " ")
        ),
    )];
    if let Some(achieved) = view.figures.achieved_occupancy {
        items.push((Paint::Plain, format!("{} were resident", percent(achieved))));
    }
    items.push((Paint::Plain, format!("{:.2} waves", geometry.waves)));
    for reduction in &view.reductions {
        let what = match reduction.of {
            Resource::Registers => format!("{} registers instead of {}", reduction.to, reduction.from),
            Resource::SharedBytes => {
                format!("{} of shared memory instead of {}", bytes(reduction.to.into()), bytes(reduction.from.into()))
            }
        };
        items.push((Paint::Plain, format!("{what}: {}", percent(reduction.occupancy))));
    }
    listed(out, "    occupancy    ", &items);
}

/// Operations per second with three digits.
fn operations(rate: f64) -> String {
    match rate {
        rate if rate >= 1e12 => format!("{:.1} TOP/s", rate / 1e12),
        rate => format!("{:.1} GOP/s", rate / 1e9),
    }
}

fn roofline(out: &mut Page, view: &KernelView) {
    let Some(first) = view.roofline.points.first() else { return };
    let points = view.roofline.points.iter().filter(|point| point.of == first.of);
    let items: Vec<_> = points
        .map(|point| {
            let roof = view.roofline.roof_over(point).filter(|&roof| roof > 0.0);
            let of = roof
                .map(|roof| format!(", {} of the roofline there", percent(point.performance / roof)))
                .unwrap_or_default();
            (Paint::Plain, format!("{:.1} per byte of {}{of}", point.intensity, point.level.words()))
        })
        .collect();
    let rate = std::iter::once((Paint::Plain, format!("{} (operations a second)", operations(first.performance))));
    listed(out, &format!("    {:<11}  ", first.of.name()), &rate.chain(items).collect::<Vec<_>>());
}

fn memory(out: &mut Page, figures: &Figures) {
    let table = &figures.memory;
    let mut items = Vec::new();
    for (what, rate) in [("from", figures.dram_read), ("to", figures.dram_write)] {
        if let Some(rate) = rate {
            items.push((Paint::Plain, format!("{}/s {what} device memory", bytes(rate as u64))));
        }
    }
    for (what, share) in [
        ("L1 hits", table.l1_hit),
        ("L2 hits", table.l2_hit),
        ("bank conflicts of loads", table.load_conflicts),
        ("of stores", table.store_conflicts),
    ] {
        if let Some(share) = share.filter(|share| *share <= LARGEST_SHARE) {
            // Parts of a share that are measured in separate launches may overshoot a little.
            items.push((Paint::Plain, format!("{what} {}", percent(share.min(1.0)))));
        }
    }
    for (what, sectors) in [("load", table.sectors_per_load), ("store", table.sectors_per_store)] {
        if let Some(sectors) = sectors {
            items.push((Paint::Plain, format!("{sectors:.1} sectors a {what}")));
        }
    }
    if let Some(count) = table.local_instructions.filter(|&count| count > 0.0) {
        items.push((Paint::Yellow, format!("{count:.0} local accesses (spills)")));
    }
    if !items.is_empty() {
        listed(out, "    memory       ", &items);
    }
}

fn instructions(out: &mut Page, figures: &Figures) {
    let Some(count) = figures.instructions.filter(|_| !figures.pipes.is_empty()) else { return };
    let all = std::iter::once((Paint::Plain, format!("{} warp instructions", short_count(count))));
    let pipes = figures.pipes.iter().filter(|(_, share)| *share >= LEAST_SHOWN);
    let pipes = pipes.map(|(pipe, share)| (Paint::Plain, format!("{} {}", pipe.words(), percent(*share))));
    let other = figures.other_pipes().filter(|share| *share >= LEAST_SHOWN);
    let other = other.map(|share| (Paint::Plain, format!("others {}", percent(share))));
    listed(out, "    instructions ", &all.chain(pipes).chain(other).collect::<Vec<_>>());
}

/// Formats a count with two digits: `1.2 million`.
fn short_count(count: f64) -> String {
    match count {
        count if count >= 1e9 => format!("{:.1} billion", count / 1e9),
        count if count >= 1e6 => format!("{:.1} million", count / 1e6),
        count => format!("{count:.0}"),
    }
}

/// Appends the stall reasons, one line each.
fn stalls(out: &mut Page, figures: &Figures) {
    let shown = figures.stalls.iter().filter(|stall| stall.share >= LEAST_SHOWN).take(STALLS);
    for (number, stall) in shown.enumerate() {
        let lead = if number == 0 { "    warps wait   " } else { "                 " };
        wrapped(out, lead, &format!("{} {}: {}", percent(stall.share), stall.reason, stall.words()));
    }
}

/// Appends findings and advice. `is_closed`: the kernel itself cannot be changed.
fn advice(out: &mut Page, view: &KernelView, is_closed: bool) {
    let mut unknown = Vec::new();
    let mut shown = 0;
    for (finding, simulated) in view.findings.iter().zip(&view.finding_gains) {
        match &finding.check {
            Check::Applies { .. } => {
                shown += 1;
                if shown <= FINDINGS
                    && let Some(sentence) = sentence(view, finding, *simulated, is_closed)
                {
                    wrapped_as(out, Paint::Yellow, "  > ", &sentence);
                }
            }
            Check::CannotTell(missing) if !unknown.contains(missing) => unknown.push(*missing),
            Check::CannotTell(_) | Check::Clear => {}
        }
    }
    if shown > FINDINGS {
        let _ = writeln!(
            out,
            "    and {}; --json has all",
            counted((shown - FINDINGS) as u64, "finding").replace("finding", "more finding")
        );
    }
    if !unknown.is_empty() {
        wrapped(out, "    not checked without ", &unknown.join("; "));
    }
}

/// A finding, its gain, and what to do about it; `None` if the rule does not apply.
fn sentence(view: &KernelView, finding: &Finding, simulated: Option<StepGain>, is_closed: bool) -> Option<String> {
    let Check::Applies { says, advice, local_gain } = &finding.check else { return None };
    let gain = match (local_gain, view.step_gain(finding)) {
        (Some(local), of_run) if *local > 0.0 && simulated.is_some() => {
            let step = simulated.map(|gain| gain.faster()).unwrap_or_default();
            let hidden = match (simulated, of_run) {
                (Some(gain), Some(of_run)) if is_hidden(gain.speedup, of_run) => HIDDEN,
                _ => "",
            };
            format!(" At most {} of the kernel's time; a step would then be {step}{hidden}.", percent(*local))
        }
        (Some(local), Some(step)) if *local > 0.0 => {
            format!(" At most {} of the kernel and {} of the run.", percent(*local), percent(step))
        }
        (Some(local), None) if *local > 0.0 => format!(" At most {} of the kernel.", percent(*local)),
        _ => String::new(),
    };
    let to_do = if can_be_followed(finding, is_closed) { format!(" To do: {advice}.") } else { String::new() };
    Some(format!("{says}{gain}{to_do}"))
}

fn can_be_followed(finding: &Finding, is_closed: bool) -> bool {
    !is_closed || FROM_OUTSIDE.contains(&finding.rule)
}

/// The finding of all measured kernels that makes a step shortest, with its advice.
pub(crate) fn best_advice(report: &KernelsReport) -> Option<String> {
    let consistent = report.measured.iter().filter(|view| is_consistent(view));
    let found = consistent.flat_map(|view| {
        let is_closed = Library::of_kernel(&view.symbol).is_some_and(is_closed);
        let findings = view.findings.iter().zip(&view.finding_gains);
        findings.filter_map(move |(finding, gain)| Some((view, finding, (*gain)?, is_closed)))
    });
    let worth = found
        .filter(|(_, finding, gain, is_closed)| gain.speedup >= WORTH_SHOWING && can_be_followed(finding, *is_closed));
    let (view, finding, gain, is_closed) = worth.max_by(|a, b| a.2.speedup.total_cmp(&b.2.speedup))?;
    let sentence = sentence(view, finding, Some(gain), is_closed)?;
    Some(format!("Kernel {}: {sentence}", shortened(&view.name, NAME_WIDTH)))
}

/// Reason why a step gains less than the kernel loses.
const HIDDEN: &str = ": other work or the CPU is the limit without it";

/// True if the simulation does not save most of what the kernel's share of the run, `of_run`, suggests.
fn is_hidden(speedup: f64, of_run: f64) -> bool {
    of_run >= LEAST_SHOWN && 1.0 - 1.0 / speedup < 0.5 * of_run
}

fn unmeasured(out: &mut Page, rows: &[Unmeasured]) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n== other kernels by time\n{:>10} {:>6} {:>9}  kernel", "time", "%", "launches");
    let names = short_names(rows.iter().map(|row| row.kernel.demangled.as_str()), NAME_WIDTH);
    for (row, name) in rows.iter().zip(names) {
        let why = row.excluded.map(|why| format!(" ({})", why.words())).unwrap_or_default();
        let share = row.share.map_or_else(|| "-".to_owned(), |share| format!("{:.2}", share * 100.0));
        let _ =
            writeln!(out, "{:>10} {share:>6} {:>9}  {name}{why}", duration(row.kernel.total_ns), row.kernel.launches);
        if let Some(part) = &row.in_graphs {
            wrapped(out, &" ".repeat(29), &part.text());
        }
    }
}

const PICTURE: (usize, usize) = (64, 14);

/// Draws the roofline of device memory in characters, with each kernel as its number.
fn picture(out: &mut Page, report: &KernelsReport) {
    let points: Vec<(usize, &Point, Option<f64>)> = report
        .measured
        .iter()
        .enumerate()
        .filter_map(|(number, view)| {
            let point = view.roofline.points.iter().find(|point| point.level == super::Level::Dram)?;
            let rate = view.roofline.bandwidths.iter().find(|(level, _)| *level == super::Level::Dram);
            Some((number + 1, point, rate.map(|&(_, rate)| rate)))
        })
        .filter(|(_, point, _)| point.intensity > 0.0 && point.performance > 0.0)
        .collect();
    let Some(rate) = points.iter().find_map(|&(.., rate)| rate) else { return };
    let peak = report.measured.iter().flat_map(|view| &view.roofline.peaks).map(|&(_, peak)| peak).fold(0.0, f64::max);
    if peak <= 0.0 {
        return;
    }
    let ridge = peak / rate;
    let intensities = points.iter().map(|(_, point, _)| point.intensity);
    let (low, high) = intensities.fold((ridge, ridge), |(low, high), x| (low.min(x), high.max(x)));
    let (left, right) = (low.log10() - 0.3, high.log10() + 0.3);
    let lowest = points.iter().map(|(_, point, _)| point.performance).fold(peak, f64::min);
    let (bottom, top) = (lowest.log10() - 0.3, peak.log10() + 0.1);
    let (columns, rows) = PICTURE;
    let mut cells = vec![vec![' '; columns]; rows];
    let row_of = |performance: f64| {
        let part = (performance.log10() - bottom) / (top - bottom);
        (rows - 1).saturating_sub((part * (rows - 1) as f64).round().max(0.0) as usize)
    };
    let mut put = |row: usize, column: usize, letter: char| {
        if let Some(cell) = cells.get_mut(row).and_then(|line| line.get_mut(column)) {
            *cell = letter;
        }
    };
    for column in 0..columns {
        let intensity = 10f64.powf(left + (right - left) * column as f64 / (columns - 1) as f64);
        let roof = (intensity * rate).min(peak);
        if roof.log10() >= bottom {
            put(row_of(roof), column, if roof < peak { '/' } else { '-' });
        }
    }
    for (number, point, _) in &points {
        let part = (point.intensity.log10() - left) / (right - left);
        let column = ((part * (columns - 1) as f64).round().max(0.0) as usize).min(columns - 1);
        put(row_of(point.performance), column, char::from_digit((number % 36) as u32, 36).unwrap_or('*'));
    }
    let _ = writeln!(out, "\n== roofline: operations a second over operations for each byte of device memory (log)");
    for (number, line) in cells.iter().enumerate() {
        let label = match number {
            0 => operations(10f64.powf(top)),
            n if n == rows - 1 => operations(10f64.powf(bottom)),
            _ => String::new(),
        };
        let _ = writeln!(out, "{label:>13} |{}", line.iter().collect::<String>().trim_end());
    }
    let _ = writeln!(out, "{:>13} +{}", "", "-".repeat(columns));
    let _ = writeln!(
        out,
        "{:>13}  {:<32}{:>32}",
        "",
        format!("{:.2}", 10f64.powf(left)),
        format!("{:.0}", 10f64.powf(right))
    );
}
