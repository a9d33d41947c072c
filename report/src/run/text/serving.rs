//! Paragraph about the iterations of a server.

use std::fmt::Write;

use profiler_core::attribution::servers::Meaning;

use crate::run::Report;
use crate::run::serving::{Serving, ServingKind, TokenBound};
use crate::text_format::{Page, counted, duration, percent, shortened, wrapped};
use crate::words;

/// Least share of the time for a meaning to be named.
const NAMED: f64 = 0.01;
/// Least part of what makes slow iterations longer for its cause to be named.
const MOSTLY: f64 = 0.5;
/// Ratio of the ends from which only the lower end of a bound is shown.
const WIDE: f64 = 2.0;

/// Appends the paragraph. Returns false unless the steps are the iterations of a server.
pub(super) fn write(out: &mut Page, report: &Report) -> bool {
    let Some(serving) = report.serving() else { return false };
    wrapped(out, serving.lead(), &serving.head());
    for row in aligned(serving.kinds.iter().map(cells).collect()) {
        let _ = writeln!(out, "{}", shortened(&format!("  {row}"), out.columns()));
    }
    let rest = serving.sentences().join(" ");
    if !rest.is_empty() {
        wrapped(out, "  ", &rest);
    }
    true
}

impl Serving {
    /// Without a server's functions and waits, one sequence may as well be a program that calls `generate`.
    fn is_generation(&self) -> bool {
        let waits = self.no_requests_share.is_some_and(|share| share > 0.0) || self.on_host;
        self.between.server.is_none() && !waits && self.kinds.iter().all(|of| of.kind.sequences == Some(1))
    }

    fn lead(&self) -> &'static str {
        if self.is_generation() { "Generation: " } else { "Server: " }
    }

    /// The first kind: `decode 65.7 ms 1373 tokens/s`.
    pub(super) fn live_part(&self) -> String {
        let first = self.kinds.first().map(|of| {
            let rate = of.tokens_per_second.map(|rate| format!(" {rate:.0} tokens/s")).unwrap_or_default();
            format!("{} {}{rate}", of.kind.name, duration(of.kind.median_ns))
        });
        first.unwrap_or_default()
    }

    fn head(&self) -> String {
        let who = if self.is_generation() { Some("one sequence") } else { self.between.server };
        let who = who.map(|who| format!("{who}, ")).unwrap_or_default();
        let of = if self.iterations > self.remembered {
            format!("; p50 and p99 are of the last {}", self.remembered)
        } else {
            String::new()
        };
        let all = counted(self.iterations, "iteration");
        let clock = if self.on_host { ", with times of the CPU" } else { "" };
        format!("{who}{all}, found by copies to the CPU{clock}{of}.")
    }

    fn sentences(&self) -> Vec<String> {
        let largest = self.kinds.iter().max_by_key(|of| of.kind.total_ns).filter(|of| of.decodes());
        let limit = largest.and_then(|of| {
            let (cause, share) = of.largest?;
            let slow = of.slow_by.filter(|(_, part)| *part >= MOSTLY).map_or_else(String::new, |(by, part)| {
                let by = if by == cause { "the same" } else { words::spent(by) };
                format!("; its slowest tenth is longer by {by} ({} of the difference)", percent(part))
            });
            Some(format!("Decode: {} {}{slow}.", words::spent(cause), percent(share)))
        });
        let of_time = |nanos: u64| nanos as f64 / self.steady_ns.max(1) as f64;
        let rows = self.between.rows.iter().filter(|row| row.meaning != Meaning::NoRequests);
        let rows = rows.map(|row| (row.meaning, of_time(row.total_ns))).filter(|(_, share)| *share >= NAMED);
        let between: Vec<_> = rows.map(|(of, share)| format!("{} {}", of.name(), percent(share))).collect();
        let between = (!between.is_empty()).then(|| format!("Between iterations: {}.", between.join(", ")));
        let idle = self.no_requests_share.filter(|share| *share >= NAMED);
        let idle = idle.map(|share| format!("No requests: {} of the time.", percent(share)));
        let bound = self.bound.map(|bound| bound.sentence());
        [limit, between, idle, bound].into_iter().flatten().collect()
    }
}

impl TokenBound {
    fn sentence(&self) -> String {
        let [now, value, low, high] = [self.now, self.value, self.low, self.high].map(two_digits);
        let most = match self.high > WIDE * self.low {
            true => format!("more than {low}"),
            false => format!("about {value} ({low} to {high})"),
        };
        format!("All iterations make {now} tokens/s; if the GPU never waited, the same ones would make {most}.")
    }
}

/// A positive number with two significant digits, or all of its integer part if that has fewer.
pub(super) fn two_digits(value: f64) -> f64 {
    let unit = 10_f64.powf((value.max(1.0).log10() - 1.0).floor().max(0.0));
    (value / unit).round() * unit
}

/// Cells of a kind's row.
fn cells(of: &ServingKind) -> [String; 7] {
    let kind = &of.kind;
    let rate = of.tokens_per_second.map(|rate| format!("{rate:.0} tokens/s"));
    let tokens = kind.tokens.map(|tokens| counted(tokens, "token"));
    [
        kind.name.to_owned(),
        kind.count.to_string(),
        format!("p50 {}", duration(kind.median_ns)),
        format!("p99 {}", duration(kind.p99_ns)),
        kind.sequences.filter(|_| of.decodes()).map_or_else(String::new, |count| counted(count.into(), "sequence")),
        if of.decodes() { rate } else { tokens }.unwrap_or_default(),
        of.busy.map_or_else(String::new, |busy| format!("GPU busy {}", percent(busy).replace("less than ", "<"))),
    ]
}

/// Rows whose cells have the same width in each column. Numbers of iterations end at one column.
fn aligned<const N: usize>(rows: Vec<[String; N]>) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let cell = |(column, text): (usize, &String)| match widths[column] {
        0 => String::new(),
        width if column == 1 => format!("{text:>width$}  "),
        width => format!("{text:width$}  "),
    };
    rows.iter().map(|row| row.iter().enumerate().map(cell).collect::<String>().trim_end().to_owned()).collect()
}
