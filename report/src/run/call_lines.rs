//! Lines of the calls that launch, copy, wait and allocate, from samples of the launching threads.

use gpuwhy_trace::dictionary::Dictionary;
use profiler_core::attribution::{Attributor, CallKind};
use profiler_core::leaf::Cause;

use super::kernel_lines::share_interval;
use super::{CallLineRow, HostReport};
use crate::text_format::names::short_path;
use crate::text_format::{percent, shortened};

/// Maximum number of lines of each kind in a report.
const LINES: usize = 4;
/// Fewest samples in calls of a kind for a sentence, and the smallest share of a line in it.
const EVIDENT_SAMPLES: u64 = 10;
const EVIDENT_SHARE: f64 = 0.2;

impl CallLineRow {
    /// Rows of samples after start-up: the lines with most samples of each kind.
    pub(super) fn all(attributor: &Attributor, dictionary: &Dictionary) -> Vec<Self> {
        let longest = attributor.devices().max_by_key(|account| account.window_ns());
        let Some(steady) = longest.map(|account| account.steady_start()) else { return Vec::new() };
        let mut rows: Vec<Self> = Vec::new();
        for (calls, place, samples) in attributor.call_lines(steady) {
            let [file, function] = [place.file, place.function].map(|name| dictionary.name(name));
            let known = rows.iter_mut().find(|row| {
                (row.calls, row.line, row.file.as_str(), row.function.as_str()) == (calls, place.line, file, function)
            });
            match known {
                Some(row) => row.samples += samples,
                None => rows.push(Self {
                    calls,
                    file: file.to_owned(),
                    line: place.line,
                    function: function.to_owned(),
                    samples,
                    share: 0.0,
                    share_low: 0.0,
                    share_high: 0.0,
                }),
            }
        }
        rows.sort_by_key(|row| (row.calls, std::cmp::Reverse(row.samples), row.line));
        for kind in CallKind::ALL {
            let all: u64 = rows.iter().filter(|row| row.calls == kind).map(|row| row.samples).sum();
            for row in rows.iter_mut().filter(|row| row.calls == kind) {
                row.share = row.samples as f64 / all.max(1) as f64;
                (row.share_low, row.share_high) = share_interval(row.samples, all);
            }
        }
        let mut kept = [0; CallKind::ALL.len()];
        rows.retain(|row| {
            kept[row.calls as usize] += 1;
            kept[row.calls as usize] <= LINES
        });
        rows
    }

    /// Display text: `train.py:42 (main)`.
    pub fn place(&self) -> String {
        let line = if self.line == 0 { String::new() } else { format!(":{}", self.line) };
        format!("{}{line} ({})", short_path(&self.file), shortened(&self.function, 40))
    }
}

/// Line of more than half of the calls of this kind, if there are enough samples to say so.
pub(super) fn main_place(host: &HostReport, kind: CallKind) -> Option<String> {
    let first = host.calls.iter().find(|row| row.calls == kind)?;
    (first.samples >= EVIDENT_SAMPLES && first.share > 0.5 && !first.file.is_empty()).then(|| first.place())
}

/// Sentence about the lines of calls of this kind.
pub(super) fn sentence(host: &HostReport, kind: CallKind) -> Option<String> {
    let of_kind = || host.calls.iter().filter(|row| row.calls == kind);
    let first = of_kind().next()?;
    let all = first.samples as f64 / first.share;
    if (all as u64) < EVIDENT_SAMPLES {
        return None;
    }
    let evident = of_kind().filter(|row| row.share >= EVIDENT_SHARE && !row.file.is_empty()).take(2);
    let places: Vec<_> = evident
        .map(|row| {
            let [share, low, high] = [row.share, row.share_low, row.share_high].map(percent);
            format!("{} ({share}, {} to {high})", row.place(), low.trim_end_matches(" %"))
        })
        .collect();
    let calls = match kind {
        CallKind::Launch => "The CPU launches",
        CallKind::Copy => "The CPU copies",
        CallKind::Wait => "The CPU waits for the GPU",
        CallKind::Allocation => "The CPU allocates",
    };
    (!places.is_empty()).then(|| format!("{calls} at {}, of {all:.0} samples in such calls.", places.join(" and ")))
}

/// Kinds of calls whose lines are evidence for `cause`.
pub(super) const fn kinds(cause: Cause) -> &'static [CallKind] {
    match cause {
        Cause::Launch => &[CallKind::Launch],
        Cause::Copy => &[CallKind::Copy],
        Cause::Sync => &[CallKind::Wait],
        Cause::Allocator => &[CallKind::Allocation],
        _ => &[],
    }
}
