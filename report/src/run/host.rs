//! Activity of the launching threads while devices were idle, from host samples.
//!
//! Idle time is counted in steady device time, by the gap rule. Samples taken while the device was busy do
//! not count here, because that time costs nothing. The sample totals cover the threads regardless of device
//! activity.
//!
//! A sample represents the gap that it falls into. Gaps are often shorter than the sampling interval, so most
//! of them have no sample. Their causes are estimated ([`estimate`]).

use std::fmt::Write;

use gpuwhy_trace::dictionary::Dictionary;
use gpuwhy_trace::record::NameId;
use profiler_core::attribution::host_cause::HostCause;
use profiler_core::attribution::leaf::{Cause, Leaf};
use profiler_core::attribution::{Attributor, DeviceAccount, HostLine, LineId, Subject, is_native};
use rustc_hash::FxHashMap;

use super::{CauseRow, DeviceReport, HostReport, LineRow};
use crate::text_format::{Page, counted, duration, shortened, wrapped};
use crate::words;

/// Maximum number of source lines listed.
const LINES: usize = 32;
/// Source lines shown in the long report.
const LINES_SHOWN: usize = 3;

impl LineRow {
    /// Display text: `train.py:42 (main), in torch/optim/adamw.py (step)`.
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
    /// Builds the report from the current state; `None` when no sample was taken, none failed, and no range
    /// named a data loader.
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
        let cause_ns = |cause: Cause| {
            let of_cause = late.into_iter().filter(|leaf| leaf.cause() == cause);
            of_cause.flat_map(|leaf| devices.iter().map(move |device| device.steady_leaves[leaf as usize])).sum()
        };
        let seen = estimate(seen, totals.covered_ns / totals.samples.max(1), cause_ns);
        let mut causes: Vec<CauseRow> =
            HostCause::ALL.into_iter().map(|cause| CauseRow { cause, total_ns: 0 }).collect();
        for row in &seen {
            causes[row.cause as usize].total_ns += row.time.total_ns;
        }
        let sampled_ns = seen.iter().map(|row| row.time.sampled_ns).sum();
        causes.retain(|row| row.total_ns > 0);
        causes.sort_by_key(|row| (std::cmp::Reverse(row.total_ns), row.cause));
        let longest = devices.iter().max_by_key(|device| device.window_ns);
        let reported = longest.filter(|device| device.step_meaning.recognized_by.is_some());
        let step = reported.and_then(|device| device.steps.as_ref()).map(|steps| steps.duration_percentile(50));
        let row = |Called { line, cause, time, within_ns }: Called<'_>| {
            let share = time.total_ns as f64 / steady.max(1) as f64;
            let name = |id: NameId| dictionary.name(id).to_owned();
            LineRow {
                cause,
                file: name(line.file),
                line: line.line,
                function: name(line.function),
                within: line.within.map(|(function, file)| (name(function), name(file))),
                samples: time.samples,
                sampled_ns: time.sampled_ns,
                total_ns: time.total_ns,
                within_ns,
                share,
                step_ns: step.map(|nanos| (share * nanos as f64) as u64),
            }
        };
        // Line ids depend on the order of the samples; sorting by name does not.
        let mut lines: Vec<_> = lines_of(seen)
            .into_iter()
            .filter_map(|row| Some((attributor.host_line(row.line)?, row.cause, row.time)))
            .collect();
        lines.sort_by_key(|&(line, _, time)| (std::cmp::Reverse(time.total_ns), line));
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

    pub(super) fn lines_of(&self, cause: Cause) -> impl Iterator<Item = &LineRow> {
        self.lines.iter().filter(move |row| row.cause.leaf().cause() == cause)
    }

    /// Idle time due to any of `causes`, nanoseconds; an estimate like [`CauseRow::total_ns`].
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

/// Sampled and estimated time of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Time {
    /// Gaps with a sample at this line.
    samples: u64,
    /// Idle time that these samples represent, nanoseconds.
    sampled_ns: u64,
    /// The same plus its share of the gaps without a sample, nanoseconds.
    total_ns: u64,
}

/// Idle time with one cause at one line.
#[derive(Clone, Copy, Debug)]
struct SampledLine {
    cause: HostCause,
    line: LineId,
    time: Time,
}

impl Time {
    fn add(&mut self, other: Self) {
        self.samples += other.samples;
        self.sampled_ns += other.sampled_ns;
        self.total_ns += other.total_ns;
    }
}

/// Returns the sampled steady idle time of all devices in `leaves`, by cause and line.
fn seen(attributor: &Attributor, leaves: &[Leaf]) -> Vec<SampledLine> {
    let causes = |account: &DeviceAccount| -> Vec<_> { leaves.iter().flat_map(|&leaf| account.causes(leaf)).collect() };
    let all = attributor.devices().flat_map(causes);
    all.filter_map(|(subject, totals)| match subject {
        Subject::Host(cause, line) => {
            let time = Time { samples: totals.count, sampled_ns: totals.total_ns, total_ns: totals.total_ns };
            Some(SampledLine { cause, line, time })
        }
        _ => None,
    })
    .collect()
}

/// Minimum number of sampled gaps for an estimate of the gaps without a sample.
const ENOUGH_SAMPLES: u64 = 10;

/// Distributes the idle time without a sample over the sampled causes. `spacing` is the mean interval between
/// two samples of a thread, `cause_ns` the total idle time of a cause, both in nanoseconds.
///
/// Sample times are independent of the program, so each sample represents `spacing` of the thread's time. A
/// sample in a shorter gap also represents other gaps of the same kind: a gap of length `l` has a sample with
/// the probability `l / spacing`, so its weight is the inverse (Horvitz and Thompson, A Generalization of
/// Sampling Without Replacement From a Finite Universe, 1952). The weights are scaled so that the parts sum
/// to the cause's total.
fn estimate(mut seen: Vec<SampledLine>, spacing: u64, cause_ns: impl Fn(Cause) -> u64) -> Vec<SampledLine> {
    for cause in [Cause::HostCpu, Cause::DataLoading] {
        let mut rows: Vec<&mut SampledLine> = seen.iter_mut().filter(|row| row.cause.leaf().cause() == cause).collect();
        let sum = |of: &dyn Fn(&Time) -> u64| rows.iter().map(|row| of(&row.time)).sum::<u64>();
        let unseen = cause_ns(cause).saturating_sub(sum(&|time| time.sampled_ns));
        let weight = |time: &Time| time.samples.saturating_mul(spacing).saturating_sub(time.sampled_ns);
        let weights = sum(&weight);
        if sum(&|time| time.samples) < ENOUGH_SAMPLES || weights == 0 {
            continue;
        }
        for row in &mut rows {
            let part = weight(&row.time) as f64 / weights as f64;
            row.time.total_ns = row.time.sampled_ns + (unseen as f64 * part) as u64;
        }
    }
    seen
}

/// Sums by line, each with its largest cause.
fn lines_of(mut rows: Vec<SampledLine>) -> Vec<SampledLine> {
    rows.sort_by_key(|row| (row.line, row.cause));
    let mut lines: Vec<SampledLine> = Vec::new();
    for same in rows.chunk_by(|a, b| a.line == b.line) {
        let sum = |rows: &[SampledLine]| {
            let mut time = Time::default();
            rows.iter().for_each(|row| time.add(row.time));
            time
        };
        let by_cause = same.chunk_by(|a, b| a.cause == b.cause).map(|rows| (sum(rows).total_ns, rows[0].cause));
        let most = by_cause.max_by_key(|&(nanos, cause)| (nanos, std::cmp::Reverse(cause)));
        lines.extend(most.map(|(_, cause)| SampledLine { cause, line: same[0].line, time: sum(same) }));
    }
    lines
}

/// A line and its callee, with the line's time and the part spent in the named function.
struct Called<'a> {
    line: &'a HostLine,
    cause: HostCause,
    time: Time,
    within_ns: u64,
}

/// Merges the native functions of one library that one line called into one row. Both `lines` and the result
/// are sorted by time, the largest first.
fn by_library<'a>(lines: &[(&'a HostLine, HostCause, Time)], dictionary: &Dictionary) -> Vec<Called<'a>> {
    let is_native = |file: NameId| is_native(dictionary.name(file));
    let mut rows: Vec<Called<'a>> = Vec::new();
    let mut by_key = FxHashMap::default();
    for &(line, cause, time) in lines {
        let called = line.within.map(|(function, file)| (Some(function).filter(|_| !is_native(file)), file));
        let row = *by_key.entry((line.function, line.file, line.line, called)).or_insert(rows.len());
        match rows.get_mut(row) {
            Some(row) => row.time.add(time),
            None => rows.push(Called { line, cause, time, within_ns: time.total_ns }),
        }
    }
    rows.sort_by_key(|row| (std::cmp::Reverse(row.time.total_ns), row.line));
    rows
}

/// Returns the path of a library's file from its package directory on, or only the file name of any other
/// file.
pub(super) fn short_path(path: &str) -> &str {
    // A native function without a name carries the build id of its file.
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
        let time = |total_ns| Time { samples: 1, sampled_ns: total_ns, total_ns };
        let lines = [line(Some((add, torch))), line(None), line(Some((mul, torch))), line(Some((adam, optim)))];
        let lines: Vec<_> =
            lines.iter().zip([40, 35, 10, 5]).map(|(line, ns)| (line, HostCause::Code, time(ns))).collect();
        let rows = by_library(&lines, &dictionary);
        let times: Vec<_> = rows.iter().map(|row| (row.time.total_ns, row.within_ns)).collect();
        assert_eq!(times, [(50, 40), (35, 35), (5, 5)]);
        assert_eq!(rows[0].line.within, Some((add, torch)));
        let row = LineRow {
            cause: HostCause::Code,
            file: "/u/train.py".to_owned(),
            line: 7,
            function: "step".to_owned(),
            within: Some(("at::add".to_owned(), "libtorch_cpu.so".to_owned())),
            samples: 3,
            sampled_ns: 50,
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
    fn samples_stand_for_the_gaps_without_one() {
        let row = |cause, samples, sampled_ns| SampledLine {
            cause,
            line: LineId::NONE,
            time: Time { samples, sampled_ns, total_ns: sampled_ns },
        };
        // 10 gaps of 100 us, each fully covered by a sample, and 30 samples in gaps of 1 us; one sample every
        // 50 us.
        let seen = vec![
            row(HostCause::Sleep, 10, 1_000_000),
            row(HostCause::Code, 20, 20_000),
            row(HostCause::Code, 10, 10_000),
            row(HostCause::LoaderInline, 9, 900),
        ];
        let cause_ns = |cause| if cause == Cause::HostCpu { 2_530_000 } else { 5_000 };
        let rows = estimate(seen.clone(), 50_000, cause_ns);
        let totals: Vec<u64> = rows.iter().map(|row| row.time.total_ns).collect();
        assert_eq!(totals, [1_000_000, 1_020_000, 510_000, 900], "too few samples of the loader to say more");
        let few = estimate(seen[1..2].to_vec(), 50_000, |_| 1_000);
        assert_eq!(few[0].time.total_ns, 20_000, "nothing is without a sample");
        assert!(estimate(Vec::new(), 0, cause_ns).is_empty());
    }

    #[test]
    fn paths_are_named_so_that_they_can_be_found() {
        assert_eq!(short_path("/home/u/project/train.py"), "train.py");
        assert_eq!(short_path("/lib/python3.12/site-packages/torch/optim/adamw.py"), "torch/optim/adamw.py");
        assert_eq!(short_path("<string>"), "<string>");
        assert_eq!(short_path("libfoo.so.1 build-id:00ff"), "libfoo.so.1");
    }
}
