//! The captures of a run, one line each, beside the report about one of them.
//!
//! A run that nobody cut into captures has none here: its report is about all of it.

use std::fmt::Write;

use super::Report;
use crate::attribution::leaf::Group;
use crate::capture::Trigger;
use crate::record::Timestamp;
use crate::text_format::{Page, counted, duration, percent};
use crate::words;

/// Lines of the text; the JSON has all.
const SHOWN: usize = 12;

/// What there is to choose from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaptureTable {
    /// Number of the capture that the report is about; `None` when the run was not cut into captures, or when the
    /// capture that was asked for does not exist.
    pub shown: Option<u32>,
    /// One row for each capture, in the order in which they ended.
    pub rows: Vec<CaptureRow>,
    /// Captures that got no row, because there were too many.
    pub beyond_rows: u64,
}

/// One capture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaptureRow {
    /// Counts from 1.
    pub number: u32,
    /// Why it began.
    pub trigger: Trigger,
    /// When it began; 0 when it began with the trace.
    pub begin: Timestamp,
    /// When its range ended; `None` while it is being taken.
    pub end: Option<Timestamp>,
    /// Kernels in it.
    pub kernels: u64,
    /// Its verdict and the share, 0 to 1, once it has ended.
    pub verdict: Option<(Group, f64)>,
}

impl CaptureRow {
    /// Enters what the report of the capture, which ended at `end`, says.
    pub(crate) fn conclude(&mut self, end: Timestamp, report: &Report) {
        if self.begin == Timestamp::ZERO {
            self.begin = report.process.start;
        }
        self.end = Some(end);
        self.kernels = report.completeness.kernels;
        self.verdict = Some((report.verdict.group, report.verdict.share));
    }
}

/// The lines of the text; nothing for a run without captures.
pub(super) fn lines(out: &mut Page, report: &Report) {
    let table = &report.captures;
    if table.rows.is_empty() {
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
        let verdict = row.verdict.map_or_else(String::new, |(group, share)| match group {
            Group::NoWork => ", no GPU work".to_owned(),
            Group::CannotTell => ", no verdict".to_owned(),
            group => format!(", {} {}", words::spent(group), percent(share)),
        });
        let after = duration(row.begin.since(report.process.start));
        let _ = writeln!(
            out,
            "  {:>3} by {}: {length} from {after} on, {}{verdict}",
            row.number,
            row.trigger.name(),
            counted(row.kernels, "kernel")
        );
    }
}
