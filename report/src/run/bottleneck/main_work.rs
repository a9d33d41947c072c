//! The largest part of the CPU work between launches: what it is, what to do, and what that gains.

use gpuwhy_trace::record::CopyKind;
use profiler_core::attribution::CallKind;
use profiler_core::attribution::host_cause::HostCause;
use profiler_core::leaf::{Cause, Leaf, WorkKind};
use profiler_core::whatif::{Removed, ScenarioKind, WORTH_DOING, limited};

use super::host::writes_checkpoints;
use crate::run::{CallLineRow, DeviceReport, HostReport, LineRow};
use crate::text_format::names::short_path;

/// Lines of one function that are at most this far apart are one part.
const NEAR_LINES: u32 = 2;
/// Parts of the step without the line that remain, relative to what its share of the idle time leaves: the
/// median and the least of nine programs whose line was removed (1.0 at most). A CPU that is further ahead
/// also hides other delays.
const REMAINS: (f64, f64) = (0.82, 0.58);
/// Share from which that is so, the least of these programs; of less, in proportion.
const MEASURED_SHARE: f64 = 1.0 / 3.0;

/// The largest part of the CPU work between launches.
pub(super) struct MainWork {
    /// Recommended change, in words that follow a number.
    pub(super) action: String,
    /// What the thread does there most.
    pub(super) cause: HostCause,
    /// False for the work of a framework.
    pub(super) is_own: bool,
    /// Share of the steady time in which the GPU was idle because of it, or made its copies, 0 to 1, with its 95 %
    /// interval.
    share: (f64, f64, f64),
    /// Speedup of a step with nothing but the work of the GPU that stays.
    most: f64,
    /// What goes with it.
    removed: Removed,
}

/// True if the program itself does more of the CPU work between launches than its largest part, at named lines.
pub(super) fn has_more(host: &HostReport) -> bool {
    let own = |row: &&LineRow| row.is_evident() && !row.file.is_empty() && !row.is_backward() && !row.is_of_framework();
    let mut rows = host.lines_of(Cause::HostCpu);
    let first = rows.next();
    rows.filter(own).any(|row| first.is_none_or(|first| row.cause != first.cause || !is_near(row, first)))
}

/// Speedup of a program without work that takes this share of the steady time, 0 to 1.
pub(super) fn gain_without(share: f64) -> f64 {
    speedup(share, REMAINS.0)
}

fn speedup(share: f64, remains: f64) -> f64 {
    let remains = 1.0 - (1.0 - remains) * (share / MEASURED_SHARE).min(1.0);
    1.0 / (remains * (1.0 - share.min(0.99)))
}

impl MainWork {
    /// `None` if no part is half of that work, or if it is not one that a program can do without.
    pub(super) fn of(host: &HostReport, devices: &[DeviceReport]) -> Option<Self> {
        let rows = || host.lines_of(Cause::HostCpu);
        let first = rows().next().filter(|row| row.is_evident() && !row.is_backward())?;
        let anywhere =
            matches!(first.cause, HostCause::Preempted | HostCause::InterpreterLock | HostCause::GarbageCollection);
        let of_part = |row: &&LineRow| match anywhere {
            true => row.cause == first.cause,
            false => is_near(row, first),
        };
        let sum = |rows: &mut dyn Iterator<Item = &LineRow>| rows.map(|row| row.total_ns).sum::<u64>();
        if 2 * sum(&mut rows().filter(of_part)) < sum(&mut rows()) {
            return None;
        }
        let part = || rows().filter(of_part);
        let share: f64 = part().map(|row| row.share).sum();
        // The rows come from different samples.
        let off = |end: fn(&LineRow) -> f64| part().map(|row| (end(row) - row.share).powi(2)).sum::<f64>().sqrt();
        let (below, above) = (off(|row| row.share_low), off(|row| row.share_high));
        let mut share = (share, (share - below).max(0.0), share + above);
        let mut removed = Removed::of(ScenarioKind::NoHostWork);
        if writes_checkpoints(host) {
            // So are its copies to the CPU, and the waits for them.
            let to_cpu = of_steady(devices, |leaf| leaf.copy_kind() == Some(CopyKind::DeviceToHost));
            let copies = of_steady(devices, |leaf| leaf.work() == Some(WorkKind::Copy));
            let waits = of_steady(devices, |leaf| leaf == Leaf::SyncDrain);
            let (copying, waiting) = (calls_near(host, CallKind::Copy, first), calls_near(host, CallKind::Wait, first));
            // The samples are in copies of both directions.
            let copied = |part: f64| (part * copies).min(to_cpu);
            share.0 += copied(copying.0) + waiting.0 * waits;
            share.1 += copied(copying.1);
            share.2 += to_cpu + waits;
            removed = removed.and(ScenarioKind::ReadsReduced);
        }
        share.2 = share.2.min(0.99);
        let busy = devices.iter().filter_map(|device| Some(device.what_if.as_ref()?.busy));
        let most = busy.map(|busy| busy.most(removed)).fold(f64::INFINITY, f64::min);
        let is_own = !first.is_of_framework();
        Some(Self {
            action: action(first, part().map(|row| row.line)),
            cause: first.cause,
            is_own,
            share,
            most,
            removed,
        })
    }

    /// True if removing only this is worth a step, and so is removing the rest, with which the program is
    /// `whole` times as fast.
    pub(super) fn is_worth(&self, whole: f64) -> bool {
        let (part, _) = self.gain();
        part >= WORTH_DOING && whole >= part * WORTH_DOING
    }

    /// Speedup of the program without it, with the interval that contains nine of ten programs.
    pub(super) fn gain(&self) -> (f64, (f64, f64)) {
        let (share, low, high) = self.share;
        let interval = (speedup(low, 1.0), speedup(high, REMAINS.1));
        let interval = match self.removed.has(ScenarioKind::ReadsReduced) {
            true => limited(interval, self.most, self.removed),
            false => (interval.0.min(self.most), interval.1.min(self.most)),
        };
        (gain_without(share).min(self.most), interval)
    }
}

/// Share of the steady time of all devices in these leaves, 0 to 1.
fn of_steady(devices: &[DeviceReport], is_one: fn(Leaf) -> bool) -> f64 {
    let (mut of_these, mut all) = (0, 0_u64);
    for (leaf, nanos) in devices.iter().flat_map(|device| Leaf::ALL.into_iter().zip(device.steady_leaves)) {
        all += nanos;
        of_these += if is_one(leaf) { nanos } else { 0 };
    }
    of_these as f64 / all.max(1) as f64
}

/// Part of the samples in calls of this kind that are near this line, 0 to 1, and its low end; 0 without samples.
fn calls_near(host: &HostReport, kind: CallKind, first: &LineRow) -> (f64, f64) {
    let is_near = |row: &&CallLineRow| row.calls == kind && is_near_line((&row.file, &row.function, row.line), first);
    let rows = host.calls.iter().filter(is_near);
    rows.fold((0.0, 0.0), |(share, low), row| (share + row.share, low + row.share_low))
}

fn is_near(row: &LineRow, first: &LineRow) -> bool {
    is_near_line((&row.file, &row.function, row.line), first)
}

fn is_near_line((file, function, line): (&str, &str, u32), first: &LineRow) -> bool {
    (file, function) == (&first.file, &first.function) && line.abs_diff(first.line) <= NEAR_LINES
}

fn action(first: &LineRow, lines: impl Iterator<Item = u32>) -> String {
    let (from, to) = lines.fold((u32::MAX, 0), |(from, to), line| (from.min(line), to.max(line)));
    let file = short_path(&first.file);
    let place = match (first.file.is_empty(), from) {
        (true, _) => first.at_place(),
        (false, 0) => format!("in {file}"),
        (false, _) if from < to => format!("at {file}:{from}-{to}"),
        (false, _) => format!("at {file}:{from}"),
    };
    match first.cause {
        HostCause::Sleep => format!("remove the sleep {place}"),
        HostCause::InterpreterLock => "free the interpreter's lock (GIL) for the launching thread".to_owned(),
        HostCause::Preempted => "give the launching thread a free core".to_owned(),
        HostCause::GarbageCollection => "keep garbage collection out of the loop".to_owned(),
        HostCause::Io | HostCause::Disk => format!("move the input or output {place} to another thread"),
        HostCause::Code => format!("move the code {place} out of the loop"),
        _ => format!("do not wait {place}"),
    }
}
