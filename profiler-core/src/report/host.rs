//! What the launching threads were doing while devices were idle, as far as looks at them tell.
//!
//! Idle time is that of steady device time, by the gap rule: what a sample says of a thread while the device was busy
//! costs nothing and is not here. The sums over samples are about the threads, whatever the device did.

use std::fmt::Write;

use super::{CauseRow, DeviceReport, HostReport, LineRow};
use crate::attribution::host_cause::HostCause;
use crate::attribution::leaf::{Group, Leaf};
use crate::attribution::{Attributor, DeviceAccount, HostLine, LineId, Subject};
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
        let mut place = format!("{}:{} ({})", short_path(&self.file), self.line, shortened(&self.function, 40));
        if let Some((function, file)) = &self.within {
            let _ = write!(place, ", in {} ({})", short_path(file), shortened(function, 40));
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
        let step = longest.and_then(|device| device.steps.as_ref()).map(|steps| steps.duration_percentile(50));
        let row = |(line, cause, total_ns): (&HostLine, HostCause, u64)| {
            let share = total_ns as f64 / steady.max(1) as f64;
            let name = |id: NameId| dictionary.name(id).to_owned();
            LineRow {
                cause,
                file: name(line.file),
                line: line.line,
                function: name(line.function),
                within: line.within.map(|(function, file)| (name(function), name(file))),
                total_ns,
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

/// A library's file from its package on, another one's name.
pub(super) fn short_path(path: &str) -> &str {
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
    fn paths_are_named_so_that_they_can_be_found() {
        assert_eq!(short_path("/home/u/project/train.py"), "train.py");
        assert_eq!(short_path("/lib/python3.12/site-packages/torch/optim/adamw.py"), "torch/optim/adamw.py");
        assert_eq!(short_path("<string>"), "<string>");
    }
}
