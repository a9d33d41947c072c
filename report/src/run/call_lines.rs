//! Lines of the calls that launch, copy, wait and allocate, from samples of the launching threads.

use std::collections::BTreeMap;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::Frame;
use profiler_core::attribution::{Attributor, CallKind, LaunchPlace, is_library};
use profiler_core::leaf::Cause;
use profiler_core::sorting::SortRows as _;

use super::kernel_lines::share_interval;
use super::{CallLineRow, HostReport, InnerLineRow, KernelLines, LaunchLineRow, SampledTime};
use crate::text_format::names::short_path;
use crate::text_format::{percent, shortened};

/// Maximum number of lines of each kind in a report.
const LINES: usize = 4;
/// Fewest samples in calls of a kind for a sentence, and the smallest share of a line in it.
const EVIDENT_SAMPLES: u64 = 10;
const EVIDENT_SHARE: f64 = 0.2;
/// Files whose functions only call others, as decorators of libraries do.
const WRAPPERS: [&str; 3] = ["torch/nn/modules/module.py", "torch/utils/_contextlib.py", "/contextlib.py"];
/// Share of the samples from which a line holds nearly all, so that the lines inside it say more.
const HOLDS_ALL: f64 = 0.9;

impl CallLineRow {
    /// Rows of samples after start-up: the lines with most samples of each kind.
    pub(super) fn all(attributor: &Attributor, dictionary: &Dictionary) -> Vec<Self> {
        let longest = attributor.devices().max_by_key(|account| account.window_ns());
        let Some(steady) = longest.map(|account| account.steady_start()) else { return Vec::new() };
        let mut rows: Vec<Self> = Vec::new();
        let lines = attributor.call_lines(steady);
        for &(calls, place, samples) in &lines {
            let [file, function] = [place.file, place.function].map(|name| dictionary.name(name));
            let known = rows.iter().position(|row| {
                (row.calls, row.line, row.file.as_str(), row.function.as_str()) == (calls, place.line, file, function)
            });
            match known {
                Some(index) => rows[index].samples += samples,
                None => rows.push(Self {
                    calls,
                    file: file.to_owned(),
                    line: place.line,
                    function: function.to_owned(),
                    samples,
                    share: 0.0,
                    share_low: 0.0,
                    share_high: 0.0,
                    inner: Vec::new(),
                    innermost: Vec::new(),
                }),
            }
        }
        rows.sort_rows_by_key(|row| (row.calls, std::cmp::Reverse(row.samples), row.line));
        for kind in CallKind::ALL {
            let all: u64 = rows.iter().filter(|row| row.calls == kind).map(|row| row.samples).sum();
            for row in rows.iter_mut().filter(|row| row.calls == kind) {
                row.share = row.samples as f64 / all.max(1) as f64;
                (row.share_low, row.share_high) = share_interval(row.samples, all);
                if row.share >= HOLDS_ALL && row.samples >= EVIDENT_SAMPLES {
                    let calls_others = |frame: &Frame| {
                        let [file, function] = [frame.file, frame.function].map(|name| dictionary.name(name));
                        let decorates = is_library(file) && function.contains("<locals>.");
                        decorates || WRAPPERS.iter().any(|wrapper| file.ends_with(wrapper))
                    };
                    let mut stacks = row.stacks(&lines, dictionary);
                    stacks.iter_mut().for_each(|(frames, _)| frames.retain(|frame| !calls_others(frame)));
                    row.inner = inner_lines(&stacks, dictionary);
                }
            }
        }
        let mut kept = [0; CallKind::ALL.len()];
        rows.retain(|row| {
            kept[row.calls as usize] += 1;
            kept[row.calls as usize] <= LINES
        });
        for row in rows.iter_mut().filter(|row| row.calls == CallKind::Launch) {
            let mut innermost: BTreeMap<_, u64> = BTreeMap::new();
            for (frames, samples) in row.stacks(&lines, dictionary) {
                // Native frames have no line.
                if let Some(frame) = frames.into_iter().rfind(|frame| frame.line > 0) {
                    *innermost.entry((frame.file, frame.function)).or_default() += samples;
                }
            }
            let named = |((file, function), samples)| {
                (dictionary.name(file).to_owned(), dictionary.name(function).to_owned(), samples)
            };
            row.innermost = innermost.into_iter().map(named).collect();
        }
        rows
    }

    /// Frames inside the line, the outermost first, with their samples.
    fn stacks(&self, lines: &[(CallKind, &LaunchPlace, u64)], dictionary: &Dictionary) -> Vec<(Vec<Frame>, u64)> {
        let of_line = lines.iter().filter(|(calls, place, _)| {
            *calls == self.calls
                && place.line == self.line
                && dictionary.name(place.file) == self.file
                && dictionary.name(place.function) == self.function
        });
        of_line.map(|(_, place, samples)| (place.inner_frames(dictionary), *samples)).collect()
    }

    /// Samples in all calls of this kind, also those of lines that the report leaves out.
    pub(super) fn samples_of_kind(&self) -> f64 {
        self.samples as f64 / self.share
    }

    /// Samples whose innermost frame inside the line contains one of these parts, in the file or the function.
    pub(super) fn samples_in(&self, parts: &[&str]) -> u64 {
        let has = |text: &str| parts.iter().any(|part| text.contains(part));
        self.innermost
            .iter()
            .filter(|(file, function, _)| has(file) || has(function))
            .map(|(.., samples)| samples)
            .sum()
    }

    /// Display text: `train.py:42 (main)`.
    pub fn place(&self) -> String {
        place_text(&self.file, self.line, &self.function)
    }
}

fn place_text(file: &str, line: u32, function: &str) -> String {
    let line = if line == 0 { String::new() } else { format!(":{line}") };
    format!("{}{line} ({})", short_path(file), shortened(function, 40))
}

/// Lines that divide the samples of `stacks`, whose frames are the outermost first: those of the first frame at which
/// no line holds nearly all. Empty if most samples end before.
fn inner_lines(stacks: &[(Vec<Frame>, u64)], dictionary: &Dictionary) -> Vec<InnerLineRow> {
    let all: u64 = stacks.iter().map(|(_, samples)| samples).sum();
    let share = |samples: u64| samples as f64 / all.max(1) as f64;
    let deepest = stacks.iter().map(|(frames, _)| frames.len()).max().unwrap_or_default();
    for depth in 0..deepest {
        let mut lines: Vec<(Frame, u64)> = Vec::new();
        for (frame, samples) in stacks.iter().filter_map(|(frames, samples)| Some((*frames.get(depth)?, samples))) {
            let same = |known: &Frame| (known.file, known.line) == (frame.file, frame.line);
            match lines.iter_mut().find(|(known, _)| same(known)) {
                Some((_, sum)) => *sum += samples,
                None => lines.push((frame, *samples)),
            }
        }
        lines.sort_rows_by_key(|&(frame, samples)| (std::cmp::Reverse(samples), frame.line));
        if share(lines.iter().map(|(_, samples)| samples).sum()) <= 0.5 {
            break;
        }
        if lines.first().is_some_and(|&(_, most)| share(most) >= HOLDS_ALL) {
            continue;
        }
        let evident = lines.into_iter().filter(|&(_, samples)| share(samples) >= EVIDENT_SHARE).take(3);
        let row = |(frame, samples): (Frame, u64)| InnerLineRow {
            file: dictionary.name(frame.file).to_owned(),
            line: frame.line,
            function: dictionary.name(frame.function).to_owned(),
            share: share(samples),
        };
        return evident.map(row).collect();
    }
    Vec::new()
}

/// Line of more than half of the calls of this kind, if there are enough samples to say so.
pub(super) fn main_place(host: &HostReport, kind: CallKind) -> Option<String> {
    let first = host.calls.iter().find(|row| row.calls == kind)?;
    (first.samples >= EVIDENT_SAMPLES && first.share > 0.5 && !first.file.is_empty()).then(|| first.place())
}

/// Line of more than half of the waits. Where the copies are reads (`copies_read`), too, of which each has a copy and a
/// wait: that of nearly all of both.
pub(super) fn read_place(host: &HostReport, copies_read: bool) -> Option<String> {
    let reads = || host.calls.iter().filter(|row| matches!(row.calls, CallKind::Copy | CallKind::Wait));
    let first = reads().find(|row| row.calls == CallKind::Wait && !row.file.is_empty());
    let of_both = first.filter(|_| copies_read).filter(|first| {
        let same = reads().filter(|row| (&row.file, row.line) == (&first.file, first.line));
        let same: u64 = same.map(|row| row.samples).sum();
        let of_kind = |kind| reads().find(|row| row.calls == kind).map_or(0.0, CallLineRow::samples_of_kind);
        same >= EVIDENT_SAMPLES && same as f64 >= HOLDS_ALL * (of_kind(CallKind::Copy) + of_kind(CallKind::Wait))
    });
    main_place(host, CallKind::Wait).or_else(|| of_both.map(CallLineRow::place))
}

/// Sentence about the lines of calls of this kind.
pub(super) fn sentence(host: &HostReport, kind: CallKind) -> Option<String> {
    let of_kind = || host.calls.iter().filter(|row| row.calls == kind);
    let first = of_kind().next()?;
    let all = first.samples_of_kind();
    if (all as u64) < EVIDENT_SAMPLES {
        return None;
    }
    let evident = of_kind().filter(|row| row.share >= EVIDENT_SHARE && !row.file.is_empty()).take(2);
    let places: Vec<_> =
        evident.map(|row| with_share(&row.place(), row.share, row.share_low, row.share_high)).collect();
    let inner: Vec<_> = first
        .inner
        .iter()
        .map(|row| format!("{} ({})", place_text(&row.file, row.line, &row.function), percent(row.share)))
        .collect();
    let inner = if inner.is_empty() { String::new() } else { format!("; inside it at {}", inner.join(" and ")) };
    let calls = match kind {
        CallKind::Launch => "The CPU launches",
        CallKind::Copy => "The CPU copies",
        CallKind::Memset => "The CPU sets memory of the GPU",
        CallKind::Wait => "The CPU waits for the GPU",
        CallKind::Allocation => "The CPU allocates",
    };
    (!places.is_empty())
        .then(|| format!("{calls} at {}, of {all:.0} samples in such calls{inner}.", places.join(" and ")))
}

fn with_share(place: &str, share: f64, low: f64, high: f64) -> String {
    let [share, low, high] = [share, low, high].map(percent);
    format!("{place} ({share}, {} to {high})", low.trim_end_matches(" %"))
}

/// Sentence about the lines that launch most of the time of kernels.
pub(super) fn kernel_sentence(lines: &KernelLines) -> Option<String> {
    let kernel_ns = lines.kernel_ns.max(1) as f64;
    let evident = lines
        .lines
        .iter()
        .filter(|row| row.share >= EVIDENT_SHARE && row.time.samples >= EVIDENT_SAMPLES && row.place.line > 0);
    let place = |row: &LaunchLineRow| {
        let SampledTime { low_ns, high_ns, .. } = row.time;
        with_share(&row.place.line_text(), row.share, low_ns / kernel_ns, high_ns / kernel_ns)
    };
    let places: Vec<_> = evident.take(2).map(place).collect();
    (!places.is_empty()).then(|| format!("The kernels that take the time are launched at {}.", places.join(" and ")))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::BetweenIterations;
    use profiler_core::attribution::SampleTotals;

    /// Lines with kind, number, samples, and samples of all lines of the kind.
    fn host(rows: &[(CallKind, u32, u64, u64)]) -> HostReport {
        let calls = rows.iter().map(|&(calls, line, samples, all)| CallLineRow {
            calls,
            file: "train.py".to_owned(),
            line,
            function: "main".to_owned(),
            samples,
            share: samples as f64 / all as f64,
            share_low: 0.0,
            share_high: 1.0,
            inner: Vec::new(),
            innermost: Vec::new(),
        });
        HostReport {
            totals: SampleTotals::default(),
            failed: 0,
            outside_cuda_ns: 0,
            sampled_ns: 0,
            causes: Vec::new(),
            lines: Vec::new(),
            between: BetweenIterations::default(),
            calls: calls.collect(),
            lock_waits: 0,
            lock_handovers: 0,
            lock_holders: Vec::new(),
        }
    }

    #[test]
    fn reads_are_at_the_line_of_waits_or_of_nearly_all_copies_that_read() {
        use CallKind::{Copy, Wait};
        let line = Some("train.py:42 (main)".to_owned());
        let at = |rows: &[_], copies_read| read_place(&host(rows), copies_read);
        assert_eq!(at(&[(Copy, 7, 900, 900), (Wait, 42, 20, 30)], false), line);
        let few = [(Copy, 42, 100, 100), (Wait, 42, 1, 1)];
        assert_eq!(at(&few, true), line);
        // Copies to the GPU.
        assert_eq!(at(&few, false), None);
        // Most copies are at lines that the report leaves out.
        assert_eq!(at(&[(Copy, 42, 100, 400), (Wait, 42, 1, 1)], true), None);
    }
}
