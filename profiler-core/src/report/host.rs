//! What the launching threads were doing while devices were idle, as far as looks at them tell.
//!
//! Idle time is that of steady device time, by the gap rule: what a sample says of a thread while the device was busy
//! costs nothing and is not here. The sums over samples are about the threads, whatever the device did.

use std::fmt::Write;

use rustc_hash::FxHashMap;

use super::{CauseRow, DeviceReport, HostReport, LineRow};
use crate::attribution::host_cause::HostCause;
use crate::attribution::leaf::{Group, Leaf};
use crate::attribution::{Attributor, DeviceAccount, HostLine, LineId, Subject, is_native};
use crate::dictionary::Dictionary;
use crate::record::NameId;
use crate::text_format::{Page, counted, duration, shortened, wrapped};
use crate::words;

/// Lines of code that are listed.
const LINES: usize = 32;
/// Lines of code in the long report.
const LINES_SHOWN: usize = 3;

impl LineRow {
    /// Place for people: `train.py:42 (main), in torch/optim/adamw.py (step)`.
    #[must_use]
    pub fn place(&self) -> String {
        // A native function has no line.
        let line = if self.line == 0 { String::new() } else { format!(":{}", self.line) };
        let mut place = format!("{}{line} ({})", short_path(&self.file), shortened(&self.function, 40));
        if let Some((function, file)) = &self.within {
            let part = match self.within_ns as f64 / self.total_ns.max(1) as f64 * 100.0 {
                whole if whole >= 99.5 => String::new(),
                percent => format!("{percent:.0} % "),
            };
            let _ = write!(place, ", in {} ({part}{})", short_path(file), shortened(function, 40));
        }
        place
    }
}

impl HostReport {
    /// What is known now; `None` when no sample was taken, none failed, and no range named a data loader.
    #[must_use]
    pub fn of(attributor: &Attributor, dictionary: &Dictionary, devices: &[DeviceReport], failed: u64) -> Option<Self> {
        let totals = attributor.sample_totals();
        let steady: u64 = devices.iter().flat_map(|device| device.steady_leaves).sum();
        let late = [Leaf::HostCpu, Leaf::HostBlocked, Leaf::DataLoading];
        let outside_cuda_ns =
            devices.iter().flat_map(|device| late.map(|leaf| device.steady_leaves[leaf as usize])).sum();
        let seen = seen(attributor, &late);
        if totals.samples == 0 && failed == 0 && seen.is_empty() {
            return None;
        }
        let mut causes: Vec<CauseRow> =
            HostCause::ALL.into_iter().map(|cause| CauseRow { cause, total_ns: 0 }).collect();
        let mut by_line: Vec<(LineId, HostCause, u64)> = Vec::new();
        for &(cause, line, nanos) in &seen {
            causes[cause as usize].total_ns += nanos;
            by_line.push((line, cause, nanos));
        }
        let sampled_ns = causes.iter().map(|row| row.total_ns).sum();
        causes.retain(|row| row.total_ns > 0);
        causes.sort_by_key(|row| (std::cmp::Reverse(row.total_ns), row.cause));
        let longest = devices.iter().max_by_key(|device| device.window_ns);
        let told = longest.filter(|device| device.step_meaning.told_by.is_some());
        let step = told.and_then(|device| device.steps.as_ref()).map(|steps| steps.duration_percentile(50));
        let row = |Called { line, cause, total_ns, within_ns }: Called<'_>| {
            let share = total_ns as f64 / steady.max(1) as f64;
            let name = |id: NameId| dictionary.name(id).to_owned();
            LineRow {
                cause,
                file: name(line.file),
                line: line.line,
                function: name(line.function),
                within: line.within.map(|(function, file)| (name(function), name(file))),
                total_ns,
                within_ns,
                share,
                step_ns: step.map(|nanos| (share * nanos as f64) as u64),
            }
        };
        // Lines are numbered as samples come; their names do not depend on that.
        let mut lines: Vec<_> = lines_of(by_line)
            .into_iter()
            .filter_map(|(id, cause, nanos)| Some((attributor.host_line(id)?, cause, nanos)))
            .collect();
        lines.sort_by_key(|&(line, _, nanos)| (std::cmp::Reverse(nanos), line));
        let lines = by_library(&lines, dictionary);
        Some(Self {
            totals,
            failed,
            outside_cuda_ns,
            sampled_ns,
            causes,
            lines: lines.into_iter().take(LINES).map(row).collect(),
        })
    }

    /// Lines with a cause of `group`.
    pub(super) fn lines_of(&self, group: Group) -> impl Iterator<Item = &LineRow> {
        self.lines.iter().filter(move |row| row.cause.leaf().group() == group)
    }

    /// Idle time that was seen to have one of `causes`.
    pub(super) fn seen_with(&self, causes: &[HostCause]) -> u64 {
        self.causes.iter().filter(|row| causes.contains(&row.cause)).map(|row| row.total_ns).sum()
    }

    /// Appends the section of the long report.
    pub(super) fn write(&self, out: &mut Page) {
        let totals = &self.totals;
        if totals.samples == 0 && self.failed == 0 {
            return;
        }
        let percent = |nanos: u64| nanos as f64 / totals.covered_ns.max(1) as f64 * 100.0;
        let mut parts = vec![
            format!("running {:.1} %", percent(totals.on_cpu_ns)),
            format!("waiting for a CPU core {:.1} %", percent(totals.runnable_ns)),
        ];
        let mut waits: Vec<_> =
            HostCause::ALL.into_iter().map(|cause| (totals.off_cpu_ns[cause as usize], cause)).collect();
        waits.sort_by_key(|&(nanos, cause)| (std::cmp::Reverse(nanos), cause));
        for (nanos, cause) in waits.into_iter().take(4).filter(|&(nanos, _)| percent(nanos) >= 0.05) {
            parts.push(format!("{} {:.1} % ({})", words::activity(cause), percent(nanos), duration(nanos)));
        }
        let failed = if self.failed == 0 { String::new() } else { format!(", {} failed", self.failed) };
        let samples = counted(totals.samples, "sample");
        wrapped(out, "CPU, launching threads: ", &format!("{} ({samples}{failed})", parts.join(", ")));
        for row in self.lines.iter().take(LINES_SHOWN).filter(|row| row.share >= 0.005) {
            let cost =
                row.step_ns.map_or_else(|| duration(row.total_ns), |nanos| format!("{} a step", duration(nanos)));
            let share = row.share * 100.0;
            let doing = words::activity(row.cause);
            wrapped(out, "  - GPU idle for ", &format!("{cost} ({share:.1} %): {doing} at {}", row.place()));
        }
    }
}

/// Steady idle time of all devices in `leaves` that was seen: cause, line and nanoseconds.
fn seen(attributor: &Attributor, leaves: &[Leaf]) -> Vec<(HostCause, LineId, u64)> {
    let causes = |account: &DeviceAccount| -> Vec<_> { leaves.iter().flat_map(|&leaf| account.causes(leaf)).collect() };
    let blamed = attributor.devices().flat_map(causes);
    blamed
        .filter_map(|(subject, tally)| match subject {
            Subject::Host(cause, line) => Some((cause, line, tally.total_ns)),
            _ => None,
        })
        .collect()
}

/// Sums by line, with the cause that has most of it.
fn lines_of(mut rows: Vec<(LineId, HostCause, u64)>) -> Vec<(LineId, HostCause, u64)> {
    rows.sort_by_key(|&(line, cause, _)| (line, cause));
    let mut lines: Vec<(LineId, HostCause, u64)> = Vec::new();
    let by_line = rows.chunk_by(|a, b| a.0 == b.0);
    for same in by_line {
        let by_cause =
            same.chunk_by(|a, b| a.1 == b.1).map(|rows| (rows.iter().map(|row| row.2).sum::<u64>(), rows[0].1));
        let most = by_cause.max_by_key(|&(nanos, cause)| (nanos, std::cmp::Reverse(cause)));
        let total = same.iter().map(|row| row.2).sum();
        lines.extend(most.map(|(_, cause)| (same[0].0, cause, total)));
    }
    lines
}

/// A line and what it called, with its time and the part of that in the function that is named.
struct Called<'a> {
    line: &'a HostLine,
    cause: HostCause,
    total_ns: u64,
    within_ns: u64,
}

/// Native functions of one library that one line called become one row. `lines` come with the largest first, and so
/// does the answer.
fn by_library<'a>(lines: &[(&'a HostLine, HostCause, u64)], dictionary: &Dictionary) -> Vec<Called<'a>> {
    let is_native = |file: NameId| is_native(dictionary.name(file));
    let mut rows: Vec<Called<'a>> = Vec::new();
    let mut by_key = FxHashMap::default();
    for &(line, cause, total_ns) in lines {
        let called = line.within.map(|(function, file)| (Some(function).filter(|_| !is_native(file)), file));
        let row = *by_key.entry((line.function, line.file, line.line, called)).or_insert(rows.len());
        match rows.get_mut(row) {
            Some(row) => row.total_ns += total_ns,
            None => rows.push(Called { line, cause, total_ns, within_ns: total_ns }),
        }
    }
    rows.sort_by_key(|row| (std::cmp::Reverse(row.total_ns), row.line));
    rows
}

/// A library's file from its package on, another one's name.
pub(super) fn short_path(path: &str) -> &str {
    // With a native function that has no name stands the build id of its file.
    let path = path.split(" build-id:").next().unwrap_or(path);
    let package = ["/site-packages/", "/dist-packages/"].into_iter().find_map(|at| path.rsplit_once(at));
    match package {
        Some((_, within)) => within,
        None => path.rsplit_once('/').map_or(path, |(_, name)| name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_functions_of_one_library_are_one_row_with_the_largest_named() {
        let mut dictionary = Dictionary::new();
        let mut name = |text: &str| dictionary.intern_name(text);
        let (step, train, torch, add, mul) =
            (name("step"), name("/u/train.py"), name("libtorch_cpu.so"), name("at::add"), name("at::mul"));
        let (optim, adam) = (name("/lib/site-packages/torch/optim/adamw.py"), name("AdamW.step"));
        let line = |within| HostLine { function: step, file: train, line: 7, within };
        let lines = [line(Some((add, torch))), line(None), line(Some((mul, torch))), line(Some((adam, optim)))];
        let lines: Vec<_> = lines.iter().zip([40, 35, 10, 5]).map(|(line, ns)| (line, HostCause::Code, ns)).collect();
        let rows = by_library(&lines, &dictionary);
        let times: Vec<_> = rows.iter().map(|row| (row.total_ns, row.within_ns)).collect();
        assert_eq!(times, [(50, 40), (35, 35), (5, 5)]);
        assert_eq!(rows[0].line.within, Some((add, torch)));
        let row = LineRow {
            cause: HostCause::Code,
            file: "/u/train.py".to_owned(),
            line: 7,
            function: "step".to_owned(),
            within: Some(("at::add".to_owned(), "libtorch_cpu.so".to_owned())),
            total_ns: 50,
            within_ns: 40,
            share: 0.1,
            step_ns: None,
        };
        assert_eq!(row.place(), "train.py:7 (step), in libtorch_cpu.so (80 % at::add)");
        let native = LineRow { within: None, line: 0, file: "libcudnn.so.9".to_owned(), ..row };
        assert_eq!(native.place(), "libcudnn.so.9 (step)");
    }

    #[test]
    fn paths_are_named_so_that_they_can_be_found() {
        assert_eq!(short_path("/home/u/project/train.py"), "train.py");
        assert_eq!(short_path("/lib/python3.12/site-packages/torch/optim/adamw.py"), "torch/optim/adamw.py");
        assert_eq!(short_path("<string>"), "<string>");
        assert_eq!(short_path("libfoo.so.1 build-id:00ff"), "libfoo.so.1");
    }
}
