//! List of the captures of a run, one line each, shown next to the report about one of them.
//!
//! A run that was not split into captures has no list: its report covers the complete run.

use std::fmt::Write;

use gpuwhy_trace::record::Timestamp;

use super::{CaptureRow, Report, bursts};
use crate::text_format::{Page, counted, duration};
use crate::words;

/// Lines in the text; the JSON lists all.
const SHOWN: usize = 12;

impl CaptureRow {
    /// Copies the result of `report` into the row of the capture that ended at `end`.
    pub(crate) fn conclude(&mut self, end: Timestamp, report: &Report) {
        if self.begin == Timestamp::ZERO {
            self.begin = report.process.start;
        }
        self.end = Some(end);
        self.kernels = report.completeness.kernels;
        self.bottleneck = Some((report.bottleneck.cause, report.bottleneck.share));
    }
}

/// Appends the lines of the text; none for a run without captures.
pub(super) fn lines(out: &mut Page, report: &Report) {
    if let Some(table) = &report.bursts {
        return bursts::lines(out, report, table);
    }
    let table = &report.captures;
    // A run that is down to bursts has one capture until the first of them.
    let awaits_bursts = table.rows.len() == 1 && report.cost.is_some_and(|cost| cost.has_bursts());
    if table.rows.is_empty() || awaits_bursts {
        return;
    }
    let count = table.rows.len() as u64 + table.beyond_rows;
    match table.shown {
        Some(number) => {
            let _ =
                writeln!(out, "Captures: {count}; this is the report of number {number} (--capture shows another).");
        }
        None => {
            let _ = writeln!(out, "Captures: {count}; there is none with this number.");
        }
    }
    let skipped = table.rows.len().saturating_sub(SHOWN);
    if skipped > 0 {
        let _ = writeln!(out, "  ... {skipped} earlier ones");
    }
    for row in table.rows.iter().skip(skipped) {
        let length = match row.end {
            Some(end) => duration(end.since(row.begin)),
            None => "being taken".to_owned(),
        };
        let bottleneck =
            row.bottleneck.map_or_else(String::new, |(cause, share)| format!(", {}", words::result(cause, share)));
        let after = duration(row.begin.since(report.process.start));
        let _ = writeln!(
            out,
            "  {:>3} by {}: {length} from {after} on, {}{bottleneck}",
            row.number,
            row.trigger.name(),
            counted(row.kernels, "kernel")
        );
    }
}
