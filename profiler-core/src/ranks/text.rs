//! The comparison of ranks for people.

use std::fmt::Write;

use super::{RankRow, RanksReport};
use crate::attribution::leaf::{Group, Leaf};
use crate::counters::roofs::Limit;
use crate::text_format::{Page, Style, duration, shortened, wrapped};
use crate::whatif::about;
use crate::words;

/// Ranks of the table; the others are counted.
const SHOWN: usize = 32;
/// A gain below this is not worth a line.
const WORTH_SHOWING: f64 = 1.01;

pub(super) fn text(report: &RanksReport, style: Style) -> String {
    let mut out = Page::new(style);
    let size = report.world_size.map_or_else(String::new, |world| format!(" of {world}"));
    let _ = writeln!(out, "ranks: {}{size}; hosts: {}", report.rows.len(), report.clocks.len());
    let _ =
        writeln!(out, "  rank  host            run computes    comm.   waited   caused   last     late  bottleneck");
    for row in report.rows.iter().take(SHOWN) {
        let share = |nanos: u64| format!("{:.1} %", 100.0 * nanos as f64 / row.window_ns.max(1) as f64);
        let _ = writeln!(
            out,
            "  {:>4}  {:<10} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>8}  {}",
            row.rank,
            shortened(&row.host, 10),
            duration(row.window_ns),
            share(Group::GpuCompute.total(&row.leaves)),
            share(row.leaves[Leaf::Communication as usize]),
            duration(row.waited_ns),
            duration(row.awaited_ns),
            row.last,
            duration(row.late_ns),
            bottleneck(row.verdict.0),
        );
    }
    if report.rows.len() > SHOWN {
        let _ = writeln!(out, "  ... {} more", report.rows.len() - SHOWN);
    }
    wrapped(
        &mut out,
        "  ",
        "comm.: communicating. waited: for other ranks in collectives. caused: how long others waited for this rank. last: \
         collectives that it began last. late: how long after the first rank it began them (median).",
    );
    limits_table(&mut out, report);
    if report.collectives > 0 {
        let waited: u64 = report.rows.iter().map(|row| row.waited_ns).sum();
        let share = 100.0 * waited as f64 / report.collective_ns.max(1) as f64;
        let sentence = format!(
            "{} on all ranks; {share:.1} % of their time is spent waiting for the last rank, the rest moves data.",
            report.collectives
        );
        wrapped(&mut out, "collectives: ", &sentence);
    }
    if let Some(sentence) = ceiling(report) {
        wrapped(&mut out, "best case: ", &sentence);
    }
    match report.straggler {
        Some(straggler) => {
            let row = &report.rows[straggler.row];
            let why = straggler.excess.map_or_else(String::new, |(leaf, more)| {
                format!(" It spent {} more than the median of the others with: {}.", duration(more), words::cause(leaf))
            });
            let sentence = format!(
                "rank {}: {:.0} % of all waiting is for it; it began {} of {} collectives last, {} after the first rank in \
                 the median.{why}",
                row.rank,
                straggler.share * 100.0,
                row.last,
                report.collectives,
                duration(row.late_ns)
            );
            wrapped(&mut out, "straggler: ", &sentence);
        }
        None if report.collectives > 0 => {
            let _ = writeln!(
                out,
                "straggler: none; no rank causes more than half of the waiting, or there is little waiting"
            );
        }
        None => {}
    }
    for (number, clock) in report.clocks.iter().enumerate() {
        let offset = match clock.offset_ns {
            _ if report.clocks.len() == 1 => "one clock for all".to_owned(),
            _ if number == 0 => "the reference; the others are adjusted to it".to_owned(),
            // What is added to its times is what it is behind.
            Some(offset) => {
                format!("{} by {}", if offset > 0 { "behind" } else { "ahead" }, duration(offset.unsigned_abs()))
            }
            None => "offset unknown".to_owned(),
        };
        let scatter = clock.scatter_ns.map_or_else(String::new, |[half, most]| {
            format!("; ends of the same collective differ by {} (median), {} (95 %)", duration(half), duration(most))
        });
        // What others recorded has no host.
        let host = match clock.host.as_str() {
            "" if report.clocks.len() == 1 => String::new(),
            "" => "host not recorded: ".to_owned(),
            name => format!("{name}: "),
        };
        wrapped(&mut out, "clock: ", &format!("{host}{offset}{scatter}"));
    }
    for doubt in &report.doubts {
        wrapped(&mut out, "not known: ", doubt);
    }
    out.into_text()
}

/// What limits the computation of each rank, in percent of it, where samples tell.
fn limits_table(out: &mut Page, report: &RanksReport) {
    let rows: Vec<_> = report.rows.iter().filter_map(|row| Some((row.rank, row.limits.as_ref()?))).collect();
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(out, "what limits computation, % of it:");
    let _ = writeln!(out, "  rank   tensor   memory    issue  latency few warps idle SMs low clock not told");
    for (rank, times) in rows.iter().take(SHOWN) {
        let total = times.iter().sum::<u64>().max(1) as f64;
        let [tensor, memory, issue, latency, warps, idle, clock, untold] =
            Limit::ALL.map(|limit| format!("{:.1}", 100.0 * times[limit as usize] as f64 / total));
        let _ = writeln!(
            out,
            "  {rank:>4} {tensor:>8} {memory:>8} {issue:>8} {latency:>8} {warps:>9} {idle:>8} {clock:>9} {untold:>8}"
        );
    }
    if rows.len() > SHOWN {
        let _ = writeln!(out, "  ... {} more", rows.len() - SHOWN);
    }
}

/// The bottleneck of a rank.
const fn bottleneck(group: Group) -> &'static str {
    match group {
        Group::NoWork | Group::CannotTell => "no verdict",
        Group::Launch => "launches",
        Group::HostCpu => "CPU work",
        Group::Communication => "communication",
        group => words::bottleneck(group),
    }
}

/// What the rank that waits most could gain.
fn ceiling(report: &RanksReport) -> Option<String> {
    let speedup = |row: &RankRow| row.window_ns as f64 / row.without_waiting_ns().max(1) as f64;
    let row = report.rows.iter().max_by(|a, b| speedup(a).total_cmp(&speedup(b)))?;
    (speedup(row) >= WORTH_SHOWING).then(|| {
        format!(
            "rank {}: up to {} faster if it never waited for other ranks in collectives (rough bound)",
            row.rank,
            about(speedup(row))
        )
    })
}
