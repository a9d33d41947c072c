//! Text form of the comparison of ranks.

use std::cmp::Reverse;
use std::fmt::Write;

use profiler_core::collective::Basis;
use profiler_core::counters::roofs::Limit;
use profiler_core::leaf::{Cause, Leaf};

use super::{CriticalPath, ExcessEvidence, RankRow, RanksReport, Straggler};
use gpuwhy_report::text_format::{Page, Style, duration, shortened, wrapped};
use gpuwhy_report::words::{self, about};

/// Maximum number of ranks in the table; the others are counted.
const SHOWN: usize = 32;
/// Maximum number of causes and ranks in the sentence about a path.
const PATH_PARTS: usize = 4;
/// Maximum number of characters of a name.
const NAME: usize = 80;
/// Minimum gain that is shown.
const WORTH_SHOWING: f64 = 1.01;

pub(super) fn text(report: &RanksReport, style: Style) -> String {
    let mut out = Page::new(style);
    let size = report.world_size.map_or_else(String::new, |world| format!(" of {world}"));
    let _ = writeln!(out, "ranks: {}{size}; hosts: {}", report.rows.len(), report.clocks.len());
    table(&mut out, report);
    limits_table(&mut out, report);
    if report.collectives > 0 {
        let waited: u64 = report.rows.iter().map(|row| row.waited_ns).sum();
        let share = 100.0 * waited as f64 / report.collective_ns.max(1) as f64;
        let how = matched(report.basis);
        let sentence = format!(
            "{} compared, {how}{share:.1} % of their time is spent waiting for the last rank, the rest moves data.",
            report.collectives
        );
        wrapped(&mut out, "collectives: ", &sentence);
    }
    if let Some(sentence) = best_case(report) {
        wrapped(&mut out, "best case: ", &sentence);
    }
    match &report.straggler {
        Some(straggler) => wrapped(&mut out, "straggler: ", &straggler_sentences(report, straggler)),
        None if report.collectives > 0 => {
            let _ = writeln!(
                out,
                "straggler: none; no rank causes more than half of the waiting, or there is little waiting"
            );
        }
        None => {}
    }
    if let Some((host, share)) = &report.slow_host {
        let sentence = format!("{host}: {:.0} % of all waiting is for its ranks together.", share * 100.0);
        wrapped(&mut out, "slow host: ", &sentence);
    }
    if let Some(path) = &report.critical_path {
        wrapped(&mut out, "critical path: ", &path_sentences(report, path));
    }
    for (number, clock) in report.clocks.iter().take(SHOWN).enumerate() {
        let offset = match clock.offset_ns {
            _ if report.clocks.len() == 1 => "one clock for all".to_owned(),
            _ if number == 0 => "the reference; the others are adjusted to it".to_owned(),
            // A positive offset means that the clock is late.
            Some(offset) => {
                let side = if offset > 0 { "behind" } else { "ahead" };
                let error =
                    clock.error_ns.map_or_else(String::new, |error| format!(" (error up to {})", duration(error)));
                let (offset, drift_ppm) = (duration(offset.unsigned_abs()), clock.drift_ppb as f64 / 1e3);
                format!("{side} by {offset}{error}, drifts by {drift_ppm:.3} ppm")
            }
            None => "offset unknown".to_owned(),
        };
        let scatter = clock.scatter_ns.map_or_else(String::new, |[half, most]| {
            format!("; ends of the same collective differ by {} (median), {} (95 %)", duration(half), duration(most))
        });
        // Traces of other tools have no host.
        let host = match clock.host.as_str() {
            "" if report.clocks.len() == 1 => String::new(),
            "" => "host not recorded: ".to_owned(),
            name => format!("{name}: "),
        };
        wrapped(&mut out, "clock: ", &format!("{host}{offset}{scatter}"));
    }
    if report.clocks.len() > SHOWN {
        let worst = report.clocks.iter().filter_map(|clock| clock.error_ns).max().unwrap_or(0);
        let more = report.clocks.len() - SHOWN;
        wrapped(&mut out, "clock: ", &format!("{more} more hosts; the largest error of all is {}", duration(worst)));
    }
    for doubt in &report.doubts {
        wrapped(&mut out, "not known: ", doubt);
    }
    out.into_text()
}

/// Appends a line per rank; of more than [`SHOWN`] ranks, only those that others wait for.
fn table(out: &mut Page, report: &RanksReport) {
    let _ =
        writeln!(out, "  rank  host            run computes    comm.   waited   caused   last     late  bottleneck");
    let mut rows: Vec<&RankRow> = report.rows.iter().collect();
    if rows.len() > SHOWN {
        let straggler = report.straggler.as_ref().map(|straggler| report.rows[straggler.row].rank);
        rows.sort_by_key(|row| (straggler != Some(row.rank), Reverse(row.awaited_ns)));
    }
    for row in rows.into_iter().take(SHOWN) {
        let share = |nanos: u64| format!("{:.1} %", 100.0 * nanos as f64 / row.window_ns.max(1) as f64);
        let _ = writeln!(
            out,
            "  {:>4}  {:<10} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>8}  {}",
            row.rank,
            shortened(&row.host, 10),
            duration(row.window_ns),
            share(Cause::GpuCompute.total(&row.leaves)),
            share(row.leaves[Leaf::Communication as usize]),
            duration(row.waited_ns),
            duration(row.awaited_ns),
            row.last,
            duration(row.late_ns),
            bottleneck(row.bottleneck.0),
        );
    }
    if report.rows.len() > SHOWN {
        let _ = writeln!(out, "  ... {} more, which cause less waiting", report.rows.len() - SHOWN);
    }
    wrapped(
        out,
        "  ",
        "comm.: communicating. waited: for other ranks in collectives. caused: how long others waited for this rank. last: \
         collectives that it began last. late: how long after the first rank it began them (median).",
    );
}

/// How collectives of ranks were matched if NCCL does not count them.
fn matched(basis: Basis) -> &'static str {
    match basis {
        Basis::KernelName => "matched by names and order of kernels, ",
        Basis::Range => "matched by what NCCL's NVTX ranges or PyTorch say and their order, ",
        Basis::Plugin | Basis::Order => "",
    }
}

/// The part of the ranks' time that is waiting, if it is known.
fn waiting_words(report: &RanksReport) -> String {
    let sum = |of: fn(&RankRow) -> u64| report.rows.iter().map(of).fold(0, u64::saturating_add) as f64;
    let share = sum(|row| row.waited_ns) / sum(|row| row.window_ns).max(1.0);
    if share > 0.0 { format!(" ({:.1} % of the ranks' time)", share * 100.0) } else { String::new() }
}

/// Sentences about which rank is late, by how much, and why.
fn straggler_sentences(report: &RanksReport, straggler: &Straggler) -> String {
    let row = &report.rows[straggler.row];
    let mut text = match straggler.communication {
        Some((own, median)) => format!(
            "rank {} communicates {:.1} % of its time, and ranks with the same part in the job {:.1} % (median): who \
             arrives last communicates least. How long others wait for it is not known, because the causes are not.",
            row.rank,
            own * 100.0,
            median * 100.0
        ),
        None => format!(
            "rank {}: {:.0} % of all waiting{} is for it; it began {} of {} collectives last, {} after the first rank in the \
             median.",
            row.rank,
            straggler.share * 100.0,
            waiting_words(report),
            row.last,
            report.collectives,
            duration(row.late_ns)
        ),
    };
    let (worst, of) = straggler.tenths;
    if worst < of && straggler.communication.is_none() {
        let _ = write!(text, " Not all the time: in {worst} of {of} parts of the run most waiting is for it.");
    }
    let Some((leaf, more)) = straggler.excess else { return text };
    let others = match straggler.role {
        1 => "the rank with the same part in the job".to_owned(),
        role => format!("the median of the {role} ranks with the same part in the job"),
    };
    let each = match straggler.steps {
        0 => String::new(),
        steps => format!(", {} a step", duration(more / steps)),
    };
    let _ = write!(text, " It spent {} more{each}, than {others} with: {}.", duration(more), words::cause(leaf));
    match &straggler.evidence {
        Some(ExcessEvidence::Kernel { name, counts, times }) => {
            let name = shortened(name, NAME);
            let took = format!("{} against {}", duration(times.0), duration(times.1));
            let _ = match counts.0 > counts.1 {
                true => write!(text, " More work: {name} ran {} times against {} ({took}).", counts.0, counts.1),
                false => write!(
                    text,
                    " As many kernels, each slower: {name} took {took} in {} launches. Compare clocks, power and ECC \
                     errors of the GPUs, and the shapes of the inputs.",
                    counts.0
                ),
            };
        }
        Some(ExcessEvidence::Line { cause, file, line, function, total_ns }) => {
            // A thread without Python frames has a name and no file.
            let place = match file.is_empty() {
                true => "in thread".to_owned(),
                false => format!("at {}:{line}", shortened(file, NAME)),
            };
            let _ = write!(
                text,
                " Its host was {place} {} ({}, {}).",
                shortened(function, NAME),
                cause.name(),
                duration(*total_ns)
            );
        }
        None => {}
    }
    text
}

/// Sentences about the composition of the duration.
fn path_sentences(report: &RanksReport, path: &CriticalPath) -> String {
    let share = |nanos: u64| 100.0 * nanos as f64 / path.total_ns.max(1) as f64;
    let mut leaves: Vec<_> = Leaf::ALL.into_iter().map(|leaf| (path.leaves[leaf as usize], leaf)).collect();
    leaves.sort_unstable_by_key(|&(nanos, leaf)| (Reverse(nanos), leaf));
    let causes = leaves.iter().take(PATH_PARTS).filter(|(nanos, _)| *nanos > 0);
    let causes = causes.map(|&(nanos, leaf)| format!("{} {:.1} %", words::cause(leaf), share(nanos)));
    let ranks = path.ranks.iter().take(PATH_PARTS);
    let ranks = ranks.map(|&(place, nanos)| format!("{} {:.1} %", report.rows[place as usize].rank, share(nanos)));
    let mut text = format!(
        "{} over {} collectives: {}. By rank: {}.",
        duration(path.total_ns),
        path.collectives,
        causes.collect::<Vec<_>>().join(", "),
        ranks.collect::<Vec<_>>().join(", ")
    );
    if let Some(less) = path.without_excess_ns
        && less > 0
        && path.total_ns as f64 / less as f64 >= WORTH_SHOWING
    {
        let gain = about(path.total_ns as f64 / less as f64, None);
        let _ = write!(text, " Without what the straggler has more than others the job is at most {gain} faster.");
    }
    text
}

/// Appends the limits of each rank's computation, in percent, if samples show them.
fn limits_table(out: &mut Page, report: &RanksReport) {
    let rows: Vec<_> = report.rows.iter().filter_map(|row| Some((row.rank, row.limits.as_ref()?))).collect();
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(out, "what limits computation, % of it:");
    let _ = writeln!(out, "  rank   tensor   memory    issue  latency few warps idle SMs low clock not told");
    for (rank, times) in rows.iter().take(SHOWN) {
        let total = times.iter().sum::<u64>().max(1) as f64;
        let [tensor, memory, issue, latency, warps, idle, clock, unresolved] =
            Limit::ALL.map(|limit| format!("{:.1}", 100.0 * times[limit as usize] as f64 / total));
        let _ = writeln!(
            out,
            "  {rank:>4} {tensor:>8} {memory:>8} {issue:>8} {latency:>8} {warps:>9} {idle:>8} {clock:>9} {unresolved:>8}"
        );
    }
    if rows.len() > SHOWN {
        let _ = writeln!(out, "  ... {} more", rows.len() - SHOWN);
    }
}

const fn bottleneck(cause: Cause) -> &'static str {
    match cause {
        Cause::NoWork | Cause::CannotTell => "no bottleneck",
        Cause::Launch => "launches",
        Cause::HostCpu => "CPU work",
        Cause::Communication => "communication",
        cause => words::bottleneck(cause),
    }
}

/// Possible gain of the rank that waits most.
fn best_case(report: &RanksReport) -> Option<String> {
    let speedup = |row: &RankRow| row.window_ns as f64 / row.without_waiting_ns().max(1) as f64;
    let row = report.rows.iter().max_by(|a, b| speedup(a).total_cmp(&speedup(b)))?;
    (speedup(row) >= WORTH_SHOWING).then(|| {
        format!(
            "rank {}: up to {} faster if it never waited for other ranks in collectives (rough bound)",
            row.rank,
            about(speedup(row), None)
        )
    })
}
